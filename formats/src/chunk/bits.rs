//! Bits of a chunk, highest first, and integers in them: LEB128 varints and varbits.
//!
//! A varbit is a count of ones, a zero after all but eight of them, and a number whose width the
//! count selects.
//!
//! Source: `tsdb/chunkenc/{bstream,varbit}.go` of Prometheus.

use model::varint::unzigzag;

use super::sample::ChunkError;

/// Widths of varbits, by the number of leading ones.
const VARBIT_WIDTHS: [u32; 9] = [0, 3, 6, 9, 12, 18, 25, 56, 64];

/// A reader of bits; reading past the end is an error.
#[derive(Debug, Clone)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Number of bits read.
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, at: 0 }
    }

    /// Reads at most 64 bits into the low bits of a number.
    #[inline]
    pub(super) fn bits(&mut self, count: u32) -> Result<u64, ChunkError> {
        debug_assert!(count <= 64);
        let end = self.at + count as usize;
        if end > 8 * self.bytes.len() {
            return Err(ChunkError::Truncated);
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

    /// Counts the ones before the next zero, which is read too; stops at `max` ones.
    #[inline]
    pub(super) fn ones(&mut self, max: u32) -> Result<u32, ChunkError> {
        for ones in 0..max {
            if !self.bit()? {
                return Ok(ones);
            }
        }
        Ok(max)
    }

    /// Reads a LEB128 varint, whose bytes need not be aligned.
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

    /// Reads a varint in zigzag encoding.
    pub(super) fn varint(&mut self) -> Result<i64, ChunkError> {
        Ok(unzigzag(self.unsigned_varint()?))
    }

    /// Reads a signed varbit.
    pub(super) fn varbit(&mut self) -> Result<i64, ChunkError> {
        let width = VARBIT_WIDTHS[self.ones(8)? as usize];
        Ok(signed(self.bits(width)?, width))
    }

    /// Reads an unsigned varbit.
    pub(super) fn unsigned_varbit(&mut self) -> Result<u64, ChunkError> {
        let width = VARBIT_WIDTHS[self.ones(8)? as usize];
        self.bits(width)
    }
}

/// Returns the signed number of a width: the bits of 2^(width-1) are positive, all larger negative.
#[inline]
pub(super) fn signed(bits: u64, width: u32) -> i64 {
    if width == 0 || width == 64 || bits <= 1 << (width - 1) {
        return bits as i64;
    }
    (bits as i64).wrapping_sub(1 << width)
}

/// Returns whether [`signed`] restores a number from its lowest bits.
pub(super) fn fits_signed(number: i64, width: u32) -> bool {
    match width {
        0 => number == 0,
        64 => true,
        width => -(1 << (width - 1)) < number && number <= 1 << (width - 1),
    }
}

/// A writer of bits.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet, in the low bits.
    pending: u8,
    pending_count: u32,
}

impl BitWriter {
    /// Appends the lowest `count` bits, at most 64; higher bits are ignored.
    pub(super) fn push(&mut self, bits: u64, count: u32) {
        let mut left = count;
        while left > 0 {
            let taken = left.min(8 - self.pending_count);
            left -= taken;
            let part = (bits >> left) as u8 & (u8::MAX >> (8 - taken));
            self.pending = (u16::from(self.pending) << taken) as u8 | part;
            self.pending_count += taken;
            if self.pending_count == 8 {
                self.bytes.push(self.pending);
                (self.pending, self.pending_count) = (0, 0);
            }
        }
    }

    /// Appends whole bytes, aligned or not.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.push(u64::from(*byte), 8);
        }
    }

    /// Number of bytes, the last one counted even if partial.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + usize::from(self.pending_count > 0)
    }

    /// Returns the bytes; zero bits pad the last one.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.pending_count > 0 {
            self.bytes.push(self.pending << (8 - self.pending_count));
        }
        self.bytes
    }

    /// Appends a signed varbit.
    pub(super) fn push_varbit(&mut self, number: i64) {
        self.push_varbit_where(number as u64, |width| fits_signed(number, width));
    }

    /// Appends an unsigned varbit.
    pub(super) fn push_unsigned_varbit(&mut self, number: u64) {
        self.push_varbit_where(number, |width| width == 64 || number >> width == 0);
    }

    fn push_varbit_where(&mut self, number: u64, fits: impl Fn(u32) -> bool) {
        let ones = VARBIT_WIDTHS.iter().position(|width| fits(*width)).unwrap_or(8) as u32;
        match ones {
            8 => self.push(0xff, 8),
            _ => self.push((1 << (ones + 1)) - 2, ones + 1),
        }
        self.push(number, VARBIT_WIDTHS[ones as usize]);
    }
}
