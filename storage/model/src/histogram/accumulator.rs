//! Addition, over counts alone or over counts with their rounding errors.

use std::cmp::Ordering;
use std::sync::Arc;

use super::CUSTOM_BUCKETS_SCHEMA;
use super::bounds::exponential_bound;
use super::cell::{Cell, Summed};
use super::layer::{Layer, pour_into};
use super::spans::Indices;
use super::zero::widened_zero;
use super::{Combined, Histogram, HistogramError, ResetHint, Span, same_bounds};

/// Histogram with cells instead of counts.
#[derive(Debug, Clone)]
pub(super) struct Accumulator<C> {
    pub(super) reset_hint: ResetHint,
    pub(super) schema: i8,
    pub(super) zero_threshold: f64,
    pub(super) zero: C,
    pub(super) count: C,
    pub(super) sum: C,
    pub(super) positive: Layer<C>,
    pub(super) negative: Layer<C>,
    pub(super) custom_bounds: Arc<[f64]>,
}

impl<C: Cell> Accumulator<C> {
    /// Adds a histogram, or subtracts it.
    ///
    /// The result has the coarser of two schemas, a zero bucket that suits both, and the common
    /// custom bounds.
    ///
    /// Errors: only one of the two has custom buckets; the accumulator is not changed.
    ///
    /// Source: `Add`, `Sub` and `KahanAdd` in `model/histogram/float_histogram.go` of Prometheus.
    pub(super) fn combine(
        &mut self,
        other: &Histogram,
        subtract: bool,
    ) -> Result<Combined, HistogramError> {
        let custom = self.has_custom_buckets();
        if custom != other.has_custom_buckets() {
            return Err(HistogramError::IncompatibleSchemas);
        }
        let sign = if subtract { -1.0 } else { 1.0 };
        let reset_collision = self.reset_hint.meet(other.reset_hint);
        if !custom {
            let zero = self.reconcile_zero_buckets(other);
            self.zero = self.zero.plus_summed(zero, sign);
        }
        self.count = self.count.plus(sign * other.count);
        self.sum = self.sum.plus(sign * other.sum);
        let bounds_reconciled = custom && !same_bounds(&self.custom_bounds, &other.custom_bounds);
        if bounds_reconciled {
            self.combine_other_bounds(other, sign);
        } else {
            if !custom && other.schema < self.schema {
                self.coarsen(other.schema);
            }
            self.combine_layer(other, true, sign);
            if !custom {
                self.combine_layer(other, false, sign);
            }
        }
        Ok(Combined { reset_collision, bounds_reconciled })
    }

    pub(super) fn has_custom_buckets(&self) -> bool {
        self.schema == CUSTOM_BUCKETS_SCHEMA
    }

    fn layer_mut(&mut self, positive: bool) -> &mut Layer<C> {
        if positive { &mut self.positive } else { &mut self.negative }
    }

    /// Adds one side of a histogram whose schema is not coarser.
    fn combine_layer(&mut self, other: &Histogram, positive: bool, sign: f64) {
        let (spans, counts) = other.layer(positive);
        if other.schema == self.schema {
            let skipped = self.buckets_in_zero(spans, counts.len());
            self.layer_mut(positive).merge_counts(spans, counts, skipped, sign);
            return;
        }
        let cells = counts.iter().map(|&count| C::new(count)).collect();
        let mut coarse = Layer { spans: spans.to_vec(), cells };
        coarse.coarsen(schema_shift(other.schema, self.schema));
        let skipped = self.buckets_in_zero(&coarse.spans, coarse.cells.len());
        let cells = coarse.cells.iter().map(|cell| cell.times(sign));
        self.layer_mut(positive).merge(&coarse.spans, cells, skipped);
    }

    /// Counts the buckets at the start of a side of the same schema that end inside of the zero
    /// bucket.
    fn buckets_in_zero(&self, spans: &[Span], len: usize) -> usize {
        let (schema, threshold) = (self.schema, self.zero_threshold);
        let in_zero_bucket = |index: &i64| exponential_bound(*index, schema) <= threshold;
        match self.has_custom_buckets() {
            true => 0,
            false => Indices::new(spans, len).take_while(in_zero_bucket).count(),
        }
    }

    /// Adds custom buckets with other bounds: both are converted to their common bounds.
    fn combine_other_bounds(&mut self, other: &Histogram, sign: f64) {
        let bounds = common_bounds(&self.custom_bounds, &other.custom_bounds);
        let mut sums = vec![Summed::new(0.0); bounds.len() + 1];
        pour_into(self.positive.iter(), &self.custom_bounds, &bounds, &mut sums);
        let counts = other.counts(true).map(|(index, count)| (index, sign * count));
        pour_into(counts, &other.custom_bounds, &bounds, &mut sums);
        self.positive = Layer::from_sums(&sums);
        self.custom_bounds = bounds.into();
    }

    fn coarsen(&mut self, schema: i8) {
        let shift = schema_shift(self.schema, schema);
        self.positive.coarsen(shift);
        self.negative.coarsen(shift);
        self.schema = schema;
    }

    /// Widens the zero bucket until it suits both. Returns the zero count of the other at that width.
    ///
    /// Source: `reconcileZeroBuckets` in `model/histogram/float_histogram.go` of Prometheus.
    fn reconcile_zero_buckets(&mut self, other: &Histogram) -> Summed {
        let (mut zero, mut threshold) = (Summed::new(other.zero_count), other.zero_threshold);
        loop {
            match threshold.partial_cmp(&self.zero_threshold) {
                Some(Ordering::Less) => {
                    (zero, threshold) = other.zero_count_within(self.zero_threshold);
                }
                Some(Ordering::Greater) => self.widen_zero_bucket(threshold),
                // Equal, or NaN.
                _ => return zero,
            }
        }
    }

    /// Merges the buckets below a threshold into the zero bucket.
    fn widen_zero_bucket(&mut self, threshold: f64) {
        let (zero, threshold) = widened_zero(
            self.zero,
            threshold,
            self.schema,
            &[&self.positive, &self.negative].map(|layer| move || layer.iter()),
            C::absorb,
            |sum| self.zero.with_error_of(sum),
        );
        let schema = self.schema;
        for layer in [&mut self.positive, &mut self.negative] {
            let below = |index: &i64| exponential_bound(index - 1, schema) < threshold;
            let inside = Indices::new(&layer.spans, layer.cells.len()).take_while(below).count();
            layer.cells[..inside].fill(C::new(0.0));
            layer.compact(0);
        }
        (self.zero, self.zero_threshold) = (zero, threshold);
    }
}

/// Returns the difference between a schema and a coarser one.
pub(super) fn schema_shift(from: i8, to: i8) -> u32 {
    (i32::from(from) - i32::from(to)).clamp(0, 62).unsigned_abs()
}

/// Returns the bounds that are in both, ascending.
///
/// Source: `intersectCustomBucketBounds` in `model/histogram/float_histogram.go` of Prometheus.
pub(super) fn common_bounds(left: &[f64], right: &[f64]) -> Vec<f64> {
    let (mut left, mut right, mut common) = (left, right, Vec::new());
    while let (Some((l, left_rest)), Some((r, right_rest))) =
        (left.split_first(), right.split_first())
    {
        if l == r {
            common.push(*l);
            (left, right) = (left_rest, right_rest);
        } else if l < r {
            left = left_rest;
        } else {
            right = right_rest;
        }
    }
    common
}
