//! Bits into bytes, eight at a time: the sink that `tsz::StdEncoder` seals into.

use tsz::Bit;
use tsz::stream::Write;

/// A writer of bits, highest first, that appends to the caller's bytes.
///
/// `tsz::stream::BufferedWriter` gives the same bytes, but touches each bit on its own.
/// Invariant: the lowest `free` bits of `word` are 0, and `1 <= free <= 64`.
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    word: u64,
    free: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> BitWriter<'a> {
        BitWriter { out, word: 0, free: 64 }
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
        self.out.extend_from_slice(&(self.word | bits >> over).to_be_bytes());
        self.free = 64 - over;
        self.word = if over == 0 { 0 } else { bits << self.free };
    }

    /// Writes what is left. The bytes are in the caller's vector, so the box is empty.
    fn close(self) -> Box<[u8]> {
        let byte_count = (64 - self.free).div_ceil(8) as usize;
        self.out.extend_from_slice(&self.word.to_be_bytes()[..byte_count]);
        Box::default()
    }
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
                        // The bitwise one shifts by 64 when asked for nothing.
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
