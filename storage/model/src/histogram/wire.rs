//! Histograms of write requests: with integer counts as deltas, or with floats.

use std::sync::Arc;

use super::accumulator::schema_shift;
use super::arithmetic::coarser;
use super::validate::check_counts;
use super::{CUSTOM_BUCKETS_SCHEMA, EXPONENTIAL_SCHEMA_MAX, RESERVED_SCHEMA_MAX};
use super::{Histogram, HistogramError, ResetHint, Side, Span};

/// Histogram of a write request, not validated.
#[derive(Debug, Clone)]
pub struct WireHistogram {
    /// Hint of the sender.
    pub reset_hint: ResetHint,
    /// Any number; 9 to 52 are reduced to 8.
    pub schema: i32,
    /// Width of the zero bucket.
    pub zero_threshold: f64,
    /// Sum of observations.
    pub sum: f64,
    /// Spans above zero.
    pub positive_spans: Vec<Span>,
    /// Spans below zero.
    pub negative_spans: Vec<Span>,
    /// Bounds of custom buckets, without +Inf.
    pub custom_bounds: Arc<[f64]>,
    /// Integer or float counts.
    pub counts: WireCounts,
}

/// Counts of a histogram of a write request.
#[derive(Debug, Clone)]
pub enum WireCounts {
    /// Integers; those of buckets as differences to the previous bucket.
    Integer {
        /// Observations.
        count: u64,
        /// Observations in the zero bucket.
        zero_count: u64,
        /// Differences above zero.
        positive_deltas: Vec<i64>,
        /// Differences below zero.
        negative_deltas: Vec<i64>,
    },
    /// Floats, absolute.
    Float {
        /// Observations.
        count: f64,
        /// Observations in the zero bucket.
        zero_count: f64,
        /// Observations in each bucket above zero.
        positive_counts: Vec<f64>,
        /// Observations in each bucket below zero.
        negative_counts: Vec<f64>,
    },
}

impl WireHistogram {
    /// Returns a valid histogram in a supported schema.
    ///
    /// Memory: at most that of the parts, whatever the spans claim.
    /// Errors: the histogram is invalid. Integer counts of buckets have to add up to the count; to at
    /// most the count if the sum is NaN, as after an observation of NaN.
    ///
    /// Source: `Validate` in `model/histogram/histogram.go` and `float_histogram.go` of
    /// Prometheus, after `remoteWriteAppender` in `storage/remote/write_handler.go`.
    pub fn into_histogram(self) -> Result<Histogram, HistogramError> {
        let schema = self.schema;
        let Ok(schema @ (CUSTOM_BUCKETS_SCHEMA | -9..=RESERVED_SCHEMA_MAX)) = i8::try_from(schema)
        else {
            return Err(HistogramError::InvalidSchema { schema });
        };
        let WireHistogram { reset_hint, zero_threshold, sum, custom_bounds, .. } = self;
        let histogram = Histogram {
            reset_hint,
            schema,
            zero_threshold,
            sum,
            custom_bounds,
            positive_spans: self.positive_spans,
            negative_spans: self.negative_spans,
            ..Histogram::default()
        };
        match self.counts {
            WireCounts::Float { count, zero_count, positive_counts, negative_counts } => {
                let histogram =
                    Histogram { count, zero_count, positive_counts, negative_counts, ..histogram };
                from_floats(histogram)
            }
            WireCounts::Integer { count, zero_count, positive_deltas, negative_deltas } => {
                let positive = absolute(positive_deltas);
                let negative = absolute(negative_deltas);
                from_integers(histogram, [count, zero_count], positive, negative)
            }
        }
    }
}

fn from_floats(mut histogram: Histogram) -> Result<Histogram, HistogramError> {
    if histogram.schema > EXPONENTIAL_SCHEMA_MAX {
        histogram.reduce_resolution(EXPONENTIAL_SCHEMA_MAX)?;
    }
    histogram.validate()?;
    Ok(histogram)
}

/// Sets integer counts. Sums wrap as in Prometheus, which refuses negative results.
fn from_integers(
    mut histogram: Histogram,
    [count, zero_count]: [u64; 2],
    mut positive: Vec<i64>,
    mut negative: Vec<i64>,
) -> Result<Histogram, HistogramError> {
    if histogram.schema > EXPONENTIAL_SCHEMA_MAX {
        let shift = schema_shift(histogram.schema, EXPONENTIAL_SCHEMA_MAX);
        let add = i64::wrapping_add;
        (histogram.positive_spans, positive) =
            coarser(&histogram.positive_spans, &positive, shift, add)?;
        (histogram.negative_spans, negative) =
            coarser(&histogram.negative_spans, &negative, shift, add)?;
        histogram.schema = EXPONENTIAL_SCHEMA_MAX;
    }
    histogram.count = count as f64;
    histogram.zero_count = zero_count as f64;
    histogram.positive_counts = floats(&positive);
    histogram.negative_counts = floats(&negative);
    histogram.validate_layout()?;
    let text = |count: i64| count.to_string();
    if !histogram.has_custom_buckets() {
        check_counts(&negative, Side::Negative, text)?;
        histogram.check_exponential_bounds()?;
    }
    check_counts(&positive, Side::Positive, text)?;
    let counts = positive.iter().chain(&negative).map(|count| *count as u64);
    let found = counts.fold(zero_count, u64::wrapping_add);
    if histogram.sum.is_nan() {
        if found > count {
            return Err(HistogramError::CountTooSmall { found, count });
        }
    } else if found != count {
        return Err(HistogramError::CountMismatch { found, count });
    }
    Ok(histogram)
}

/// Converts deltas to absolute counts, in place.
fn absolute(mut deltas: Vec<i64>) -> Vec<i64> {
    let mut count = 0_i64;
    for delta in &mut deltas {
        count = count.wrapping_add(*delta);
        *delta = count;
    }
    deltas
}

/// Converts counts to floats; beyond 2^53 sums of rounded deltas, as in `ToFloat` of Prometheus.
fn floats(counts: &[i64]) -> Vec<f64> {
    let mut previous = 0_i64;
    let mut sum = 0.0;
    let mut float = |&count: &i64| {
        sum += count.wrapping_sub(previous) as f64;
        previous = count;
        sum
    };
    counts.iter().map(&mut float).collect()
}
