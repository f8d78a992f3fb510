//! Finds the regular part of samples, and encodes the rest.

use super::{BITS, LEAPING, POWERS, SAMPLES_MAX, SCALE_MAX, SPARSE, WHOLE, bit_len};
use crate::chunk::bits::PendingBits;
use crate::chunk::encode::{Extent, write_frame};
use crate::chunk::frame::Encoding;
use crate::chunk::ordered_bits;
use crate::varint::{push_varint, zigzag};

/// Largest number up to which all whole numbers are exact floats.
const NUMBER_MAX: f64 = 9_007_199_254_740_992.0;
/// Approximate cost of a leap in bits.
const LEAP_BITS: usize = 40;
/// Number of samples from which a gap ends a frame, and the minimum of such a gap.
const PIECE_LEN_MIN: usize = 8;
const GAP_MS: i64 = 500;

/// Appends samples to `out` as packed frames, one after the other; returns how many frames.
///
/// Shape: `timestamps` and `values` run in parallel.
/// Units: ms since the epoch.
/// Panics: the lengths differ, or times do not strictly ascend.
pub fn encode_packed(timestamps: &[i64], values: &[f64], out: &mut Vec<u8>) -> usize {
    assert_eq!(timestamps.len(), values.len(), "as many times as values");
    assert!(timestamps.is_sorted_by(|a, b| a < b), "times ascend");
    let mut frame_count = 0;
    let mut start = 0;
    while start < timestamps.len() {
        let end = start + piece_len(&timestamps[start..], &values[start..]);
        let (timestamps, values) = (&timestamps[start..end], &values[start..end]);
        let Some(extent) = Extent::of(timestamps) else { break };
        write_frame(Encoding::Packed, &extent, out, |out| write(timestamps, values, out));
        start = end;
        frame_count += 1;
    }
    frame_count
}

/// Returns the number of samples of the next frame. It ends before a gap, which would make all
/// later times wide, and where NaN begins or ends.
fn piece_len(timestamps: &[i64], values: &[f64]) -> usize {
    for at in 1..timestamps.len() {
        let span = timestamps[at].checked_sub(timestamps[0]);
        let is_other = values[at].is_nan() != values[at - 1].is_nan();
        if at == SAMPLES_MAX || is_other || span.is_none() {
            return at;
        }
        if at >= PIECE_LEN_MIN {
            let delta = timestamps[at] - timestamps[at - 1];
            let before = timestamps[at - 1] - timestamps[at - 2];
            if delta - before > GAP_MS.max(before / 2) {
                return at;
            }
        }
    }
    timestamps.len()
}

/// Appends the payload.
fn write(timestamps: &[i64], values: &[f64], out: &mut Vec<u8>) {
    out.extend_from_slice(&ordered_bits(timestamps[0]).to_be_bytes());
    let times = Times::of(timestamps);
    times.write_head(out);
    let values = Values::of(values);
    values.write_head(out);
    times.write_columns(out);
    values.write_columns(out);
}

/// Times of a frame as distances from regular ones.
struct Times {
    step: u64,
    lowest: i64,
    /// Distances from the regular times.
    distances: Vec<i64>,
    width: u32,
    common: Option<i64>,
}

impl Times {
    fn of(timestamps: &[i64]) -> Times {
        let count = timestamps.len() as i64;
        let span = timestamps[timestamps.len() - 1] - timestamps[0];
        if count == 1 {
            return Times { step: 0, lowest: 0, distances: Vec::new(), width: 0, common: None };
        }
        let mut deltas: Vec<i64> = timestamps.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let middle = deltas.len() / 2;
        let median = *deltas.select_nth_unstable(middle).1;
        let mean = span / (count - 1) + i64::from(span % (count - 1) * 2 >= count - 1);
        let with_median = Times::with_step(timestamps, median);
        if mean == median {
            return with_median;
        }
        let with_mean = Times::with_step(timestamps, mean);
        if with_mean.bits() < with_median.bits() { with_mean } else { with_median }
    }

    fn with_step(timestamps: &[i64], step: i64) -> Times {
        let distance = |(at, timestamp): (usize, &i64)| {
            timestamp.wrapping_sub(timestamps[0]).wrapping_sub(step.wrapping_mul(at as i64))
        };
        let distances: Vec<i64> = timestamps.iter().enumerate().map(distance).collect();
        let lowest = distances.iter().copied().min().unwrap_or(0);
        let highest = distances.iter().copied().max().unwrap_or(0);
        let width = bit_len(highest.abs_diff(lowest));
        let mut times = Times { step: step as u64, lowest, distances, width, common: None };
        let dense = times.bits();
        let mut sorted = times.distances.clone();
        let middle = sorted.len() / 2;
        times.common = Some(*sorted.select_nth_unstable(middle).1);
        if times.bits() >= dense {
            times.common = None;
        }
        times
    }

    fn others(&self, common: i64) -> impl Iterator<Item = i64> {
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
struct Values {
    kind: u8,
    scale: u8,
    /// First number, for the kind with leaps.
    first: i64,
    /// Lowest number, or lowest bits.
    lowest: u64,
    column: Vec<u64>,
    width: u32,
    /// Index and size of each leap.
    leaps: Vec<(usize, i64)>,
}

impl Values {
    fn of(values: &[f64]) -> Values {
        match numbers_of(values) {
            Some((scale, numbers)) => {
                let whole = Values::whole(scale, &numbers);
                let leaping = Values::leaping(scale, &numbers);
                if leaping.bits() < whole.bits() { leaping } else { whole }
            }
            None => {
                let bits = || values.iter().map(|value| value.to_bits());
                let lowest = bits().min().unwrap_or(0);
                let column: Vec<u64> = bits().map(|bits| bits - lowest).collect();
                Values::new(BITS, 0, 0, lowest, column)
            }
        }
    }

    /// Creates values without leaps.
    fn new(kind: u8, scale: u8, first: i64, lowest: u64, column: Vec<u64>) -> Values {
        let width = bit_len(column.iter().copied().fold(0, |all, number| all | number));
        Values { kind, scale, first, lowest, column, width, leaps: Vec::new() }
    }

    fn whole(scale: u8, numbers: &[i64]) -> Values {
        let lowest = numbers.iter().copied().min().unwrap_or(0);
        let column = numbers.iter().map(|number| number.abs_diff(lowest)).collect();
        Values::new(WHOLE, scale, 0, lowest as u64, column)
    }

    /// Encodes differences; the few that are wide or negative become leaps.
    fn leaping(scale: u8, numbers: &[i64]) -> Values {
        let deltas: Vec<i64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let with_lowest = |lowest: i64| {
            let mut lengths = [0_usize; 65];
            let mut leap_count = 0;
            for delta in &deltas {
                match delta.checked_sub(lowest) {
                    Some(more) if more >= 0 => lengths[bit_len(more as u64) as usize] += 1,
                    _ => leap_count += 1,
                }
            }
            let mut best = (usize::MAX, 0);
            for width in (0..=64).rev() {
                let bits = deltas.len() * width + leap_count * LEAP_BITS;
                best = best.min((bits, width as u32));
                leap_count += lengths[width];
            }
            best
        };
        let lowest = deltas.iter().copied().min().unwrap_or(0);
        let rising = deltas.iter().copied().filter(|delta| *delta >= 0).min().unwrap_or(lowest);
        let (of_lowest, of_rising) = (with_lowest(lowest), with_lowest(rising));
        let (lowest, width) =
            if of_rising.0 < of_lowest.0 { (rising, of_rising.1) } else { (lowest, of_lowest.1) };
        let mut leaps = Vec::new();
        let mut column = Vec::with_capacity(deltas.len());
        for (at, delta) in deltas.iter().enumerate() {
            let more = delta.wrapping_sub(lowest);
            let fits = *delta >= lowest && bit_len(more as u64) <= width;
            column.push(if fits { more as u64 } else { 0 });
            if !fits {
                leaps.push((at, more));
            }
        }
        let first = numbers.first().copied().unwrap_or(0);
        Values { kind: LEAPING, scale, first, lowest: lowest as u64, column, width, leaps }
    }

    fn bits(&self) -> usize {
        self.column.len() * self.width as usize + self.leaps.len() * LEAP_BITS
    }

    fn write_head(&self, out: &mut Vec<u8>) {
        out.push(self.kind);
        if self.kind == BITS {
            out.extend_from_slice(&self.lowest.to_le_bytes());
            out.push(self.width as u8);
            return;
        }
        out.push(self.scale);
        if self.kind == LEAPING {
            push_varint(out, zigzag(self.first));
        }
        push_varint(out, zigzag(self.lowest as i64));
        out.push(self.width as u8);
        if self.kind == LEAPING {
            push_varint(out, self.leaps.len() as u64);
        }
    }

    fn write_columns(&self, out: &mut Vec<u8>) {
        if self.width > 0 {
            write_column(self.column.iter().copied(), self.width, out);
        }
        let mut next = 0;
        for (at, leap) in &self.leaps {
            push_varint(out, (at - next) as u64);
            push_varint(out, zigzag(*leap));
            next = at + 1;
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

/// Returns the values as whole numbers with a common number of decimal places, if that is exact for
/// all.
fn numbers_of(values: &[f64]) -> Option<(u8, Vec<i64>)> {
    let mut scale = 0;
    for value in values {
        while number_of(*value, scale).is_none() {
            scale += 1;
            if scale > SCALE_MAX {
                return None;
            }
        }
    }
    // A number with few decimal places can be scaled further, unless it is too large.
    let numbers: Option<Vec<i64>> = values.iter().map(|value| number_of(*value, scale)).collect();
    numbers.map(|numbers| (scale, numbers))
}

fn number_of(value: f64, scale: u8) -> Option<i64> {
    let power = POWERS[scale as usize];
    let number = (value * power).round();
    let is_exact =
        number.abs() <= NUMBER_MAX && (number as i64 as f64 / power).to_bits() == value.to_bits();
    is_exact.then_some(number as i64)
}
