//! Decoding of floats: XOR, and XOR2, which has start timestamps.

use model::stale_nan;

use super::bits::{BitReader, signed};
use super::sample::{ChunkError, ChunkSample};
use super::start_timestamps::StartDecoder;
use super::xor::XorDecoder;

/// Decodes the samples of a chunk of floats.
#[derive(Debug)]
pub(super) struct FloatDecoder<'a> {
    bits: BitReader<'a>,
    /// `None` in XOR.
    starts: Option<StartDecoder>,
    time_ms: i64,
    delta_ms: i64,
    /// The value before; staleness markers of XOR2 do not count.
    value: f64,
    window: XorDecoder,
}

impl<'a> FloatDecoder<'a> {
    /// Starts after the header of the chunk.
    pub(super) fn new(body: &'a [u8], starts: Option<StartDecoder>) -> FloatDecoder<'a> {
        let bits = BitReader::new(body);
        let window = XorDecoder::default();
        FloatDecoder { bits, starts, time_ms: 0, delta_ms: 0, value: 0.0, window }
    }

    /// Decodes the next sample; `index` counts from 0.
    pub(super) fn next(&mut self, index: u32) -> Result<ChunkSample, ChunkError> {
        let before_ms = self.time_ms;
        let value = match (index, self.starts.is_some()) {
            (0, _) => {
                self.time_ms = self.bits.varint()?;
                let value = self.bits.float()?;
                if self.starts.is_none() || !model::is_stale(value) {
                    self.value = value;
                }
                value
            }
            (1, has_starts) => {
                self.delta_ms = self.bits.unsigned_varint()? as i64;
                self.advance_time();
                if has_starts { self.xor2_value()? } else { self.xor_value()? }
            }
            (_, false) => {
                let width = [0, 14, 17, 20, 64][self.bits.ones(4)? as usize];
                let change = self.bits.bits(width)?;
                self.delta_ms = self.delta_ms.wrapping_add(signed(change, width));
                self.advance_time();
                self.xor_value()?
            }
            (_, true) => self.xor2_sample()?,
        };
        let start_ms = match &mut self.starts {
            Some(starts) => starts.next(&mut self.bits, index, self.time_ms, before_ms)?,
            None => 0,
        };
        Ok(ChunkSample::Float { timestamp_ms: self.time_ms, start_ms, value })
    }

    fn advance_time(&mut self) {
        self.time_ms = self.time_ms.wrapping_add(self.delta_ms);
    }

    fn xor_value(&mut self) -> Result<f64, ChunkError> {
        self.value = self.window.next(&mut self.bits, self.value)?;
        Ok(self.value)
    }

    /// Decodes a timestamp and a value of XOR2, which share a prefix.
    ///
    /// Source: `tsdb/chunkenc/xor2.go` of Prometheus.
    fn xor2_sample(&mut self) -> Result<f64, ChunkError> {
        let width = match self.bits.ones(5)? {
            0 => {
                self.advance_time();
                return Ok(self.value);
            }
            1 => {
                self.advance_time();
                let (window, bits) = (&mut self.window, &mut self.bits);
                self.value = match bits.bit()? {
                    false => window.in_window(bits, self.value)?,
                    true => window.in_new_window(bits, self.value)?,
                };
                return Ok(self.value);
            }
            2 => 13,
            3 => 20,
            4 => 64,
            _ => {
                self.advance_time();
                return Ok(stale_nan());
            }
        };
        let change = self.bits.bits(width)? << (64 - width);
        self.delta_ms = self.delta_ms.wrapping_add(change as i64 >> (64 - width));
        self.advance_time();
        self.xor2_value()
    }

    /// Decodes a value of XOR2 with a prefix of its own.
    fn xor2_value(&mut self) -> Result<f64, ChunkError> {
        let (window, bits) = (&mut self.window, &mut self.bits);
        self.value = match bits.ones(3)? {
            0 => self.value,
            1 => window.in_window(bits, self.value)?,
            2 => window.in_new_window(bits, self.value)?,
            _ => return Ok(stale_nan()),
        };
        Ok(self.value)
    }
}
