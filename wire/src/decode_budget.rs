//! How many bytes a request may come to hold.

use crate::limits::{DECOMPRESSED_BYTES_CEILING, DECOMPRESSED_FLAG, INFLIGHT_FLAG, Limits};
use crate::{DecodeError, Grant};

/// A request may unfold to so many times the limit of its decompressed size: a reference of two
/// bytes stands for a label, a byte for the count of a bucket.
const UNFOLDED_FACTOR: usize = 4;

/// More is asked for in steps of this size.
const GRANT_BYTES: usize = 1 << 20;

/// Come back later: the requests at hand fill the limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "remote write requests would hold {reached} bytes, the limit is {limit} (--{INFLIGHT_FLAG})"
)]
pub struct InflightFull {
    /// What they would hold.
    pub reached: usize,
    /// The limit.
    pub limit: usize,
}

/// The account of what a request unfolds to: labels written out, histograms with their buckets,
/// exemplars, metadata, the table of symbols.
///
/// Invariant: `spent <= granted <= bytes_max`, after a call that succeeded.
pub(super) struct DecodeBudget<'a> {
    spent: usize,
    granted: usize,
    bytes_max: usize,
    grant: Grant<'a>,
}

impl<'a> DecodeBudget<'a> {
    /// A budget that asks for more once it has spent the length of the message.
    pub(super) fn new(limits: &Limits, message_bytes: usize, grant: Grant<'a>) -> DecodeBudget<'a> {
        let decompressed_bytes_max = limits.decompressed_bytes_max.min(DECOMPRESSED_BYTES_CEILING);
        // Positions in a batch are 32 bits wide.
        let bytes_max = (UNFOLDED_FACTOR * decompressed_bytes_max).min(u32::MAX as usize);
        DecodeBudget { spent: 0, granted: message_bytes.min(bytes_max), bytes_max, grant }
    }

    /// Errors: the limit is reached, or there is no room for more at the moment.
    #[inline]
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.spent = self.spent.saturating_add(bytes);
        if self.spent <= self.granted { Ok(()) } else { self.ask() }
    }

    /// Adds an item to a list, whose memory grows with what is granted.
    #[inline]
    pub(super) fn push<T>(&mut self, list: &mut Vec<T>, item: T) -> Result<(), DecodeError> {
        if list.len() == list.capacity() {
            let more = list.len().max(1);
            self.spend(more * size_of::<T>())?;
            list.reserve_exact(more);
        }
        list.push(item);
        Ok(())
    }

    #[cold]
    fn ask(&mut self) -> Result<(), DecodeError> {
        if self.spent > self.bytes_max {
            return Err(DecodeError::TooLarge {
                what: "bytes unfolded",
                flag: DECOMPRESSED_FLAG,
                limit: self.bytes_max,
                reached: self.spent,
            });
        }
        let bytes = (self.spent - self.granted).next_multiple_of(GRANT_BYTES);
        let bytes = bytes.min(self.bytes_max - self.granted);
        (self.grant)(bytes)?;
        self.granted += bytes;
        Ok(())
    }
}
