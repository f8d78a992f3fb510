//! Operations that change a histogram in place.

use super::accumulator::{Accumulator, schema_shift};
use super::layer::Layer;
use super::spans::{coarser_layout, merged};
use super::{CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramError, ResetHint, Side, Span};

/// Conditions of an addition or subtraction that PromQL reports as annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Combined {
    /// One operand was marked as reset, the other as not reset; the result is marked as neither.
    pub reset_collision: bool,
    /// The operands had different custom bounds; the result has those that both had.
    pub bounds_reconciled: bool,
}

impl ResetHint {
    /// Changes to the hint of a sum with an operand of another hint. Returns whether the two
    /// contradict each other.
    ///
    /// Source: `adjustCounterReset` in `model/histogram/float_histogram.go` of Prometheus.
    pub(super) fn meet(&mut self, other: ResetHint) -> bool {
        use ResetHint::{Gauge, Unknown};
        let (hint, collision) = match (*self, other) {
            (own, other) if own == other => (own, false),
            (Gauge, _) | (_, Gauge) => (Gauge, false),
            (Unknown, _) | (_, Unknown) => (Unknown, false),
            _ => (Unknown, true),
        };
        *self = hint;
        collision
    }
}

impl Histogram {
    /// Adds a histogram.
    ///
    /// The result has the coarser of two schemas, a zero bucket that suits both, and the common
    /// custom bounds. It may have empty buckets and adjacent spans: [`Histogram::compact`] removes
    /// them.
    ///
    /// Errors: only one of the two has custom buckets; the histogram is not changed.
    ///
    /// Source: `Add` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn add(&mut self, other: &Histogram) -> Result<Combined, HistogramError> {
        self.accumulate(|accumulator| accumulator.combine(other, false))
    }

    /// Subtracts a histogram, otherwise like [`Histogram::add`].
    ///
    /// Unlike `-` in PromQL, it does not mark the result as a gauge.
    ///
    /// Source: `Sub` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn sub(&mut self, other: &Histogram) -> Result<Combined, HistogramError> {
        self.accumulate(|accumulator| accumulator.combine(other, true))
    }

    /// Multiplies all counts and the sum; a negative factor changes the histogram to a gauge.
    ///
    /// Source: `Mul` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn mul(&mut self, factor: f64) {
        self.map_counts(|count| count * factor);
        if factor < 0.0 {
            self.reset_hint = ResetHint::Gauge;
        }
    }

    /// Divides all counts and the sum; a negative divisor changes the histogram to a gauge. Division
    /// by zero keeps only the zero bucket.
    ///
    /// Source: `Div` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn div(&mut self, divisor: f64) {
        if divisor == 0.0 {
            self.positive_spans.clear();
            self.negative_spans.clear();
            self.positive_counts.clear();
            self.negative_counts.clear();
        }
        self.map_counts(|count| count / divisor);
        if divisor < 0.0 {
            self.reset_hint = ResetHint::Gauge;
        }
    }

    /// Removes empty buckets at the ends of spans, and runs of more than `empty_max` in the middle;
    /// then fills gaps of up to `empty_max` buckets.
    ///
    /// With 0 no empty bucket remains, and equal contents have equal spans. Otherwise the result
    /// exceeds the original by at most `empty_max` counts for each span.
    ///
    /// Source: `Compact` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn compact(&mut self, empty_max: usize) {
        self.accumulate(|accumulator| {
            accumulator.positive.compact(empty_max);
            accumulator.negative.compact(empty_max);
        });
    }

    /// Merges buckets into those of a coarser schema.
    ///
    /// Errors: custom buckets, a schema that is not coarser, spans that overlap or do not match the
    /// counts; the histogram is not changed.
    ///
    /// Source: `ReduceResolution` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn reduce_resolution(&mut self, schema: i8) -> Result<(), HistogramError> {
        if self.has_custom_buckets() {
            return Err(HistogramError::ReducesCustomBuckets);
        }
        if schema == CUSTOM_BUCKETS_SCHEMA {
            return Err(HistogramError::ReducesToCustomBuckets);
        }
        if schema >= self.schema {
            return Err(HistogramError::ReducesToFiner { from: self.schema, to: schema });
        }
        let shift = schema_shift(self.schema, schema);
        let positive = coarser(&self.positive_spans, &self.positive_counts, shift, sum)?;
        let negative = coarser(&self.negative_spans, &self.negative_counts, shift, sum)?;
        (self.positive_spans, self.positive_counts) = positive;
        (self.negative_spans, self.negative_counts) = negative;
        self.schema = schema;
        Ok(())
    }

    /// Returns whether a count, the sum or a custom bound is infinite.
    ///
    /// Source: `HasOverflow` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn has_overflow(&self) -> bool {
        let numbers = [self.zero_count, self.count, self.sum];
        let counts = self.positive_counts.iter().chain(&self.negative_counts);
        numbers.iter().chain(counts).chain(self.custom_bounds.iter()).any(|x| x.is_infinite())
    }

    fn map_counts(&mut self, map: impl Fn(f64) -> f64) {
        for number in [&mut self.zero_count, &mut self.count, &mut self.sum] {
            *number = map(*number);
        }
        for counts in [&mut self.positive_counts, &mut self.negative_counts] {
            counts.iter_mut().for_each(|count| *count = map(*count));
        }
    }

    /// Runs an operation on this histogram as an accumulator.
    fn accumulate<T>(&mut self, run: impl FnOnce(&mut Accumulator<f64>) -> T) -> T {
        let histogram = std::mem::take(self);
        let mut accumulator = Accumulator {
            reset_hint: histogram.reset_hint,
            schema: histogram.schema,
            zero_threshold: histogram.zero_threshold,
            zero: histogram.zero_count,
            count: histogram.count,
            sum: histogram.sum,
            positive: Layer { spans: histogram.positive_spans, cells: histogram.positive_counts },
            negative: Layer { spans: histogram.negative_spans, cells: histogram.negative_counts },
            custom_bounds: histogram.custom_bounds,
        };
        let result = run(&mut accumulator);
        *self = Histogram {
            reset_hint: accumulator.reset_hint,
            schema: accumulator.schema,
            zero_threshold: accumulator.zero_threshold,
            zero_count: accumulator.zero,
            count: accumulator.count,
            sum: accumulator.sum,
            positive_spans: accumulator.positive.spans,
            negative_spans: accumulator.negative.spans,
            positive_counts: accumulator.positive.cells,
            negative_counts: accumulator.negative.cells,
            custom_bounds: accumulator.custom_bounds,
        };
        result
    }
}

fn sum(left: f64, right: f64) -> f64 {
    left + right
}

/// Returns the buckets of a side in a schema that is coarser by `shift`.
///
/// Errors: spans that overlap or do not match the counts.
///
/// Source: `reduceResolution` in `model/histogram/generic.go` of Prometheus.
pub(super) fn coarser<T: Copy>(
    spans: &[Span],
    counts: &[T],
    shift: u32,
    sum: impl Fn(T, T) -> T,
) -> Result<(Vec<Span>, Vec<T>), HistogramError> {
    let mut needed = 0;
    for (number, span) in (1..).zip(spans) {
        if number > 1 && span.offset < 0 {
            let (side, offset) = (Side::Whole, span.offset);
            return Err(HistogramError::NegativeOffset { side, number, offset });
        }
        needed += u64::from(span.length);
        if needed > counts.len() as u64 {
            return Err(HistogramError::BucketsMissing { found: counts.len() });
        }
    }
    if needed < counts.len() as u64 {
        let (side, found) = (Side::Whole, counts.len());
        return Err(HistogramError::BucketsMismatch { side, needed, found });
    }
    let (spans, positions) = coarser_layout(spans, counts.len(), shift);
    let merged = merged(counts, &positions, sum);
    Ok((spans, merged))
}
