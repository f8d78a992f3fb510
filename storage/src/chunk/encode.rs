//! Encodes samples to frames.

use tsz::{DataPoint, Encode, StdEncoder};

use super::bits::BitWriter;
use super::frame::{self, Encoding};
use super::{CHUNK_SAMPLES_MAX, ordered_bits, starts};

/// Maximum number of samples of a chunk with start timestamps, which take more bytes each.
const STARTS_SAMPLES_MAX: usize = 1 << 14;

/// Appends samples to `out` as frames, one after the other; returns how many frames.
///
/// There is one frame, unless the format cannot hold the next sample (its delta of deltas is
/// not in −2³¹ < d ≤ 2³¹ ms, 24 days; or it is 2⁶³ ms away from the first), or the frame holds
/// [`CHUNK_SAMPLES_MAX`] samples already. There is no frame at all for no samples.
///
/// Shape: `timestamps` and `values` run in parallel.
/// Units: ms since the epoch.
/// Panics: the lengths differ, or times do not strictly ascend.
pub fn encode(timestamps: &[i64], values: &[f64], out: &mut Vec<u8>) -> usize {
    encode_pieces(timestamps, values, &[], out)
}

/// Encodes samples with the start timestamps of their counters; 0 stands for an unknown start.
/// `starts` may be shorter: missing ones are 0. Frames without any start are those of [`encode`].
pub fn encode_with_starts(
    timestamps: &[i64],
    values: &[f64],
    starts: &[i64],
    out: &mut Vec<u8>,
) -> usize {
    encode_pieces(timestamps, values, starts, out)
}

fn encode_pieces(timestamps: &[i64], values: &[f64], starts: &[i64], out: &mut Vec<u8>) -> usize {
    assert_eq!(timestamps.len(), values.len(), "as many times as values");
    let len_max = if starts.is_empty() { CHUNK_SAMPLES_MAX } else { STARTS_SAMPLES_MAX };
    let mut frame_count = 0;
    let mut start = 0;
    while start < timestamps.len() {
        let end = start + piece_len(&timestamps[start..], len_max);
        let starts = starts.get(start..end.min(starts.len())).unwrap_or_default();
        encode_frame(&timestamps[start..end], &values[start..end], starts, out);
        start = end;
        frame_count += 1;
    }
    frame_count
}

/// Returns the number of samples that fit into one chunk: at least one, if there is any.
fn piece_len(timestamps: &[i64], len_max: usize) -> usize {
    let mut delta_before = 0;
    for (index, pair) in timestamps.windows(2).enumerate() {
        assert!(pair[0] < pair[1], "times ascend: {} before {}", pair[0], pair[1]);
        // If the span fits, no difference below can overflow.
        let span = pair[1].checked_sub(timestamps[0]);
        if span.is_none() || index + 1 == len_max {
            return index + 1;
        }
        let delta = pair[1] - pair[0];
        if !is_held(delta - delta_before) {
            return index + 1;
        }
        delta_before = delta;
    }
    timestamps.len()
}

/// Returns whether the format can represent a delta of deltas.
///
/// It has 32 bits, where exactly 2³¹ reads as positive; 0 has a separate encoding.
#[inline]
pub(super) fn is_held(delta_of_deltas: i64) -> bool {
    const MAX: i64 = 1 << 31;
    -MAX < delta_of_deltas && delta_of_deltas <= MAX
}

fn encode_frame(timestamps: &[i64], values: &[f64], starts: &[i64], out: &mut Vec<u8>) {
    let has_starts = starts.iter().any(|start_ms| *start_ms != 0);
    let encoding = if has_starts { Encoding::GorillaStarts } else { Encoding::Gorilla };
    let Some(extent) = Extent::of(timestamps) else { return };
    write_frame(encoding, &extent, out, |out| {
        let mut encoder = StdEncoder::new(ordered_bits(extent.min_ms), BitWriter::new(out));
        for (timestamp, value) in timestamps.iter().zip(values) {
            encoder.encode(DataPoint::new(ordered_bits(*timestamp), *value));
        }
        encoder.close();
        if has_starts {
            starts::write(timestamps, starts, out);
        }
    });
}

/// Number and times of the samples of a frame, at least one.
pub(super) struct Extent {
    pub(super) count: usize,
    pub(super) min_ms: i64,
    pub(super) max_ms: i64,
}

impl Extent {
    /// Returns the extent of samples, if there are any.
    pub(super) fn of(timestamps: &[i64]) -> Option<Extent> {
        let (min_ms, max_ms) = (*timestamps.first()?, *timestamps.last()?);
        Some(Extent { count: timestamps.len(), min_ms, max_ms })
    }
}

/// Appends one frame. The length of the header depends on that of the payload. So the payload is
/// written after space for the longest header, and then moved.
pub(super) fn write_frame(
    encoding: Encoding,
    extent: &Extent,
    out: &mut Vec<u8>,
    write_payload: impl FnOnce(&mut Vec<u8>),
) {
    let frame_start = out.len();
    let payload_start = frame_start + frame::HEADER_BYTES_MAX;
    out.resize(payload_start, 0);
    write_payload(out);
    let payload_len = out.len() - payload_start;
    let mut header = [0; frame::HEADER_BYTES_MAX];
    let header_len = frame::write_header(
        &mut header,
        encoding,
        extent.count,
        extent.max_ms.abs_diff(extent.min_ms),
        payload_len,
    );
    out[frame_start..frame_start + header_len].copy_from_slice(&header[..header_len]);
    out.copy_within(payload_start.., frame_start + header_len);
    out.truncate(frame_start + header_len + payload_len);
    let checksum = crc32c::crc32c(&out[frame_start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}
