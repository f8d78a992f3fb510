//! Stores that earlier versions have made are opened, and hold what was written.
//!
//! ```text
//! format-N       what plain::write made with the first version of format N
//! everything-N   what everything::write made with the first version of format N that has it all
//! summarized-N   what summarized::write made with a version of format N
//! uneven-N       what uneven::write made with a version of format N
//! ```
//!
//! `MAKE_STORES=folder cargo test --workspace --test stores` makes all with this version, as
//! `folder/format`, `folder/everything`, `folder/summarized` and `folder/uneven`.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod everything;
mod plain;
mod summarized;
mod uneven;

use std::path::{Path, PathBuf};

use model::{Advance, SampleBatch, SeriesSet};

/// A day, in ms.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn run<T>(test: impl Future<Output = T>) -> T {
    // Tasks of a store end with the runtime.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test)
}

/// A folder that is removed on drop.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        let name = format!("tessella-stores-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The stores of a kind: one that `write` makes now, and those that earlier versions have made, as
/// copies one after the other. The URL of each is given to `check` with its name.
fn each_store(kind: &str, write: impl FnOnce(&str), mut check: impl FnMut(&str, &str)) {
    let folder = Temporary::new(kind);
    let made = std::env::var_os("MAKE_STORES").map(|made| PathBuf::from(made).join(kind));
    let made = made.unwrap_or_else(|| folder.0.join("made"));
    write(made.to_str().unwrap());
    let mut stores = vec![made];
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores");
    for entry in std::fs::read_dir(kept).unwrap() {
        let entry = entry.unwrap();
        let is_of_kind = entry.file_name().to_str().unwrap().starts_with(&format!("{kind}-"));
        stores.extend(is_of_kind.then(|| entry.path()));
    }
    assert!(stores.len() > 1, "there are stores of earlier versions");
    for store in stores {
        let opened = folder.0.join("opened");
        let _ = std::fs::remove_dir_all(&opened);
        copy(&store, &opened);
        check(opened.to_str().unwrap(), &store.display().to_string());
    }
}

/// Passes the samples of a series to `take`, batch by batch.
fn each_batch(set: &dyn SeriesSet, index: usize, mut take: impl FnMut(&SampleBatch)) {
    let (mut cursor, mut batch) = (set.cursor(index), SampleBatch::new());
    loop {
        batch.clear();
        let advance = cursor.next_batch(i64::MAX, &mut batch).unwrap();
        take(&batch);
        if advance != Advance::Full {
            return;
        }
    }
}
