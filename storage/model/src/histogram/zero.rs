//! Zero buckets of different widths: finding one that suits both histograms.

use super::Histogram;
use super::bounds::exponential_bound;
use super::cell::{Cell, Summed};

/// What the zero bucket holds when it takes in the buckets below a larger threshold, and the
/// threshold that this needs: one that falls inside of a populated bucket moves to its end.
///
/// `restart` gives the sum to begin anew with when the threshold moved because of a bucket below
/// zero, after those above zero have been added.
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
    'anew: loop {
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
                            continue 'anew;
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
    /// The zero count that this histogram would have with a threshold that is not smaller, and
    /// the threshold that it takes; the error of the sum comes along.
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
