//! Garbage collection of SSTs and manifests that are no longer referenced.
//!
//! A read in progress may still use an SST after the newest manifest has dropped it, and so may
//! a read that begins later, until the writer's own manifest in memory is refreshed. An object store
//! that does not answer can delay the refresh for minutes. So a file is deleted in two steps:
//!
//! ```text
//! first look    the manifest in memory no longer references the file: the number of the next read
//!               is noted. Reads with this or a higher number do not use the file.
//! later look    deleted, once all reads with a lower number have ended
//! ```
//!
//! A manifest, a list of compactions or a WAL file fences a writer that was taken over: it cannot
//! create the file that it would write next. An object store that cannot overwrite a file on a
//! condition has no other fence, so there these files must outlast the longest pause of a process.
//! Their age by the clock is not enough, as the clock may be ahead. They are kept until this
//! process has known them for as long by its monotonic clock.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::{Db, GcFilter, ObjectMetadata};
use tokio::time::Instant;

use crate::lsm::compaction::tables::{TABLES_FOLDER, is_among, names_of};
use crate::lsm::settings::{LOG_AGE_MIN, MANIFEST_AGE_MIN};

/// Folder of the WAL.
const LOG_FOLDER: &str = "wal";

/// Tracker of the reads in progress.
#[derive(Debug, Default, Clone)]
pub(crate) struct ReadTracker(Arc<Mutex<RunningReads>>);

#[derive(Debug, Default)]
struct RunningReads {
    numbers: BTreeSet<u64>,
    next: u64,
}

/// Read in progress; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct ReadGuard {
    reads: ReadTracker,
    number: u64,
}

impl ReadTracker {
    /// Registers a read. To be called before the read takes a manifest.
    pub(crate) fn begin(&self) -> ReadGuard {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = running.next;
        running.next += 1;
        running.numbers.insert(number);
        ReadGuard { reads: self.clone(), number }
    }

    /// Returns the number of the next read.
    pub(crate) fn next(&self) -> u64 {
        self.next_and_lowest().0
    }

    /// Returns whether all reads with a lower number have ended.
    pub(crate) fn have_ended_before(&self, number: u64) -> bool {
        self.next_and_lowest().1 >= number
    }

    /// Returns the number of the next read, and the lowest number in progress (the next one if
    /// there is none).
    fn next_and_lowest(&self) -> (u64, u64) {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (running.next, running.numbers.first().copied().unwrap_or(running.next))
    }
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        let mut running = self.reads.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.numbers.remove(&self.number);
    }
}

/// Returns ids of SSTs.
type TableNames = dyn Fn() -> HashSet<String> + Send;

/// SSTs that the manifest in memory references: new reads use them.
#[derive(Clone, Default)]
pub(crate) struct CurrentTables(Arc<Mutex<Option<Box<TableNames>>>>);

impl CurrentTables {
    /// Takes the SSTs from the manifest that a database has in memory.
    pub(crate) fn follow(&self, db: &Db) {
        let status = db.subscribe();
        self.set(Box::new(move || names_of(&status.borrow().current_manifest)));
    }

    /// Returns the tables of an empty manifest.
    #[cfg(test)]
    pub(crate) fn none() -> CurrentTables {
        let current = CurrentTables::default();
        current.set(Box::new(HashSet::new));
        current
    }

    fn set(&self, names: Box<TableNames>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(names);
    }

    /// Returns the ids; `None` before the database is open.
    fn names(&self) -> Option<HashSet<String>> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.as_ref().map(|names| names())
    }
}

impl fmt::Debug for CurrentTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurrentTables").finish_non_exhaustive()
    }
}

/// Filter that keeps SSTs which reads may still use.
#[derive(Debug)]
pub(crate) struct TablesInUse {
    reads: ReadTracker,
    current: CurrentTables,
    /// Unreferenced SSTs, with the number of the first read that does not use them.
    files: Mutex<HashMap<ObjectPath, u64>>,
}

impl TablesInUse {
    pub(crate) fn new(reads: ReadTracker, current: CurrentTables) -> TablesInUse {
        TablesInUse { reads, current, files: Mutex::default() }
    }

    /// Returns the files that can be deleted. Files that are not SSTs are returned as they are.
    pub(crate) fn allowed(&self, found: HashSet<ObjectMetadata>) -> HashSet<ObjectMetadata> {
        let (tables, mut allowed): (HashSet<_>, HashSet<_>) =
            found.into_iter().partition(|file| folder(&file.location) == TABLES_FOLDER);
        // SlateDB calls this once for each folder.
        if tables.is_empty() {
            return allowed;
        }
        let Some(current) = self.current.names() else { return allowed };
        let (next, lowest) = self.reads.next_and_lowest();
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut noted = HashMap::with_capacity(tables.len());
        for file in tables.into_iter().filter(|file| !is_among(file, &current)) {
            let known = files.get(&file.location).copied();
            noted.insert(file.location.clone(), known.unwrap_or(next));
            if known.is_some_and(|unused_from| lowest >= unused_from) {
                allowed.insert(file);
            }
        }
        *files = noted;
        allowed
    }
}

/// Files that may fence a writer, with the time at which this process saw them first.
#[derive(Debug, Default)]
struct Fences(Mutex<HashMap<ObjectPath, Instant>>);

impl Fences {
    /// Returns the files of a folder that may be deleted. Each call has all files of the folder.
    fn allowed(&self, found: &HashSet<ObjectMetadata>) -> HashSet<ObjectMetadata> {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let folders: HashSet<String> = found.iter().map(|file| folder(&file.location)).collect();
        let paths: HashSet<&ObjectPath> = found.iter().map(|file| &file.location).collect();
        known.retain(|path, _| paths.contains(path) || !folders.contains(&folder(path)));
        let mut is_old = |file: &ObjectMetadata| {
            let age_min = match folder(&file.location).as_str() {
                TABLES_FOLDER => return true,
                LOG_FOLDER => LOG_AGE_MIN,
                _ => MANIFEST_AGE_MIN,
            };
            let since = *known.entry(file.location.clone()).or_insert(now);
            now.duration_since(since) >= age_min
        };
        found.iter().filter(|file| is_old(file)).cloned().collect()
    }
}

/// Returns the name of the folder that a file is in.
fn folder(path: &ObjectPath) -> String {
    let parts: Vec<_> = path.parts().collect();
    let folder = parts.len().checked_sub(2).map(|at| parts[at].as_ref().to_owned());
    folder.unwrap_or_default()
}

/// Filter of the files that SlateDB's garbage collector deletes.
#[derive(Debug)]
pub(crate) struct Filter {
    in_use: TablesInUse,
    /// `None` on object stores with conditional overwrites, which fence otherwise.
    fences: Option<Fences>,
}

impl Filter {
    /// Keeps SSTs that reads may use and, with `keeps_fences`, files that may fence a writer.
    pub(crate) fn new(reads: ReadTracker, current: CurrentTables, keeps_fences: bool) -> Filter {
        let fences = keeps_fences.then(Fences::default);
        Filter { in_use: TablesInUse::new(reads, current), fences }
    }
}

#[async_trait]
impl GcFilter for Filter {
    async fn filter(&self, candidates: HashSet<ObjectMetadata>) -> HashSet<ObjectMetadata> {
        let allowed = self.in_use.allowed(candidates);
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

    const FIRST: &str = "tessella/compacted/01J9AYJ8G0YJ3RH8CP1W4SXS8A.sst";
    const SECOND: &str = "tessella/compacted/01J9AYJ8G0DCMDQKFPN98N93SE.sst";

    #[test]
    fn files_stay_while_reads_from_before_are_under_way() {
        let reads = ReadTracker::default();
        let unread = TablesInUse::new(reads.clone(), CurrentTables::none());
        let file = || files(&[FIRST]);
        let none = HashSet::new();
        let before = reads.begin();
        assert_eq!(unread.allowed(file()), none, "on the first look");
        let after = reads.begin();
        assert_eq!(unread.allowed(file()), none, "a read from before the first look goes on");
        drop(before);
        assert_eq!(unread.allowed(file()), file(), "later reads do not use it");
        drop(after);
    }

    #[test]
    fn files_stay_while_the_manifest_in_memory_references_them() {
        let current = CurrentTables::default();
        let unread = TablesInUse::new(ReadTracker::default(), current.clone());
        let file = || files(&[FIRST]);
        let none = HashSet::new();
        for _ in 0..3 {
            assert_eq!(unread.allowed(file()), none, "before the database is open");
        }
        let name = || FIRST.split(['/', '.']).nth(2).unwrap_or_default().to_owned();
        current.set(Box::new(move || HashSet::from([name()])));
        for _ in 0..3 {
            assert_eq!(unread.allowed(file()), none, "while a refresh is late");
        }
        current.set(Box::new(HashSet::new));
        assert_eq!(unread.allowed(file()), none, "on the first look after the refresh");
        assert_eq!(unread.allowed(file()), file());
    }

    #[test]
    fn files_without_reads_are_deleted_at_once() {
        let reads = ReadTracker::default();
        let unread = TablesInUse::new(reads.clone(), CurrentTables::none());
        let _read = reads.begin();
        let log = files(&["tessella/wal/1.sst", "tessella/manifest/1.manifest"]);
        assert_eq!(unread.allowed(log.clone()), log);
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_may_fence_a_writer_are_kept_until_they_are_known_for_long() {
        let filter = Filter::new(ReadTracker::default(), CurrentTables::none(), true);
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
        let filter = Filter::new(ReadTracker::default(), CurrentTables::none(), false);
        assert_eq!(filter.filter(log.clone()).await, log);
    }

    #[test]
    fn a_file_that_is_found_later_waits_for_itself() {
        let reads = ReadTracker::default();
        let unread = TablesInUse::new(reads.clone(), CurrentTables::none());
        assert!(unread.allowed(files(&[FIRST])).is_empty());
        assert_eq!(unread.allowed(files(&[FIRST, SECOND])), files(&[FIRST]));
        assert_eq!(unread.allowed(files(&[SECOND])), files(&[SECOND]));
    }
}
