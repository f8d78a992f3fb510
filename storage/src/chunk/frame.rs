//! Frame around a payload: header and checksum.

use super::{CHUNK_SAMPLES_MAX, ChunkError, from_ordered_bits, packed, starts};

/// Length of the longest header: tag, count, span and payload length.
pub(super) const HEADER_BYTES_MAX: usize = 1 + 3 + 9 + 3;
/// Length of the checksum after the payload.
const CHECKSUM_BYTES: usize = 4;
/// Limit of the payload length: see [`CHUNK_SAMPLES_MAX`].
const PAYLOAD_BYTES_MAX: u64 = 1 << 20;
/// Start, control bit, first delta, first value and end marker of a Gorilla payload.
const GORILLA_FIXED_BITS: usize = 64 + 1 + 14 + 64 + super::decode::END_MARKER_BITS;
/// Start, flag of the time before, and control of the first sample of a histogram payload.
const HISTOGRAM_FIXED_BITS: usize = 64 + 1 + 10;

/// Encoding of a payload: the tag of its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Encoding {
    /// Float samples in the bit format of the `tsz` crate.
    Gorilla = 1,
    /// Gorilla, followed by a column of start timestamps.
    GorillaStarts = 2,
    /// Float samples whose regular part is stored once.
    Packed = 3,
    /// Packed, followed by a column of start timestamps.
    PackedStarts = 4,
    /// Native histograms.
    Histograms = 16,
}

impl Encoding {
    /// Returns whether the samples are native histograms.
    pub fn is_histograms(self) -> bool {
        self == Encoding::Histograms
    }

    /// Returns the minimum length of a payload of `count` samples, in bits.
    fn payload_bits_min(self, count: usize) -> usize {
        let gorilla = GORILLA_FIXED_BITS + 2 * (count - 1);
        match self {
            Encoding::Gorilla => gorilla,
            Encoding::GorillaStarts => gorilla + 8 * (1 + starts::LENGTH_BYTES),
            Encoding::Packed => 8 * packed::PAYLOAD_BYTES_MIN,
            Encoding::PackedStarts => 8 * (packed::PAYLOAD_BYTES_MIN + 1 + starts::LENGTH_BYTES),
            Encoding::Histograms => HISTOGRAM_FIXED_BITS + 2 * (count - 1),
        }
    }
}

/// Decoded header of a frame.
///
/// Invariant: `min_ms <= max_ms`, `1 <= count <= CHUNK_SAMPLES_MAX`, and the payload is long enough
/// for the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Encoding of the payload.
    pub encoding: Encoding,
    /// Number of samples.
    pub count: u32,
    /// Time of the first sample, ms since the epoch.
    pub min_ms: i64,
    /// Time of the last sample.
    pub max_ms: i64,
    /// Offset of the payload.
    payload_start: u32,
    /// Length of the payload.
    payload_len: u32,
}

impl FrameHeader {
    /// Reads the header of the frame at the start of `bytes`.
    ///
    /// Does not verify the checksum, unlike [`FrameHeader::verify`] and
    /// [`Decoder::open`](super::Decoder::open).
    ///
    /// Errors: the frame is truncated, or a field has an impossible value.
    pub fn read(bytes: &[u8]) -> Result<FrameHeader, ChunkError> {
        let mut at = 0;
        let encoding = match bytes.first() {
            Some(1) => Encoding::Gorilla,
            Some(2) => Encoding::GorillaStarts,
            Some(3) => Encoding::Packed,
            Some(4) => Encoding::PackedStarts,
            Some(16) => Encoding::Histograms,
            Some(tag) => return Err(ChunkError::UnknownEncoding { tag: *tag }),
            None => return Err(ChunkError::Truncated { expected: 1, found: 0 }),
        };
        at += 1;
        let count = read_varint(bytes, &mut at, "sample count")?;
        let span_ms = read_varint(bytes, &mut at, "time span")?;
        let payload_len = read_varint(bytes, &mut at, "payload length")?;
        if count == 0 || count > CHUNK_SAMPLES_MAX as u64 {
            return Err(ChunkError::Header { field: "sample count", found: count });
        }
        if payload_len > PAYLOAD_BYTES_MAX
            || (payload_len as usize) * 8 < encoding.payload_bits_min(count as usize)
        {
            return Err(ChunkError::Header { field: "payload length", found: payload_len });
        }
        let expected = at + payload_len as usize + CHECKSUM_BYTES;
        if bytes.len() < expected {
            return Err(ChunkError::Truncated { expected, found: bytes.len() });
        }
        let min_ms = match bytes[at..].first_chunk::<8>() {
            Some(start) => from_ordered_bits(u64::from_be_bytes(*start)),
            None => return Err(ChunkError::Truncated { expected, found: bytes.len() }),
        };
        let max_ms = min_ms.checked_add_unsigned(span_ms);
        let is_possible = span_ms >= count - 1
            && span_ms <= i64::MAX.unsigned_abs()
            && (count > 1 || span_ms == 0);
        let (Some(max_ms), true) = (max_ms, is_possible) else {
            return Err(ChunkError::Header { field: "time span", found: span_ms });
        };
        Ok(FrameHeader {
            encoding,
            count: count as u32,
            min_ms,
            max_ms,
            payload_start: at as u32,
            payload_len: payload_len as u32,
        })
    }

    /// Returns the length of the frame, which is the offset of the next one.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.payload_end() + CHECKSUM_BYTES
    }

    /// Returns the offset of the payload.
    #[inline]
    pub fn payload_start(&self) -> usize {
        self.payload_start as usize
    }

    /// Returns the end of the payload.
    #[inline]
    pub fn payload_end(&self) -> usize {
        (self.payload_start + self.payload_len) as usize
    }

    /// Verifies the checksum of the frame at the start of `bytes`, from which the header was read.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), ChunkError> {
        let truncated = ChunkError::Truncated { expected: self.frame_len(), found: bytes.len() };
        let (body, rest) = bytes.split_at_checked(self.payload_end()).ok_or(truncated)?;
        let stored = rest.first_chunk::<CHECKSUM_BYTES>().ok_or(truncated)?;
        let expected = u32::from_le_bytes(*stored);
        let found = crc32c::crc32c(body);
        if found != expected {
            return Err(ChunkError::Checksum { expected, found });
        }
        Ok(())
    }
}

/// Returns the adjacent frames in `bytes`, each with its offset. Ends after an error.
pub fn frames(bytes: &[u8]) -> Frames<'_> {
    Frames { bytes, offset: 0 }
}

/// See [`frames`].
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl Iterator for Frames<'_> {
    type Item = Result<(usize, FrameHeader), ChunkError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let offset = self.offset;
        match FrameHeader::read(rest) {
            Ok(header) => {
                self.offset += header.frame_len();
                Some(Ok((offset, header)))
            }
            Err(error) => {
                self.offset = self.bytes.len();
                Some(Err(error))
            }
        }
    }
}

/// Writes a header; returns its length.
pub(super) fn write_header(
    header: &mut [u8; HEADER_BYTES_MAX],
    encoding: Encoding,
    count: usize,
    span_ms: u64,
    payload_len: usize,
) -> usize {
    header[0] = encoding as u8;
    let mut at = 1;
    write_varint(header, &mut at, count as u64);
    write_varint(header, &mut at, span_ms);
    write_varint(header, &mut at, payload_len as u64);
    at
}

fn write_varint(bytes: &mut [u8], at: &mut usize, mut number: u64) {
    while number >= 0x80 {
        bytes[*at] = number as u8 | 0x80;
        number >>= 7;
        *at += 1;
    }
    bytes[*at] = number as u8;
    *at += 1;
}

fn read_varint(bytes: &[u8], at: &mut usize, field: &'static str) -> Result<u64, ChunkError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let Some(byte) = bytes.get(*at) else {
            return Err(ChunkError::Truncated { expected: *at + 1, found: bytes.len() });
        };
        *at += 1;
        let digit = u64::from(byte & 0x7f);
        number |= digit << shift;
        if byte & 0x80 == 0 {
            let is_shortest = digit != 0 || shift == 0;
            let fits = digit << shift >> shift == digit;
            if is_shortest && fits {
                return Ok(number);
            }
            break;
        }
    }
    Err(ChunkError::Header { field, found: number })
}
