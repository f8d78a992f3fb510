//! Ranges whose samples are at the same positions: their extremes, and sums over them, eight blocks
//! of ranges at a time.
//!
//! The bits of sums are those of [`Halves`](super::halves::Halves). In each of its two parts, every
//! addition needs the result of the previous one, but parts at different boundaries are
//! independent. A block is the ranges with the same boundary. All blocks are alike if a range is a
//! whole number of steps, a step a whole number of distances of samples, and no sample is missing.
//! So eight blocks are added in the lanes of a vector, from a transposed copy of their samples.
//!
//! ```text
//!            range 0 of a block
//!     (----------|------]
//!     |  front   | back |
//!          (-----|-----------]  range 1, one stride later: fewer samples in front, more at the back
//! ```
//!
//! If samples are further apart than steps, the ranges of every n-th step are alike.

use std::ops::Range;

use model::{PERIOD_MAX, Windows, widest};
use smallvec::SmallVec;

use crate::exec::numeric::compensated::{Sum, add};
use crate::exec::rollup::buffer::Samples;
use crate::exec::rollup::fold::PartialSum;

/// Blocks that are added together.
const LANES: usize = 8;
/// Maximum samples of a range. The transposed copy and the sums in front, 72 and 192 bytes for
/// each, then stay in the CPU cache.
const RANGE_SAMPLES_MAX: usize = 1 << 10;
/// Maximum samples of a range whose transposed copy and sums are on the stack: 17 KiB. Threads that
/// allocate them for each series may wait for each other.
const STACK_SAMPLES_MAX: usize = 64;

/// Ranges whose extremes are determined together. The buffers, 16 bytes for each of them and for
/// each step of a range, stay in the CPU cache.
const RANGES_AT_ONCE: usize = 512;

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
    /// Adds to each lane the value at `column + lane` of a row.
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

/// Ranges with the same number of samples, at nearly the same distances. In all blocks, ranges have
/// the same number of samples before and after the boundary.
pub(super) struct AlikeRanges<'a> {
    samples: Samples<'a>,
    /// Samples of the first range.
    first: Range<usize>,
    /// Number of ranges.
    count: usize,
    /// Number of samples from one range to the next.
    stride: usize,
    /// Number of ranges with the same boundary.
    block_ranges: usize,
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
        let (off_min_ms, off_max_ms) = widest(
            #[inline(always)]
            || {
                times
                    .iter()
                    .enumerate()
                    .map(off)
                    .fold((0, 0), |(min, max), off_ms| (off_ms.min(min), off_ms.max(max)))
            },
        );
        NearlyEven { first_ms, sample_ms, off_min_ms, off_max_ms }
    }

    /// Returns the number of samples up to a time. Returns `None` if jitter could change it at
    /// later times that are a multiple of `sample_ms` away.
    fn count_until(&self, time_ms: i64) -> Option<usize> {
        let passed_ms = time_ms - self.first_ms;
        let count = passed_ms.div_euclid(self.sample_ms) + 1;
        let rest_ms = passed_ms.rem_euclid(self.sample_ms);
        let is_same = rest_ms >= self.off_max_ms && rest_ms < self.sample_ms + self.off_min_ms;
        usize::try_from(count).ok().filter(|_| is_same)
    }
}

/// Writes the values of windows to `out`, as `put` computes them for alike ranges: those of all
/// windows, or of every n-th one if samples are further apart than windows. Samples before index
/// `lo` are in no window. Returns the samples of the last window; `None`, without effect, if the
/// ranges are not alike.
pub(super) fn roll(
    samples: Samples<'_>,
    lo: usize,
    windows: Windows,
    out: &mut [f64],
    mut put: impl FnMut(&AlikeRanges<'_>, &mut [f64]),
) -> Option<Range<usize>> {
    if let Some(ranges) = AlikeRanges::of(samples, lo, windows) {
        put(&ranges, out);
        return Some(ranges.last());
    }
    let period = period(&samples.times[lo..], windows).filter(|period| *period <= windows.count)?;
    let step_ms = windows.step_ms.checked_mul(period as i64)?;
    let every = |first: usize| Windows {
        first_end_ms: windows.end_ms(first),
        step_ms,
        count: (windows.count - first).div_ceil(period),
        ..windows
    };
    let alike = (0..period).map(|first| AlikeRanges::of(samples, lo, every(first)));
    let alike: Vec<AlikeRanges<'_>> = alike.collect::<Option<_>>()?;
    let mut values = vec![0.0; alike[0].count];
    for (first, ranges) in alike.iter().enumerate() {
        if first == 0 || !ranges.is_like(&alike[first - 1]) {
            put(ranges, &mut values[..ranges.count]);
        }
        let out = out[first..].iter_mut().step_by(period);
        out.zip(&values).for_each(|(out, value)| *out = *value);
    }
    Some(alike[(windows.count - 1) % period].last())
}

/// Returns the number of windows after which their samples repeat, if it is more than one and
/// small.
fn period(times: &[i64], windows: Windows) -> Option<usize> {
    let last_ms = windows.end_ms(windows.count.checked_sub(1)?);
    let times = &times[times.partition_point(|time_ms| *time_ms <= windows.after_ms(0))..];
    let times = &times[..times.partition_point(|time_ms| *time_ms <= last_ms)];
    let (first_ms, last_ms) = (*times.first()?, *times.last()?);
    let mean_ms = last_ms.checked_sub(first_ms)? / (times.len() as i64 - 1).max(1);
    // Whole seconds first, as scrape intervals are.
    let candidates = [(mean_ms + 500) / 1000 * 1000, mean_ms].into_iter();
    let periods = candidates.filter_map(|sample_ms| {
        let (mut common_ms, mut rest_ms) = (windows.step_ms, sample_ms);
        while rest_ms != 0 {
            (common_ms, rest_ms) = (rest_ms, common_ms % rest_ms);
        }
        usize::try_from(sample_ms.checked_div(common_ms)?).ok()
    });
    periods.into_iter().find(|period| (2..=PERIOD_MAX).contains(period))
}

impl<'a> AlikeRanges<'a> {
    /// Returns the ranges of windows; samples before index `lo` are in none of them. Returns `None`
    /// if they are not alike, have too many samples, or are fewer than a block.
    pub(super) fn of(samples: Samples<'a>, lo: usize, windows: Windows) -> Option<AlikeRanges<'a>> {
        let Windows { step_ms, span_ms, count, .. } = windows;
        let block_ranges = usize::try_from(span_ms.checked_div(step_ms)?).ok()?;
        // At least a block, so that the next range after them has another boundary: `Halves` has
        // not seen their samples, and would add to sums that lack them.
        if block_ranges == 0 || block_ranges > count || span_ms % step_ms != 0 {
            return None;
        }
        let (after_ms, end_ms) = (windows.first_end_ms.checked_sub(span_ms)?, windows.end_ms(0));
        let last_ms = windows.end_ms(count - 1);
        last_ms.checked_sub(after_ms)?;
        let times = &samples.times[lo..];
        let start = times.partition_point(|time_ms| *time_ms <= after_ms);
        let times = &times[start..];
        let times = &times[..times.partition_point(|time_ms| *time_ms <= last_ms)];
        // Of `count + block_ranges - 1` steps, the last one ends with the last window.
        let stride = times.len() / (count + block_ranges - 1);
        let len = stride * block_ranges;
        if stride == 0
            || len > RANGE_SAMPLES_MAX
            || times.len() != stride * (count + block_ranges - 1)
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
            block_ranges,
            skipped,
            front: front + skipped * stride,
            boundary: first + front,
        })
    }

    /// Returns whether the ranges of two windows have the same samples before and after their
    /// boundaries, as have all later ones.
    fn is_like(&self, other: &AlikeRanges<'_>) -> bool {
        let key = |ranges: &AlikeRanges<'_>| {
            (ranges.first.clone(), ranges.stride, ranges.skipped, ranges.front, ranges.boundary)
        };
        key(self) == key(other)
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

    /// Writes `result_of` the sums of each range to `out`.
    pub(super) fn sum(&self, out: &mut [f64], result_of: impl Fn(PartialSum) -> f64) {
        let mut columns = SmallVec::<[_; STACK_SAMPLES_MAX]>::new();
        columns.resize(self.first.len(), [0.0; LANES + 1]);
        let mut fronts = SmallVec::<[_; STACK_SAMPLES_MAX]>::new();
        fronts.resize(self.block_ranges, Lanes::default());
        for block in (0..(self.skipped + self.count).div_ceil(self.block_ranges)).step_by(LANES) {
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
                                let number = (block + lane) * self.block_ranges + range;
                                // Other numbers are of ranges before the first or after the last
                                // one.
                                if let Some(out) = out.get_mut(number.wrapping_sub(self.skipped)) {
                                    *out = value;
                                }
                            }
                        },
                        &result_of,
                    );
                },
            );
        }
    }

    /// Writes the extreme of each range to `out`; `better_of` gets values in the order of their
    /// samples.
    ///
    /// The extremes of one step are combined to those of two steps, four, and so on. Two of these
    /// cover a range, whatever its length.
    pub(super) fn extremes(&self, out: &mut [f64], better_of: impl Fn(f64, f64) -> f64 + Copy) {
        let mut buffers: [SmallVec<[f64; 2 * RANGES_AT_ONCE]>; 2] = Default::default();
        for (part, out) in out.chunks_mut(RANGES_AT_ONCE).enumerate() {
            let mut count = out.len() + self.block_ranges - 1;
            buffers.iter_mut().for_each(|buffer| buffer.resize(count, 0.0));
            let [extremes, longer] = &mut buffers;
            let (mut extremes, mut longer) = (&mut extremes[..], &mut longer[..]);
            let samples = &self.samples.values[self.range(part * RANGES_AT_ONCE).start..];
            widest(
                #[inline(always)]
                || {
                    for (extreme, samples) in
                        extremes.iter_mut().zip(samples.chunks_exact(self.stride))
                    {
                        *extreme = samples[1..]
                            .iter()
                            .fold(samples[0], |extreme, value| better_of(extreme, *value));
                    }
                    let mut steps = 1;
                    while 2 * steps <= self.block_ranges {
                        count -= steps;
                        combine(&mut longer[..count], extremes, steps, better_of);
                        (extremes, longer, steps) = (longer, extremes, 2 * steps);
                    }
                    combine(out, extremes, self.block_ranges - steps, better_of);
                },
            );
        }
    }

    /// Copies the samples around the boundaries of eight blocks, the first of which is `block`.
    ///
    /// Shape: `[sample][column]`; a column is the samples from one boundary to the next, and the
    /// first one ends at the boundary of `block`. Absent samples, which no wanted range has, are
    /// not written.
    #[inline(always)]
    fn transpose(&self, block: usize, columns: &mut [[f64; LANES + 1]]) {
        let (values, len) = (self.samples.values, self.first.len());
        for column in 0..=LANES {
            let end_of_column = self.boundary + (block + column) * len;
            let absent = len.saturating_sub(end_of_column);
            let Some(present) = values.get(end_of_column.saturating_sub(len)..) else { return };
            for (row, value) in columns[absent..].iter_mut().zip(present) {
                row[column] = *value;
            }
        }
    }

    /// Calls `put` with the number of each range in a block, and `result_of` its sums in each of
    /// eight blocks.
    #[inline(always)]
    fn sum_blocks(
        &self,
        columns: &[[f64; LANES + 1]],
        fronts: &mut [Lanes],
        mut put: impl FnMut(usize, [f64; LANES]),
        result_of: impl Fn(PartialSum) -> f64,
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
            let sums = |lane| front.of(lane).merged(part.of(lane));
            put(range, std::array::from_fn(|lane| result_of(sums(lane))));
        }
    }
}

/// Writes to `out` the better of each value and the one `distance` later.
#[inline(always)]
fn combine(out: &mut [f64], values: &[f64], distance: usize, better_of: impl Fn(f64, f64) -> f64) {
    for ((out, first), second) in out.iter_mut().zip(values).zip(&values[distance..]) {
        *out = better_of(*first, *second);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use model::{Budget, Checkpoint};

    use super::*;
    use crate::exec::rollup::buffer::{Buffer, Frame, Kernel, Ranges, RowSteps};
    use crate::exec::rollup::extreme::Extreme;
    use crate::exec::rollup::fold::Fold;
    use crate::steps::{LookTimes, Reach};
    use crate::tile::is_present;

    /// Kernel without methods for several ranges.
    struct Walked<K>(K);

    impl<K: Kernel> Kernel for Walked<K> {
        fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
            self.0.value(frame)
        }
    }

    /// Rolls over tiles of `width` steps; returns the bits of each step's value.
    fn rolled<K: Kernel>(
        mut kernel: K,
        samples: &[(i64, f64)],
        times: LookTimes,
        range_ms: i64,
        width: usize,
    ) -> Vec<Option<u64>> {
        let ranges = Ranges { times, range_ms, margin: Reach { back_ms: 0, ahead_ms: 0 } };
        let mut checkpoint = Checkpoint::new(&Budget::unlimited());
        let (mut buffer, mut read, mut found) = (Buffer::default(), 0, Vec::new());
        for first in (0..times.count).step_by(width) {
            let count = width.min(times.count - first);
            let until_ms = ranges.until_ms(first + count - 1);
            let next = samples.partition_point(|(time_ms, _)| *time_ms <= until_ms).max(read);
            let (times, values): (Vec<i64>, Vec<f64>) = samples[read..next].iter().copied().unzip();
            buffer.extend(&times, &values);
            read = next;
            let (mut row, mut presence) = (vec![0.0; count], vec![0; count.div_ceil(64)]);
            let steps = RowSteps { first, done: 0, end: count };
            buffer
                .roll(&mut kernel, &ranges, steps, &mut row, &mut presence, &mut checkpoint)
                .expect("there is no limit");
            buffer.compact();
            let bits = |at: usize| is_present(&presence, at).then(|| row[at].to_bits());
            found.extend((0..count).map(bits));
        }
        found
    }

    fn values() -> impl Strategy<Value = Vec<f64>> {
        let large = [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -f64::MAX];
        let odd = [&large[..], &[0.0, -0.0, 1e-300]].concat();
        let odd_percent = prop_oneof![Just(0), Just(2), Just(90)];
        let value = odd_percent.prop_flat_map(move |percent| {
            let decimal = (-5_000_i32..5_000).prop_map(|number| f64::from(number) / 1000.0);
            (0..100, prop::sample::select(odd.clone()), decimal)
                .prop_map(move |(draw, odd, decimal)| if draw < percent { odd } else { decimal })
        });
        prop::collection::vec(value, 1..700)
    }

    #[test]
    fn steps_closer_than_samples_are_alike_every_few_steps() {
        let times: Vec<i64> = (0..400).map(|at| 3_000 + at * 15_000 + at % 2 * 40).collect();
        let values = vec![0.1; times.len()];
        for (step_ms, is_alike) in [(15_000, true), (5_000, true), (20_000, true), (7_777, false)] {
            let span_ms = 60 * step_ms;
            let windows = Windows { first_end_ms: span_ms + 1_000, step_ms, span_ms, count: 120 };
            let mut out = vec![f64::NAN; windows.count];
            let put = |ranges: &AlikeRanges<'_>, out: &mut [f64]| {
                Fold::new(true).roll_alike(ranges, out);
            };
            let last = roll(Samples::new(&times, &values, 0), 0, windows, &mut out, put);
            assert_eq!(last.is_some(), is_alike, "{step_ms}");
            assert!(out.iter().all(|value| (*value == 0.1) == is_alike), "{step_ms}: {out:?}");
        }
    }

    proptest! {
        #[test]
        fn alike_ranges_have_the_values_of_single_ranges(
            values in values(),
            sample_ms in 1_i64..20,
            first_ms in -5_000_i64..5_000,
            jitter_ms in prop_oneof![2 => Just(0), 1 => 1_i64..6],
            jitter in prop::collection::vec(0_i64..100, 700),
            missing in prop_oneof![4 => Just(usize::MAX), 1 => 0_usize..700],
            stride in 1_usize..6,
            block_ranges in 1_usize..9,
            skipped in 0_usize..30,
            age_ms in 0_i64..20,
            is_second_function: bool,
        ) {
            let late = |at: usize| jitter[at] % (jitter_ms + 1).min(sample_ms);
            let time = |at: usize| first_ms + at as i64 * sample_ms + late(at);
            let (times, values): (Vec<i64>, Vec<f64>) = (0..values.len())
                .filter(|at| *at != missing)
                .map(|at| (time(at), values[at]))
                .unzip();
            let len = stride * block_ranges;
            prop_assume!(skipped + len <= values.len());
            let count = (values.len() - skipped - len) / stride + 1;
            let step_ms = stride as i64 * sample_ms;
            let windows = Windows {
                first_end_ms: first_ms + (skipped + len) as i64 * sample_ms - age_ms % sample_ms,
                step_ms,
                span_ms: block_ranges as i64 * step_ms,
                count,
            };
            let samples = Samples::new(&times, &values, 7);
            let until = |time_ms: i64| times.partition_point(|time| *time <= time_ms);
            let range = |window| until(windows.after_ms(window))..until(windows.end_ms(window));
            let Some(alike) = AlikeRanges::of(samples, skipped.min(range(0).start), windows) else {
                let is_plain = jitter_ms == 0 && missing == usize::MAX && count >= block_ranges;
                prop_assert!(!is_plain || range(count - 1).len() < len);
                return Ok(());
            };
            prop_assert_eq!(alike.last(), range(count - 1));
            let (mut sums, mut extremes) = (vec![0.0; count], vec![0.0; count]);
            Fold::new(is_second_function).roll_alike(&alike, &mut sums);
            Extreme::<false>::new(is_second_function).roll_alike(&alike, &mut extremes);
            for window in 0..count {
                let Range { start: lo, end: hi } = range(window);
                let (start_ms, end_ms) = (windows.after_ms(window), windows.end_ms(window));
                let frame = Frame { samples, lo, hi, start_ms, end_ms, step: window };
                let found = [sums[window], extremes[window]];
                let expected = [
                    Fold::new(is_second_function).value(&frame),
                    Extreme::<false>::new(is_second_function).value(&frame),
                ];
                let bits = |value: f64| Some(value.to_bits());
                let expected_bits = expected.map(|value| value.and_then(bits));
                prop_assert_eq!(found.map(bits), expected_bits, "{}: {:?}", window, found);
            }
        }

        #[test]
        fn tiles_of_ranges_have_the_values_of_single_ranges(
            values in values(),
            sample_ms in prop::sample::select(vec![3_i64, 6, 15, 1_000, 15_000]),
            first_ms in -50_000_i64..50_000,
            jitter in prop::collection::vec(0_i64..100, 700),
            is_jittery: bool,
            missing in prop::collection::vec(0_usize..700, 0..3),
            (step_of, steps_of) in prop::sample::select(vec![(1, 1), (2, 1), (3, 1), (40, 1), (1, 3), (2, 3), (4, 3)]),
            range_steps in 1_i64..12,
            divisor in prop_oneof![2 => Just(1), 1 => Just(12)],
            age_ms in -20_000_i64..20_000,
            width in prop::sample::select(vec![64_usize, 100, 512]),
            is_second_function: bool,
        ) {
            let late = |at: usize| if is_jittery { jitter[at] % (1 + sample_ms / 3) } else { 0 };
            let samples: Vec<(i64, f64)> = (0..values.len())
                .filter(|at| !missing.contains(at))
                .map(|at| (first_ms + at as i64 * sample_ms + late(at), values[at]))
                .collect();
            let step_ms = sample_ms * step_of / steps_of;
            let count = (values.len() as i64 * sample_ms / step_ms) as usize + 9;
            let times = LookTimes { first_ms: first_ms + age_ms % (3 * step_ms), step_ms, count };
            let range_ms = (range_steps * step_ms / divisor).max(1);
            let sum = || Fold::new(is_second_function);
            let found = rolled(sum(), &samples, times, range_ms, width);
            let expected = rolled(Walked(sum()), &samples, times, range_ms, width);
            prop_assert_eq!(found, expected);
            let extreme = || Extreme::<false>::new(is_second_function);
            let found = rolled(extreme(), &samples, times, range_ms, width);
            let expected = rolled(Walked(extreme()), &samples, times, range_ms, width);
            prop_assert_eq!(found, expected);
        }
    }
}
