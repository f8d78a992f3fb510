//! Iteration over buckets with their bounds.

use std::fmt;

use super::bounds::exponential_bound;
use super::log2::log2;
use super::spans::{Indices, ReverseIndices};
use super::{Histogram, Span};
use crate::number_text::general;

/// Bucket with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Lower bound.
    pub lower: f64,
    /// Upper bound.
    pub upper: f64,
    /// True if observations equal to `lower` are in the bucket.
    pub lower_inclusive: bool,
    /// True if observations equal to `upper` are in the bucket.
    pub upper_inclusive: bool,
    /// Number of observations.
    pub count: f64,
}

impl Bucket {
    /// Returns the inclusive bounds as numbered in the query API: 0 upper, 1 lower, 2 neither, 3 both.
    ///
    /// Source: `MarshalHistogram` in `util/jsonutil/marshal.go` of Prometheus.
    pub fn boundary_rule(&self) -> u8 {
        match (self.lower_inclusive, self.upper_inclusive) {
            (false, true) => 0,
            (true, false) => 1,
            (false, false) => 2,
            (true, true) => 3,
        }
    }

    /// Returns the fraction of the bucket, 0 to 1, below a value.
    ///
    /// Observations are assumed to be spread evenly over the bucket if it is `linear` (custom buckets
    /// and the zero bucket), otherwise evenly over the logarithm.
    /// Invariant: the value is inside the bucket, whose bounds are finite.
    ///
    /// Source: `FractionBelow` in `model/histogram/generic.go` of Prometheus.
    pub fn fraction_below(&self, value: f64, linear: bool) -> f64 {
        if linear {
            return (value - self.lower) / (self.upper - self.lower);
        }
        let [lower, upper, at] = [self.lower, self.upper, value].map(|x| log2(x.abs()));
        if value > 0.0 {
            (at - lower) / (upper - lower)
        } else {
            1.0 - (at - upper) / (lower - upper)
        }
    }
}

/// Writes the bucket like `(0.5,1]:2`, with brackets for inclusive bounds.
///
/// Source: `Bucket.String` in `model/histogram/generic.go` of Prometheus.
impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.lower_inclusive { '[' } else { '(' };
        let close = if self.upper_inclusive { ']' } else { ')' };
        let [lower, upper, count] = [self.lower, self.upper, self.count].map(general);
        write!(f, "{open}{lower},{upper}{close}:{count}")
    }
}

impl Histogram {
    /// Iterates over the buckets above zero, or all custom buckets, ascending.
    ///
    /// All iterators include empty buckets that spans cover.
    pub fn positive_buckets(&self) -> impl Iterator<Item = Bucket> + Clone + '_ {
        let indices = Indices::new(&self.positive_spans, self.positive_counts.len());
        indices.zip(&self.positive_counts).map(|(index, &count)| self.positive_bucket(index, count))
    }

    /// Iterates over [`Histogram::positive_buckets`], descending.
    pub fn positive_buckets_reversed(&self) -> impl Iterator<Item = Bucket> + Clone + '_ {
        let indices = ReverseIndices::new(&self.positive_spans, self.positive_counts.len());
        indices.map(|(at, index)| self.positive_bucket(index, self.positive_counts[at]))
    }

    /// Iterates over the buckets below zero, descending from zero.
    pub fn negative_buckets(&self) -> impl Iterator<Item = Bucket> + Clone + '_ {
        let (spans, counts) = self.negative_side();
        let indices = Indices::new(spans, counts.len());
        indices.zip(counts).map(|(index, &count)| self.negative_bucket(index, count))
    }

    /// Iterates over the buckets below zero, ascending towards zero.
    pub fn negative_buckets_reversed(&self) -> impl Iterator<Item = Bucket> + Clone + '_ {
        let (spans, counts) = self.negative_side();
        let indices = ReverseIndices::new(spans, counts.len());
        indices.map(|(at, index)| self.negative_bucket(index, counts[at]))
    }

    /// Iterates over all buckets, ascending; over the zero bucket only if it is populated.
    ///
    /// A bucket that overlaps the zero bucket is cut at its threshold.
    ///
    /// Source: `AllBucketIterator` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn all_buckets(&self) -> impl Iterator<Item = Bucket> + Clone + '_ {
        (self.negative_buckets_reversed().map(|bucket| self.outside_zero_bucket(bucket)))
            .chain(self.populated_zero_bucket())
            .chain(self.positive_buckets().map(|bucket| self.outside_zero_bucket(bucket)))
    }

    /// Iterates over [`Histogram::all_buckets`], descending.
    pub fn all_buckets_reversed(&self) -> impl Iterator<Item = Bucket> + Clone + '_ {
        (self.positive_buckets_reversed().map(|bucket| self.outside_zero_bucket(bucket)))
            .chain(self.populated_zero_bucket())
            .chain(self.negative_buckets().map(|bucket| self.outside_zero_bucket(bucket)))
    }

    /// Returns the zero bucket; `None` for a histogram with custom buckets.
    pub fn zero_bucket(&self) -> Option<Bucket> {
        (!self.has_custom_buckets()).then_some(Bucket {
            lower: -self.zero_threshold,
            upper: self.zero_threshold,
            lower_inclusive: true,
            upper_inclusive: true,
            count: self.zero_count,
        })
    }

    /// Iterates over populated buckets, ascending, in the form of the query API:
    /// [`Bucket::boundary_rule`], lower bound, upper bound, count.
    pub fn populated_buckets(&self) -> impl Iterator<Item = (u8, f64, f64, f64)> + Clone + '_ {
        let populated = self.all_buckets().filter(|bucket| bucket.count != 0.0);
        populated.map(|bucket| (bucket.boundary_rule(), bucket.lower, bucket.upper, bucket.count))
    }

    /// Returns spans and counts below zero; empty with custom buckets.
    fn negative_side(&self) -> (&[Span], &[f64]) {
        match self.has_custom_buckets() {
            true => (&[], &[]),
            false => (&self.negative_spans, &self.negative_counts),
        }
    }

    fn populated_zero_bucket(&self) -> Option<Bucket> {
        self.zero_bucket().filter(|bucket| bucket.count > 0.0)
    }

    fn outside_zero_bucket(&self, mut bucket: Bucket) -> Bucket {
        let threshold = self.zero_threshold;
        if bucket.upper < 0.0 && bucket.upper > -threshold {
            bucket.upper = -threshold;
        } else if bucket.lower > 0.0 && bucket.lower < threshold {
            bucket.lower = threshold;
        }
        bucket
    }

    fn positive_bucket(&self, index: i64, count: f64) -> Bucket {
        let (lower, upper) = (self.bound(index - 1), self.bound(index));
        let custom = self.has_custom_buckets();
        Bucket {
            lower,
            upper,
            lower_inclusive: if custom { index == 0 } else { lower < 0.0 },
            upper_inclusive: custom || upper > 0.0,
            count,
        }
    }

    fn negative_bucket(&self, index: i64, count: f64) -> Bucket {
        let (lower, upper) = (-self.bound(index), -self.bound(index - 1));
        let (lower_inclusive, upper_inclusive) = (lower < 0.0, upper > 0.0);
        Bucket { lower, upper, lower_inclusive, upper_inclusive, count }
    }

    /// Returns the upper bound of the bucket with an index.
    ///
    /// Custom buckets cover −Inf to +Inf.
    ///
    /// Source: `getBound` in `model/histogram/generic.go` of Prometheus.
    pub(super) fn bound(&self, index: i64) -> f64 {
        if !self.has_custom_buckets() {
            return exponential_bound(index, self.schema);
        }
        match usize::try_from(index) {
            Ok(index) => self.custom_bounds.get(index).copied().unwrap_or(f64::INFINITY),
            Err(_) => f64::NEG_INFINITY,
        }
    }
}
