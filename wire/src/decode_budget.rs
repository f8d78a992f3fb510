//! Memory budget of one request.

use crate::limits::{DECOMPRESSED_BYTES_CEILING, Limits};
use crate::{DecodeError, ReserveMemory};

/// Maximum size of a decoded request, as a multiple of the limit for decompressed bytes. It can be
/// larger than the message: two bytes refer to a label, one byte is the count of a bucket.
const UNFOLDED_FACTOR: usize = 4;

/// Step in which memory is reserved.
const RESERVED_BYTES_STEP: usize = 1 << 20;

/// Retry later: current requests have reached the memory limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("remote write requests would hold {reached} bytes, the limit is {limit} ({name})")]
pub struct InflightFull {
    /// Size of all requests with this one, in bytes.
    pub reached: usize,
    /// The limit.
    pub limit: usize,
    /// Name of the limit.
    pub name: &'static str,
}

/// Memory charged by a request on labels, histograms, exemplars, metadata and the symbol table.
///
/// Invariant: `charged <= reserved <= bytes_max` after each successful call.
pub(super) struct DecodeBudget<'a> {
    charged: usize,
    reserved: usize,
    bytes_max: usize,
    /// Name of the limit behind `bytes_max`.
    limit_name: &'static str,
    reserve: ReserveMemory<'a>,
}

impl<'a> DecodeBudget<'a> {
    /// Creates a budget; the length of the message is already reserved.
    pub(super) fn new(
        limits: &Limits,
        message_bytes: usize,
        reserve: ReserveMemory<'a>,
    ) -> DecodeBudget<'a> {
        let decompressed_bytes_max = limits.decompressed_bytes_max.min(DECOMPRESSED_BYTES_CEILING);
        // Positions in a batch are 32 bits wide.
        let bytes_max = (UNFOLDED_FACTOR * decompressed_bytes_max).min(u32::MAX as usize);
        DecodeBudget {
            charged: 0,
            reserved: message_bytes.min(bytes_max),
            bytes_max,
            limit_name: limits.names.decompressed_bytes_max,
            reserve,
        }
    }

    /// Charges some bytes.
    ///
    /// Errors: the limit of the request is reached, or that of all requests.
    #[inline]
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.charged = self.charged.saturating_add(bytes);
        if self.charged <= self.reserved { Ok(()) } else { self.reserve_more() }
    }

    /// Adds an item to a list and charges the memory by which the list grows.
    #[inline]
    pub(super) fn push<T>(&mut self, list: &mut Vec<T>, item: T) -> Result<(), DecodeError> {
        if list.len() == list.capacity() {
            let more = list.len().max(1);
            self.charge(more * size_of::<T>())?;
            list.reserve_exact(more);
        }
        list.push(item);
        Ok(())
    }

    #[cold]
    fn reserve_more(&mut self) -> Result<(), DecodeError> {
        if self.charged > self.bytes_max {
            return Err(DecodeError::TooLarge {
                what: "bytes unfolded",
                name: self.limit_name,
                limit: self.bytes_max,
                reached: self.charged,
            });
        }
        let bytes = (self.charged - self.reserved).next_multiple_of(RESERVED_BYTES_STEP);
        let bytes = bytes.min(self.bytes_max - self.reserved);
        (self.reserve)(bytes)?;
        self.reserved += bytes;
        Ok(())
    }
}
