//! Set of addresses that is looked up at each `free`, almost always without a match.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Binary logarithm of the number of buckets.
const BUCKETS_LOG2: u32 = 16;
const BUCKETS: usize = 1 << BUCKETS_LOG2;
/// Slots of a bucket. With 4,096 addresses in all, one in 25,000 finds no slot.
const BUCKET_SLOTS: usize = 2;

/// Set of addresses other than 0.
///
/// A lookup takes no lock, and usually one load from the 8 KiB of `occupied`. One thread at a time
/// makes changes. A thread sees all changes of an address that it owns, because it got the address
/// after them.
pub(super) struct AddressSet {
    /// One bit per bucket, set unless it is empty.
    occupied: [AtomicU64; BUCKETS / 64],
    buckets: [[AtomicUsize; BUCKET_SLOTS]; BUCKETS],
}

impl AddressSet {
    pub(super) const fn new() -> AddressSet {
        AddressSet {
            occupied: [const { AtomicU64::new(0) }; BUCKETS / 64],
            buckets: [const { [const { AtomicUsize::new(0) }; BUCKET_SLOTS] }; BUCKETS],
        }
    }

    /// Returns `true` for addresses in the set, and rarely for others.
    #[inline(always)]
    pub(super) fn may_contain(&self, address: usize) -> bool {
        let bucket = bucket_of(address);
        self.occupied[bucket / 64].load(Ordering::Relaxed) >> (bucket % 64) & 1 != 0
    }

    /// Returns whether the address is in the set.
    pub(super) fn contains(&self, address: usize) -> bool {
        self.slot_with(bucket_of(address), address).is_some()
    }

    /// Adds an address. Returns `false` if its bucket is full.
    pub(super) fn insert(&self, address: usize) -> bool {
        let bucket = bucket_of(address);
        let Some(slot) = self.slot_with(bucket, 0) else { return false };
        slot.store(address, Ordering::Relaxed);
        self.occupied[bucket / 64].fetch_or(1 << (bucket % 64), Ordering::Relaxed);
        true
    }

    /// Removes an address.
    pub(super) fn remove(&self, address: usize) {
        let bucket = bucket_of(address);
        if let Some(slot) = self.slot_with(bucket, address) {
            slot.store(0, Ordering::Relaxed);
        }
        if self.buckets[bucket].iter().all(|slot| slot.load(Ordering::Relaxed) == 0) {
            self.occupied[bucket / 64].fetch_and(!(1 << (bucket % 64)), Ordering::Relaxed);
        }
    }

    fn slot_with(&self, bucket: usize, address: usize) -> Option<&AtomicUsize> {
        self.buckets[bucket].iter().find(|slot| slot.load(Ordering::Relaxed) == address)
    }
}

/// Returns the bucket of an address: the upper bits of its product with 2^64 divided by the golden
/// ratio.
#[inline(always)]
fn bucket_of(address: usize) -> usize {
    let product = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product >> (u64::BITS - BUCKETS_LOG2)) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn it_holds_what_a_set_of_the_library_holds() {
        static SET: AddressSet = AddressSet::new();
        let mut twin = HashSet::new();
        let mut random = 1_u64;
        for _ in 0..200_000 {
            // xorshift64
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let address = (random % 20_000 * 16 + 16) as usize;
            if twin.contains(&address) {
                assert!(SET.may_contain(address) && SET.contains(address));
                SET.remove(address);
                twin.remove(&address);
            } else {
                assert!(!SET.contains(address));
                // A full bucket rejects it.
                if SET.insert(address) {
                    twin.insert(address);
                }
            }
        }
        assert!(twin.len() > 8_000, "{}", twin.len());
        for address in twin {
            SET.remove(address);
        }
        assert!((0..1 << 20).all(|address| !SET.may_contain(address)));
    }
}
