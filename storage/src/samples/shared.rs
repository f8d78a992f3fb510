//! Slices of many series that share one allocation.

use std::ops::Range;
use std::sync::Arc;

/// Slice of items that were collected together with those of other series.
#[derive(Debug)]
pub(crate) struct SharedSlice<T> {
    all: Arc<Vec<T>>,
    start: u32,
    end: u32,
}

/// Buffer to which the items of many series are copied.
#[derive(Debug)]
pub(crate) struct Room<T> {
    items: Vec<T>,
    /// Placeholder in slices until [`Room::settle`].
    pending: Arc<Vec<T>>,
}

impl<T> SharedSlice<T> {
    /// Returns a slice of items, by index.
    pub(crate) fn new(all: &Arc<Vec<T>>, Range { start, end }: Range<u32>) -> SharedSlice<T> {
        SharedSlice { all: Arc::clone(all), start, end }
    }

    /// Returns the items; none before [`Room::settle`].
    #[inline]
    pub(crate) fn items(&self) -> &[T] {
        self.all.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

impl<T> Clone for SharedSlice<T> {
    fn clone(&self) -> SharedSlice<T> {
        SharedSlice { all: Arc::clone(&self.all), ..*self }
    }
}

impl<T> From<Vec<T>> for SharedSlice<T> {
    fn from(items: Vec<T>) -> SharedSlice<T> {
        let end = items.len() as u32;
        SharedSlice { all: Arc::new(items), start: 0, end }
    }
}

impl<T> Default for Room<T> {
    fn default() -> Room<T> {
        Room { items: Vec::new(), pending: Arc::default() }
    }
}

impl<T: Clone> Room<T> {
    /// Copies items; the slice is filled by [`Room::settle`].
    pub(crate) fn copy(&mut self, items: &[T]) -> SharedSlice<T> {
        let start = self.items.len() as u32;
        self.items.extend_from_slice(items);
        SharedSlice::new(&self.pending, start..self.items.len() as u32)
    }

    /// Returns the bytes of the items that were copied since [`Room::settle`].
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.items[..])
    }

    /// Lets the last copied slice end where `change` lets the items end.
    ///
    /// Panics: another slice was copied later.
    pub(crate) fn change_last(
        &mut self,
        last: &mut SharedSlice<T>,
        change: impl FnOnce(&mut Vec<T>),
    ) {
        let is_last = last.end as usize == self.items.len();
        assert!(is_last && Arc::ptr_eq(&last.all, &self.pending), "the slice is not the last one");
        change(&mut self.items);
        last.end = self.items.len() as u32;
    }

    /// Fills all slices that were copied since the last call. Other slices stay as they are.
    pub(crate) fn settle<'a>(&mut self, slices: impl Iterator<Item = &'a mut SharedSlice<T>>)
    where
        T: 'a,
    {
        let mut all = std::mem::take(&mut self.items);
        all.shrink_to_fit();
        let all = Arc::new(all);
        for slice in slices.filter(|slice| Arc::ptr_eq(&slice.all, &self.pending)) {
            slice.all = Arc::clone(&all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_filled_once_and_the_last_one_may_grow() {
        let mut room = Room::default();
        let (mut first, mut second) = (room.copy(&[1, 2]), room.copy(&[3]));
        room.change_last(&mut second, |items| items.extend([4, 5]));
        assert_eq!((first.items(), second.items()), (&[][..], &[][..]));
        assert_eq!(room.bytes(), 5 * size_of::<i32>());
        room.settle([&mut first, &mut second].into_iter());
        assert_eq!((first.items(), second.items()), (&[1, 2][..], &[3, 4, 5][..]));
        let mut third = room.copy(&[6]);
        room.settle([&mut first, &mut third].into_iter());
        assert_eq!((first.items(), third.items()), (&[1, 2][..], &[6][..]));
        assert_eq!(SharedSlice::from(vec![7]).items(), [7]);
    }
}
