//! Values of a range in ascending order, updated from step to step.
//!
//! If adjacent ranges share most samples, each value that enters replaces one that leaves: two
//! binary searches and a move of the values in between. Otherwise, only the required values are
//! selected, without sorting.

use crate::exec::rollup::buffer::Frame;

/// Values are kept sorted while at most one in this many changes per step; with more changes,
/// selection is cheaper.
const SHARE_OF_CHANGES: usize = 8;

/// Values with NaN below all others, and −0 below 0.
///
/// Invariant: `keys` belong to the samples `first..end`; they ascend while `is_sorted`.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    keys: Vec<i64>,
    is_sorted: bool,
    /// Number of the first sample.
    first: u64,
    /// Number of the last sample, plus 1.
    end: u64,
}

/// Returns an integer that sorts like the float; all NaN have the same key, below every other key.
#[inline]
fn key(value: f64) -> i64 {
    if value.is_nan() { i64::MIN } else { flipped(value.to_bits() as i64) }
}

/// Returns the float with this key.
#[inline]
fn value(key: i64) -> f64 {
    f64::from_bits(flipped(key) as u64)
}

/// Reverses the order of negative floats, which sort backwards as integers.
#[inline]
fn flipped(bits: i64) -> i64 {
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

impl Ordered {
    /// Bytes of a value.
    pub(super) const SAMPLE_BYTES: u64 = size_of::<i64>() as u64;

    /// Replaces the values by those of a range, which does not start before the previous range.
    pub(super) fn take(&mut self, frame: &Frame<'_>) {
        let first = frame.samples.number(frame.lo);
        let end = frame.samples.number(frame.hi);
        let is_shared = first < self.end;
        let changed = if is_shared { (first - self.first) + (end - self.end) } else { end - first };
        let is_alike = is_shared && changed.saturating_mul(SHARE_OF_CHANGES as u64) <= end - first;
        if is_alike && self.is_sorted {
            self.replace_all(frame);
        } else {
            self.keys.clear();
            self.keys.reserve_exact(frame.values().len());
            self.keys.extend(frame.values().iter().map(|value| key(*value)));
            if is_alike {
                self.keys.sort_unstable();
            }
            self.is_sorted = is_alike;
        }
        (self.first, self.end) = (first, end);
    }

    /// Replaces the values that have left since the previous range by new ones.
    fn replace_all(&mut self, frame: &Frame<'_>) {
        // A range that shares samples with the previous one directly follows it: after an empty
        // range, it would begin after `end`. So the samples that have left are still in memory.
        let left = frame.samples.place(self.first)..frame.lo;
        let come = frame.samples.place(self.end)..frame.hi;
        let values = frame.samples.values;
        let pair_count = left.len().min(come.len());
        let (replaced, removed) = values[left].split_at(pair_count);
        let (replacing, added) = values[come].split_at(pair_count);
        for (old, new) in replaced.iter().zip(replacing) {
            self.replace(key(*old), key(*new));
        }
        for old in removed {
            let at = self.keys.partition_point(|k| *k < key(*old));
            self.keys.remove(at);
        }
        for new in added {
            let at = self.keys.partition_point(|k| *k < key(*new));
            self.keys.insert(at, key(*new));
        }
    }

    /// Replaces the key `old` by `new`; keys between the two positions move by one.
    #[inline]
    fn replace(&mut self, old: i64, new: i64) {
        let from = self.keys.partition_point(|k| *k < old);
        if new > old {
            let to = from + self.keys[from..].partition_point(|k| *k < new);
            self.keys.copy_within(from + 1..to, from);
            self.keys[to - 1] = new;
        } else {
            let to = self.keys[..from].partition_point(|k| *k < new);
            self.keys.copy_within(to..from, to + 1);
            self.keys[to] = new;
        }
    }

    /// Returns the φ-quantile, interpolated between adjacent values.
    ///
    /// Source: `quantile` in `promql/quantile.go` of Prometheus.
    pub(super) fn quantile(&mut self, phi: f64) -> f64 {
        if phi.is_nan() || self.keys.is_empty() {
            return f64::NAN;
        }
        if phi < 0.0 {
            return f64::NEG_INFINITY;
        }
        if phi > 1.0 {
            return f64::INFINITY;
        }
        between(phi, self.keys.len(), |lower| {
            let (low, high) = if self.is_sorted {
                (self.keys[lower], self.keys.get(lower + 1).copied())
            } else {
                let (_, low, above) = self.keys.select_nth_unstable(lower);
                (*low, above.iter().min().copied())
            };
            (value(low), value(high.unwrap_or(low)))
        })
    }

    /// Returns the median of the distances from the median; NaN if any value is NaN.
    ///
    /// Source: `funcMadOverTime` of Prometheus.
    pub(super) fn median_deviation(&mut self) -> f64 {
        let has_nan = if self.is_sorted {
            self.keys.first() == Some(&i64::MIN)
        } else {
            self.keys.contains(&i64::MIN)
        };
        if has_nan {
            return f64::NAN;
        }
        let median = self.quantile(0.5);
        // Some distances from an infinite median are NaN, and they do not ascend away from it.
        if self.is_sorted && median.is_finite() {
            return between(0.5, self.keys.len(), |lower| self.distances(median, lower));
        }
        let distance = |k: &i64| key((value(*k) - median).abs());
        let mut distances =
            Ordered { keys: self.keys.iter().map(distance).collect(), ..Ordered::default() };
        distances.quantile(0.5)
    }

    /// Returns the distances from `middle` at `index` and `index + 1`, in ascending order of
    /// distances.
    ///
    /// On either side of `middle`, distances ascend away from it. A binary search finds how many of
    /// the `index` smallest distances are on the left side.
    fn distances(&self, middle: f64, index: usize) -> (f64, f64) {
        let middle_at = self.keys.partition_point(|k| value(*k) < middle);
        let (left_count, right_count) = (middle_at, self.keys.len() - middle_at);
        let distance = |at: usize| (value(self.keys[at]) - middle).abs();
        let left = |i: usize| if i < left_count { distance(middle_at - 1 - i) } else { f64::NAN };
        let right = |i: usize| if i < right_count { distance(middle_at + i) } else { f64::NAN };
        let (mut low, mut high) = (index.saturating_sub(right_count), index.min(left_count));
        while low < high {
            let taken = low.midpoint(high);
            if right(index - taken - 1) <= left(taken) {
                high = taken;
            } else {
                low = taken + 1;
            }
        }
        // Beyond the ends, the distance is NaN, which loses against any number.
        let (next_left, next_right) = (left(low), right(index - low));
        let is_left = next_left <= next_right || next_right.is_nan();
        if is_left {
            (next_left, left(low + 1).min(next_right))
        } else {
            (next_right, right(index - low + 1).min(next_left))
        }
    }

    /// Returns the bytes held.
    pub(super) fn bytes(&self) -> u64 {
        (self.keys.capacity() * size_of::<i64>()) as u64
    }
}

/// Returns the φ-quantile of `count` numbers; `pair` returns the numbers at an index and the next
/// index.
#[inline]
fn between(phi: f64, count: usize, pair: impl FnOnce(usize) -> (f64, f64)) -> f64 {
    let rank = phi * (count - 1) as f64;
    let lower = rank.floor();
    let weight = rank - lower;
    let (low, high) = pair(lower as usize);
    let high = if lower as usize + 1 < count { high } else { low };
    low * (1.0 - weight) + high * weight
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::exec::numeric::quantile::quantile;
    use crate::exec::rollup::buffer::Samples;

    fn any_value() -> impl Strategy<Value = f64> {
        prop_oneof![
            (-4..4i32).prop_map(f64::from),
            -1e3..1e3f64,
            prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn a_moving_range_is_as_one_sorted_anew(
            values in prop::collection::vec(any_value(), 1..200),
            moves in prop::collection::vec((0usize..4, 0usize..4), 1..200),
            phi in 0.0..=1.0f64,
        ) {
            let times: Vec<i64> = (0..values.len() as i64).collect();
            let samples = Samples::new(&times, &values, 7);
            let mut ordered = Ordered::default();
            let (mut lo, mut hi) = (0, (values.len() / 2).max(1));
            for (leave, enter) in moves {
                hi = (hi + enter).min(values.len());
                lo = (lo + leave).min(hi - 1);
                let frame = Frame { samples, lo, hi, start_ms: 0, end_ms: 0, step: 0 };
                ordered.take(&frame);
                let mut window = values[lo..hi].to_vec();
                let is_same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
                let expected = quantile(phi, &mut window);
                prop_assert!(is_same(ordered.quantile(phi), expected), "{:?} {}", window, phi);
                let median = quantile(0.5, &mut window);
                let mut distances: Vec<f64> = window.iter().map(|v| (v - median).abs()).collect();
                let has_nan = window.iter().any(|v| v.is_nan());
                let expected = if has_nan { f64::NAN } else { quantile(0.5, &mut distances) };
                prop_assert!(is_same(ordered.median_deviation(), expected), "{:?}", window);
            }
        }
    }
}
