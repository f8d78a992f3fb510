//! Decoder of the hot path: the bits of `tsz::StdDecoder`, a batch at a time.
//!
//! One 8-byte load covers a timestamp and the head of a value (36 + 14 bits of at least 57), and
//! mostly the value's significant bits as well. An if-chain is faster than a table here: a
//! predicted branch gives the CPU the next bit position before the bits have arrived, a table does
//! not.

use std::ops::Range;

use model::{Advance, SampleBatch};

use super::ChunkError;
use super::bits::{LOADED_BITS, load, read_bits, read_wide};
use super::frame::{Encoding, FrameHeader};
use super::packed::Packed;
use super::starts::{self, StartsReader};

/// Length of the end marker of a stream: `1111`, then 32 zero bits.
pub(super) const END_MARKER_BITS: usize = 36;
const END_MARKER: u64 = 0b1111 << 32;
/// Number of samples that are skipped at a time.
const SKIPPED_LEN: usize = 64;
/// Bit offset of the first value, after the start of the stream, the control bit and the first
/// delta.
const FIRST_VALUE_BIT: usize = 64 + 1 + 14;

/// Forward-only reader of one chunk of floats, resumed at increasing bounds.
///
/// It holds some registers and a reference; it allocates only for start timestamps, once.
///
/// Invariant: the returned samples strictly ascend, for any bytes.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    floats: Floats<'a>,
    starts: Option<Box<StartsReader<'a>>>,
}

/// Reader of times and values, by encoding.
#[derive(Debug, Clone)]
enum Floats<'a> {
    Gorilla(Gorilla<'a>),
    Packed(Packed<'a>),
}

impl Floats<'_> {
    /// See [`Gorilla::run`].
    #[inline]
    fn run(
        &mut self,
        until_ms: i64,
        timestamps: &mut [i64],
        values: &mut [f64],
    ) -> Result<usize, ChunkError> {
        match self {
            Floats::Gorilla(gorilla) => gorilla.run(until_ms, timestamps, values),
            Floats::Packed(packed) => packed.run(until_ms, timestamps, values),
        }
    }

    #[inline]
    fn remaining(&self) -> u32 {
        match self {
            Floats::Gorilla(gorilla) => gorilla.remaining,
            Floats::Packed(packed) => packed.remaining(),
        }
    }

    #[cold]
    fn damaged(&self, detail: &'static str) -> ChunkError {
        match self {
            Floats::Gorilla(gorilla) => gorilla.damaged(detail),
            Floats::Packed(packed) => packed.damaged(detail),
        }
    }
}

/// Reader of Gorilla-encoded times and values.
#[derive(Debug, Clone)]
struct Gorilla<'a> {
    /// The frame, and possibly more bytes after it.
    bytes: &'a [u8],
    /// Bit offset of the next sample from the start of the frame.
    bit: usize,
    /// End of the payload, in bits.
    end_bit: usize,
    state: DecoderState,
    /// Time of the first sample.
    min_ms: i64,
    /// Time from the first sample to the last.
    span_ms: u64,
    count: u32,
    remaining: u32,
}

/// State of the sample before, which the bits of the next are relative to.
#[derive(Debug, Clone, Copy)]
struct DecoderState {
    /// Time since the first sample of the chunk; at most its span.
    offset_ms: u64,
    /// At most the span, so that the sum of both does not overflow.
    delta_ms: u64,
    value_bits: u64,
    window: BitWindow,
}

/// Position of the xor bits that a value stores; all others are 0.
#[derive(Debug, Clone, Copy)]
struct BitWindow {
    mask: u64,
    leading: u32,
    significant: u32,
}

impl BitWindow {
    /// Invariant: `significant` is 1 to 64, and both together are at most 64.
    #[inline(always)]
    fn new(leading: u32, significant: u32) -> BitWindow {
        let mask = u64::MAX << (64 - significant) >> leading;
        BitWindow { mask, leading, significant }
    }

    /// Moves the significant bits of a xor from the top of a word to their position.
    #[inline(always)]
    fn place(self, word: u64) -> u64 {
        word >> self.leading & self.mask
    }

    fn trailing(self) -> u32 {
        64 - self.leading - self.significant
    }
}

impl<'a> Decoder<'a> {
    /// Opens the frame at the start of `bytes`, and verifies its header and checksum.
    ///
    /// `bytes` may continue after the frame, and should do so for
    /// [`CHUNK_PADDING_BYTES`](super::CHUNK_PADDING_BYTES); their content does not matter.
    pub fn open(bytes: &'a [u8]) -> Result<Decoder<'a>, ChunkError> {
        let header = FrameHeader::read(bytes)?;
        header.verify(bytes)?;
        Decoder::new(bytes, &header)
    }

    /// Opens a frame whose checksum the caller has verified, or does not need.
    pub fn new(bytes: &'a [u8], header: &FrameHeader) -> Result<Decoder<'a>, ChunkError> {
        if bytes.len() < header.frame_len() {
            let (expected, found) = (header.frame_len(), bytes.len());
            return Err(ChunkError::Truncated { expected, found });
        }
        let payload = &bytes[..header.payload_end()];
        let (is_packed, has_starts) = match header.encoding {
            Encoding::Gorilla => (false, false),
            Encoding::GorillaStarts => (false, true),
            Encoding::Packed => (true, false),
            Encoding::PackedStarts => (true, true),
            Encoding::Histograms => {
                return Err(ChunkError::UnknownEncoding { tag: header.encoding as u8 });
            }
        };
        let (mut end, mut starts) = (header.payload_end(), None);
        if has_starts {
            let column;
            (end, column) = starts::split(payload, header.payload_start())?;
            starts = Some(Box::new(StartsReader::new(column, header.min_ms)));
        }
        let floats = if is_packed {
            Floats::Packed(Packed::new(bytes, header, end)?)
        } else {
            Floats::Gorilla(Gorilla::new(bytes, header, end)?)
        };
        Ok(Decoder { floats, starts })
    }

    /// Returns the column of times in the frame, if it is packed; empty for even times.
    pub(super) fn times_column(&self) -> Option<Range<usize>> {
        match &self.floats {
            Floats::Gorilla(_) => None,
            Floats::Packed(packed) => Some(packed.times_column()),
        }
    }

    /// Appends the next samples with `timestamp <= until_ms` to `batch`, until it is full or the
    /// bound is reached. Bounds never decrease.
    ///
    /// Errors: the payload does not match its header. The batch is unchanged then.
    pub fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, ChunkError> {
        let start = batch.len;
        if self.starts.is_some() {
            self.next_with_starts(until_ms, batch)?;
        } else {
            let (timestamps, values) = (&mut batch.timestamps, &mut batch.values);
            batch.len +=
                self.floats.run(until_ms, &mut timestamps[start..], &mut values[start..])?;
        }
        Ok(if self.floats.remaining() == 0 {
            Advance::End
        } else if batch.is_full() {
            Advance::Full
        } else {
            Advance::Reached
        })
    }

    /// Appends all samples. If start timestamps are known, appends them after those of all earlier
    /// samples, of which missing ones become 0.
    ///
    /// Errors: as for [`Decoder::next_batch`].
    pub fn read_all(
        mut self,
        timestamps: &mut Vec<i64>,
        values: &mut Vec<f64>,
        starts: &mut Vec<i64>,
    ) -> Result<(), ChunkError> {
        let (start, count) = (timestamps.len(), self.remaining());
        timestamps.resize(start + count, 0);
        values.resize(start + count, 0.0);
        let taken = self.floats.run(i64::MAX, &mut timestamps[start..], &mut values[start..]);
        let len = start + taken.as_ref().map_or(0, |taken| *taken);
        timestamps.truncate(len);
        values.truncate(len);
        taken?;
        if self.starts.is_some() {
            starts.resize(start, 0);
            self.read_starts(&timestamps[start..], |start_ms| starts.push(start_ms))?;
        }
        Ok(())
    }

    /// Appends times, values and start timestamps, or nothing if one is damaged.
    #[cold]
    fn next_with_starts(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<(), ChunkError> {
        let before = self.clone();
        let start = batch.len;
        let starts_before = batch.starts.len();
        let (timestamps, values) = (&mut batch.timestamps, &mut batch.values);
        let taken = self.floats.run(until_ms, &mut timestamps[start..], &mut values[start..])?;
        batch.starts.resize(start, 0);
        let timestamps = &timestamps[start..start + taken];
        let result = self.read_starts(timestamps, |start_ms| batch.starts.push(start_ms));
        match result {
            Ok(()) => batch.len += taken,
            Err(_) => {
                batch.starts.truncate(starts_before);
                // The next call fails again.
                *self = before;
            }
        }
        result
    }

    fn read_starts(&mut self, timestamps: &[i64], push: impl FnMut(i64)) -> Result<(), ChunkError> {
        let Some(starts) = self.starts.as_deref_mut() else { return Ok(()) };
        starts
            .read(timestamps, push)
            .and_then(|()| match self.floats.remaining() {
                0 => starts.check_end(),
                _ => Ok(()),
            })
            .map_err(|detail| self.floats.damaged(detail))
    }

    /// Skips the samples with `timestamp < start_ms`.
    ///
    /// Selections that begin inside a chunk start with this.
    pub fn skip_before(&mut self, start_ms: i64) -> Result<(), ChunkError> {
        let Some(until_ms) = start_ms.checked_sub(1) else { return Ok(()) };
        let (mut timestamps, mut values) = ([0; SKIPPED_LEN], [0.0; SKIPPED_LEN]);
        loop {
            let before = self.starts.is_some().then(|| self.clone());
            let taken = self.floats.run(until_ms, &mut timestamps, &mut values)?;
            if let Some(before) = before {
                let result = self.read_starts(&timestamps[..taken], |_| {});
                if result.is_err() {
                    *self = before;
                    return result;
                }
            }
            if taken < SKIPPED_LEN {
                return Ok(());
            }
        }
    }

    /// Returns the number of samples that have been neither returned nor skipped.
    pub fn remaining(&self) -> usize {
        self.floats.remaining() as usize
    }
}

impl<'a> Gorilla<'a> {
    /// Creates a reader of the payload that ends at a byte of the frame.
    fn new(
        bytes: &'a [u8],
        header: &FrameHeader,
        payload_end: usize,
    ) -> Result<Gorilla<'a>, ChunkError> {
        let first_bit = header.payload_start() * 8;
        let decoder = Gorilla {
            bytes,
            bit: first_bit + FIRST_VALUE_BIT,
            end_bit: payload_end * 8,
            state: DecoderState {
                offset_ms: 0,
                delta_ms: 0,
                value_bits: 0,
                window: BitWindow::new(0, 64),
            },
            min_ms: header.min_ms,
            span_ms: header.max_ms.abs_diff(header.min_ms),
            count: header.count,
            remaining: header.count,
        };
        match read_bits(bytes, first_bit + 64, 15) {
            0 => Ok(decoder),
            _ => Err(decoder.damaged("the first delta is not 0")),
        }
    }

    /// Decodes as many samples up to `until_ms` as fit, and returns their number.
    ///
    /// After an error the state is unchanged, so that the next call fails again.
    fn run(
        &mut self,
        until_ms: i64,
        timestamps: &mut [i64],
        values: &mut [f64],
    ) -> Result<usize, ChunkError> {
        let before = self.clone();
        let room = timestamps.len().min(self.remaining as usize);
        let result = self.run_from_first(until_ms, &mut timestamps[..room], &mut values[..room]);
        if result.is_err() {
            *self = before;
        }
        result
    }

    #[inline]
    fn run_from_first(
        &mut self,
        until_ms: i64,
        timestamps: &mut [i64],
        values: &mut [f64],
    ) -> Result<usize, ChunkError> {
        if timestamps.is_empty() || until_ms < self.min_ms {
            return Ok(0);
        }
        let mut taken = 0;
        if self.remaining == self.count {
            self.state.value_bits = read_bits(self.bytes, self.bit, 64);
            self.bit += 64;
            self.remaining -= 1;
            timestamps[0] = self.min_ms;
            values[0] = f64::from_bits(self.state.value_bits);
            taken = 1;
        }
        let bound_ms = until_ms.abs_diff(self.min_ms);
        let rest = self.run_rest(
            bound_ms.min(self.span_ms),
            &mut timestamps[taken..],
            &mut values[taken..],
        )?;
        taken += rest;
        self.remaining -= rest as u32;
        if taken < timestamps.len() && bound_ms >= self.span_ms {
            return Err(self.damaged("time passes the header's"));
        }
        if self.remaining == 0 {
            self.check_end()?;
        }
        Ok(taken)
    }

    /// Like [`Gorilla::run`], for the samples after the first of the chunk.
    ///
    /// ```text
    /// repeat: load 8 bytes at the sample's first bit
    ///         timestamp: 0, or a delta of deltas of 7, 9, 12 or 32 bits; stop beyond the bound
    ///         value:     as before, or a xor in the window before, or in a new window
    /// ```
    #[inline(always)]
    fn run_rest(
        &mut self,
        bound_ms: u64,
        timestamps: &mut [i64],
        values: &mut [f64],
    ) -> Result<usize, ChunkError> {
        let limit = timestamps.len();
        let values = &mut values[..limit];
        let bytes = self.bytes;
        let mut bit = self.bit;
        let mut state = self.state;
        let mut taken = 0;
        while taken < limit {
            let word = load(bytes, bit);
            let (mut delta_ms, mut timestamp_len) = (state.delta_ms, 1);
            if word >> 63 == 1 {
                let (delta_of_deltas, len) = read_delta_of_deltas(word);
                if len == END_MARKER_BITS as u32 && delta_of_deltas == 0 {
                    return Err(self.damaged_at("the stream ends early", taken, bit));
                }
                delta_ms = delta_ms.wrapping_add_signed(delta_of_deltas);
                timestamp_len = len;
                if delta_ms.wrapping_sub(1) >= self.span_ms {
                    return Err(self.damaged_at("time does not ascend", taken, bit));
                }
            }
            let offset_ms = state.offset_ms + delta_ms;
            if offset_ms > bound_ms {
                break;
            }
            state.delta_ms = delta_ms;
            state.offset_ms = offset_ms;

            let word = word << timestamp_len;
            let mut len = timestamp_len + 1;
            if word >> 63 == 1 {
                len += 1;
                let is_new = word >> 62 == 0b11;
                let mut word = word << 2;
                if is_new {
                    let leading = (word >> 58) as u32;
                    let significant = ((word >> 52) as u32 & 63) + 1;
                    if leading + significant > 64 {
                        return Err(self.damaged_at("a value is too wide", taken, bit));
                    }
                    state.window = BitWindow::new(leading, significant);
                    word <<= 12;
                    len += 12;
                }
                let window = state.window;
                let at = len;
                len += window.significant;
                state.value_bits ^= if len <= LOADED_BITS {
                    window.place(word)
                } else if window.significant <= LOADED_BITS {
                    window.place(load(bytes, bit + at as usize))
                } else {
                    read_wide(bytes, bit + at as usize, window.significant) << window.trailing()
                };
            }
            bit += len as usize;
            timestamps[taken] = self.min_ms.wrapping_add_unsigned(offset_ms);
            values[taken] = f64::from_bits(state.value_bits);
            taken += 1;
        }
        if bit + END_MARKER_BITS > self.end_bit {
            return Err(self.damaged_at("the payload ends early", taken, bit));
        }
        // Changes of the delta are checked where they are read; this checks a delta that never
        // changes.
        if taken > 0 && state.delta_ms == 0 {
            return Err(self.damaged_at("time does not ascend", taken, bit));
        }
        self.bit = bit;
        self.state = state;
        Ok(taken)
    }

    /// Checks the end of the stream after the last sample.
    fn check_end(&self) -> Result<(), ChunkError> {
        if self.state.offset_ms != self.span_ms {
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

/// Returns the delta of deltas at the top of a word that begins with 1, and its length in bits.
#[inline(always)]
fn read_delta_of_deltas(word: u64) -> (i64, u32) {
    if word >> 62 == 0b10 {
        (sign_extended(word << 2, 7), 9)
    } else if word >> 61 == 0b110 {
        (sign_extended(word << 3, 9), 12)
    } else if word >> 60 == 0b1110 {
        (sign_extended(word << 4, 12), 16)
    } else {
        (sign_extended(word << 4, 32), 36)
    }
}

/// Returns the topmost `count` bits as a signed number where 2ⁿ⁻¹ is positive: minus one, it is a
/// two's complement number.
#[inline(always)]
fn sign_extended(word: u64, count: u32) -> i64 {
    let unused = 64 - count;
    (word.wrapping_sub(1 << unused) as i64 >> unused) + 1
}
