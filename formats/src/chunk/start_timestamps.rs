//! Start timestamps of samples.
//!
//! ```text
//! header             first is known:1  changes from sample:7       0: no start timestamps
//! sample 0           varint(timestamp − start)                     if the first is known
//! sample "from"      varbit(timestamp before − start)
//! samples after it   varbit(change of that distance)
//! ```
//!
//! Source: "Start timestamp encoding" in `tsdb/docs/format/chunks.md` of Prometheus.

use super::bits::BitReader;
use super::sample::ChunkError;

/// Decodes the start timestamp after each sample.
#[derive(Debug, Default)]
pub(super) struct StartDecoder {
    first_is_known: bool,
    changes_from: u32,
    distance_ms: i64,
    /// 0 if unknown.
    start_ms: i64,
}

impl StartDecoder {
    /// Parses the header.
    pub(super) fn new(header: u8) -> StartDecoder {
        StartDecoder {
            first_is_known: header & 0x80 != 0,
            changes_from: u32::from(header & 0x7f),
            ..StartDecoder::default()
        }
    }

    /// Decodes the start timestamp of a sample; `index` counts from 0.
    #[inline]
    pub(super) fn next(
        &mut self,
        bits: &mut BitReader<'_>,
        index: u32,
        time_ms: i64,
        before_ms: i64,
    ) -> Result<i64, ChunkError> {
        if index == 0 {
            if self.first_is_known {
                self.start_ms = time_ms.wrapping_sub(bits.varint()?);
            }
        } else if self.changes_from > 0 && index >= self.changes_from {
            let number = bits.varbit()?;
            self.distance_ms = match index == self.changes_from {
                true => number,
                false => self.distance_ms.wrapping_add(number),
            };
            self.start_ms = before_ms.wrapping_sub(self.distance_ms);
        }
        Ok(self.start_ms)
    }
}
