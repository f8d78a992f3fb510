//! Number of the newest durable commit of a store on a local disk. Without it, a missing newest WAL
//! file could not be noticed.
//!
//! Layout: "Newest commit" in `docs/formats.md`.
//!
//! The file is overwritten in place after each commit and not synced, which costs one or two
//! microseconds. So it is exact after a crash of the process. After a crash of the machine it may
//! name an earlier commit, but never one that was not durable. An unreadable file is ignored.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::StoreError;

/// Name of the file.
const NAME: &str = "newest";
/// Length of the file.
const BYTES: usize = 12;

/// Mark of a store that this process writes to.
#[derive(Debug)]
pub(super) struct Mark(Mutex<MarkState>);

#[derive(Debug)]
struct MarkState {
    file: File,
    newest: u64,
}

impl Mark {
    /// Opens the mark in a folder. If it cannot be written, logs that and returns `None`: then no
    /// commits are noted.
    pub(super) fn open(folder: &Path) -> Option<Mark> {
        let path = path_in(folder);
        let opened = std::fs::create_dir_all(folder).and_then(|()| {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)
        });
        match opened {
            Ok(file) => Some(Mark(Mutex::new(MarkState { file, newest: 0 }))),
            Err(error) => {
                tracing::warn!(%error, ?path, "commits cannot be noted");
                None
            }
        }
    }

    /// Notes a durable commit.
    pub(super) fn note(&self, commit: u64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if commit <= state.newest {
            return;
        }
        state.newest = commit;
        if let Err(error) = write(&state.file, commit) {
            tracing::debug!(%error, "a commit has not been noted");
        }
    }
}

/// Returns the newest commit that was noted in a folder.
pub(super) fn noted(folder: &Path) -> Option<u64> {
    let mut bytes = Vec::with_capacity(BYTES);
    let file = File::open(path_in(folder)).ok()?;
    file.take(BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
    let (checksum, rest) = bytes.split_first_chunk::<4>()?;
    let commit = u64::from_le_bytes(rest.try_into().ok()?);
    (crc32c::crc32c(rest) == u32::from_le_bytes(*checksum)).then_some(commit)
}

/// Compares the newest commit of a store with the one that was noted before it was opened.
///
/// Errors: later commits are missing.
pub(super) fn check(folder: &Path, noted: Option<u64>, newest: u64) -> Result<(), StoreError> {
    let Some(noted) = noted.filter(|noted| *noted > newest) else { return Ok(()) };
    Err(StoreError::Corrupt {
        location: "the newest files of wal/".to_owned(),
        detail: format!(
            "commits up to {noted} were durable, the last one found is {newest}: files are missing \
             or empty, or the folder was copied while a process wrote to it; delete {} to do \
             without these commits",
            path_in(folder).display()
        ),
    })
}

fn path_in(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

fn write(file: &File, commit: u64) -> io::Result<()> {
    let rest = commit.to_le_bytes();
    let mut bytes = [0; BYTES];
    bytes[..4].copy_from_slice(&crc32c::crc32c(&rest).to_le_bytes());
    bytes[4..].copy_from_slice(&rest);
    file.write_all_at(&bytes, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folder that is removed on drop.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn folder(name: &str) -> Folder {
        let process = std::process::id();
        Folder(std::env::temp_dir().join(format!("tessella-mark-{name}-{process}")))
    }

    #[test]
    fn the_newest_commit_is_found_again_and_missed() {
        let folder = folder("found");
        assert_eq!(noted(&folder.0), None);
        let mark = Mark::open(&folder.0).unwrap();
        assert_eq!(noted(&folder.0), None, "nothing has been noted");
        for commit in [7, 300, 9] {
            mark.note(commit);
        }
        drop(mark);
        let mark = Mark::open(&folder.0).unwrap();
        assert_eq!(noted(&folder.0), Some(300), "opening it changes nothing");
        assert_eq!(check(&folder.0, Some(300), 300), Ok(()));
        assert_eq!(check(&folder.0, None, 0), Ok(()));
        let error = check(&folder.0, Some(300), 299).unwrap_err().to_string();
        assert!(error.contains("commits up to 300 were durable"), "{error}");
        assert!(error.contains("newest to do without"), "{error}");
        drop(mark);
    }

    #[test]
    fn a_damaged_mark_tells_nothing() {
        let folder = folder("damaged");
        Mark::open(&folder.0).unwrap().note(5);
        let path = path_in(&folder.0);
        let whole = std::fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(noted(&folder.0), None, "bit {bit}");
        }
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(noted(&folder.0), None, "{len} bytes");
        }
        std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        assert_eq!(noted(&folder.0), None, "a byte more");
    }
}
