//! Floats as the XOR with the value before, of which a window of bits is written.
//!
//! Source: `tsdb/chunkenc/xor.go` of Prometheus.

use super::bits::{BitReader, BitWriter};
use super::sample::ChunkError;

/// Window of the bits that differ between two values, for decoding.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct XorDecoder {
    leading: u32,
    trailing: u32,
}

impl XorDecoder {
    /// Reads the value after `before`.
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
        *self = XorDecoder { leading, trailing };
        self.in_window(bits, before)
    }
}

/// The last value and window, for encoding.
#[derive(Debug, Clone, Copy)]
pub(super) struct XorEncoder {
    bits: u64,
    /// Leading and trailing zeros of the last window; `None` before the first one.
    window: Option<(u32, u32)>,
}

impl XorEncoder {
    /// Writes the first value in full.
    pub(super) fn begin(value: f64, out: &mut BitWriter) -> XorEncoder {
        out.push(value.to_bits(), 64);
        XorEncoder { bits: value.to_bits(), window: None }
    }

    /// Writes the next value.
    pub(super) fn push(&mut self, value: f64, out: &mut BitWriter) {
        let differing = value.to_bits() ^ self.bits;
        self.bits = value.to_bits();
        if differing == 0 {
            out.push(0, 1);
            return;
        }
        // Five bits hold the number of leading zeros.
        let leading = differing.leading_zeros().min(31);
        let trailing = differing.trailing_zeros();
        if let Some((window_leading, window_trailing)) = self.window
            && leading >= window_leading
            && trailing >= window_trailing
        {
            out.push(0b10, 2);
            out.push(differing >> window_trailing, 64 - window_leading - window_trailing);
            return;
        }
        self.window = Some((leading, trailing));
        let significant = 64 - leading - trailing;
        out.push(0b11, 2);
        out.push(u64::from(leading), 5);
        // 64 is written as 0, which never occurs.
        out.push(u64::from(significant), 6);
        out.push(differing >> trailing, significant);
    }
}
