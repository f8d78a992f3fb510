//! Bits of a chunk, highest first.

use model::varint::unzigzag;

use super::chunk::ChunkError;

/// A reader of bits that never goes past its bytes.
#[derive(Debug, Clone)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Bits read so far.
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, at: 0 }
    }

    /// The next bits, at most 64, as the low ones of a number.
    #[inline]
    pub(super) fn bits(&mut self, count: u32) -> Result<u64, ChunkError> {
        debug_assert!(count <= 64);
        let end = self.at + count as usize;
        if end > 8 * self.bytes.len() {
            return Err(ChunkError::CutShort);
        }
        if count == 0 {
            return Ok(0);
        }
        let from = &self.bytes[self.at / 8..];
        let mut window = [0; 16];
        let len = from.len().min(16);
        window[..len].copy_from_slice(&from[..len]);
        let aligned = u128::from_be_bytes(window) << (self.at % 8);
        self.at = end;
        Ok((aligned >> (128 - count)) as u64)
    }

    #[inline]
    pub(super) fn bit(&mut self) -> Result<bool, ChunkError> {
        Ok(self.bits(1)? == 1)
    }

    pub(super) fn float(&mut self) -> Result<f64, ChunkError> {
        Ok(f64::from_bits(self.bits(64)?))
    }

    /// How many ones stand before the next zero, which is read as well, or `max` of them.
    #[inline]
    pub(super) fn ones(&mut self, max: u32) -> Result<u32, ChunkError> {
        for ones in 0..max {
            if !self.bit()? {
                return Ok(ones);
            }
        }
        Ok(max)
    }

    /// LEB128, in bytes that need not be aligned.
    pub(super) fn unsigned_varint(&mut self) -> Result<u64, ChunkError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.bits(8)?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ChunkError::Invalid("a number of more than 64 bits"))
    }

    /// The same of a number that is folded around zero.
    pub(super) fn varint(&mut self) -> Result<i64, ChunkError> {
        Ok(unzigzag(self.unsigned_varint()?))
    }

    /// An integer in one of nine widths, told by the ones in front of it.
    pub(super) fn wide_integer(&mut self) -> Result<i64, ChunkError> {
        let width = WIDTHS[self.ones(8)? as usize];
        Ok(signed(self.bits(width)?, width))
    }

    /// The same without a sign.
    pub(super) fn wide_unsigned(&mut self) -> Result<u64, ChunkError> {
        let width = WIDTHS[self.ones(8)? as usize];
        self.bits(width)
    }
}

/// Widths by the number of ones in front.
///
/// Source: `tsdb/chunkenc/varbit.go` of Prometheus.
const WIDTHS: [u32; 9] = [0, 3, 6, 9, 12, 18, 25, 56, 64];

/// A number of some bits whose upper half is below zero, but for its first, which is the largest.
#[inline]
pub(super) fn signed(bits: u64, width: u32) -> i64 {
    if width == 0 || width == 64 || bits <= 1 << (width - 1) {
        return bits as i64;
    }
    (bits as i64).wrapping_sub(1 << width)
}

/// A float by its xor with the one before, which differs in a window of bits.
///
/// Source: `xorRead` in `tsdb/chunkenc/xor.go` of Prometheus.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct XorWindow {
    leading: u32,
    trailing: u32,
}

impl XorWindow {
    /// The value behind one.
    #[inline]
    pub(super) fn next(
        &mut self,
        bits: &mut BitReader<'_>,
        before: f64,
    ) -> Result<f64, ChunkError> {
        match bits.ones(2)? {
            0 => Ok(before),
            1 => self.in_window(bits, before),
            _ => self.in_new_window(bits, before),
        }
    }

    #[inline]
    pub(super) fn in_window(
        &self,
        bits: &mut BitReader<'_>,
        before: f64,
    ) -> Result<f64, ChunkError> {
        let xor = bits.bits(64 - self.leading - self.trailing)? << self.trailing;
        Ok(f64::from_bits(before.to_bits() ^ xor))
    }

    #[inline]
    pub(super) fn in_new_window(
        &mut self,
        bits: &mut BitReader<'_>,
        before: f64,
    ) -> Result<f64, ChunkError> {
        let leading = bits.bits(5)? as u32;
        let significant = match bits.bits(6)? as u32 {
            0 => 64,
            significant => significant,
        };
        let trailing = 64_u32.checked_sub(leading + significant);
        let trailing = trailing.ok_or(ChunkError::Invalid("a float of more than 64 bits"))?;
        *self = XorWindow { leading, trailing };
        self.in_window(bits, before)
    }
}
