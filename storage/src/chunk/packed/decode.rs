//! Decodes packed floats, a run at a time.

use std::ops::Range;

use model::stale_nan;

use super::{BITS, ENDED, LEAPING, POWERS, SHIFTED, SPARSE, WHOLE};
use crate::chunk::ChunkError;
use crate::chunk::bits::{LOADED_BITS, load, read_bits};
use crate::chunk::frame::FrameHeader;
use crate::varint::{take_varint, unzigzag};

/// Reader of times and values.
///
/// Invariant: the returned times strictly ascend, for any bytes.
#[derive(Debug, Clone)]
pub(in crate::chunk) struct Packed<'a> {
    /// The frame, and possibly more bytes after it.
    bytes: &'a [u8],
    count: u32,
    /// Index of the next sample.
    next: u32,
    min_ms: i64,
    max_ms: i64,
    /// Time of the sample before the next.
    last_ms: i64,
    times: Times,
    values: Values<'a>,
}

/// Decoder state of the times.
#[derive(Debug, Clone, Copy)]
struct Times {
    step_ms: i64,
    lowest_ms: i64,
    column: Column,
    /// Set if most times have the same distance.
    sparse: Option<Sparse>,
}

#[derive(Debug, Clone, Copy)]
struct Sparse {
    common_ms: i64,
    /// Bits that mark times with another distance.
    marks: Column,
    /// Number of those, and of those already read.
    count: u32,
    taken: u32,
}

/// Decoder state of the values.
#[derive(Debug, Clone)]
struct Values<'a> {
    kind: u8,
    power: f64,
    lowest: u64,
    column: Column,
    /// True if the last sample is a staleness marker, which is not in the column.
    is_ended: bool,
    /// Number of low bits that the column lacks, because all its numbers have zeros there.
    shift: u32,
    /// Number of the sample before the next.
    number: i64,
    /// Unread leaps, and the index of the sample of the first one.
    leaps: &'a [u8],
    leap_count: u32,
    leap_at: u32,
}

/// Column of numbers with a fixed number of bits.
#[derive(Debug, Clone, Copy)]
struct Column {
    /// Offset in bits from the start of the frame.
    bit: usize,
    width: u32,
}

impl Column {
    /// Calls `take` with each number from `first` on.
    #[inline(always)]
    fn each(self, bytes: &[u8], first: usize, count: usize, mut take: impl FnMut(usize, u64)) {
        let mut bit = self.bit + first * self.width as usize;
        match self.width {
            0 => (0..count).for_each(|at| take(at, 0)),
            width @ 1..=LOADED_BITS => {
                for at in 0..count {
                    take(at, load(bytes, bit) >> (64 - width));
                    bit += width as usize;
                }
            }
            width => {
                for at in 0..count {
                    take(at, read_bits(bytes, bit, width));
                    bit += width as usize;
                }
            }
        }
    }

    #[inline]
    fn get(self, bytes: &[u8], at: usize) -> u64 {
        match self.width {
            0 => 0,
            width => read_bits(bytes, self.bit + at * width as usize, width),
        }
    }
}

impl Sparse {
    /// Decodes the times from one on up to the bound; returns their number. `time_of` returns the
    /// next time by its index among those with another distance.
    #[inline(always)]
    fn run(
        &mut self,
        bytes: &[u8],
        first: u32,
        until_ms: i64,
        timestamps: &mut [i64],
        mut time_of: impl FnMut(Option<usize>) -> i64,
    ) -> usize {
        let (mut marks, mut loaded) = (0, 0);
        for (at, timestamp_ms) in timestamps.iter_mut().enumerate() {
            if loaded == 0 {
                marks = load(bytes, self.marks.bit + first as usize + at);
                loaded = LOADED_BITS;
            }
            let is_other = marks >> 63 == 1 && self.taken < self.count;
            let other = is_other.then_some(self.taken as usize);
            let time_ms = time_of(other);
            if time_ms > until_ms {
                return at;
            }
            *timestamp_ms = time_ms;
            self.taken += u32::from(is_other);
            marks <<= 1;
            loaded -= 1;
        }
        timestamps.len()
    }
}

impl<'a> Packed<'a> {
    /// Opens the complete frame at the start of `bytes`, whose floats end at `end`.
    pub(in crate::chunk) fn new(
        bytes: &'a [u8],
        header: &FrameHeader,
        end: usize,
    ) -> Result<Packed<'a>, ChunkError> {
        let payload = bytes.get(header.payload_start() + 8..end).unwrap_or_default();
        parse(bytes, payload, header, end).map_err(|detail| ChunkError::Payload {
            detail,
            sample_index: 0,
            bit: header.payload_start() * 8,
        })
    }

    pub(in crate::chunk) fn remaining(&self) -> u32 {
        self.count - self.next
    }

    /// Returns the column of times in the frame: their bits, and the marks of others.
    pub(in crate::chunk) fn times_column(&self) -> Range<usize> {
        let first = self.times.sparse.map_or(self.times.column, |sparse| sparse.marks);
        first.bit / 8..self.values.column.bit / 8
    }

    /// Decodes as many samples up to `until_ms` as fit, and returns their number.
    ///
    /// After an error the state is unchanged, so that the next call fails again.
    pub(in crate::chunk) fn run(
        &mut self,
        until_ms: i64,
        timestamps: &mut [i64],
        values: &mut [f64],
    ) -> Result<usize, ChunkError> {
        let room = timestamps.len().min(self.remaining() as usize);
        if room == 0 || until_ms < self.min_ms {
            return Ok(0);
        }
        let before = (self.times, self.values.clone());
        let result = self.run_some(until_ms, &mut timestamps[..room], values);
        match result {
            Ok(taken) if taken > 0 => {
                self.last_ms = timestamps[taken - 1];
                self.next += taken as u32;
            }
            Ok(_) => {}
            Err(_) => (self.times, self.values) = before,
        }
        result
    }

    #[inline]
    fn run_some(
        &mut self,
        until_ms: i64,
        timestamps: &mut [i64],
        values: &mut [f64],
    ) -> Result<usize, ChunkError> {
        let taken = self.run_times(until_ms, timestamps);
        let timestamps = &timestamps[..taken];
        let mut before = self.last_ms;
        let mut ascends = true;
        for (at, timestamp_ms) in timestamps.iter().enumerate() {
            ascends &= *timestamp_ms > before || (self.next == 0 && at == 0);
            before = *timestamp_ms;
        }
        if !ascends {
            return Err(self.damaged("time does not ascend"));
        }
        if self.next == 0 && taken > 0 && timestamps[0] != self.min_ms {
            return Err(self.damaged("the first time is not the header's"));
        }
        self.run_values(&mut values[..taken]).map_err(|detail| self.damaged(detail))?;
        if taken == self.remaining() as usize {
            if before != self.max_ms {
                return Err(self.damaged("the last time is not the header's"));
            }
            let has_times = self.times.sparse.is_some_and(|sparse| sparse.taken < sparse.count);
            if has_times || self.values.leap_count > 0 || !self.values.leaps.is_empty() {
                return Err(self.damaged("more follows than there are samples"));
            }
        } else if before > self.max_ms {
            return Err(self.damaged("time passes the header's"));
        }
        Ok(taken)
    }

    /// Decodes the times up to the bound; returns their number.
    #[inline]
    fn run_times(&mut self, until_ms: i64, timestamps: &mut [i64]) -> usize {
        let Times { step_ms, lowest_ms, column, sparse } = &mut self.times;
        let first = self.next as usize;
        let mut at_ms = self.min_ms.wrapping_add(step_ms.wrapping_mul(first as i64));
        if let Some(sparse) = sparse {
            let common_ms = sparse.common_ms;
            return sparse.run(self.bytes, self.next, until_ms, timestamps, |other| {
                let distance = match other {
                    Some(other) => lowest_ms.wrapping_add_unsigned(column.get(self.bytes, other)),
                    None => common_ms,
                };
                let time_ms = at_ms.wrapping_add(distance);
                at_ms = at_ms.wrapping_add(*step_ms);
                time_ms
            });
        }
        let mut room = timestamps.len();
        if until_ms < self.max_ms
            && *step_ms > 0
            && let Some(earliest_ms) = at_ms.checked_add(*lowest_ms)
        {
            // No time is earlier than with the lowest distance.
            let possible = match until_ms.checked_sub(earliest_ms) {
                Some(span_ms) if span_ms < 0 => 0,
                Some(span_ms) => span_ms / *step_ms + 1,
                None => i64::MAX,
            };
            room = room.min(usize::try_from(possible).unwrap_or(usize::MAX));
        }
        at_ms = at_ms.wrapping_add(*lowest_ms);
        column.each(self.bytes, first, room, |at, more| {
            timestamps[at] = at_ms.wrapping_add_unsigned(more);
            at_ms = at_ms.wrapping_add(*step_ms);
        });
        if until_ms >= self.max_ms {
            return room;
        }
        timestamps[..room].iter().position(|time_ms| *time_ms > until_ms).unwrap_or(room)
    }

    #[inline]
    fn run_values(&mut self, mut values: &mut [f64]) -> Result<(), &'static str> {
        let first = self.next as usize;
        if self.values.is_ended
            && values.len() == self.remaining() as usize
            && let Some(last) = values.split_off_last_mut()
        {
            *last = stale_nan();
        }
        let Values { kind, power, lowest, column, shift, .. } = self.values;
        match kind {
            BITS => column.each(self.bytes, first, values.len(), |at, more| {
                values[at] = f64::from_bits(lowest.wrapping_add(more << shift));
            }),
            WHOLE => column.each(self.bytes, first, values.len(), |at, more| {
                values[at] = lowest.wrapping_add(more << shift) as i64 as f64;
            }),
            _ => self.run_leaping(values)?,
        }
        if kind != BITS && power != 1.0 {
            values.iter_mut().for_each(|value| *value /= power);
        }
        Ok(())
    }

    /// Decodes values from the differences of their numbers: the runs between leaps.
    #[inline]
    fn run_leaping(&mut self, values: &mut [f64]) -> Result<(), &'static str> {
        let Values { lowest, column, shift, .. } = self.values;
        let first = self.next as usize;
        let mut number = self.values.number;
        let mut at = 0;
        if first == 0 && !values.is_empty() {
            values[0] = number as f64;
            at = 1;
        }
        while at < values.len() {
            let leap_at = match self.values.leap_count {
                0 => usize::MAX,
                _ => self.values.leap_at as usize,
            };
            let end = values.len().min(leap_at.saturating_sub(first));
            let run = &mut values[at..end.max(at)];
            column.each(self.bytes, first + at - 1, run.len(), |at, more| {
                number = number.wrapping_add(lowest.wrapping_add(more << shift) as i64);
                run[at] = number as f64;
            });
            at = end.max(at);
            if at < values.len() {
                let leap = self.values.take_leap()?;
                number = number.wrapping_add(lowest as i64).wrapping_add(leap);
                values[at] = number as f64;
                at += 1;
            }
        }
        self.values.number = number;
        Ok(())
    }

    #[cold]
    pub(in crate::chunk) fn damaged(&self, detail: &'static str) -> ChunkError {
        let bit = self.values.column.bit;
        ChunkError::Payload { detail, sample_index: self.next, bit }
    }
}

impl Values<'_> {
    /// Returns the current leap, and finds the next one.
    fn take_leap(&mut self) -> Result<i64, &'static str> {
        let leap = take_varint(&mut self.leaps).map_err(|_| "a leap is cut short")?;
        self.leap_count -= 1;
        self.find_leap(u64::from(self.leap_at) + 1)?;
        Ok(unzigzag(leap))
    }

    fn find_leap(&mut self, from: u64) -> Result<(), &'static str> {
        if self.leap_count > 0 {
            let distance = take_varint(&mut self.leaps).map_err(|_| "a leap is cut short")?;
            let at = from.checked_add(distance).and_then(|at| u32::try_from(at).ok());
            self.leap_at = at.ok_or("a leap lies outside")?;
        }
        Ok(())
    }
}

/// Reads the fields before the columns, and locates the columns.
fn parse<'a>(
    bytes: &'a [u8],
    payload: &'a [u8],
    header: &FrameHeader,
    end: usize,
) -> Result<Packed<'a>, &'static str> {
    let rest = &mut &*payload;
    let (mut times, others) = parse_times(rest)?;
    let mut values = parse_values(rest)?;
    if others > header.count {
        return Err("more times than samples");
    }
    let count = header.count as usize;
    let mut start = end - rest.len();
    if let Some(sparse) = &mut times.sparse {
        sparse.marks = place(&mut start, rest, 1, count)?;
        times.column = place(&mut start, rest, times.column.width, others as usize)?;
    } else {
        times.column = place(&mut start, rest, times.column.width, count)?;
    }
    let value_count = count - usize::from(values.is_ended);
    if value_count == 0 {
        return Err("only a staleness marker is left");
    }
    let numbers = if values.kind == LEAPING { value_count - 1 } else { value_count };
    values.column = place(&mut start, rest, values.column.width, numbers)?;
    values.leaps = rest;
    // The first number is before the columns.
    values.find_leap(1)?;
    Ok(Packed {
        bytes,
        count: header.count,
        next: 0,
        min_ms: header.min_ms,
        max_ms: header.max_ms,
        last_ms: header.min_ms,
        times,
        values,
    })
}

/// Reads the fields of the times, without column offsets, and the number of other distances.
fn parse_times(rest: &mut &[u8]) -> Result<(Times, u32), &'static str> {
    let cut = |_| "times are cut short";
    let step_ms =
        i64::try_from(take_varint(rest).map_err(cut)?).map_err(|_| "a step is too long")?;
    let control = take_byte(rest)?;
    let width = u32::from(control & !SPARSE);
    let mut times = Times {
        step_ms,
        lowest_ms: 0,
        column: Column { bit: 0, width: checked_width(width)? },
        sparse: None,
    };
    if width > 0 {
        times.lowest_ms = unzigzag(take_varint(rest).map_err(cut)?);
    }
    if control & SPARSE == 0 {
        return Ok((times, 0));
    }
    let common_ms = unzigzag(take_varint(rest).map_err(cut)?);
    let count = u32::try_from(take_varint(rest).map_err(cut)?).map_err(|_| "too many times")?;
    let marks = Column { bit: 0, width: 1 };
    times.sparse = Some(Sparse { common_ms, marks, count, taken: 0 });
    Ok((times, count))
}

/// Reads the fields of the values, without the offsets of column and leaps.
fn parse_values<'a>(rest: &mut &'a [u8]) -> Result<Values<'a>, &'static str> {
    let cut = |_| "values are cut short";
    let control = take_byte(rest)?;
    let (kind, is_ended) = (control & !ENDED, control & ENDED != 0);
    let mut values = Values {
        kind,
        power: 1.0,
        lowest: 0,
        column: Column { bit: 0, width: 0 },
        is_ended,
        shift: 0,
        number: 0,
        leaps: &[],
        leap_count: 0,
        leap_at: 0,
    };
    match kind {
        BITS => {
            let (lowest, tail) = rest.split_first_chunk::<8>().ok_or("values are cut short")?;
            values.lowest = u64::from_le_bytes(*lowest);
            *rest = tail;
        }
        LEAPING | WHOLE => {
            let scale = take_byte(rest)?;
            values.power = *POWERS.get(usize::from(scale)).ok_or("unknown scale")?;
            if kind == LEAPING {
                values.number = unzigzag(take_varint(rest).map_err(cut)?);
            }
            values.lowest = unzigzag(take_varint(rest).map_err(cut)?) as u64;
        }
        _ => return Err("unknown kind of values"),
    }
    let control = take_byte(rest)?;
    values.column.width = checked_width(u32::from(control & !SHIFTED))?;
    if control & SHIFTED != 0 {
        values.shift = u32::from(take_byte(rest)?);
        if values.shift >= u64::BITS {
            return Err("a shift is too far");
        }
    }
    if kind == LEAPING {
        let count = take_varint(rest).map_err(cut)?;
        values.leap_count = u32::try_from(count).map_err(|_| "too many leaps")?;
    }
    Ok(values)
}

/// Locates a column of `count` numbers.
fn place(
    start: &mut usize,
    rest: &mut &[u8],
    width: u32,
    count: usize,
) -> Result<Column, &'static str> {
    let len = (count * width as usize).div_ceil(8);
    *rest = rest.get(len..).ok_or("a column is cut short")?;
    let column = Column { bit: *start * 8, width };
    *start += len;
    Ok(column)
}

fn take_byte(rest: &mut &[u8]) -> Result<u8, &'static str> {
    let (byte, tail) = rest.split_first().ok_or("the payload is cut short")?;
    *rest = tail;
    Ok(*byte)
}

fn checked_width(width: u32) -> Result<u32, &'static str> {
    if width <= 64 { Ok(width) } else { Err("a column is too wide") }
}
