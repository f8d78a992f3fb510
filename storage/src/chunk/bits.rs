//! Bit streams, processed eight bytes at a time: the sink for `tsz::StdEncoder`, and the loads of
//! our decoders.

use tsz::Bit;
use tsz::stream::Write;

/// Minimum number of valid bits of an 8-byte load at any bit offset.
pub(super) const LOADED_BITS: u32 = 57;

/// Bits that do not fill eight bytes yet, highest first.
///
/// Invariant: the lowest `free` bits of `word` are 0, and `1 <= free <= 64`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingBits {
    word: u64,
    free: u32,
}

impl PendingBits {
    pub(super) fn new() -> PendingBits {
        PendingBits { word: 0, free: 64 }
    }

    /// Adds the lowest `count` bits, at most 64; those above may be anything.
    #[inline]
    pub(super) fn push(&mut self, bits: u64, count: u32, out: &mut Vec<u8>) {
        let count = count.min(64);
        if count == 0 {
            return;
        }
        let bits = bits & (u64::MAX >> (64 - count));
        if count < self.free {
            self.free -= count;
            self.word |= bits << self.free;
            return;
        }
        let over = count - self.free;
        out.extend_from_slice(&(self.word | bits >> over).to_be_bytes());
        self.free = 64 - over;
        self.word = if over == 0 { 0 } else { bits << self.free };
    }

    /// Writes the remaining bits; zero bits fill the last byte.
    pub(super) fn close(self, out: &mut Vec<u8>) {
        let byte_count = (64 - self.free).div_ceil(8) as usize;
        out.extend_from_slice(&self.word.to_be_bytes()[..byte_count]);
    }
}

/// Writer of bits, highest first, that appends to the caller's bytes.
///
/// `tsz::stream::BufferedWriter` writes the same bytes, but handles each bit separately.
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    pending: PendingBits,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> BitWriter<'a> {
        BitWriter { out, pending: PendingBits::new() }
    }
}

impl Write for BitWriter<'_> {
    #[inline]
    fn write_bit(&mut self, bit: Bit) {
        self.write_bits(bit.to_u64(), 1);
    }

    #[inline]
    fn write_byte(&mut self, byte: u8) {
        self.write_bits(u64::from(byte), 8);
    }

    /// Writes the lowest `count` bits; those above may be anything.
    #[inline]
    fn write_bits(&mut self, bits: u64, count: u32) {
        self.pending.push(bits, count, self.out);
    }

    /// Writes the remaining bits. The bytes are in the caller's vector, so the box is empty.
    fn close(self) -> Box<[u8]> {
        self.pending.close(self.out);
        Box::default()
    }
}

/// Loads the bits from `bit` on to the top of a word; at least [`LOADED_BITS`] of them.
#[inline(always)]
pub(super) fn load(bytes: &[u8], bit: usize) -> u64 {
    let at = bit / 8;
    let word = match bytes.get(at..at + 8).and_then(<[u8]>::first_chunk::<8>) {
        Some(eight) => u64::from_be_bytes(*eight),
        None => load_tail(bytes, at),
    };
    word << (bit % 8)
}

/// Loads eight bytes; those after the end are 0.
#[cold]
#[inline(never)]
fn load_tail(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    if let Some(rest) = bytes.get(at..) {
        let len = rest.len().min(8);
        eight[..len].copy_from_slice(&rest[..len]);
    }
    u64::from_be_bytes(eight)
}

/// Reads `count` bits, 1 to 64, from `bit` on.
#[inline]
pub(super) fn read_bits(bytes: &[u8], bit: usize, count: u32) -> u64 {
    if count <= LOADED_BITS {
        load(bytes, bit) >> (64 - count)
    } else {
        read_wide(bytes, bit, count)
    }
}

/// Reads more bits than one load has.
#[inline(never)]
pub(super) fn read_wide(bytes: &[u8], bit: usize, count: u32) -> u64 {
    let high = load(bytes, bit) >> (64 - LOADED_BITS);
    let rest = count - LOADED_BITS;
    high << rest | load(bytes, bit + LOADED_BITS as usize) >> (64 - rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tsz::stream::BufferedWriter;

    use super::*;

    proptest! {
        #[test]
        fn writer_gives_the_bytes_of_the_bitwise_one(
            writes in prop::collection::vec((any::<u64>(), 0u32..=64), 0..200),
        ) {
            let mut bytes = Vec::new();
            let mut writer = BitWriter::new(&mut bytes);
            let mut oracle = BufferedWriter::new();
            for (bits, count) in writes {
                match count {
                    1 if bits & 1 == 1 => {
                        writer.write_bit(Bit::One);
                        oracle.write_bit(Bit::One);
                    }
                    8 => {
                        writer.write_byte(bits as u8);
                        oracle.write_byte(bits as u8);
                    }
                    _ => {
                        writer.write_bits(bits, count);
                        // The reference implementation shifts by 64 for a count of 0.
                        if count > 0 {
                            oracle.write_bits(bits, count);
                        }
                    }
                }
            }
            prop_assert!(writer.close().is_empty());
            prop_assert_eq!(&bytes[..], &oracle.close()[..]);
        }
    }
}
