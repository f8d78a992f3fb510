//! Native histograms as sample values: one type for all kinds, with the arithmetic of Prometheus.
//!
//! A histogram counts observations in buckets. Exponential buckets divide each power of two into
//! `2^schema` parts; custom buckets have explicit bounds. Only populated buckets are kept: spans have
//! their indices, counts their observations.
//!
//! ```text
//! spans   (offset 2, length 3)   (offset 4, length 1)      the first offset is an index,
//! index   2    3    4            9                         later ones are gaps
//! counts  7.0  0.0  1.0          5.0
//! ```
//!
//! Not here: encodings and quantiles.

mod accumulator;
mod arithmetic;
mod bounds;
mod bucket;
mod cell;
mod error;
mod integer_counts;
mod layer;
mod log2;
mod reset;
mod sample;
mod spans;
mod sum;
#[cfg(test)]
mod tests;
mod text;
mod trim;
mod validate;
mod wire;
mod zero;

use std::sync::Arc;

pub use arithmetic::Combined;
pub use bounds::exponential_bound;
pub use bucket::Bucket;
pub use error::{HistogramError, Side};
pub use integer_counts::{IntegerCounts, bucket_deltas};
pub use log2::log2;
pub use reset::decide_hint;
pub use sample::HistogramSample;
pub use sum::{HistogramMean, HistogramSum};
pub use wire::{WireCounts, WireHistogram};

use crate::sample::{is_stale, stale_nan};

/// Schema of histograms with custom buckets.
///
/// Source: `CustomBucketsSchema` in `model/histogram/generic.go` of Prometheus.
pub const CUSTOM_BUCKETS_SCHEMA: i8 = -53;

/// Coarsest exponential schema: each bound is 2^16 times the one before.
pub const EXPONENTIAL_SCHEMA_MIN: i8 = -4;

/// Finest exponential schema: 256 buckets for each power of two.
pub const EXPONENTIAL_SCHEMA_MAX: i8 = 8;

/// Finest schema that is accepted; it is reduced on arrival.
///
/// Source: `ExponentialSchemaMaxReserved` in `model/histogram/generic.go` of Prometheus.
pub const RESERVED_SCHEMA_MAX: i8 = 52;

/// Maximum number of buckets of an accepted histogram, positive and negative ones together, and of
/// custom bounds, so that every sample fits in a chunk.
pub const HISTOGRAM_BUCKETS_MAX: usize = 1 << 14;

/// Hint whether the counter was reset between the previous sample and this one.
///
/// Source: `CounterResetHint` in `model/histogram/histogram.go` of Prometheus. The numbers are
/// those of the remote write protocols and fit in two bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum ResetHint {
    /// Unknown: the counts have to be compared.
    #[default]
    Unknown = 0,
    /// The counter was reset after the previous sample.
    Reset = 1,
    /// The counter was not reset after the previous sample.
    NotReset = 2,
    /// No counter: counts increase and decrease without resets.
    Gauge = 3,
}

impl ResetHint {
    /// Returns the hint with a number, `None` above 3.
    #[inline]
    pub fn from_number(number: u8) -> Option<ResetHint> {
        match number {
            0 => Some(ResetHint::Unknown),
            1 => Some(ResetHint::Reset),
            2 => Some(ResetHint::NotReset),
            3 => Some(ResetHint::Gauge),
            _ => None,
        }
    }

    /// Returns the number of the hint, 0 to 3.
    #[inline]
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// Run of adjacent buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// Index of the first bucket in the first span of a side; in later spans the number of buckets
    /// between the previous span and this one.
    pub offset: i32,
    /// Number of buckets.
    pub length: u32,
}

/// Native histogram; counts are absolute, so integers up to 2^53 are exact.
///
/// Invariants of a histogram that [`Histogram::validate`] accepts: the lengths of the spans of a
/// side add up to the number of its counts; no span but the first of an exponential histogram has
/// a negative offset; no count is negative; custom bounds ascend strictly, and with them there is
/// neither a zero bucket nor a negative side. Operations on other histograms do not panic, but their
/// results have no meaning.
///
/// `==` is [`Histogram::identical`], which compares every field bit by bit; PromQL compares with
/// [`Histogram::equals`].
///
/// Source: `FloatHistogram` in `model/histogram/float_histogram.go` of Prometheus.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// Counter or gauge, and whether the counter was reset.
    pub reset_hint: ResetHint,
    /// −4 to 8 for exponential buckets, [`CUSTOM_BUCKETS_SCHEMA`] for custom ones.
    pub schema: i8,
    /// Maximum absolute value of observations in the zero bucket.
    pub zero_threshold: f64,
    /// Observations in the zero bucket.
    pub zero_count: f64,
    /// All observations, including those without a bucket (NaN).
    pub count: f64,
    /// Sum of all observations; the stale NaN marks the end of the series.
    pub sum: f64,
    /// Indices of the buckets above zero, or of all custom buckets.
    pub positive_spans: Vec<Span>,
    /// Indices of the buckets below zero, by the absolute values of their bounds.
    pub negative_spans: Vec<Span>,
    /// Observations of each bucket above zero, ascending.
    pub positive_counts: Vec<f64>,
    /// Observations of each bucket below zero, descending from zero.
    pub negative_counts: Vec<f64>,
    /// Upper bounds of custom buckets, ascending, without the last one at +Inf; empty for
    /// exponential buckets. Histograms of one series share them.
    pub custom_bounds: Arc<[f64]>,
}

impl Histogram {
    /// Returns the histogram that ends a series: selectors find no value after it.
    pub fn stale() -> Histogram {
        Histogram { sum: stale_nan(), ..Histogram::default() }
    }

    /// Returns whether this is a staleness marker: its sum is the stale NaN, all else is ignored.
    #[inline]
    pub fn is_stale(&self) -> bool {
        is_stale(self.sum)
    }

    /// Returns whether the histogram has custom buckets.
    #[inline]
    pub fn has_custom_buckets(&self) -> bool {
        self.schema == CUSTOM_BUCKETS_SCHEMA
    }

    /// Returns whether two histograms have the same kind, layout and counts, bit by bit.
    ///
    /// Reset hints and spans without buckets are ignored. A layout with empty buckets differs from
    /// one without them, so compact both first. This is the equality of `==`, `!=` and `changes` in
    /// PromQL.
    ///
    /// Source: `Equals` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn equals(&self, other: &Histogram) -> bool {
        self.schema == other.schema
            && self.count.to_bits() == other.count.to_bits()
            && self.sum.to_bits() == other.sum.to_bits()
            && (!self.has_custom_buckets()
                || same_bounds(&self.custom_bounds, &other.custom_bounds))
            && self.zero_threshold == other.zero_threshold
            && self.zero_count.to_bits() == other.zero_count.to_bits()
            && spans::same_layout(&self.negative_spans, &other.negative_spans)
            && same_bits(&self.negative_counts, &other.negative_counts)
            && spans::same_layout(&self.positive_spans, &other.positive_spans)
            && same_bits(&self.positive_counts, &other.positive_counts)
    }

    /// Returns the heap memory of this histogram, without custom bounds, which are shared.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Span>() * (self.positive_spans.capacity() + self.negative_spans.capacity())
            + size_of::<f64>() * (self.positive_counts.capacity() + self.negative_counts.capacity())
    }

    /// Returns whether every field has the same bits, including hints and unused fields.
    pub fn identical(&self, other: &Histogram) -> bool {
        let numbers =
            |h: &Histogram| [h.zero_threshold, h.zero_count, h.count, h.sum].map(f64::to_bits);
        self.reset_hint == other.reset_hint
            && self.schema == other.schema
            && numbers(self) == numbers(other)
            && self.positive_spans == other.positive_spans
            && self.negative_spans == other.negative_spans
            && same_bits(&self.positive_counts, &other.positive_counts)
            && same_bits(&self.negative_counts, &other.negative_counts)
            && same_bits(&self.custom_bounds, &other.custom_bounds)
    }

    /// Returns spans and counts above or below zero.
    fn layer(&self, positive: bool) -> (&[Span], &[f64]) {
        match positive {
            true => (&self.positive_spans, &self.positive_counts),
            false => (&self.negative_spans, &self.negative_counts),
        }
    }

    /// Iterates over indices and counts of a side, ascending.
    fn counts(&self, positive: bool) -> impl Iterator<Item = (i64, f64)> + '_ {
        let (spans, counts) = self.layer(positive);
        spans::Indices::new(spans, counts.len()).zip(counts.iter().copied())
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Histogram) -> bool {
        self.identical(other)
    }
}

impl Eq for Histogram {}

fn same_bits(left: &[f64], right: &[f64]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(l, r)| l.to_bits() == r.to_bits())
}

/// Returns whether custom bounds are equal.
fn same_bounds(left: &Arc<[f64]>, right: &Arc<[f64]>) -> bool {
    Arc::ptr_eq(left, right) || left == right
}
