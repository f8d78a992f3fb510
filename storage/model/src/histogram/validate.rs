//! Validation of histograms.

use super::spans::INDEX_MAX;
use super::{CUSTOM_BUCKETS_SCHEMA, EXPONENTIAL_SCHEMA_MAX, EXPONENTIAL_SCHEMA_MIN};
use super::{Histogram, HistogramError, Side, Span};
use crate::number_text::general;

impl Histogram {
    /// Checks the invariants of [`Histogram`].
    ///
    /// Counts need not add up, because sums of floats do not, and may be NaN or infinite.
    ///
    /// Source: `Validate` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn validate(&self) -> Result<(), HistogramError> {
        self.validate_layout()?;
        let custom = self.has_custom_buckets();
        if !custom {
            check_counts(&self.negative_counts, Side::Negative, general)?;
            if self.zero_count < 0.0 {
                return Err(HistogramError::NegativeZeroCount { count: self.zero_count });
            }
            self.check_exponential_bounds()?;
        }
        if self.count < 0.0 {
            return Err(HistogramError::NegativeCount { count: self.count });
        }
        check_counts(&self.positive_counts, Side::Positive, general)
    }

    /// Checks schema, spans and custom bounds against the number of counts.
    pub(super) fn validate_layout(&self) -> Result<(), HistogramError> {
        match self.schema {
            CUSTOM_BUCKETS_SCHEMA => self.check_custom_buckets(),
            EXPONENTIAL_SCHEMA_MIN..=EXPONENTIAL_SCHEMA_MAX => {
                check_spans(&self.positive_spans, self.positive_counts.len(), Side::Positive)?;
                check_spans(&self.negative_spans, self.negative_counts.len(), Side::Negative)
            }
            schema => Err(HistogramError::InvalidSchema { schema: schema.into() }),
        }
    }

    /// Checks that there are no custom bounds with exponential buckets.
    pub(super) fn check_exponential_bounds(&self) -> Result<(), HistogramError> {
        match self.custom_bounds.is_empty() {
            true => Ok(()),
            false => Err(HistogramError::ExponentialCustomBounds),
        }
    }

    /// Source: `checkHistogramCustomBounds` in `model/histogram/generic.go` of Prometheus.
    fn check_custom_buckets(&self) -> Result<(), HistogramError> {
        check_bounds(&self.custom_bounds)?;
        let side = Side::Custom;
        let (mut needed, mut length) = (0_u64, 0_i64);
        for (number, &Span { offset, length: buckets }) in (1..).zip(&self.positive_spans) {
            if offset < 0 {
                return Err(HistogramError::NegativeOffset { side, number, offset });
            }
            needed += u64::from(buckets);
            length += i64::from(buckets) + i64::from(offset);
        }
        let found = self.positive_counts.len();
        if needed != found as u64 {
            return Err(HistogramError::BucketsMismatch { side, needed, found });
        }
        let bounds = self.custom_bounds.len();
        if length > bounds as i64 + 1 {
            return Err(HistogramError::CustomBoundsTooFew { bounds, length });
        }
        if self.zero_count != 0.0 {
            return Err(HistogramError::CustomZeroCount);
        }
        if self.zero_threshold != 0.0 {
            return Err(HistogramError::CustomZeroThreshold);
        }
        if !self.negative_spans.is_empty() {
            return Err(HistogramError::CustomNegativeSpans);
        }
        if !self.negative_counts.is_empty() {
            return Err(HistogramError::CustomNegativeBuckets);
        }
        Ok(())
    }
}

fn check_bounds(bounds: &[f64]) -> Result<(), HistogramError> {
    let mut previous = f64::NEG_INFINITY;
    for (position, &current) in bounds.iter().enumerate() {
        if current.is_nan() {
            return Err(HistogramError::CustomBoundNaN);
        }
        if position > 0 && current <= previous {
            return Err(HistogramError::CustomBoundsUnordered { previous, current });
        }
        previous = current;
    }
    if previous == f64::INFINITY {
        return Err(HistogramError::CustomBoundInfinite);
    }
    Ok(())
}

/// Source: `checkHistogramSpans` in `model/histogram/generic.go` of Prometheus, but for the range.
fn check_spans(spans: &[Span], found: usize, side: Side) -> Result<(), HistogramError> {
    let mut needed = 0_u64;
    for (number, &Span { offset, length }) in (1..).zip(spans) {
        if number > 1 && offset < 0 {
            return Err(HistogramError::NegativeOffset { side, number, offset });
        }
        needed += u64::from(length);
    }
    if needed != found as u64 {
        return Err(HistogramError::BucketsMismatch { side, needed, found });
    }
    let mut index = 0;
    for span in spans {
        for step in [i64::from(span.offset), i64::from(span.length)] {
            index += step;
            if index.abs() > INDEX_MAX {
                return Err(HistogramError::IndexOutOfRange { side, index });
            }
        }
    }
    Ok(())
}

/// Source: `checkHistogramBuckets` in `model/histogram/generic.go` of Prometheus.
pub(super) fn check_counts<T: Copy + PartialOrd + Default>(
    counts: &[T],
    side: Side,
    text: impl Fn(T) -> String,
) -> Result<(), HistogramError> {
    match counts.iter().position(|count| *count < T::default()) {
        None => Ok(()),
        Some(at) => {
            let (number, count) = (at + 1, text(counts[at]));
            Err(HistogramError::NegativeBucketCount { side, number, count })
        }
    }
}
