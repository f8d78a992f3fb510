//! Values that queries derive from the labels of a set of series.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values that queries derived from the labels of a set, for later queries over the same set.
///
/// Invariant: the values have at most `bytes_max` bytes in total; the least recently used are
/// dropped first.
#[derive(Debug)]
pub struct DerivedValues {
    bytes_max: usize,
    /// The least recently used first.
    entries: Mutex<VecDeque<Entry>>,
}

#[derive(Debug)]
struct Entry {
    key: Vec<u8>,
    value: Arc<dyn Any + Send + Sync>,
    bytes: usize,
}

impl DerivedValues {
    /// Creates an empty store of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> DerivedValues {
        DerivedValues { bytes_max, entries: Mutex::default() }
    }

    /// Returns the value of a key, unless it has another type.
    pub fn find<T: Any + Send + Sync>(&self, key: &[u8]) -> Option<Arc<T>> {
        let mut entries = self.entries();
        let at = entries.iter().position(|entry| entry.key == key)?;
        let entry = entries.remove(at)?;
        let value = Arc::clone(&entry.value);
        entries.push_back(entry);
        value.downcast().ok()
    }

    /// Keeps a value of `bytes` bytes in place of earlier ones, unless it is too large.
    pub fn keep<T: Any + Send + Sync>(&self, key: Vec<u8>, value: Arc<T>, bytes: usize) {
        let bytes = bytes + key.len() + size_of::<Entry>();
        if bytes > self.bytes_max {
            return;
        }
        let mut entries = self.entries();
        entries.retain(|entry| entry.key != key);
        let mut held: usize = entries.iter().map(|entry| entry.bytes).sum();
        while held + bytes > self.bytes_max
            && let Some(oldest) = entries.pop_front()
        {
            held -= oldest.bytes;
        }
        entries.push_back(Entry { key, value, bytes });
    }

    /// Locks the entries. A poisoned mutex still has valid data: nothing panics while it is locked.
    fn entries(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_values_are_dropped_first() {
        let entry = size_of::<Entry>() + 1;
        let values = DerivedValues::new(2 * entry + 20);
        values.keep(b"a".to_vec(), Arc::new(1_u32), 10);
        values.keep(b"b".to_vec(), Arc::new(2_u32), 10);
        assert_eq!(values.find::<u32>(b"a").as_deref(), Some(&1));
        values.keep(b"c".to_vec(), Arc::new(3_u32), 10);
        let found = [b"a", b"b", b"c"].map(|key| values.find::<u32>(key).map(|value| *value));
        assert_eq!(found, [Some(1), None, Some(3)]);
        // Another value of the same key replaces it.
        values.keep(b"c".to_vec(), Arc::new(4_u32), 10);
        let found = [b"a", b"c"].map(|key| values.find::<u32>(key).map(|value| *value));
        assert_eq!(found, [Some(1), Some(4)]);
        values.keep(b"d".to_vec(), Arc::new(5_u32), 2 * entry + 20);
        assert_eq!(values.find::<u32>(b"d"), None);
        assert_eq!(values.find::<u64>(b"a"), None);
    }
}
