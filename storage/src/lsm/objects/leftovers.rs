//! Files of a store without manifest. Creating a new store there would hide the loss of samples.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{StreamExt, TryStreamExt};
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::{ObjectStore, ObjectStoreExt};

use crate::error::StoreError;
use crate::lsm::compaction::orphans::unanswered;
use crate::lsm::owner::{LEASE, LOCK};
use crate::lsm::unavailable;

/// Folders of the LSM that hold samples.
const FOLDERS: [&str; 2] = ["wal", "compacted"];
/// Maximum number of files to count in a folder, and to name.
const COUNTED_MAX: usize = 1000;
const NAMED_MAX: usize = 3;

/// Files found, by folder.
pub(in crate::lsm) struct Leftovers(Vec<(&'static str, Vec<String>)>);

impl Leftovers {
    /// Looks for files with samples; to be called if there is no manifest.
    pub(in crate::lsm) async fn find(
        objects: &Arc<dyn ObjectStore>,
        path: &ObjectPath,
        limit: Duration,
    ) -> Result<Option<Leftovers>, StoreError> {
        let mut found = Vec::new();
        for folder in FOLDERS {
            let files = objects.list(Some(&path.clone().join(folder))).take(COUNTED_MAX);
            let names = files.map_ok(|file| file.location.filename().unwrap_or("").to_owned());
            let listing = tokio::time::timeout(limit, names.try_collect::<Vec<String>>());
            let names = listing.await.map_err(|_| unanswered(limit))?;
            let names = names.map_err(|error| unavailable(&error))?;
            if !names.is_empty() {
                found.push((folder, names));
            }
        }
        Ok((!found.is_empty()).then_some(Leftovers(found)))
    }

    /// Returns the error that names the files.
    pub(in crate::lsm) fn refusal(mut self) -> StoreError {
        let mut text = String::new();
        for (folder, names) in &mut self.0 {
            names.sort_unstable();
            let count = names.len();
            let separator = if text.is_empty() { "" } else { ", " };
            let or_more = if count == COUNTED_MAX { " or more" } else { "" };
            let _ = write!(text, "{separator}{count}{or_more} in {folder}/ (");
            text.push_str(&names[..count.min(NAMED_MAX)].join(", "));
            text.push_str(if count > NAMED_MAX { ", …)" } else { ")" });
        }
        StoreError::Leftovers(text)
    }

    /// Deletes all objects of the LSM except the lock and the lease.
    pub(in crate::lsm) async fn discard(
        objects: &Arc<dyn ObjectStore>,
        path: &ObjectPath,
    ) -> Result<(), StoreError> {
        let kept = [LOCK, LEASE].map(|name| path.clone().join(name));
        let files: Vec<ObjectPath> = objects
            .list(Some(path))
            .map_ok(|file| file.location)
            .try_filter(|location| std::future::ready(!kept.contains(location)))
            .try_collect()
            .await
            .map_err(|error| unavailable(&error))?;
        tracing::warn!(files = files.len(), "deleting the files of a store without manifest");
        for file in files {
            objects.delete(&file).await.map_err(|error| unavailable(&error))?;
        }
        Ok(())
    }
}
