//! Ranges whose samples are at the same positions, and sums over them, eight blocks of ranges at a time.
//!
//! The bits are those of [`Halves`](super::halves::Halves), whose two parts are chains of additions that wait
//! for each other. The chains of different boundaries are independent. A block is the ranges with the same
//! boundary. If ranges are a whole number of steps, and steps of distances of samples, all blocks are alike. So eight
//! of them are added in the lanes of a vector, from a transposed copy of their samples.
//!
//! ```text
//!            range 0 of a block
//!     (----------|------]
//!     |  front   | back |
//!          (-----|-----------]  range 1, one stride later: fewer samples in front, more at the back
//! ```

use std::ops::Range;

use model::{Windows, widest};

use crate::exec::numeric::compensated::{Sum, add};
use crate::exec::rollup::buffer::Samples;

/// Blocks that are added together.
const LANES: usize = 8;
/// Maximum samples of a range: the transposed copy stays in the CPU cache.
const RANGE_SAMPLES_MAX: usize = 1 << 10;

/// Sum of values, and sum of their absolute values.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PartialSum {
    pub(super) sum: Sum,
    pub(super) absolute: f64,
}

impl PartialSum {
    #[inline(always)]
    pub(super) fn plus(self, value: f64) -> PartialSum {
        PartialSum { sum: self.sum.plus(value), absolute: self.absolute + value.abs() }
    }

    #[inline(always)]
    pub(super) fn merged(self, other: PartialSum) -> PartialSum {
        PartialSum { sum: self.sum.merged(other.sum), absolute: self.absolute + other.absolute }
    }
}

/// Partial sums of eight blocks.
///
/// Shape: a lane per block in each array.
#[derive(Debug, Clone, Copy, Default)]
struct Lanes {
    sum: [f64; LANES],
    compensation: [f64; LANES],
    absolute: [f64; LANES],
}

impl Lanes {
    /// Adds a value to each lane: those of a row from a column on.
    #[inline(always)]
    fn add(&mut self, row: &[f64; LANES + 1], column: usize) {
        for lane in 0..LANES {
            let value = row[column + lane];
            let (sum, compensation) = add(self.sum[lane], self.compensation[lane], value);
            (self.sum[lane], self.compensation[lane]) = (sum, compensation);
            self.absolute[lane] += value.abs();
        }
    }

    #[inline(always)]
    fn of(&self, lane: usize) -> PartialSum {
        let sum = Sum { sum: self.sum[lane], compensation: self.compensation[lane] };
        PartialSum { sum, absolute: self.absolute[lane] }
    }
}

/// Ranges with the same number of samples, at nearly the same distances. All blocks of ranges with the same
/// boundary have the same samples before and after it.
pub(super) struct AlikeRanges<'a> {
    samples: Samples<'a>,
    /// Samples of the first range.
    first: Range<usize>,
    /// Number of ranges.
    count: usize,
    /// Number of samples from one range to the next.
    stride: usize,
    /// Number of ranges with the same boundary.
    of_block: usize,
    /// Number of ranges of the first block before the first range.
    skipped: usize,
    /// Number of samples before the boundary in the first range of a block.
    front: usize,
    /// Index of the first sample after the first boundary.
    boundary: usize,
}

/// Samples that are nearly evenly spaced.
struct NearlyEven {
    first_ms: i64,
    sample_ms: i64,
    /// Smallest and largest distance from the expected time.
    off_min_ms: i64,
    off_max_ms: i64,
}

impl NearlyEven {
    /// Returns samples with expected times that are `sample_ms` apart.
    fn of(times: &[i64], sample_ms: i64) -> NearlyEven {
        let first_ms = times[0];
        let off = |(at, time_ms): (usize, &i64)| time_ms - first_ms - at as i64 * sample_ms;
        let bounds = || {
            times
                .iter()
                .enumerate()
                .map(off)
                .fold((0, 0), |(min, max), off_ms| (off_ms.min(min), off_ms.max(max)))
        };
        let (off_min_ms, off_max_ms) = widest(bounds);
        NearlyEven { first_ms, sample_ms, off_min_ms, off_max_ms }
    }

    /// Returns the number of samples up to a time; `None` if it may be another one at a time that is some
    /// multiple of their distance later.
    fn count_until(&self, time_ms: i64) -> Option<usize> {
        let passed_ms = time_ms - self.first_ms;
        let count = passed_ms.div_euclid(self.sample_ms) + 1;
        let rest_ms = passed_ms.rem_euclid(self.sample_ms);
        let is_same = rest_ms >= self.off_max_ms && rest_ms < self.sample_ms + self.off_min_ms;
        usize::try_from(count).ok().filter(|_| is_same)
    }
}

impl<'a> AlikeRanges<'a> {
    /// Returns the ranges of windows; samples before index `lo` are in none of them. Returns `None` if they are
    /// not alike, have too many samples, or are hardly more than a block.
    pub(super) fn of(samples: Samples<'a>, lo: usize, windows: Windows) -> Option<AlikeRanges<'a>> {
        let Windows { step_ms, span_ms, count, .. } = windows;
        let of_block = usize::try_from(span_ms.checked_div(step_ms)?).ok()?;
        if of_block == 0 || of_block > count || span_ms % step_ms != 0 {
            return None;
        }
        let (after_ms, end_ms) = (windows.first_end_ms.checked_sub(span_ms)?, windows.end_ms(0));
        let last_ms = windows.end_ms(count - 1);
        last_ms.checked_sub(after_ms)?;
        let times = &samples.times[lo..];
        let start = times.partition_point(|time_ms| *time_ms <= after_ms);
        let times = &times[start..];
        let times = &times[..times.partition_point(|time_ms| *time_ms <= last_ms)];
        // Of `count + of_block - 1` steps, the last one ends with the last window.
        let stride = times.len() / (count + of_block - 1);
        let len = stride * of_block;
        if stride == 0 || len > RANGE_SAMPLES_MAX || times.len() != stride * (count + of_block - 1)
        {
            return None;
        }
        let sample_ms = step_ms / stride as i64;
        if sample_ms * stride as i64 != step_ms {
            return None;
        }
        let even = NearlyEven::of(times, sample_ms);
        let boundary_ms = (end_ms - 1).div_euclid(span_ms) * span_ms;
        let skipped = ((end_ms - 1 - boundary_ms) / step_ms) as usize;
        let is_alike =
            even.count_until(after_ms) == Some(0) && even.count_until(end_ms) == Some(len);
        let front = even.count_until(boundary_ms).filter(|_| is_alike)?;
        let first = lo + start;
        Some(AlikeRanges {
            samples,
            first: first..first + len,
            count,
            stride,
            of_block,
            skipped,
            front: front + skipped * stride,
            boundary: first + front,
        })
    }

    /// Returns the samples of a range.
    fn range(&self, number: usize) -> Range<usize> {
        let moved = self.stride * number;
        self.first.start + moved..self.first.end + moved
    }

    /// Returns the samples of the last range.
    pub(super) fn last(&self) -> Range<usize> {
        self.range(self.count - 1)
    }

    /// Returns the values of a range.
    #[inline]
    pub(super) fn values(&self, number: usize) -> &[f64] {
        &self.samples.values[self.range(number)]
    }

    /// Writes `value` of the sums of each range to `out`.
    pub(super) fn sum(&self, out: &mut [f64], value: impl Fn(PartialSum) -> f64) {
        let mut columns = vec![[0.0; LANES + 1]; self.first.len()];
        let mut fronts = vec![Lanes::default(); self.of_block];
        for block in (0..(self.skipped + self.count).div_ceil(self.of_block)).step_by(LANES) {
            widest(
                #[inline(always)]
                || {
                    self.transpose(block, &mut columns);
                    self.sum_blocks(
                        &columns,
                        &mut fronts,
                        #[inline(always)]
                        |range, values| {
                            for (lane, value) in values.into_iter().enumerate() {
                                let number = (block + lane) * self.of_block + range;
                                // Other numbers are of ranges before the first or after the last one.
                                if let Some(out) = out.get_mut(number.wrapping_sub(self.skipped)) {
                                    *out = value;
                                }
                            }
                        },
                        &value,
                    );
                },
            );
        }
    }

    /// Copies the samples around the boundaries of eight blocks, the first of which is `block`.
    ///
    /// Shape: `[sample][column]`; a column is the samples from one boundary to the next, and the first one
    /// ends at the boundary of `block`. Absent samples, which no wanted range has, are not written.
    #[inline(always)]
    fn transpose(&self, block: usize, columns: &mut [[f64; LANES + 1]]) {
        let (values, len) = (self.samples.values, self.first.len());
        for column in 0..=LANES {
            // Relative to the start of the samples before the first boundary.
            let start = (block + column) * len;
            let absent = len.saturating_sub(self.boundary + start);
            let start = (self.boundary + start).saturating_sub(len);
            let Some(values) = values.get(start..) else { return };
            for (row, value) in columns[absent..].iter_mut().zip(values) {
                row[column] = *value;
            }
        }
    }

    /// Calls `put` with the number of each range in a block, and `value` of its sums in each of eight blocks.
    #[inline(always)]
    fn sum_blocks(
        &self,
        columns: &[[f64; LANES + 1]],
        fronts: &mut [Lanes],
        mut put: impl FnMut(usize, [f64; LANES]),
        value: impl Fn(PartialSum) -> f64,
    ) {
        let len = self.first.len();
        let (mut part, mut added) = (Lanes::default(), 0);
        for (range, front) in fronts.iter_mut().enumerate().rev() {
            let wanted = self.front - range * self.stride;
            for row in columns[len - wanted..len - added].iter().rev() {
                part.add(row, 0);
            }
            (*front, added) = (part, wanted);
        }
        let (mut part, mut added) = (Lanes::default(), 0);
        for (range, front) in fronts.iter().enumerate() {
            let wanted = len - self.front + range * self.stride;
            for row in &columns[added..wanted] {
                part.add(row, 1);
            }
            added = wanted;
            put(range, std::array::from_fn(|lane| value(front.of(lane).merged(part.of(lane)))));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::exec::rollup::buffer::{Frame, Kernel};
    use crate::exec::rollup::fold::Fold;

    fn values() -> impl Strategy<Value = Vec<f64>> {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -f64::MAX, -0.0, 1e-300];
        let odd_percent = prop_oneof![Just(0), Just(2)];
        let value = odd_percent.prop_flat_map(move |percent| {
            let decimal = (-5_000_i32..5_000).prop_map(|number| f64::from(number) / 1000.0);
            (0..100, prop::sample::select(odd.to_vec()), decimal)
                .prop_map(move |(draw, odd, decimal)| if draw < percent { odd } else { decimal })
        });
        prop::collection::vec(value, 1..400)
    }

    proptest! {
        #[test]
        fn ranges_of_eight_blocks_have_the_sums_of_single_ranges(
            values in values(),
            sample_ms in 1_i64..20,
            first_ms in -5_000_i64..5_000,
            jitter_ms in prop_oneof![2 => Just(0), 1 => 1_i64..6],
            jitter in prop::collection::vec(0_i64..100, 400),
            missing in prop_oneof![4 => Just(usize::MAX), 1 => 0_usize..400],
            stride in 1_usize..6,
            of_block in 1_usize..9,
            skipped in 0_usize..30,
            age_ms in 0_i64..20,
            is_mean: bool,
        ) {
            let late = |at: usize| jitter[at] % (jitter_ms + 1).min(sample_ms);
            let time = |at: usize| first_ms + at as i64 * sample_ms + late(at);
            let (times, values): (Vec<i64>, Vec<f64>) = (0..values.len())
                .filter(|at| *at != missing)
                .map(|at| (time(at), values[at]))
                .unzip();
            let len = stride * of_block;
            prop_assume!(skipped + len <= values.len());
            let count = (values.len() - skipped - len) / stride + 1;
            let step_ms = stride as i64 * sample_ms;
            let windows = Windows {
                first_end_ms: first_ms + (skipped + len) as i64 * sample_ms - age_ms % sample_ms,
                step_ms,
                span_ms: of_block as i64 * step_ms,
                count,
            };
            let samples = Samples::new(&times, &values, 7);
            let until = |time_ms: i64| times.partition_point(|time| *time <= time_ms);
            let range = |window| until(windows.after_ms(window))..until(windows.end_ms(window));
            let Some(alike) = AlikeRanges::of(samples, skipped.min(range(0).start), windows) else {
                let is_plain = jitter_ms == 0 && missing == usize::MAX && count >= of_block;
                prop_assert!(!is_plain || range(count - 1).len() < len);
                return Ok(());
            };
            let mut found = vec![0.0; count];
            Fold::new(is_mean).roll_alike(&alike, &mut found);
            prop_assert_eq!(alike.last(), range(count - 1));
            let mut one_by_one = Fold::new(is_mean);
            for (window, found) in found.iter().enumerate() {
                let Range { start: lo, end: hi } = range(window);
                let (start_ms, end_ms) = (windows.after_ms(window), windows.end_ms(window));
                let frame = Frame { samples, lo, hi, start_ms, end_ms, step: window };
                let expected = one_by_one.value(&frame).expect("it has samples");
                prop_assert_eq!(found.to_bits(), expected.to_bits(), "{}: {}", window, found);
            }
        }
    }
}
