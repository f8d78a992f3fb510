//! Zero buckets of different widths, and a threshold that suits both histograms.

use super::Histogram;
use super::bounds::exponential_bound;
use super::cell::{Cell, Summed};

/// Returns the content of the zero bucket after it absorbs the buckets below a larger threshold, and
/// the resulting threshold: one inside of a populated bucket moves to its end.
///
/// `restart` returns the sum to start over with, if a bucket below zero moves the threshold after
/// those above zero were added.
///
/// Shape: `sides` are indices and cells of the two sides of zero.
///
/// Source: `zeroCountForLargerThreshold` in `model/histogram/float_histogram.go` of Prometheus.
pub(super) fn widened_zero<A: Copy, C: Cell, I: Iterator<Item = (i64, C)>>(
    zero: A,
    mut threshold: f64,
    schema: i8,
    sides: &[impl Fn() -> I; 2],
    absorb: impl Fn(A, C) -> A,
    restart: impl Fn(A) -> A,
) -> (A, f64) {
    let mut sum = zero;
    'restart: loop {
        for (side, buckets) in sides.iter().enumerate() {
            for (index, cell) in buckets() {
                if exponential_bound(index - 1, schema) >= threshold {
                    break;
                }
                sum = absorb(sum, cell);
                let upper = exponential_bound(index, schema);
                if upper > threshold {
                    if cell.count() != 0.0 {
                        threshold = upper;
                        if side == 1 {
                            sum = restart(sum);
                            continue 'restart;
                        }
                    }
                    break;
                }
            }
        }
        return (sum, threshold);
    }
}

impl Histogram {
    /// Returns the zero count, with its error, for a threshold that is not smaller, and the resulting
    /// threshold.
    pub(super) fn zero_count_within(&self, threshold: f64) -> (Summed, f64) {
        let zero = Summed::new(self.zero_count);
        if threshold == self.zero_threshold {
            return (zero, threshold);
        }
        let side = |positive| move || self.counts(positive);
        let restart = |sum: Summed| Summed { value: self.zero_count, ..sum };
        widened_zero(
            zero,
            threshold,
            self.schema,
            &[side(true), side(false)],
            Summed::plus,
            restart,
        )
    }
}
