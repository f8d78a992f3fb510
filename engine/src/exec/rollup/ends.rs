//! Extrapolation of increases over ranges that do not move evenly: 64 ranges at a time, in vectors.

use std::array;

use model::widest;

use crate::exec::rollup::buffer::Samples;

/// Maximum number of ranges that are computed together.
pub(super) const RANGES_AT_ONCE: usize = 64;
/// Maximum distance over which an increase is extrapolated, in mean distances of samples.
pub(super) const EXTRAPOLATED_MAX: f64 = 1.1;
/// Margin within which a division decides whether a counter is extrapolated below zero.
pub(super) const ZERO_MARGIN: f64 = 1.001;

/// Indices of the samples of consecutive ranges.
pub(super) struct RangeEnds<'a> {
    pub(super) samples: Samples<'a>,
    /// Index after the last sample that entered an earlier range.
    pub(super) entered: usize,
    /// Index of the first sample of each range, and the index after the last one.
    pub(super) los: &'a [u32],
    pub(super) his: &'a [u32],
    /// Start and end of the first range.
    pub(super) start_ms: i64,
    pub(super) end_ms: i64,
    /// Distance of ranges.
    pub(super) step_ms: i64,
}

/// Samples at the ends of up to 64 ranges, and their distances in seconds, as arrays.
pub(super) struct ExtrapolatedRanges {
    counts: [i64; RANGES_AT_ONCE],
    /// Values of the first samples, and increases from them to the last ones.
    pub(super) firsts: [f64; RANGES_AT_ONCE],
    pub(super) rises: [f64; RANGES_AT_ONCE],
    sampled: [f64; RANGES_AT_ONCE],
    to_start: [f64; RANGES_AT_ONCE],
    to_end: [f64; RANGES_AT_ONCE],
}

impl ExtrapolatedRanges {
    /// Reads the ends of ranges. Also returns a bit for each range with at least two samples; the
    /// others have no meaningful figures.
    pub(super) fn read(ends: &RangeEnds<'_>) -> (ExtrapolatedRanges, u64) {
        let (mut first_ms, mut last_ms) = ([0_i64; RANGES_AT_ONCE], [0_i64; RANGES_AT_ONCE]);
        let [firsts, rises, sampled, to_start, to_end] = array::from_fn(|_| [0.0; RANGES_AT_ONCE]);
        let counts = [0; RANGES_AT_ONCE];
        let mut ranges = ExtrapolatedRanges { counts, firsts, rises, sampled, to_start, to_end };
        let mut word = 0;
        let (times, values) = (ends.samples.times, ends.samples.values);
        for (at, (lo, hi)) in ends.los.iter().zip(ends.his).enumerate() {
            let (lo, hi) = (*lo as usize, *hi as usize);
            if hi < lo + 2 {
                continue;
            }
            let last = hi - 1;
            (first_ms[at], last_ms[at]) = (times[lo], times[last]);
            (ranges.firsts[at], ranges.rises[at]) = (values[lo], values[last] - values[lo]);
            ranges.counts[at] = (last - lo) as i64;
            word |= 1 << at;
        }
        ranges.measure(&first_ms, &last_ms, ends);
        ranges.limit();
        (ranges, word)
    }

    /// Computes the distances.
    fn measure(&mut self, first_ms: &[i64], last_ms: &[i64], ends: &RangeEnds<'_>) {
        let RangeEnds { start_ms, end_ms, step_ms, .. } = *ends;
        let distances = self.sampled.iter_mut().zip(&mut self.to_start).zip(&mut self.to_end);
        let all = distances.zip(first_ms.iter().zip(last_ms)).zip(0_i64..);
        widest(|| {
            all.for_each(|((((sampled, to_start), to_end), (first_ms, last_ms)), at)| {
                let moved_ms = at.wrapping_mul(step_ms);
                *sampled = last_ms.wrapping_sub(*first_ms) as f64 / 1000.0;
                let start_ms = start_ms.wrapping_add(moved_ms);
                *to_start = first_ms.wrapping_sub(start_ms) as f64 / 1000.0;
                let end_ms = end_ms.wrapping_add(moved_ms);
                *to_end = end_ms.wrapping_sub(*last_ms) as f64 / 1000.0;
            });
        });
    }

    /// Limits the extrapolated distances.
    fn limit(&mut self) {
        let all = self.sampled.iter().zip(&mut self.to_start).zip(&mut self.to_end);
        let all = all.zip(&self.counts);
        widest(|| {
            all.for_each(|(((sampled, to_start), to_end), count)| {
                let average = sampled / *count as f64;
                let threshold = average * EXTRAPOLATED_MAX;
                *to_start = if *to_start >= threshold { average / 2.0 } else { *to_start };
                *to_end = if *to_end >= threshold { average / 2.0 } else { *to_end };
            });
        });
    }

    /// Writes the extrapolated increases, divided by `divisor`.
    pub(super) fn extrapolate(&self, divisor: f64, out: &mut [f64]) {
        let factors = self.sampled.iter().zip(&self.to_start).zip(&self.to_end);
        let all = out.iter_mut().zip(factors).zip(&self.rises);
        widest(|| {
            all.for_each(|((out, ((sampled, to_start), to_end)), rise)| {
                *out = rise * ((sampled + to_start + to_end) / sampled / divisor);
            });
        });
    }

    /// Returns whether any counter may have been zero within the extrapolated distance.
    pub(super) fn is_any_near_zero(&self) -> bool {
        let all = self.sampled.iter().zip(&self.to_start).zip(self.firsts.iter().zip(&self.rises));
        widest(|| {
            all.fold(false, |any, ((sampled, to_start), (first, rise))| {
                let reaches_zero = sampled * first <= to_start * rise * ZERO_MARGIN;
                any | (reaches_zero & (*rise > 0.0) & (*first >= 0.0))
            })
        })
    }
}
