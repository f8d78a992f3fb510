//! Since when the counters of a chunk's samples count.
//!
//! ```text
//! header:  first is known:1  changes from sample:7       0: nothing follows
//! sample 0           varint(time − start)                if the first is known
//! sample "from"      integer(time before − start)
//! samples behind it  integer(that distance − the one before)
//! ```
//!
//! Source: "Start timestamp encoding" in `tsdb/docs/format/chunks.md` of Prometheus.

use super::bits::BitReader;
use super::chunk::ChunkError;

/// Reads the start behind each sample.
#[derive(Debug, Default)]
pub(super) struct Starts {
    first_is_known: bool,
    changes_from: u32,
    distance_ms: i64,
    /// 0 where it is not known.
    start_ms: i64,
}

impl Starts {
    /// What a header says.
    pub(super) fn new(header: u8) -> Starts {
        Starts {
            first_is_known: header & 0x80 != 0,
            changes_from: u32::from(header & 0x7f),
            ..Starts::default()
        }
    }

    /// The start of a sample, by its number from 0, its time and the time of the one before.
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
            let number = bits.wide_integer()?;
            self.distance_ms = match index == self.changes_from {
                true => number,
                false => self.distance_ms.wrapping_add(number),
            };
            self.start_ms = before_ms.wrapping_sub(self.distance_ms);
        }
        Ok(self.start_ms)
    }
}
