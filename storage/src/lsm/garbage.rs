//! When files that are not in the tree any more may be deleted: once no read can want them.
//!
//! A file leaves the tree when what it holds has been merged or dropped. Reads that began before
//! may have it on their list all the same, and the tree in memory learns of it a little later. So
//! the collector meets a file more than once:
//!
//! ```text
//! first    it is noted
//! second   the tree has been read anew meanwhile: reads that begin from now on do not want it
//! later    deleted, once all reads have ended that had begun by then
//! ```

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::{GcFilter, ObjectMetadata};

/// The folder of the files that reads take from.
const READ_FOLDER: &str = "compacted";

/// The reads under way.
#[derive(Debug, Default, Clone)]
pub(crate) struct Reads(Arc<Mutex<Running>>);

#[derive(Debug, Default)]
struct Running {
    numbers: BTreeSet<u64>,
    next: u64,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Read {
    reads: Reads,
    number: u64,
}

impl Reads {
    /// Notes that a read begins: before it looks at the tree.
    pub(crate) fn begin(&self) -> Read {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = running.next;
        running.next += 1;
        running.numbers.insert(number);
        Read { reads: self.clone(), number }
    }

    /// The number of the next read.
    pub(crate) fn next(&self) -> u64 {
        self.next_and_lowest().0
    }

    /// Whether all reads before one have ended.
    pub(crate) fn have_ended_before(&self, number: u64) -> bool {
        self.next_and_lowest().1 >= number
    }

    /// The number of the next read, and the lowest of those under way or that one.
    fn next_and_lowest(&self) -> (u64, u64) {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (running.next, running.numbers.first().copied().unwrap_or(running.next))
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        let mut running = self.reads.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.numbers.remove(&self.number);
    }
}

/// Keeps what reads under way may still want.
#[derive(Debug)]
pub(crate) struct Unread {
    reads: Reads,
    /// Files that are of no use, and the first read that does not want them: none on the first
    /// look.
    files: Mutex<HashMap<ObjectPath, Option<u64>>>,
}

impl Unread {
    pub(crate) fn new(reads: Reads) -> Unread {
        Unread { reads, files: Mutex::default() }
    }

    /// Which of the files may go.
    pub(crate) fn allowed(&self, found: HashSet<ObjectMetadata>) -> HashSet<ObjectMetadata> {
        let (next, lowest) = self.reads.next_and_lowest();
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = HashMap::with_capacity(found.len());
        let mut allowed = HashSet::new();
        for file in found {
            if file.location.parts().all(|part| part.as_ref() != READ_FOLDER) {
                allowed.insert(file);
                continue;
            }
            let unwanted_from = files.get(&file.location).map(|known| known.unwrap_or(next));
            let is_unread = unwanted_from.is_some_and(|from| lowest >= from);
            seen.insert(file.location.clone(), unwanted_from);
            if is_unread {
                allowed.insert(file);
            }
        }
        // Other folders come with calls of their own.
        if !seen.is_empty() {
            *files = seen;
        }
        allowed
    }
}

#[async_trait]
impl GcFilter for Unread {
    async fn filter(&self, candidates: HashSet<ObjectMetadata>) -> HashSet<ObjectMetadata> {
        self.allowed(candidates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> HashSet<ObjectMetadata> {
        let file = |name: &&str| ObjectMetadata {
            location: ObjectPath::from(*name),
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size: 1,
            e_tag: None,
            version: None,
        };
        names.iter().map(file).collect()
    }

    #[test]
    fn files_stay_while_reads_from_before_are_under_way() {
        let reads = Reads::default();
        let unread = Unread::new(reads.clone());
        let file = || files(&["tessella/compacted/a.sst"]);
        let none = HashSet::new();
        let before = reads.begin();
        assert_eq!(unread.allowed(file()), none, "on the first look");
        let between = reads.begin();
        assert_eq!(unread.allowed(file()), none);
        let after = reads.begin();
        drop(before);
        assert_eq!(unread.allowed(file()), none, "a read from before the second look goes on");
        drop(between);
        assert_eq!(unread.allowed(file()), file(), "later ones do not want it");
        drop(after);
    }

    #[test]
    fn files_of_no_read_go_at_once() {
        let reads = Reads::default();
        let unread = Unread::new(reads.clone());
        let _read = reads.begin();
        let log = files(&["tessella/wal/1.sst", "tessella/manifest/1.manifest"]);
        assert_eq!(unread.allowed(log.clone()), log);
    }

    #[test]
    fn a_file_that_is_found_later_waits_for_itself() {
        let reads = Reads::default();
        let unread = Unread::new(reads.clone());
        let first = "tessella/compacted/a.sst";
        let second = "tessella/compacted/b.sst";
        assert!(unread.allowed(files(&[first])).is_empty());
        assert_eq!(unread.allowed(files(&[first, second])), files(&[first]));
        assert_eq!(unread.allowed(files(&[second])), files(&[second]));
    }
}
