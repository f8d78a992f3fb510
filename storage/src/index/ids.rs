//! Compact sets of series ids.

use roaring::RoaringBitmap;

/// Set of ids. Most label pairs of high cardinality have one id each.
#[derive(Debug)]
pub(crate) enum Ids {
    One(u32),
    Many(Box<RoaringBitmap>),
}

impl Ids {
    /// Returns the ids of a non-empty bitmap.
    pub(crate) fn of(bitmap: RoaringBitmap) -> Ids {
        match (bitmap.len(), bitmap.min()) {
            (1, Some(only)) => Ids::One(only),
            _ => Ids::Many(Box::new(bitmap)),
        }
    }

    /// Adds an id.
    pub(crate) fn insert(&mut self, id: u32) {
        match self {
            Ids::One(only) if *only == id => {}
            Ids::One(only) => *self = Ids::Many(Box::new([*only, id].into_iter().collect())),
            Ids::Many(ids) => {
                ids.insert(id);
            }
        }
    }

    /// Adds the ids of a bitmap.
    pub(crate) fn extend(&mut self, mut more: RoaringBitmap) {
        match self {
            Ids::One(only) => {
                more.insert(*only);
                *self = Ids::of(more);
            }
            Ids::Many(ids) => **ids |= more,
        }
    }

    /// Removes an id; returns whether the set is empty then.
    pub(crate) fn remove(&mut self, id: u32) -> bool {
        match self {
            Ids::One(only) => *only == id,
            Ids::Many(ids) => {
                ids.remove(id);
                ids.is_empty()
            }
        }
    }

    /// Returns the number of ids that are in a bitmap, too.
    pub(crate) fn count_among(&self, others: &RoaringBitmap) -> u64 {
        match self {
            Ids::One(id) => u64::from(others.contains(*id)),
            Ids::Many(ids) => ids.intersection_len(others),
        }
    }

    /// Adds the ids to a bitmap.
    pub(crate) fn add_to(&self, union: &mut RoaringBitmap) {
        match self {
            Ids::One(id) => {
                union.insert(*id);
            }
            Ids::Many(ids) => *union |= ids.as_ref(),
        }
    }

    /// Removes all other ids from a bitmap.
    pub(crate) fn keep_in(&self, others: &mut RoaringBitmap) {
        match self {
            Ids::One(id) if others.contains(*id) => *others = [*id].into_iter().collect(),
            Ids::One(_) => others.clear(),
            Ids::Many(ids) => *others &= ids.as_ref(),
        }
    }

    /// Returns the number of ids.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Ids::One(_) => 1,
            Ids::Many(ids) => ids.len(),
        }
    }

    /// Returns whether any of the ids is in a bitmap.
    pub(crate) fn intersects(&self, others: &RoaringBitmap) -> bool {
        match self {
            Ids::One(id) => others.contains(*id),
            Ids::Many(ids) => !ids.is_disjoint(others),
        }
    }

    /// Returns the bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Ids::One(_) => 0,
            Ids::Many(ids) => bitmap_bytes(ids),
        }
    }
}

/// Returns the approximate size of a bitmap in memory.
pub(crate) fn bitmap_bytes(ids: &RoaringBitmap) -> usize {
    64 + 2 * ids.serialized_size()
}
