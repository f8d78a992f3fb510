//! Garbage collection after crashes: an idle store has about the size of one with the same samples
//! that was never killed.
//!
//! Leftovers of a crash are deleted one minute after a start, manifests after 20 minutes. So a long
//! run checks after the last kill, and first makes the files older.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use super::{Sender, Site, metric};
use testkit::Server;

/// Maximum size relative to the other store, in percent.
const BYTES_MAX_PERCENT: u64 = 130;
/// Additional bytes, most of which are the log.
const BYTES_MORE_MAX: u64 = 256 << 10;
/// Timeout until a store is idle.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Age that files are set to.
const AGE: Duration = Duration::from_secs(60 * 60);
/// Folders of files that are kept for 20 minutes in any case.
const LISTS: [&str; 2] = ["manifest", "compactions"];

/// Returns size and number of the files below a folder, without manifests that are newer.
fn bytes_below(folder: &Path) -> (u64, u64) {
    let are_lists = LISTS.iter().any(|name| folder.ends_with(name));
    let (mut bytes, mut files) = (0, 0);
    // Files that are deleted meanwhile do not count.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        let is_new = || metadata.modified().unwrap() > SystemTime::now() - AGE;
        if metadata.is_dir() {
            let (more_bytes, more_files) = bytes_below(&entry.path());
            (bytes, files) = (bytes + more_bytes, files + more_files);
        } else if !(are_lists && is_new()) {
            (bytes, files) = (bytes + metadata.len(), files + 1);
        }
    }
    (bytes, files)
}

/// Sets the age of all files below a folder.
fn make_old(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            make_old(&path);
        } else {
            let file = fs::File::options().append(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - 2 * AGE).unwrap();
        }
    }
}

/// Waits until a folder has at most `bytes_max`; returns its size.
fn wait_until_idle(server: &Server, folder: &Path, bytes_max: impl Fn(u64) -> u64) -> u64 {
    let started = Instant::now();
    loop {
        let in_use = metric(&server.address, "tessella_storage_file_bytes") as u64;
        let (bytes, files) = bytes_below(folder);
        if bytes <= bytes_max(in_use) {
            return bytes;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{bytes} bytes in {files} files are left in {}, of which {in_use} are in use",
            folder.display()
        );
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Sends all requests of a store to another one, and compares their sizes, if they are on a disk.
pub fn check(killed: &Site, whole: &Site, senders: &[Box<dyn Sender>]) {
    let (Some(killed_folder), Some(whole_folder)) = (&killed.folder, &whole.folder) else { return };
    let mut server = whole.start();
    senders.iter().for_each(|sender| sender.send_again(&server.address));
    let process = server.child.0.id().to_string();
    assert!(Command::new("kill").arg(process).status().unwrap().success());
    assert!(server.child.0.wait().unwrap().success());
    make_old(killed_folder);
    make_old(whole_folder);
    let (before, _) = bytes_below(killed_folder);
    let (server, whole_server) = (killed.start(), whole.start());
    let bytes = wait_until_idle(&whole_server, whole_folder, and_more);
    let left = wait_until_idle(&server, killed_folder, |_| and_more(bytes));
    println!("{before} bytes after the last kill, then {left}; {bytes} without kills");
}

/// Returns the maximum for a size.
fn and_more(bytes: u64) -> u64 {
    bytes * BYTES_MAX_PERCENT / 100 + BYTES_MORE_MAX
}
