//! The decoder of the hot path: the bits of `tsz::StdDecoder`, a batch at a time.
//!
//! One 8-byte load covers a timestamp and the head of a value (36 + 14 bits of at least 57),
//! and mostly the value's significant bits as well. An if-chain beats a table here: a predicted
//! branch tells the CPU how far to advance before the bits have arrived, a table does not.

use model::{Advance, SAMPLE_BATCH_LEN, SampleBatch};

use super::ChunkError;
use super::frame::FrameHeader;

/// Length of the mark that ends a stream: `1111`, then 32 zero bits.
pub(super) const END_MARKER_BITS: usize = 36;
const END_MARKER: u64 = 0b1111 << 32;
/// How many bits an 8-byte load at any bit offset gives at least.
const LOADED_BITS: u32 = 57;
/// Start of the stream, control bit and first delta: the first value follows.
const FIRST_VALUE_BIT: usize = 64 + 1 + 14;

/// A forward-only reader of one chunk, resumed at ever later bounds.
///
/// It holds some registers and a reference, and allocates nothing.
/// Invariant: the samples that it gives strictly ascend, whatever the bytes are.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    /// The frame, and whatever lies behind it.
    bytes: &'a [u8],
    /// Where the next sample begins, in bits from the start of the frame.
    bit: usize,
    /// Where the payload ends, in bits.
    end_bit: usize,
    state: State,
    count: u32,
    remaining: u32,
    max_ms: i64,
}

/// What the bits of a sample are relative to: the sample before it.
#[derive(Debug, Clone, Copy)]
struct State {
    timestamp_ms: i64,
    delta_ms: i64,
    value_bits: u64,
    /// Width of the window that a value's xor is stored in.
    significant: u32,
    /// Zeros to the right of the window.
    trailing: u32,
}

impl<'a> Decoder<'a> {
    /// A decoder of the frame at the start of `bytes`, once its header and its checksum
    /// have been found good.
    ///
    /// `bytes` may go on behind the frame, and should do so for
    /// [`CHUNK_PADDING_BYTES`](super::CHUNK_PADDING_BYTES): what stands there is never used.
    pub fn open(bytes: &'a [u8]) -> Result<Decoder<'a>, ChunkError> {
        let header = FrameHeader::read(bytes)?;
        header.verify(bytes)?;
        Decoder::new(bytes, &header)
    }

    /// A decoder of a frame whose checksum the caller has verified, or does not care for.
    pub fn new(bytes: &'a [u8], header: &FrameHeader) -> Result<Decoder<'a>, ChunkError> {
        if bytes.len() < header.frame_len() {
            let (expected, found) = (header.frame_len(), bytes.len());
            return Err(ChunkError::Truncated { expected, found });
        }
        let first_bit = header.payload_start() * 8;
        let decoder = Decoder {
            bytes,
            bit: first_bit + FIRST_VALUE_BIT,
            end_bit: header.payload_end() * 8,
            state: State {
                timestamp_ms: header.min_ms,
                delta_ms: 0,
                value_bits: 0,
                significant: 64,
                trailing: 0,
            },
            count: header.count,
            remaining: header.count,
            max_ms: header.max_ms,
        };
        match read_bits(bytes, first_bit + 64, 15) {
            0 => Ok(decoder),
            _ => Err(decoder.damaged("the first delta is not 0")),
        }
    }

    /// Appends the next samples with `timestamp <= until_ms` to `batch`, until it is full or
    /// the bound is reached. Bounds never decrease.
    ///
    /// Errors: the payload is not what its header says. The batch is then as it was.
    pub fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, ChunkError> {
        let start = batch.len;
        let room = SAMPLE_BATCH_LEN - start;
        let timestamps = &mut batch.timestamps[start..start + room];
        let values = &mut batch.values[start..start + room];
        let taken = self.run(until_ms, room, |index, timestamp_ms, value| {
            timestamps[index] = timestamp_ms;
            values[index] = value;
        })?;
        batch.len += taken;
        Ok(if self.remaining == 0 {
            Advance::End
        } else if batch.is_full() {
            Advance::Full
        } else {
            Advance::Reached
        })
    }

    /// Passes over the samples with `timestamp < start_ms`, without keeping them.
    ///
    /// A selection that begins inside a chunk starts with this.
    pub fn skip_before(&mut self, start_ms: i64) -> Result<(), ChunkError> {
        if let Some(until_ms) = start_ms.checked_sub(1) {
            self.run(until_ms, usize::MAX, |_, _, _| {})?;
        }
        Ok(())
    }

    /// Samples that have not been handed over or passed over yet.
    pub fn remaining(&self) -> usize {
        self.remaining as usize
    }

    /// Decodes up to `room` samples, none of them later than `until_ms`, into `sink`, which is
    /// given their index from 0. Returns how many.
    ///
    /// After an error the decoder stands where it stood, so that asking again fails again.
    #[inline]
    fn run(
        &mut self,
        until_ms: i64,
        room: usize,
        mut sink: impl FnMut(usize, i64, f64),
    ) -> Result<usize, ChunkError> {
        let before = self.clone();
        let mut run = || {
            let room = room.min(self.remaining as usize);
            let mut taken = 0;
            if self.remaining == self.count {
                if room == 0 || self.state.timestamp_ms > until_ms {
                    return Ok(0);
                }
                self.state.value_bits = read_bits(self.bytes, self.bit, 64);
                self.bit += 64;
                self.remaining -= 1;
                sink(0, self.state.timestamp_ms, f64::from_bits(self.state.value_bits));
                taken = 1;
            }
            let limit = room - taken;
            let rest = self.run_rest(until_ms, limit, |index, timestamp_ms, value| {
                sink(taken + index, timestamp_ms, value);
            })?;
            taken += rest;
            self.remaining -= rest as u32;
            if taken > 0 && self.remaining == 0 {
                self.check_end()?;
            }
            Ok(taken)
        };
        let result = run();
        if result.is_err() {
            *self = before;
        }
        result
    }

    /// [`Decoder::run`] for the samples after the first of the chunk.
    ///
    /// ```text
    /// repeat: load 8 bytes at the sample's first bit
    ///         timestamp: 0, or a delta of deltas of 7, 9, 12 or 32 bits; stop beyond the bound
    ///         value:     as before, or a xor in the window before, or in a new window
    /// ```
    #[inline(always)]
    fn run_rest(
        &mut self,
        until_ms: i64,
        limit: usize,
        mut sink: impl FnMut(usize, i64, f64),
    ) -> Result<usize, ChunkError> {
        let bytes = self.bytes;
        let mut bit = self.bit;
        let mut state = self.state;
        let mut taken = 0;
        while taken < limit {
            let word = load(bytes, bit);
            let (delta_of_deltas, timestamp_len) = read_delta_of_deltas(word);
            if timestamp_len == END_MARKER_BITS as u32 && delta_of_deltas == 0 {
                return Err(self.damaged_at("the stream ends early", taken, bit));
            }
            let delta_ms = state.delta_ms.wrapping_add(delta_of_deltas);
            let timestamp_ms = state.timestamp_ms.wrapping_add(delta_ms);
            if timestamp_ms <= state.timestamp_ms {
                return Err(self.damaged_at("time does not ascend", taken, bit));
            }
            if timestamp_ms > until_ms {
                break;
            }
            state.delta_ms = delta_ms;
            state.timestamp_ms = timestamp_ms;

            let word = word << timestamp_len;
            let mut len = timestamp_len + 1;
            if word >> 63 == 1 {
                len += 1;
                if word >> 62 == 0b11 {
                    let leading = (word >> 56) as u32 & 63;
                    let significant = ((word >> 50) as u32 & 63) + 1;
                    if leading + significant > 64 {
                        return Err(self.damaged_at("a value is too wide", taken, bit));
                    }
                    state.significant = significant;
                    state.trailing = 64 - leading - significant;
                    len += 12;
                }
                let xor = if len + state.significant <= LOADED_BITS {
                    word << (len - timestamp_len) >> (64 - state.significant)
                } else {
                    read_bits(bytes, bit + len as usize, state.significant)
                };
                state.value_bits ^= xor << state.trailing;
                len += state.significant;
            }
            bit += len as usize;
            sink(taken, timestamp_ms, f64::from_bits(state.value_bits));
            taken += 1;
        }
        if bit + END_MARKER_BITS > self.end_bit {
            return Err(self.damaged_at("the payload ends early", taken, bit));
        }
        self.bit = bit;
        self.state = state;
        Ok(taken)
    }

    /// What must follow the last sample.
    fn check_end(&self) -> Result<(), ChunkError> {
        if self.state.timestamp_ms != self.max_ms {
            return Err(self.damaged("the last time is not the header's"));
        }
        if self.bit + END_MARKER_BITS > self.end_bit
            || read_bits(self.bytes, self.bit, END_MARKER_BITS as u32) != END_MARKER
        {
            return Err(self.damaged("the end is not marked"));
        }
        let unused = self.end_bit - self.bit - END_MARKER_BITS;
        if unused >= 8
            || (unused > 0 && read_bits(self.bytes, self.end_bit - unused, unused as u32) != 0)
        {
            return Err(self.damaged("bits follow the end"));
        }
        Ok(())
    }

    #[cold]
    fn damaged(&self, detail: &'static str) -> ChunkError {
        self.damaged_at(detail, 0, self.bit)
    }

    #[cold]
    fn damaged_at(&self, detail: &'static str, taken: usize, bit: usize) -> ChunkError {
        let sample_index = self.count - self.remaining + taken as u32;
        ChunkError::Payload { detail, sample_index, bit }
    }
}

/// The delta of deltas at the top of a word, and how many bits it takes.
#[inline(always)]
fn read_delta_of_deltas(word: u64) -> (i64, u32) {
    if word >> 63 == 0 {
        (0, 1)
    } else if word >> 62 == 0b10 {
        (sign_extended(word << 2, 7), 9)
    } else if word >> 61 == 0b110 {
        (sign_extended(word << 3, 9), 12)
    } else if word >> 60 == 0b1110 {
        (sign_extended(word << 4, 12), 16)
    } else {
        (sign_extended(word << 4, 32), 36)
    }
}

/// The topmost `count` bits as a signed number of which 2ⁿ⁻¹ is positive: shifted down by
/// one, it is a plain two's complement number.
#[inline(always)]
fn sign_extended(word: u64, count: u32) -> i64 {
    let unused = 64 - count;
    (word.wrapping_sub(1 << unused) as i64 >> unused) + 1
}

/// The bits from `bit` on, at the top of a word; at least [`LOADED_BITS`] of them.
#[inline(always)]
fn load(bytes: &[u8], bit: usize) -> u64 {
    let at = bit / 8;
    let word = match bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        Some(eight) => u64::from_be_bytes(*eight),
        None => load_tail(bytes, at),
    };
    word << (bit % 8)
}

/// Eight bytes of which the last ones may lie beyond the end: those are 0.
#[cold]
fn load_tail(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    if let Some(rest) = bytes.get(at..) {
        eight[..rest.len()].copy_from_slice(rest);
    }
    u64::from_be_bytes(eight)
}

/// `count` bits, 1 to 64, from `bit` on.
#[inline]
fn read_bits(bytes: &[u8], bit: usize, count: u32) -> u64 {
    let word = load(bytes, bit);
    if count <= LOADED_BITS {
        return word >> (64 - count);
    }
    let behind = load(bytes, bit + LOADED_BITS as usize);
    let high = word >> (64 - LOADED_BITS);
    let rest = count - LOADED_BITS;
    high << rest | behind >> (64 - rest)
}
