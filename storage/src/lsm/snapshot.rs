//! Snapshots of the LSM, each a complete LSM in another folder.
//!
//! ```text
//! P/tessella/…                     the LSM
//! P/snapshots/NAME/tessella/…      a copy, which is opened as P/snapshots/NAME
//! ```
//!
//! A checkpoint keeps the SSTs of one manifest while they are copied: as hard links on a local
//! disk, by the object store in a bucket. The manifest is copied last, so that an incomplete copy
//! is no LSM. The checkpoint has the name of the snapshot: the next start removes what a crash has
//! left of both.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use slatedb::CheckpointCreateResult;
use slatedb::admin::Admin;
use slatedb::config::{CheckpointOptions, CheckpointScope};
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::{ObjectStore, ObjectStoreExt};

use crate::error::StoreError;
use crate::lsm::objects::location::ROOT;
use crate::lsm::{Location, Lsm, store_error, unavailable};

/// Folder of the snapshots.
pub(super) const FOLDER: &str = "snapshots";
/// Prefix of the names of our checkpoints.
const CHECKPOINT_PREFIX: &str = "snapshot ";
/// Maximum number of files that are copied concurrently.
const COPIES_MAX: usize = 8;

/// Location of the files of an LSM.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) object_store: Arc<dyn ObjectStore>,
    pub(super) path: ObjectPath,
    /// Local folder of the object store, on a local disk.
    folder: Option<PathBuf>,
}

impl Files {
    /// Returns the files of the LSM at a location.
    pub(super) fn of(location: &Location) -> Files {
        Files {
            object_store: Arc::clone(&location.object_store),
            path: location.path.clone(),
            folder: location.folder_of(&ObjectPath::default()),
        }
    }

    fn admin(&self) -> Admin {
        Admin::builder(self.path.clone(), Arc::clone(&self.object_store)).build()
    }

    /// Returns the location of a snapshot.
    fn copy(&self, name: &str) -> Files {
        let mut parts: Vec<_> = self.path.parts().collect();
        parts.pop();
        let parent = ObjectPath::from_iter(parts);
        let path = parent.join(FOLDER).join(name).join(ROOT);
        let (object_store, folder) = (Arc::clone(&self.object_store), self.folder.clone());
        Files { object_store, path, folder }
    }

    /// Removes a snapshot with everything in it.
    async fn remove(&self) -> Result<(), StoreError> {
        let files = self.object_store.list(Some(&self.path)).map_ok(|file| file.location);
        let deleted = self.object_store.delete_stream(files.boxed());
        deleted.try_collect::<Vec<_>>().await.map_err(|e| unavailable(&e))?;
        // On a local disk, folders are left, and links with names that no object has. A link would
        // keep the space of a deleted file.
        let Some(mut folder) = self.folder.clone() else { return Ok(()) };
        folder.extend(self.path.parts().map(|part| part.as_ref().to_owned()));
        let removing = tokio::task::spawn_blocking(move || {
            let removed = std::fs::remove_dir_all(&folder);
            // The parent folder stays if it has other files.
            let _ = folder.parent().map(std::fs::remove_dir);
            removed
        });
        match removing.await.map_err(|error| StoreError::Unavailable(error.to_string()))? {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(StoreError::Unavailable(error.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Removes our checkpoints and their snapshots: no snapshot is in progress.
    pub(super) async fn remove_unfinished(&self, db: &slatedb::Db) -> Result<(), StoreError> {
        for checkpoint in db.manifest().checkpoints() {
            let name = checkpoint.name.as_deref().unwrap_or_default();
            if let Some(name) = name.strip_prefix(CHECKPOINT_PREFIX) {
                tracing::warn!(name, "an unfinished snapshot is removed");
                self.copy(name).remove().await?;
                let deleted = self.admin().delete_checkpoint(checkpoint.id).await;
                deleted.map_err(|e| store_error(&e))?;
            }
        }
        Ok(())
    }
}

impl Lsm {
    /// Copies the LSM with all commits. The copy may be opened, and stays if [`Snapshot::finish`]
    /// is called.
    pub(crate) async fn snapshot(&self, name: &str) -> Result<Snapshot, StoreError> {
        let options = CheckpointOptions {
            name: Some(format!("{CHECKPOINT_PREFIX}{name}")),
            ..CheckpointOptions::default()
        };
        let created = self.db()?.create_checkpoint(CheckpointScope::All, &options).await;
        let created = created.map_err(|e| store_error(&e))?;
        let (of, files) = (self.files.clone(), self.files.copy(name));
        let snapshot = Snapshot { of, files, checkpoint: created };
        match snapshot.copy_files(snapshot.checkpoint.manifest_id).await {
            Ok(()) => Ok(snapshot),
            Err(error) => {
                snapshot.give_up().await;
                Err(error)
            }
        }
    }
}

/// Snapshot of the LSM.
pub(crate) struct Snapshot {
    of: Files,
    files: Files,
    checkpoint: CheckpointCreateResult,
}

impl Snapshot {
    /// Returns the location of the snapshot.
    pub(crate) fn location(&self) -> Location {
        Location::at_path(Arc::clone(&self.files.object_store), self.files.path.clone())
    }

    /// Deletes the checkpoint.
    pub(crate) async fn finish(&self) -> Result<(), StoreError> {
        let deleted = self.of.admin().delete_checkpoint(self.checkpoint.id).await;
        deleted.map_err(|e| store_error(&e))
    }

    /// Removes the snapshot after an error; further errors are only logged. The next start removes
    /// the rest.
    pub(crate) async fn give_up(&self) {
        let removed = self.files.remove().await;
        if let Err(error) = removed.and(self.finish().await) {
            tracing::warn!(%error, "an unfinished snapshot cannot be removed");
        }
    }

    async fn copy_files(&self, manifest_id: u64) -> Result<(), StoreError> {
        let manifest = self.of.admin().read_manifest(Some(manifest_id)).await;
        let manifest = manifest.map_err(|e| store_error(&e))?.ok_or_else(|| {
            StoreError::Unavailable(format!("manifest {manifest_id} of the checkpoint is missing"))
        })?;
        let mut names: Vec<String> = manifest
            .all_sst_views()
            .map(|view| format!("compacted/{}.sst", view.sst.id.value()))
            .collect();
        // Several views may have one SST.
        names.sort_unstable();
        names.dedup();
        // Created before they are polled: a stream that calls a closure is not seen to be `Send`.
        let copies: Vec<BoxFuture<'_, _>> =
            names.iter().map(|name| self.copy_file(name).boxed()).collect();
        stream::iter(copies).buffer_unordered(COPIES_MAX).try_collect::<Vec<_>>().await?;
        self.copy_file(&format!("manifest/{manifest_id:020}.manifest")).await?;
        // The copy needs no checkpoints.
        let copied = self.files.admin();
        for checkpoint in manifest.checkpoints() {
            copied.delete_checkpoint(checkpoint.id).await.map_err(|e| store_error(&e))?;
        }
        Ok(())
    }

    async fn copy_file(&self, name: &str) -> Result<(), StoreError> {
        let place = |files: &Files| name.split('/').fold(files.path.clone(), ObjectPath::join);
        let (from, to) = (place(&self.of), place(&self.files));
        self.of.object_store.copy(&from, &to).await.map_err(|e| unavailable(&e))
    }
}
