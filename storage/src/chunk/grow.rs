//! Gorilla frames that grow: samples are appended without decoding those before.

use std::num::NonZeroU16;

use super::bits::PendingBits;
use super::encode::{Extent, write_frame};
use super::frame::{Encoding, FrameHeader};
use super::ordered_bits;

/// Maximum length of a sample in bits: time, control bits, window and significant bits of the value.
const SAMPLE_BITS_MAX: usize = 36 + 2 + 12 + 64;
/// Length of the start of a payload with its first sample.
const FIRST_SAMPLE_BITS: usize = 64 + 1 + 14 + 64;
/// Distances of samples below this have deltas of deltas that the format can hold.
const DELTA_MS_END: i64 = 1 << 31;
/// Marks that no value has stored its own window of bits.
const NO_WINDOW: u8 = 64;

/// End of a frame: where the next sample is written, and what it is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameEnd {
    /// Bits of the payload before the end marker.
    bits: NonZeroU16,
    /// Zeros around the last window of bits.
    leading: u8,
    trailing: u8,
    /// Distance of the last two samples; 0 of a single one.
    delta_ms: u32,
    /// Bits of the last value.
    value_bits: u64,
}

/// Appends to `out` the frame of more samples: those of the frame in `before`, if any, and `samples`.
/// Its bytes are those of [`encode`](super::encode). Returns its end.
///
/// Returns `None`, without effect, if the frame in `before` is damaged or no Gorilla frame, if there are
/// no samples, or if they are too many or too far apart for a frame that grows.
pub fn grow(
    before: Option<(&[u8], FrameEnd)>,
    samples: &[(i64, f64)],
    out: &mut Vec<u8>,
) -> Option<FrameEnd> {
    let (first, last) = (samples.first()?, samples.last()?);
    let before = match before {
        None => None,
        Some((frame, end)) => {
            let header = FrameHeader::read(frame).ok()?;
            header.verify(frame).ok().filter(|()| header.encoding == Encoding::Gorilla)?;
            Some((frame, header, end))
        }
    };
    let bits = before.map_or(FIRST_SAMPLE_BITS, |(_, _, end)| usize::from(end.bits.get()));
    if bits + samples.len() * SAMPLE_BITS_MAX > usize::from(u16::MAX) {
        return None;
    }
    let known_ms = before.map(|(_, header, _)| header.max_ms);
    let times = known_ms.into_iter().chain(samples.iter().map(|(timestamp_ms, _)| *timestamp_ms));
    let is_near = |(before_ms, next_ms): (i64, i64)| {
        next_ms.checked_sub(before_ms).is_some_and(|delta_ms| (1..DELTA_MS_END).contains(&delta_ms))
    };
    if !times.clone().zip(times.skip(1)).all(is_near) {
        return None;
    }
    let extent = Extent {
        count: before.map_or(0, |(_, header, _)| header.count as usize) + samples.len(),
        min_ms: before.map_or(first.0, |(_, header, _)| header.min_ms),
        max_ms: last.0,
    };
    extent.max_ms.checked_sub(extent.min_ms)?;
    let mut end = None;
    write_frame(Encoding::Gorilla, &extent, out, |out| {
        let (mut writer, rest) = match before {
            Some((frame, header, end)) => (Writer::resume(frame, &header, end, out), samples),
            None => (Writer::begin(*first, out), &samples[1..]),
        };
        rest.iter().for_each(|(timestamp_ms, value)| writer.push(*timestamp_ms, *value));
        end = Some(writer.close());
    });
    end
}

/// Writer of the samples of a payload.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    pending: PendingBits,
    bits: u32,
    leading: u32,
    trailing: u32,
    before_ms: i64,
    delta_ms: i64,
    value_bits: u64,
}

impl<'a> Writer<'a> {
    /// Begins a payload with its first sample.
    fn begin((timestamp_ms, value): (i64, f64), out: &'a mut Vec<u8>) -> Writer<'a> {
        let mut writer = Writer {
            out,
            pending: PendingBits::new(),
            bits: 0,
            leading: u32::from(NO_WINDOW),
            trailing: u32::from(NO_WINDOW),
            before_ms: timestamp_ms,
            delta_ms: 0,
            value_bits: value.to_bits(),
        };
        writer.write(ordered_bits(timestamp_ms), 64);
        writer.write(0, 1 + 14);
        writer.write(writer.value_bits, 64);
        writer
    }

    /// Continues the payload of a frame.
    fn resume(
        frame: &[u8],
        header: &FrameHeader,
        end: FrameEnd,
        out: &'a mut Vec<u8>,
    ) -> Writer<'a> {
        let payload = &frame[header.payload_start()..];
        let bits = u32::from(end.bits.get());
        let (whole, rest) = ((bits / 8) as usize, bits % 8);
        out.extend_from_slice(&payload[..whole]);
        let mut pending = PendingBits::new();
        if rest > 0 {
            pending.push(u64::from(payload[whole] >> (8 - rest)), rest, out);
        }
        Writer {
            out,
            pending,
            bits,
            leading: u32::from(end.leading),
            trailing: u32::from(end.trailing),
            before_ms: header.max_ms,
            delta_ms: i64::from(end.delta_ms),
            value_bits: end.value_bits,
        }
    }

    #[inline]
    fn write(&mut self, bits: u64, count: u32) {
        self.pending.push(bits, count, self.out);
        self.bits += count;
    }

    #[inline]
    fn push(&mut self, timestamp_ms: i64, value: f64) {
        let delta_ms = timestamp_ms - self.before_ms;
        let delta_of_deltas = delta_ms - self.delta_ms;
        let low = |bits: u32| delta_of_deltas as u64 & ((1 << bits) - 1);
        match delta_of_deltas {
            0 => self.write(0, 1),
            -63..=64 => self.write(0b10 << 7 | low(7), 9),
            -255..=256 => self.write(0b110 << 9 | low(9), 12),
            -2047..=2048 => self.write(0b1110 << 12 | low(12), 16),
            _ => self.write(0b1111 << 32 | low(32), 36),
        }
        (self.before_ms, self.delta_ms) = (timestamp_ms, delta_ms);
        let xor = value.to_bits() ^ self.value_bits;
        self.value_bits = value.to_bits();
        let (leading, trailing) = (xor.leading_zeros(), xor.trailing_zeros());
        if xor == 0 {
            self.write(0, 1);
        } else if leading >= self.leading && trailing >= self.trailing {
            self.write(0b10, 2);
            self.write(xor >> self.trailing, 64 - self.leading - self.trailing);
        } else {
            let significant = 64 - leading - trailing;
            self.write(0b11 << 12 | u64::from(leading) << 6 | u64::from(significant - 1), 14);
            self.write(xor >> trailing, significant);
            (self.leading, self.trailing) = (leading, trailing);
        }
    }

    /// Writes the end marker.
    fn close(mut self) -> FrameEnd {
        let bits = u16::try_from(self.bits).ok().and_then(NonZeroU16::new);
        self.write(0b1111 << 32, 36);
        self.pending.close(self.out);
        FrameEnd {
            bits: bits.expect("the length was checked"),
            leading: self.leading as u8,
            trailing: self.trailing as u8,
            delta_ms: self.delta_ms as u32,
            value_bits: self.value_bits,
        }
    }
}
