//! Fast path for labels and samples in the encoding of common senders.

use crate::limits::Limits;
use crate::protobuf::Reader;

/// Size of a copy without a loop: a length byte and a text.
pub(super) const COPY_BYTES: usize = 32;

/// End of the farthest copy of a short label: its framing, a name, two more bytes of framing less
/// the one that is copied, and a whole copy.
const WINDOW_BYTES: usize = 4 + (COPY_BYTES - 1) + 1 + COPY_BYTES;

/// Number of bytes after a message with which the fast path reads its last label and sample.
pub(super) const PADDING: usize = WINDOW_BYTES;

/// Lengths from here on take two bytes on the wire and take the slow path.
pub(super) const LENGTH_MAX: usize = 0x80;

pub(super) const METRIC_NAME_PREFIX: u64 = u64::from_be_bytes(*b"__name__");

/// Packs the labels of one series as long as they are sorted, short and not empty.
pub(super) struct LabelPacker<'a> {
    out: &'a mut [u8],
    out_len: usize,
    labels_max: usize,
    label_count: usize,
    has_metric_name: bool,
    is_ascii: bool,
    has_given_up: bool,
}

impl<'a> LabelPacker<'a> {
    pub(super) fn new(
        packed: &'a mut Vec<u8>,
        message: Reader<'_>,
        limits: &Limits,
    ) -> LabelPacker<'a> {
        // Packed labels are shorter than on the wire; copies may write past their end.
        let bytes_max = message.end() - message.position() + 2 * COPY_BYTES;
        if packed.len() < bytes_max {
            packed.resize(bytes_max, 0);
        }
        let texts_max = limits.label_name_bytes_max.min(limits.label_value_bytes_max);
        LabelPacker {
            out: packed,
            out_len: 0,
            labels_max: limits.labels_per_series_max,
            label_count: 0,
            has_metric_name: false,
            is_ascii: false,
            has_given_up: texts_max < LENGTH_MAX,
        }
    }

    /// Packs labels from the front of the message up to the first that needs the slow path.
    // Not inlined: the loop needs every register.
    #[inline(never)]
    pub(super) fn pack(&mut self, reader: &mut Reader<'_>) {
        let bytes = reader.rest_padded();
        let end = reader.end() - reader.position();
        let out = &mut *self.out;
        let (mut at, mut out_len, mut label_count) = (0, 0, 0);
        let mut has_metric_name = false;
        let (mut previous_at, mut previous_prefix) = (0, 0);
        while let Some(label) = Label::read(bytes, at, end) {
            let prefix = label.name_prefix();
            if prefix <= previous_prefix
                && (prefix < previous_prefix || name_at(bytes, at) <= name_at(bytes, previous_at))
            {
                break;
            }
            has_metric_name |= prefix == METRIC_NAME_PREFIX && label.name_len == 8;
            label.copy(bytes, at, &mut out[out_len..]);
            out_len += label.len - 2;
            label_count += 1;
            (previous_at, previous_prefix) = (at, prefix);
            at += label.len + 2;
        }
        self.out_len = out_len;
        self.label_count = label_count;
        self.has_metric_name = has_metric_name;
        // Checks the source: loads of bytes that were just stored piecemeal are slow. The framing
        // is ASCII, too, so that only the texts matter.
        self.is_ascii = is_ascii(&bytes[..at]);
        reader.seek(reader.position() + at);
    }

    /// Sends the series to the slow path.
    #[inline]
    pub(super) fn give_up(&mut self) {
        self.has_given_up = true;
    }

    /// Returns the length of the packed labels if they are canonical and within the limits; `None`
    /// sends the series to the slow path.
    #[inline]
    pub(super) fn finish(self) -> Option<usize> {
        let is_canonical = !self.has_given_up
            && self.has_metric_name
            && self.label_count <= self.labels_max
            && self.is_ascii;
        is_canonical.then_some(self.out_len)
    }
}

/// Like the method of slices, but without a loop over the last bytes of a longer text.
#[inline]
fn is_ascii(text: &[u8]) -> bool {
    const BLOCK_BYTES: usize = 32;
    let Some(last) = text.last_chunk::<BLOCK_BYTES>() else {
        return text.is_ascii();
    };
    let blocks = text.chunks_exact(BLOCK_BYTES).fold([0; BLOCK_BYTES], |mut all, block| {
        for (sum, byte) in all.iter_mut().zip(block) {
            *sum |= byte;
        }
        all
    });
    let all = blocks.iter().zip(last).fold(0, |all, (a, b)| all | a | b);
    all < 0x80
}

/// A label of the fast path: each length is one byte, and neither text is empty.
struct Label<'a> {
    window: &'a [u8; WINDOW_BYTES],
    /// Length of the message without its framing.
    len: usize,
    name_len: usize,
}

impl<'a> Label<'a> {
    /// Reads the label at `at` of a message that ends at `end`.
    #[inline(always)]
    fn read(bytes: &'a [u8], at: usize, end: usize) -> Option<Label<'a>> {
        let window = bytes.get(at..)?.first_chunk::<WINDOW_BYTES>()?;
        let [0x0a, len, 0x0a, name_len, ..] = *window else {
            return None;
        };
        let (len, name_len) = (usize::from(len), usize::from(name_len));
        let [value_tag, value_len] = if name_len < COPY_BYTES {
            [window[4 + name_len], window[5 + name_len]]
        } else {
            *bytes.get(at + 4 + name_len..)?.first_chunk()?
        };
        let is_expected = value_tag == 0x12
            && len == name_len + usize::from(value_len) + 4
            && len < LENGTH_MAX
            && name_len != 0
            && value_len != 0
            && at + 2 + len <= end;
        is_expected.then_some(Label { window, len, name_len })
    }

    /// Returns the first eight bytes of the name as a number, padded with zeros: if two prefixes
    /// differ, the names are in the same order.
    #[inline(always)]
    fn name_prefix(&self) -> u64 {
        let head = *self.window[4..].first_chunk().expect("a window holds 12 bytes and more");
        let unused_bits = 64 - 8 * self.name_len.min(8) as u32;
        u64::from_be_bytes(head) >> unused_bits << unused_bits
    }

    /// Copies both texts, each with the length byte before it.
    #[inline(always)]
    fn copy(&self, bytes: &[u8], at: usize, out: &mut [u8]) {
        let name_len = self.name_len;
        if name_len < COPY_BYTES
            && self.len < name_len + 4 + COPY_BYTES
            && let Some(out) = out.first_chunk_mut::<{ 2 * COPY_BYTES }>()
        {
            out[..COPY_BYTES].copy_from_slice(&self.window[3..3 + COPY_BYTES]);
            out[name_len + 1..name_len + 1 + COPY_BYTES]
                .copy_from_slice(&self.window[name_len + 5..name_len + 5 + COPY_BYTES]);
            return;
        }
        let (name_start, value_start) = (at + 3, at + 5 + name_len);
        out[..name_len + 1].copy_from_slice(&bytes[name_start..name_start + name_len + 1]);
        out[name_len + 1..self.len - 2].copy_from_slice(&bytes[value_start..at + 2 + self.len]);
    }
}

/// Returns the name of the label at `at`, which has been read before.
#[cold]
fn name_at(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at + 4..at + 4 + usize::from(bytes[at + 3])]
}

/// Minimum size of a sample of the fast path: a timestamp alone.
pub(super) const SAMPLE_BYTES_MIN: usize = 4;

/// Reads one sample from the front of the message if it has the expected framing: the value, absent
/// if zero, then the timestamp.
#[inline(always)]
pub(super) fn sample(reader: &mut Reader<'_>) -> Option<(i64, f64)> {
    let head = reader.rest_padded().first_chunk::<20>()?;
    let (time, value, len) = value_and_time(head)?;
    if usize::from(head[1]) != len - 2 || len > reader.end() - reader.position() {
        return None;
    }
    reader.seek(reader.position() + len);
    Some((time, value))
}

/// Reads one sample of version 2, which may have a start timestamp as its third field; 0 if absent.
#[inline(always)]
pub(super) fn sample_with_start_timestamp(reader: &mut Reader<'_>) -> Option<(i64, f64, i64)> {
    let head = reader.rest_padded().first_chunk::<32>()?;
    let (time, value, mut len) = value_and_time(head.first_chunk()?)?;
    let mut start = 0;
    if usize::from(head[1]) != len - 2 {
        // The fields before end with the 20th byte at the latest.
        let (tag, rest) = head[len..].split_first()?;
        let (value, value_len) = varint_of_eight(u64::from_le_bytes(*rest.first_chunk()?))?;
        len += 1 + value_len;
        if *tag != 0x18 || usize::from(head[1]) != len - 2 {
            return None;
        }
        start = value as i64;
    }
    if len > reader.end() - reader.position() {
        return None;
    }
    reader.seek(reader.position() + len);
    Some((time, value, start))
}

/// Returns the first two fields of a sample, and their end.
#[inline(always)]
fn value_and_time(head: &[u8; 20]) -> Option<(i64, f64, usize)> {
    let (value, time, time_start) = match head {
        [0x12, _, 0x09, value @ .., 0x10, _, _, _, _, _, _, _, _] => {
            (f64::from_le_bytes(*value), head[12..].first_chunk::<8>()?, 12)
        }
        [0x12, _, 0x10, ..] => (0.0, head[3..].first_chunk::<8>()?, 3),
        _ => return None,
    };
    let (time, time_len) = varint_of_eight(u64::from_le_bytes(*time))?;
    Some((time as i64, value, time_start + time_len))
}

/// Decodes a varint of at most eight bytes without a loop; returns the value and its length.
#[inline(always)]
fn varint_of_eight(word: u64) -> Option<(u64, usize)> {
    let stops = !word & 0x8080_8080_8080_8080;
    if stops == 0 {
        return None;
    }
    // All bits up to the first stop bit.
    let groups = word & (stops ^ (stops - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = (groups & 0x007f_007f_007f_007f) | ((groups & 0x7f00_7f00_7f00_7f00) >> 1);
    let quads = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
    let value = (quads & 0x0000_0000_0fff_ffff) | ((quads & 0x0fff_ffff_0000_0000) >> 4);
    Some((value, stops.trailing_zeros() as usize / 8 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_agree_with_the_loop(bytes in any::<[u8; 8]>(), len in 1usize..=8) {
            let mut bytes = bytes;
            bytes[len - 1] &= 0x7f;
            let mut reader = Reader::new(&bytes, bytes.len());
            let value = reader.varint().unwrap();
            prop_assert_eq!(
                varint_of_eight(u64::from_le_bytes(bytes)),
                Some((value, reader.position()))
            );
        }

        #[test]
        fn prefixes_order_names_as_bytes_do(
            a in proptest::collection::vec(0u8..3, 1..12),
            b in proptest::collection::vec(0u8..3, 1..12),
        ) {
            let mut bytes = Vec::new();
            for name in [&a, &b] {
                bytes.extend([0x0a, name.len() as u8 + 5, 0x0a, name.len() as u8]);
                bytes.extend(name);
                bytes.extend([0x12, 1, b'v']);
            }
            let end = bytes.len();
            bytes.extend([0; PADDING]);
            let first = Label::read(&bytes, 0, end).unwrap();
            let second = Label::read(&bytes, first.len + 2, end).unwrap();
            if first.name_prefix() != second.name_prefix() {
                prop_assert_eq!(first.name_prefix() < second.name_prefix(), a < b);
            }
        }
    }

    #[test]
    fn varints_longer_than_eight_bytes_are_left_to_the_loop() {
        assert_eq!(varint_of_eight(u64::MAX), None);
    }
}
