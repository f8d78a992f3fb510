//! Chunks: an encoded run of one series, framed so that it stands alone.
//!
//! The head decides on the samples of a chunk, and the LSM on its location; this module alone
//! defines its bits.
//!
//! # The frame
//!
//! ```text
//! ┌─────┬─────────────┬─────────────┬─────────────┬───────────────────────────┬──────────┐
//! │ tag │ count       │ span        │ payload len │ payload                   │ crc32c   │
//! │ u8  │ varint ≥ 1  │ varint, ms  │ varint      │ first 8 bytes: min time   │ u32, LE  │
//! └─────┴─────────────┴─────────────┴─────────────┴───────────────────────────┴──────────┘
//!   1      1–3           1–9           1–3           10 and more                 4
//! ```
//!
//! - *tag*: how the payload is encoded ([`Encoding`]). 1 is Gorilla floats, 2 the same with
//!   starts, 3 packed floats, 4 the same with starts, 16 histograms; 5–15 are kept for other
//!   float codecs, 17–31 for histograms; 0 is never written, so that zeroed bytes are never a
//!   chunk.
//! - *varints* are LEB128, seven bits a byte, lowest first, and always of the shortest form.
//! - *span* is max time − min time, below 2⁶³.
//! - *min time* is not written twice: whatever the encoding, the payload begins with it, as 8
//!   bytes, big-endian, sign bit flipped (so bytes sort as times do).
//! - *crc32c* covers every byte of the frame before it.
//!
//! A frame of 120 samples at 15 s takes 11 bytes in addition to its payload.
//!
//! # The Gorilla payload
//!
//! Bit for bit what `tsz::StdEncoder` 0.1 writes, highest bit first:
//!
//! ```text
//! start:64 │ 0 │ 0:14 │ first value:64 │ (timestamp, value) × (count − 1) │ 1111 0:32 │ 0…0
//!
//! timestamp, by the delta of deltas d:          value, by its xor x with the value before:
//!   0                  d = 0                      0                       x = 0
//!   10    d:7          −63 ≤ d ≤ 64               10  significant bits    x fits the last window
//!   110   d:9         −255 ≤ d ≤ 256              11  leading zeros:6
//!   1110  d:12       −2047 ≤ d ≤ 2048                 significant − 1:6
//!   1111  d:32       −2³¹ < d ≤ 2³¹, d ≠ 0            significant bits
//! ```
//!
//! The start is always the first timestamp, because the format gives the distance between them
//! only 14 bits. A `d` of n bits is positive up to and including 2ⁿ⁻¹. `1111` with 32 zero bits
//! ends the stream; zero bits fill its last byte. Any other `d` does not fit the format, so a
//! chunk is cut before that sample ([`encode`]).
//!
//! # Packed floats, starts and histograms
//!
//! The head writes Gorilla, and appends to its frames ([`grow`]); a seal packs the frames that get
//! shorter ([`packed`]). The start timestamps of counters are in a column after the floats
//! ([`starts`]). Histograms have a separate payload ([`histogram`]).

mod bits;
mod decode;
mod encode;
mod error;
mod frame;
mod grow;
pub mod histogram;
mod packed;
mod starts;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use decode::Decoder;
pub use encode::{encode, encode_with_starts};
pub use error::ChunkError;
pub use frame::{Encoding, FrameHeader, Frames, frames};
pub use grow::{FrameEnd, grow};
pub use histogram::{HistogramBefore, HistogramDecoder, HistogramEncoder, encode_histograms};
pub use packed::PackedEncoder;

/// Maximum number of samples in a chunk: its payload stays below 1 MiB.
pub const CHUNK_SAMPLES_MAX: usize = 1 << 16;

/// Number of bytes after a frame that make each 8-byte load of the [`Decoder`] a plain one. With
/// fewer, the last loads are assembled byte by byte.
pub const CHUNK_PADDING_BYTES: usize = 16;

/// Returns the column of times of each packed frame, in frames end to end. It is empty for even
/// times.
pub(crate) fn times_columns(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    frames(bytes).filter_map(|frame| {
        let (offset, header) = frame.ok()?;
        let column = Decoder::new(&bytes[offset..], &header).ok()?.times_column()?;
        Some(offset + column.start..offset + column.end)
    })
}

/// Returns a time as an unsigned number in the same order.
#[inline]
fn ordered_bits(timestamp_ms: i64) -> u64 {
    timestamp_ms as u64 ^ 1 << 63
}

/// Inverts [`ordered_bits`].
#[inline]
fn from_ordered_bits(bits: u64) -> i64 {
    (bits ^ 1 << 63) as i64
}
