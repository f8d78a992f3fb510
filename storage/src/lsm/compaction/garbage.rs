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
//!
//! A manifest, a list of compactions or a WAL file fences a writer that was taken over: it cannot
//! create the file that it would write next. An object store that cannot overwrite a file on a
//! condition has no other fence, so there these files must outlast the longest pause of a process.
//! Their age by the clock is not enough, as the clock may be ahead. They are kept until this
//! process has known them for as long by its monotonic clock.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::{GcFilter, ObjectMetadata};
use tokio::time::Instant;

use crate::lsm::settings::{LOG_AGE_MIN, MANIFEST_AGE_MIN};

/// The folder of the files that reads take from.
const READ_FOLDER: &str = "compacted";
/// The folder of the write-ahead log.
const LOG_FOLDER: &str = "wal";

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

/// Files that may fence a writer, with the time at which this process saw them first.
#[derive(Debug, Default)]
struct Fences(Mutex<HashMap<ObjectPath, Instant>>);

impl Fences {
    /// Returns the files of a folder that may go. All of them come with each call.
    fn allowed(&self, found: &HashSet<ObjectMetadata>) -> HashSet<ObjectMetadata> {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let folders: HashSet<String> = found.iter().map(|file| folder(&file.location)).collect();
        let paths: HashSet<&ObjectPath> = found.iter().map(|file| &file.location).collect();
        known.retain(|path, _| paths.contains(path) || !folders.contains(&folder(path)));
        let mut is_old = |file: &ObjectMetadata| {
            let age_min = match folder(&file.location).as_str() {
                READ_FOLDER => return true,
                LOG_FOLDER => LOG_AGE_MIN,
                _ => MANIFEST_AGE_MIN,
            };
            let since = *known.entry(file.location.clone()).or_insert(now);
            now.duration_since(since) >= age_min
        };
        found.iter().filter(|file| is_old(file)).cloned().collect()
    }
}

/// Name of the folder that a file is in.
fn folder(path: &ObjectPath) -> String {
    let parts: Vec<_> = path.parts().collect();
    let folder = parts.len().checked_sub(2).map(|at| parts[at].as_ref().to_owned());
    folder.unwrap_or_default()
}

/// Filter of the files that SlateDB's garbage collector deletes.
#[derive(Debug)]
pub(crate) struct Filter {
    unread: Unread,
    /// None on object stores that fence a writer otherwise.
    fences: Option<Fences>,
}

impl Filter {
    /// Keeps what reads want. With `keeps_fences`, it also keeps files that may fence a writer.
    pub(crate) fn new(reads: Reads, keeps_fences: bool) -> Filter {
        let fences = keeps_fences.then(Fences::default);
        Filter { unread: Unread::new(reads), fences }
    }
}

#[async_trait]
impl GcFilter for Filter {
    async fn filter(&self, candidates: HashSet<ObjectMetadata>) -> HashSet<ObjectMetadata> {
        let allowed = self.unread.allowed(candidates);
        match &self.fences {
            Some(fences) => fences.allowed(&allowed),
            None => allowed,
        }
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

    #[tokio::test(start_paused = true)]
    async fn files_that_may_fence_a_writer_are_kept_until_they_are_known_for_long() {
        let filter = Filter::new(Reads::default(), true);
        let log = files(&["tessella/wal/1.sst"]);
        let manifest = files(&["tessella/manifest/1.manifest"]);
        let none = HashSet::new();
        let clock_ahead = [&log, &manifest];
        for candidates in clock_ahead {
            assert_eq!(filter.filter(candidates.clone()).await, none);
        }
        tokio::time::advance(LOG_AGE_MIN).await;
        assert_eq!(filter.filter(log.clone()).await, log);
        assert_eq!(filter.filter(manifest.clone()).await, none);
        tokio::time::advance(MANIFEST_AGE_MIN - LOG_AGE_MIN).await;
        let later = files(&["tessella/manifest/2.manifest"]);
        let both = manifest.union(&later).cloned().collect();
        assert_eq!(filter.filter(both).await, manifest);
        // Where the object store fences a writer, the age by the clock is enough.
        let filter = Filter::new(Reads::default(), false);
        assert_eq!(filter.filter(log.clone()).await, log);
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
