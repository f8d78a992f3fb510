//! Finds the regular part of samples, and encodes the rest.

use model::{is_stale, widest};

use super::{
    BITS, ENDED, LEAPING, POWERS, SAMPLES_MAX, SCALE_MAX, SHIFTED, SPARSE, WHOLE, bit_len,
};
use crate::chunk::bits::PendingBits;
use crate::chunk::encode::{Extent, write_frame};
use crate::chunk::frame::Encoding;
use crate::chunk::{ordered_bits, starts};
use crate::varint::{push_varint, zigzag};

/// Largest number up to which all whole numbers are exact floats.
const NUMBER_MAX: f64 = 9_007_199_254_740_992.0;
/// Approximate cost of a leap in bits.
const LEAP_BITS: usize = 40;
/// Number of samples from which a gap ends a frame, and the minimum of such a gap.
const PIECE_LEN_MIN: usize = 8;
const GAP_MS: i64 = 500;

/// Encoder of packed frames, whose buffers are used again for each frame.
#[derive(Debug, Default)]
pub struct PackedEncoder {
    distances: [Vec<i64>; 2],
    sorted: Vec<i64>,
    numbers: Vec<i64>,
    deltas: Vec<i64>,
    column: Vec<u64>,
    leaps: Vec<Leap>,
}

impl PackedEncoder {
    /// Appends samples to `out` as packed frames, one after the other; returns how many frames.
    /// `starts` has the start timestamps of the first samples; the others and 0 are unknown.
    ///
    /// Shape: `timestamps` and `values` run in parallel.
    /// Units: ms since the epoch.
    /// Panics: the lengths differ, or times do not strictly ascend.
    pub fn encode(
        &mut self,
        timestamps: &[i64],
        values: &[f64],
        starts: &[i64],
        out: &mut Vec<u8>,
    ) -> usize {
        assert_eq!(timestamps.len(), values.len(), "as many times as values");
        assert!(timestamps.is_sorted_by(|a, b| a < b), "times ascend");
        let mut frame_count = 0;
        let mut start = 0;
        while start < timestamps.len() {
            let end = start + piece_len(&timestamps[start..], &values[start..]);
            let (timestamps, values) = (&timestamps[start..end], &values[start..end]);
            let Some(extent) = Extent::of(timestamps) else { break };
            let starts = starts.get(start..end.min(starts.len())).unwrap_or_default();
            let has_starts = starts.iter().any(|start_ms| *start_ms != 0);
            let encoding = if has_starts { Encoding::PackedStarts } else { Encoding::Packed };
            write_frame(encoding, &extent, out, |out| {
                self.write(timestamps, values, out);
                if has_starts {
                    starts::write(timestamps, starts, out);
                }
            });
            start = end;
            frame_count += 1;
        }
        frame_count
    }

    /// Appends the payload.
    fn write(&mut self, timestamps: &[i64], values: &[f64], out: &mut Vec<u8>) {
        out.extend_from_slice(&ordered_bits(timestamps[0]).to_be_bytes());
        let times = Times::of(timestamps, &mut self.distances, &mut self.sorted);
        times.write_head(out);
        let PackedEncoder { numbers, deltas, column, leaps, .. } = self;
        let (values, is_ended) = match values {
            [before @ .., last] if !before.is_empty() && is_stale(*last) => (before, true),
            _ => (values, false),
        };
        let values = match scaled(values, numbers) {
            Some(scale) => Values::of_numbers(scale, numbers, deltas, column, leaps),
            None => Values::of_bits(values, column),
        };
        values.write_head(is_ended, out);
        times.write_columns(out);
        values.write_columns(out);
    }
}

/// Returns the number of samples of the next frame. It ends before a gap, which would make all
/// later times wide, and where NaN begins or ends, except before a single staleness marker.
fn piece_len(timestamps: &[i64], values: &[f64]) -> usize {
    for at in 1..timestamps.len() {
        let span = timestamps[at].checked_sub(timestamps[0]);
        let is_other = values[at].is_nan() != values[at - 1].is_nan();
        if at == SAMPLES_MAX || span.is_none() {
            return at;
        }
        if at >= PIECE_LEN_MIN {
            let delta = timestamps[at] - timestamps[at - 1];
            let before = timestamps[at - 1] - timestamps[at - 2];
            if delta - before > GAP_MS.max(before / 2) {
                return at;
            }
        }
        if is_other {
            let is_end = values.get(at + 1).is_none_or(|next| !next.is_nan());
            return at + usize::from(is_stale(values[at]) && is_end);
        }
    }
    timestamps.len()
}

/// Times of a frame as distances from regular ones.
struct Times<'a> {
    step: u64,
    lowest: i64,
    /// Distances from the regular times; empty if all are 0.
    distances: &'a [i64],
    width: u32,
    common: Option<i64>,
}

impl<'a> Times<'a> {
    fn of(
        timestamps: &[i64],
        distances: &'a mut [Vec<i64>; 2],
        sorted: &mut Vec<i64>,
    ) -> Times<'a> {
        let step = timestamps.get(1).map_or(0, |second| second - timestamps[0]);
        // Without an early end, the loop is vectorized.
        let is_regular =
            timestamps.windows(2).fold(true, |all, pair| all & (pair[1] - pair[0] == step));
        if is_regular {
            return Times { step: step as u64, lowest: 0, distances: &[], width: 0, common: None };
        }
        let count = timestamps.len() as i64;
        let span = timestamps[timestamps.len() - 1] - timestamps[0];
        sorted.clear();
        sorted.extend(timestamps.windows(2).map(|pair| pair[1] - pair[0]));
        let median = middle(sorted);
        let mean = span / (count - 1) + i64::from(span % (count - 1) * 2 >= count - 1);
        let [of_median, of_mean] = distances;
        let with_median = Times::with_step(timestamps, median, of_median, sorted);
        if mean == median {
            return with_median;
        }
        let with_mean = Times::with_step(timestamps, mean, of_mean, sorted);
        if with_mean.bits() < with_median.bits() { with_mean } else { with_median }
    }

    fn with_step(
        timestamps: &[i64],
        step: i64,
        distances: &'a mut Vec<i64>,
        sorted: &mut Vec<i64>,
    ) -> Times<'a> {
        let distance = |(at, timestamp): (usize, &i64)| {
            timestamp.wrapping_sub(timestamps[0]).wrapping_sub(step.wrapping_mul(at as i64))
        };
        distances.clear();
        distances.extend(timestamps.iter().enumerate().map(distance));
        let distances: &[i64] = distances;
        let lowest = distances.iter().copied().min().unwrap_or(0);
        let highest = distances.iter().copied().max().unwrap_or(0);
        let width = bit_len(highest.abs_diff(lowest));
        let dense = Times { step: step as u64, lowest, distances, width, common: None };
        // Sparse times take at least a bit each, so they cannot be smaller.
        if width <= 1 {
            return dense;
        }
        sorted.clear();
        sorted.extend_from_slice(distances);
        let sparse = Times { common: Some(middle(sorted)), ..dense };
        if sparse.bits() < dense.bits() { sparse } else { dense }
    }

    fn others(&self, common: i64) -> impl Iterator<Item = i64> + 'a {
        self.distances.iter().copied().filter(move |distance| *distance != common)
    }

    /// Returns the size of the columns in bits.
    fn bits(&self) -> usize {
        let width = self.width as usize;
        match self.common {
            None => self.distances.len() * width,
            Some(common) => {
                self.distances.len() + self.others(common).count() * width + 8 * LEAP_BITS / 10
            }
        }
    }

    fn write_head(&self, out: &mut Vec<u8>) {
        push_varint(out, self.step);
        let mark = if self.common.is_some() { SPARSE } else { 0 };
        out.push(self.width as u8 | mark);
        if self.width > 0 {
            push_varint(out, zigzag(self.lowest));
        }
        if let Some(common) = self.common {
            push_varint(out, zigzag(common));
            push_varint(out, self.others(common).count() as u64);
        }
    }

    fn write_columns(&self, out: &mut Vec<u8>) {
        let column = |distance: i64| distance.abs_diff(self.lowest);
        match self.common {
            _ if self.width == 0 => {}
            None => write_column(self.distances.iter().map(|d| column(*d)), self.width, out),
            Some(common) => {
                let is_other = |distance: &i64| u64::from(*distance != common);
                write_column(self.distances.iter().map(is_other), 1, out);
                write_column(self.others(common).map(column), self.width, out);
            }
        }
    }
}

/// Values of a frame, and their encoding.
struct Values<'a> {
    kind: u8,
    scale: u8,
    /// First number, for the kind with leaps.
    first: i64,
    /// Lowest number, or lowest bits.
    lowest: u64,
    /// Numbers without the lowest `shift` bits.
    column: &'a [u64],
    width: u32,
    shift: u32,
    leaps: &'a [Leap],
}

/// Difference that does not fit into the column.
#[derive(Debug, Clone, Copy)]
struct Leap {
    index: usize,
    /// Difference minus the lowest one.
    size: i64,
}

/// Differences of numbers in a column, of which the wide and the negative ones become leaps.
#[derive(Debug, Clone, Copy)]
struct LeapPlan {
    bits: usize,
    width: u32,
    lowest: i64,
}

impl LeapPlan {
    /// Returns the best width for differences from `lowest`.
    fn from_lowest(deltas: &[i64], lowest: i64) -> LeapPlan {
        let mut lengths = [0_usize; 65];
        let mut leap_count = 0;
        for delta in deltas {
            match delta.checked_sub(lowest) {
                Some(more) if more >= 0 => lengths[bit_len(more as u64) as usize] += 1,
                _ => leap_count += 1,
            }
        }
        let mut best = LeapPlan { bits: usize::MAX, width: 0, lowest };
        for width in (0..=64_u32).rev() {
            let bits = deltas.len() * width as usize + leap_count * LEAP_BITS;
            if (bits, width) < (best.bits, best.width) {
                best = LeapPlan { bits, width, lowest };
            }
            leap_count += lengths[width as usize];
        }
        best
    }

    /// Returns the best encoding of differences.
    fn of(deltas: &[i64]) -> LeapPlan {
        let lowest = deltas.iter().copied().min().unwrap_or(0);
        let rising = deltas.iter().copied().filter(|delta| *delta >= 0).min().unwrap_or(lowest);
        let of_lowest = LeapPlan::from_lowest(deltas, lowest);
        if rising == lowest {
            return of_lowest;
        }
        let of_rising = LeapPlan::from_lowest(deltas, rising);
        if of_rising.bits < of_lowest.bits { of_rising } else { of_lowest }
    }
}

impl<'a> Values<'a> {
    /// Chooses the encoding of numbers.
    fn of_numbers(
        scale: u8,
        numbers: &[i64],
        deltas: &mut Vec<i64>,
        column: &'a mut Vec<u64>,
        leaps: &'a mut Vec<Leap>,
    ) -> Values<'a> {
        deltas.clear();
        deltas.extend(numbers.windows(2).map(|pair| pair[1] - pair[0]));
        let shift = zero_bits(deltas.iter().map(|delta| *delta as u64));
        deltas.iter_mut().for_each(|delta| *delta >>= shift);
        let lowest = numbers.iter().copied().min().unwrap_or(0);
        let highest = numbers.iter().copied().max().unwrap_or(0);
        let width = bit_len(highest.abs_diff(lowest) >> shift);
        let leaping = LeapPlan::of(deltas);
        column.clear();
        if leaping.bits >= numbers.len() * width as usize {
            column.extend(numbers.iter().map(|number| number.abs_diff(lowest) >> shift));
            let (kind, lowest) = (WHOLE, lowest as u64);
            return Values { kind, scale, first: 0, lowest, column, width, shift, leaps: &[] };
        }
        let LeapPlan { width, lowest, .. } = leaping;
        leaps.clear();
        for (index, delta) in deltas.iter().enumerate() {
            let size = delta.wrapping_sub(lowest);
            let fits = *delta >= lowest && bit_len(size as u64) <= width;
            column.push(if fits { size as u64 } else { 0 });
            if !fits {
                leaps.push(Leap { index, size: size << shift });
            }
        }
        let first = numbers.first().copied().unwrap_or(0);
        let lowest = (lowest << shift) as u64;
        Values { kind: LEAPING, scale, first, lowest, column, width, shift, leaps }
    }

    /// Encodes the bits of floats that are no common decimals.
    fn of_bits(values: &[f64], column: &'a mut Vec<u64>) -> Values<'a> {
        let bits = || values.iter().map(|value| value.to_bits());
        let (lowest, highest) = (bits().min().unwrap_or(0), bits().max().unwrap_or(0));
        let shift = zero_bits(bits().map(|bits| bits - lowest));
        column.clear();
        column.extend(bits().map(|bits| (bits - lowest) >> shift));
        let width = bit_len((highest - lowest) >> shift);
        Values { kind: BITS, scale: 0, first: 0, lowest, column, width, shift, leaps: &[] }
    }

    fn write_head(&self, is_ended: bool, out: &mut Vec<u8>) {
        out.push(if is_ended { self.kind | ENDED } else { self.kind });
        if self.kind == BITS {
            out.extend_from_slice(&self.lowest.to_le_bytes());
            self.write_bits(out);
            return;
        }
        out.push(self.scale);
        if self.kind == LEAPING {
            push_varint(out, zigzag(self.first));
        }
        push_varint(out, zigzag(self.lowest as i64));
        self.write_bits(out);
        if self.kind == LEAPING {
            push_varint(out, self.leaps.len() as u64);
        }
    }

    fn write_bits(&self, out: &mut Vec<u8>) {
        if self.shift == 0 {
            out.push(self.width as u8);
        } else {
            out.extend([self.width as u8 | SHIFTED, self.shift as u8]);
        }
    }

    fn write_columns(&self, out: &mut Vec<u8>) {
        if self.width > 0 {
            write_column(self.column.iter().copied(), self.width, out);
        }
        let mut next = 0;
        for Leap { index, size } in self.leaps {
            push_varint(out, (index - next) as u64);
            push_varint(out, zigzag(*size));
            next = index + 1;
        }
    }
}

fn write_column(numbers: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    let mut pending = PendingBits::new();
    for number in numbers {
        pending.push(number, width, out);
    }
    pending.close(out);
}

/// Returns how many of the lowest bits are 0 in all numbers; 0 if all bits are.
fn zero_bits(numbers: impl Iterator<Item = u64>) -> u32 {
    let all = numbers.fold(0, |all, number| all | number);
    if all == 0 { 0 } else { all.trailing_zeros() }
}

/// Reorders numbers, and returns the median.
fn middle(numbers: &mut [i64]) -> i64 {
    let middle = numbers.len() / 2;
    *numbers.select_nth_unstable(middle).1
}

/// Writes the values to `numbers` as whole numbers with a common number of decimal places. Returns
/// this number; `None` if none is exact for all values.
fn scaled(values: &[f64], numbers: &mut Vec<i64>) -> Option<u8> {
    let mut scale = 0;
    numbers.resize(values.len(), 0);
    loop {
        let are_exact = widest(
            #[inline(always)]
            || {
                let mut are_exact = true;
                for (value, out) in values.iter().zip(&mut *numbers) {
                    let (number, is_exact) = number_of(*value, scale);
                    *out = number;
                    are_exact &= is_exact;
                }
                are_exact
            },
        );
        if are_exact {
            return Some(scale);
        }
        let is_exact = |value: f64, scale| number_of(value, scale).1;
        let other = values.iter().find(|value| !is_exact(**value, scale))?;
        scale = (scale + 1..=SCALE_MAX).find(|scale| is_exact(*other, *scale))?;
    }
}

/// Returns the number that is nearest to a value with decimal places, and whether it stands for
/// exactly this value.
#[inline(always)]
fn number_of(value: f64, scale: u8) -> (i64, bool) {
    let power = POWERS[scale as usize];
    let number = (value * power).round();
    let is_exact = (number.abs() <= NUMBER_MAX)
        & ((number as i64 as f64 / power).to_bits() == value.to_bits());
    (number as i64, is_exact)
}
