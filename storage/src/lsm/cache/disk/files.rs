//! Files of the disk cache, and their eviction.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;

use super::FilePart;

/// Bytes of the header before those of the part.
const HEADER_BYTES: usize = 12;
/// Suffix of a file that is not complete yet.
const UNFINISHED: &str = "unfinished";

/// Cache files of a folder, bounded in bytes.
pub(super) struct Files {
    folder: PathBuf,
    bytes_max: u64,
    part_bytes: u64,
    entries: Mutex<Entries>,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    /// Number of the next incomplete file.
    unfinished: AtomicU64,
    failures: AtomicU64,
}

/// Statistics of the disk cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskCacheStats {
    pub(crate) bytes: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
    pub(crate) failures: u64,
}

#[derive(Default)]
struct Entries {
    files: HashMap<String, FileEntry>,
    /// Names by time of last use, the least recently used first.
    by_use: BTreeMap<u64, String>,
    bytes: u64,
    clock: u64,
}

struct FileEntry {
    bytes: u64,
    used: u64,
}

impl Entries {
    fn touch(&mut self, name: &str) -> bool {
        let Some(entry) = self.files.get_mut(name) else { return false };
        let name = self.by_use.remove(&entry.used).unwrap_or_else(|| name.to_owned());
        self.clock += 1;
        entry.used = self.clock;
        self.by_use.insert(self.clock, name);
        true
    }

    fn insert(&mut self, name: String, bytes: u64) {
        self.remove(&name);
        self.clock += 1;
        self.bytes += bytes;
        self.by_use.insert(self.clock, name.clone());
        self.files.insert(name, FileEntry { bytes, used: self.clock });
    }

    fn remove(&mut self, name: &str) {
        if let Some(entry) = self.files.remove(name) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }

    /// Evicts the least recently used entries until at most `bytes_max` bytes are left.
    fn shrink(&mut self, bytes_max: u64) -> Vec<String> {
        let mut evicted = Vec::new();
        while self.bytes > bytes_max
            && let Some((_, name)) = self.by_use.pop_first()
        {
            if let Some(entry) = self.files.remove(&name) {
                self.bytes -= entry.bytes;
            }
            evicted.push(name);
        }
        evicted
    }
}

impl Files {
    pub(super) fn open(folder: &Path, bytes_max: u64, part_bytes: u64) -> io::Result<Files> {
        std::fs::create_dir_all(folder)?;
        let mut found: Vec<(SystemTime, String, u64)> = Vec::new();
        for file in std::fs::read_dir(folder)? {
            let file = file?;
            let Ok(name) = file.file_name().into_string() else { continue };
            if name.ends_with(UNFINISHED) {
                std::fs::remove_file(file.path())?;
            } else if is_part(&name) {
                let metadata = file.metadata()?;
                found.push((metadata.modified()?, name, metadata.len()));
            }
        }
        found.sort_unstable();
        let mut entries = Entries::default();
        for (_, name, bytes) in found {
            entries.insert(name, bytes);
        }
        let files = Files {
            folder: folder.to_owned(),
            bytes_max,
            part_bytes,
            entries: Mutex::new(entries),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            unfinished: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        };
        files.make_room();
        Ok(files)
    }

    /// Returns a part if it is cached and undamaged.
    pub(super) fn read(&self, file: &str, number: u64) -> Option<FilePart> {
        let name = part_name(file, number);
        // The lock is released before the file is read, as a damaged file is removed.
        let is_kept = self.entries().touch(&name);
        let part = if is_kept { self.read_part(&name) } else { None };
        let counter = if part.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        part
    }

    fn read_part(&self, name: &str) -> Option<FilePart> {
        let encoded = std::fs::read(self.folder.join(name)).ok();
        let part = encoded.and_then(|encoded| decode(encoded, self.part_bytes));
        if part.is_none() {
            tracing::warn!(name, "a part in the disk cache is missing or damaged; it is fetched");
            self.drop_part(name);
        }
        part
    }

    /// Writes a part to the cache.
    pub(super) fn write(&self, file: &str, number: u64, file_bytes: u64, bytes: &Bytes) {
        let name = part_name(file, number);
        let encoded = encode(file_bytes, bytes);
        let count = self.unfinished.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let unfinished = self.folder.join(format!("{name}.{process}.{count}.{UNFINISHED}"));
        let written = std::fs::write(&unfinished, &encoded)
            .and_then(|()| std::fs::rename(&unfinished, self.folder.join(&name)));
        match written {
            Ok(()) => {
                self.entries().insert(name, encoded.len() as u64);
                self.make_room();
            }
            Err(error) => {
                let _ = std::fs::remove_file(&unfinished);
                // A full disk fails each write: the first failure is logged, all are counted.
                if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(%error, "disk cache write failed");
                }
            }
        }
    }

    /// Removes a part.
    pub(super) fn remove(&self, file: &str, number: u64) {
        self.drop_part(&part_name(file, number));
    }

    pub(super) fn stats(&self) -> DiskCacheStats {
        DiskCacheStats {
            bytes: self.entries().bytes,
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    fn drop_part(&self, name: &str) {
        self.entries().remove(name);
        // The file may be missing.
        let _ = std::fs::remove_file(self.folder.join(name));
    }

    fn make_room(&self) {
        let evicted = self.entries().shrink(self.bytes_max);
        for name in evicted {
            self.evictions.fetch_add(1, Ordering::Relaxed);
            // Another process may have removed it.
            let _ = std::fs::remove_file(self.folder.join(name));
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn part_name(file: &str, number: u64) -> String {
    format!("{file}.{number:x}")
}

/// Returns whether a file name is that of a part.
fn is_part(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(file, number)| {
        file.ends_with(".sst") && u64::from_str_radix(number, 16).is_ok()
    })
}

fn encode(file_bytes: u64, bytes: &[u8]) -> Vec<u8> {
    let mut rest = Vec::with_capacity(HEADER_BYTES + bytes.len());
    rest.extend_from_slice(&[0; 4]);
    rest.extend_from_slice(&file_bytes.to_le_bytes());
    rest.extend_from_slice(bytes);
    let checksum = crc32c::crc32c(&rest[4..]);
    rest[..4].copy_from_slice(&checksum.to_le_bytes());
    rest
}

fn decode(encoded: Vec<u8>, part_bytes: u64) -> Option<FilePart> {
    let (checksum, rest) = encoded.split_first_chunk::<4>()?;
    if crc32c::crc32c(rest) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let (file_bytes, bytes) = rest.split_first_chunk::<8>()?;
    if bytes.is_empty() || bytes.len() as u64 > part_bytes {
        return None;
    }
    let file_bytes = u64::from_le_bytes(*file_bytes);
    Some(FilePart { file_bytes, bytes: Bytes::from(encoded).slice(HEADER_BYTES..) })
}
