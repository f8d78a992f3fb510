//! Chunks of floats: XOR, and XOR2, which knows starts.

use model::stale_nan;

use super::bits::{BitReader, XorWindow, signed};
use super::chunk::{ChunkError, ChunkSample};
use super::starts::Starts;

/// A chunk of floats that is being read.
#[derive(Debug)]
pub(super) struct Floats<'a> {
    bits: BitReader<'a>,
    /// None in the first encoding.
    starts: Option<Starts>,
    time_ms: i64,
    delta_ms: i64,
    /// The value before, staleness markers of the second encoding aside.
    value: f64,
    window: XorWindow,
}

impl<'a> Floats<'a> {
    /// Begins behind the header.
    pub(super) fn new(body: &'a [u8], starts: Option<Starts>) -> Floats<'a> {
        let bits = BitReader::new(body);
        let window = XorWindow::default();
        Floats { bits, starts, time_ms: 0, delta_ms: 0, value: 0.0, window }
    }

    /// The next sample, by its number from 0.
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
                self.pass_delta();
                if has_starts { self.second_value()? } else { self.first_value()? }
            }
            (_, false) => {
                let width = [0, 14, 17, 20, 64][self.bits.ones(4)? as usize];
                let change = self.bits.bits(width)?;
                self.delta_ms = self.delta_ms.wrapping_add(signed(change, width));
                self.pass_delta();
                self.first_value()?
            }
            (_, true) => self.joint()?,
        };
        let start_ms = match &mut self.starts {
            Some(starts) => starts.next(&mut self.bits, index, self.time_ms, before_ms)?,
            None => 0,
        };
        Ok(ChunkSample::Float { timestamp_ms: self.time_ms, start_ms, value })
    }

    fn pass_delta(&mut self) {
        self.time_ms = self.time_ms.wrapping_add(self.delta_ms);
    }

    /// A value of the first encoding.
    fn first_value(&mut self) -> Result<f64, ChunkError> {
        self.value = self.window.next(&mut self.bits, self.value)?;
        Ok(self.value)
    }

    /// Time and value of the second encoding, told by common bits.
    ///
    /// Source: `tsdb/chunkenc/xor2.go` of Prometheus.
    fn joint(&mut self) -> Result<f64, ChunkError> {
        let width = match self.bits.ones(5)? {
            0 => {
                self.pass_delta();
                return Ok(self.value);
            }
            1 => {
                self.pass_delta();
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
                self.pass_delta();
                return Ok(stale_nan());
            }
        };
        let change = self.bits.bits(width)? << (64 - width);
        self.delta_ms = self.delta_ms.wrapping_add(change as i64 >> (64 - width));
        self.pass_delta();
        self.second_value()
    }

    /// A value of the second encoding, not told by common bits.
    fn second_value(&mut self) -> Result<f64, ChunkError> {
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
