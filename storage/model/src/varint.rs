//! LEB128 varints and zigzag encoding, as protobuf, Prometheus and Go write them.

/// Appends a varint.
#[inline]
pub fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns the encoded length of a number in bytes.
#[inline]
pub fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Removes a varint from the front of bytes.
///
/// Returns `None` if it is truncated or has more than 64 bits.
#[inline]
pub fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    match rest.split_first() {
        Some((byte, tail)) if *byte < 0x80 => {
            *rest = tail;
            Some(u64::from(*byte))
        }
        _ => take_long_varint(rest),
    }
}

/// Takes a varint of up to 8 bytes without a loop: lengths change too often to be predicted.
fn take_long_varint(rest: &mut &[u8]) -> Option<u64> {
    const ENDS: u64 = 0x8080_8080_8080_8080;
    let Some(bytes) = rest.first_chunk() else { return take_any_varint(rest) };
    let word = u64::from_le_bytes(*bytes);
    let ends = !word & ENDS;
    if ends == 0 {
        return take_any_varint(rest);
    }
    // Groups of 7 bits up to the end, then joined to 14, 28 and 56 bits.
    let number = word & (ends ^ ends.wrapping_sub(1)) & !ENDS;
    let number = number & 0x007f_007f_007f_007f | (number & 0x7f00_7f00_7f00_7f00) >> 1;
    let number = number & 0x0000_3fff_0000_3fff | (number & 0x3fff_0000_3fff_0000) >> 2;
    let number = number & 0x0fff_ffff | (number & 0x0fff_ffff_0000_0000) >> 4;
    *rest = &rest[ends.trailing_zeros() as usize / 8 + 1..];
    Some(number)
}

/// Takes a varint of any length.
fn take_any_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (index, byte) in rest.iter().enumerate().take(10) {
        // The tenth byte holds only bit 63.
        if index == 9 && *byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            *rest = &rest[index + 1..];
            return Some(number);
        }
    }
    None
}

/// Encodes a signed number: 0, −1, 1, −2, … become 0, 1, 2, 3, ….
#[inline]
pub fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// Decodes a number that [`zigzag`] encoded.
#[inline]
pub fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_go_there_and_back(number: u64, shift in 0..64_u32) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            push_varint(&mut bytes, number);
            prop_assert_eq!(bytes.len(), varint_len(number));
            prop_assert_eq!(take_varint(&mut &bytes[..bytes.len() - 1]), None);
            bytes.push(7);
            let mut rest = &bytes[..];
            prop_assert_eq!(take_varint(&mut rest), Some(number));
            prop_assert_eq!(rest, [7]);
            bytes.extend([0xff; 9]);
            let mut rest = &bytes[..];
            prop_assert_eq!(take_varint(&mut rest), Some(number));
            prop_assert_eq!(rest.len(), 10);
            prop_assert_eq!(zigzag(unzigzag(number)), number);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_as_by_the_loop(bytes in prop::collection::vec(any::<u8>(), 0..14)) {
            let (mut rest, mut expected_rest) = (&bytes[..], &bytes[..]);
            prop_assert_eq!(take_varint(&mut rest), take_any_varint(&mut expected_rest));
            prop_assert_eq!(rest, expected_rest);
        }

        #[test]
        fn long_numbers_are_taken_as_by_the_loop(
            mut bytes in prop::collection::vec(0x80_u8.., 0..11),
            end in 0_u8..0x80,
            after in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            bytes.push(end);
            bytes.extend(after);
            let (mut rest, mut expected_rest) = (&bytes[..], &bytes[..]);
            prop_assert_eq!(take_varint(&mut rest), take_any_varint(&mut expected_rest));
            prop_assert_eq!(rest, expected_rest);
        }
    }

    #[test]
    fn more_than_64_bits_are_refused() {
        assert_eq!(take_varint(&mut &[0xff; 11][..]), None);
        let mut bytes = [0xff; 10];
        bytes[9] = 1;
        assert_eq!(take_varint(&mut &bytes[..]), Some(u64::MAX));
        bytes[9] = 2;
        assert_eq!(take_varint(&mut &bytes[..]), None);
    }

    #[test]
    fn zigzag_alternates_signs() {
        assert_eq!(
            [0, 1, 2, 3, u64::MAX - 1, u64::MAX].map(unzigzag),
            [0, -1, 1, -2, i64::MAX, i64::MIN]
        );
    }
}
