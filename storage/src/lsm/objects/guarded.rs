//! Object store that refuses writes once this process has lost the store.
//!
//! On a local disk, each write checks before and after that the lock file, the newest manifest and
//! the target folder are still those that were opened. So no write into a deleted folder is
//! acknowledged. On an object store this check would cost a request per write. There the lease is
//! renewed and the manifest looked up periodically ([`crate::lsm::owner`]).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::{
    Error, MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use slatedb_common::retry::NonRetryable;
use tokio::sync::watch;

use crate::error::StoreError;
use crate::lsm::objects::layer::{Layer, Layered};
use crate::lsm::unavailable;

/// Folder and suffix of manifests.
const MANIFESTS: &str = "manifest";
const MANIFEST_SUFFIX: &str = ".manifest";

/// State of the ownership: whether the store is still the one that this process opened.
pub(in crate::lsm) struct OwnershipStatus {
    lost: watch::Sender<Option<StoreError>>,
    /// Number of the newest manifest that this process knows; 0 before the first.
    newest_manifest: AtomicU64,
    /// Folder of the opened store; only on a local disk.
    local: Option<LocalFolder>,
}

/// Folder of a store on a local disk.
struct LocalFolder {
    path: PathBuf,
    lock: PathBuf,
    lock_id: Option<FileId>,
    /// Folders in it that have been written to.
    folders: Mutex<HashMap<PathBuf, FileId>>,
}

/// Identity of a file: device and inode.
type FileId = (u64, u64);

impl OwnershipStatus {
    /// Creates the status of a store on a local disk whose folder has a lock file.
    pub(in crate::lsm) fn local(folder: &Path, lock: &str) -> OwnershipStatus {
        let lock = folder.join(lock);
        // If the lock file is missing now, later checks ignore it.
        let lock_id = file_id(&lock).ok().flatten();
        let folders = Mutex::default();
        let local = LocalFolder { path: folder.to_owned(), lock, lock_id, folders };
        OwnershipStatus { local: Some(local), ..OwnershipStatus::remote() }
    }

    /// Creates the status of any other store; its owner calls [`OwnershipStatus::lose`].
    pub(in crate::lsm) fn remote() -> OwnershipStatus {
        let lost = watch::Sender::new(None);
        OwnershipStatus { lost, newest_manifest: AtomicU64::new(0), local: None }
    }

    /// Records that the store is lost, and why.
    pub(in crate::lsm) fn lose(&self, error: StoreError) {
        self.lost.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert(error);
            is_first
        });
    }

    /// Returns why the store is lost, if that is known.
    pub(in crate::lsm) fn lost(&self) -> Option<StoreError> {
        self.lost.borrow().clone()
    }

    /// Waits until the store is lost, and returns why.
    pub(in crate::lsm) async fn wait(&self) -> StoreError {
        let mut lost = self.lost.subscribe();
        let found = lost.wait_for(Option::is_some).await.ok().and_then(|lost| lost.clone());
        match found {
            Some(error) => error,
            // The sender is `self`.
            None => std::future::pending().await,
        }
    }

    /// Compares a local store with the opened one.
    ///
    /// Errors: [`StoreError::Lost`]; [`StoreError::Unavailable`] if the disk does not answer, in
    /// which case the store may still be owned.
    pub(in crate::lsm) fn check(&self) -> std::result::Result<(), StoreError> {
        if let Some(error) = self.lost() {
            return Err(error);
        }
        let Some(local) = &self.local else { return Ok(()) };
        self.judge(local.missing(&self.newest_manifest))
    }

    /// Looks up the newest manifest on an object store.
    ///
    /// Errors: [`StoreError::Lost`]; the object store fails.
    pub(in crate::lsm) async fn check_manifest(
        &self,
        objects: &Arc<dyn ObjectStore>,
        folder: &ObjectPath,
    ) -> std::result::Result<(), StoreError> {
        let newest = self.newest_manifest.load(Ordering::Relaxed);
        let Some(before) = newest.checked_sub(1) else { return Ok(()) };
        let manifests = folder.clone().join(MANIFESTS);
        let before = manifests.clone().join(manifest_name(before));
        match objects.list_with_offset(Some(&manifests), &before).next().await {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(unavailable(&error)),
            None => Err(self.found_lost(format!("{manifests}/{} is gone", manifest_name(newest)))),
        }
    }

    /// Converts the result of a check on the disk.
    fn judge(&self, found: io::Result<Option<String>>) -> std::result::Result<(), StoreError> {
        match found {
            Ok(None) => Ok(()),
            Ok(Some(detail)) => Err(self.found_lost(detail)),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    fn found_lost(&self, detail: String) -> StoreError {
        let error = StoreError::Lost(detail);
        self.lose(error.clone());
        error
    }

    /// Records the number of a manifest that has been written.
    fn note_written(&self, path: &ObjectPath) {
        let name = path.filename().filter(|name| name.ends_with(MANIFEST_SUFFIX));
        if let Some(number) = name.and_then(manifest_number) {
            self.newest_manifest.fetch_max(number, Ordering::Relaxed);
        }
    }

    /// Checks a local store, and the folder of an object to be written.
    fn check_folder_of(&self, name: &str) -> std::result::Result<(), StoreError> {
        self.check()?;
        let Some(local) = &self.local else { return Ok(()) };
        self.judge(local.changed(Path::new(name)))
    }
}

impl LocalFolder {
    /// Returns a description of missing files, if there are any.
    ///
    /// Errors: the disk does not answer.
    fn missing(&self, newest_manifest: &AtomicU64) -> io::Result<Option<String>> {
        if self.lock_id.is_some() && file_id(&self.lock)? != self.lock_id {
            return Ok(Some(format!("{} is gone, or another file", self.lock.display())));
        }
        let newest = newest_manifest.load(Ordering::Relaxed);
        let manifests = self.path.join(MANIFESTS);
        let path = manifests.join(manifest_name(newest));
        if newest == 0 || path.try_exists()? {
            return Ok(None);
        }
        // A reader may have written newer manifests, after which old ones are deleted.
        let found = newest_manifest_in(&manifests)?.filter(|found| *found > newest);
        let Some(found) = found else { return Ok(Some(format!("{} is gone", path.display()))) };
        newest_manifest.fetch_max(found, Ordering::Relaxed);
        Ok(None)
    }

    /// Returns a description of the change if a folder is not the one that was written to before.
    ///
    /// Errors: the disk does not answer.
    fn changed(&self, folder: &Path) -> io::Result<Option<String>> {
        let path = self.path.join(folder);
        let found = file_id(&path)?;
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match (folders.get(folder), found) {
            (Some(known), found) if found != Some(*known) => {
                Some(format!("{} is gone, or another folder", path.display()))
            }
            (None, Some(found)) => {
                folders.insert(folder.to_owned(), found);
                None
            }
            _ => None,
        })
    }
}

/// Returns the device and inode of a file; `None` if there is none at this path.
///
/// Errors: all other failures, after which the file may still exist.
fn file_id(path: &Path) -> io::Result<Option<FileId>> {
    unless_absent(std::fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())))
}

/// Returns the highest number of the manifests in a folder.
fn newest_manifest_in(folder: &Path) -> io::Result<Option<u64>> {
    let Some(entries) = unless_absent(std::fs::read_dir(folder))? else { return Ok(None) };
    let mut newest = None;
    for entry in entries {
        newest = newest.max(entry?.file_name().to_str().and_then(manifest_number));
    }
    Ok(newest)
}

fn unless_absent<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ => Err(error),
        },
    }
}

fn manifest_name(number: u64) -> String {
    format!("{number:020}{MANIFEST_SUFFIX}")
}

fn manifest_number(name: &str) -> Option<u64> {
    name.strip_suffix(MANIFEST_SUFFIX)?.parse().ok()
}

/// Creates a folder that survives a crash of the machine.
pub(in crate::lsm) fn create_folder(folder: &Path) -> io::Result<()> {
    let is_new = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let created: Vec<&Path> = folder.ancestors().take_while(is_new).collect();
    std::fs::create_dir_all(folder)?;
    for parent in created.into_iter().filter_map(Path::parent) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Object store that checks the ownership.
#[derive(Debug)]
pub(in crate::lsm) struct Guarded {
    objects: Arc<dyn ObjectStore>,
    /// Path of the LSM.
    path: ObjectPath,
    status: Arc<OwnershipStatus>,
}

impl std::fmt::Debug for OwnershipStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnershipStatus").finish_non_exhaustive()
    }
}

impl Guarded {
    /// Wraps the object store of an LSM at a path.
    pub(in crate::lsm) fn new(
        objects: Arc<dyn ObjectStore>,
        path: ObjectPath,
        status: Arc<OwnershipStatus>,
    ) -> Layered<Guarded> {
        Layered(Guarded { objects, path, status })
    }

    /// Errors: the store is lost, which is not retried.
    fn check(&self, to: &ObjectPath) -> Result<()> {
        // Folder of the object, if it is in a subfolder of the LSM.
        let mut below = to.prefix_match(&self.path).into_iter().flatten();
        let folder = below.next().filter(|_| below.next().is_some());
        let folder = folder.as_ref().map(AsRef::as_ref);
        let checked = match folder {
            Some(folder) => self.status.check_folder_of(folder),
            None => self.status.check(),
        };
        checked.map_err(refused)
    }
}

fn refused(error: StoreError) -> Error {
    match error {
        // A transient failure: SlateDB retries.
        StoreError::Unavailable(_) => Error::Generic { store: "tessella", source: Box::new(error) },
        lost => {
            let source = Box::new(NonRetryable(Box::new(lost)));
            Error::Generic { store: "tessella", source }
        }
    }
}

#[async_trait]
impl Layer for Guarded {
    fn below(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    async fn put_opts(
        &self,
        to: &ObjectPath,
        bytes: PutPayload,
        how: PutOptions,
    ) -> Result<PutResult> {
        self.check(to)?;
        let written = self.objects.put_opts(to, bytes, how).await?;
        self.status.note_written(to);
        self.check(to)?;
        Ok(written)
    }

    async fn put_multipart_opts(
        &self,
        to: &ObjectPath,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        // An upload takes effect when a manifest references it, which is a separate write.
        self.check(to)?;
        self.objects.put_multipart_opts(to, how).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<ObjectPath>>,
    ) -> BoxStream<'static, Result<ObjectPath>> {
        let status = Arc::clone(&self.status);
        let checked = move |path: Result<ObjectPath>| {
            path.and_then(|path| status.check().map(|()| path).map_err(refused))
        };
        self.objects.delete_stream(paths.map(checked).boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_absent_file_counts_as_deleted() {
        let absent = |kind| unless_absent(Err::<(), _>(io::Error::from(kind)));
        assert!(matches!(absent(io::ErrorKind::NotFound), Ok(None)));
        assert!(matches!(absent(io::ErrorKind::NotADirectory), Ok(None)));
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::StaleNetworkFileHandle] {
            assert_eq!(absent(kind).unwrap_err().kind(), kind);
        }
        let status = OwnershipStatus::remote();
        let failed = status.judge(Err(io::Error::from(io::ErrorKind::TimedOut)));
        assert!(matches!(failed, Err(StoreError::Unavailable(_))));
        assert!(status.lost().is_none());
        let gone = status.judge(Ok(Some("manifest is gone".to_owned())));
        assert!(matches!(gone, Err(StoreError::Lost(_))));
        assert!(status.lost().is_some());
    }
}
