//! Copies of a store next to its files.

use std::sync::Arc;

use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::keys;
use crate::lsm::{Lsm, Snapshot, WriteSet};
use crate::meta;
use crate::options::StoreOptions;

use super::Store;

impl Store {
    /// Copies the present store to `snapshots/NAME` next to its files; the copy can be opened as any
    /// other store. Without the head, unsealed samples are not copied.
    ///
    /// Errors: the object store does not respond; then the copy is removed.
    pub async fn snapshot(&self, name: &str, with_head: bool) -> Result<(), StoreError> {
        self.core.check_writable()?;
        let (core, name) = (Arc::clone(&self.core), name.to_owned());
        let copying = tokio::spawn(async move {
            let copy = core.lsm.snapshot(&name).await?;
            // No record in the copy has a later epoch.
            let next_epoch = core.log.lock().await.epoch.next();
            let finished = finish_snapshot(&copy, &core.options, next_epoch, with_head).await;
            match finished {
                Ok(()) => copy.finish().await,
                Err(error) => {
                    copy.give_up().await;
                    Err(error)
                }
            }
        });
        copying.await.map_err(|error| StoreError::Unavailable(error.to_string()))?
    }
}

/// Opens a copy once to check that it is complete, and releases its ownership.
async fn finish_snapshot(
    copy: &Snapshot,
    options: &StoreOptions,
    next_epoch: Epoch,
    with_head: bool,
) -> Result<(), StoreError> {
    // The cache on disk belongs to the store, which continues to use it.
    let options = StoreOptions { disk_cache: None, ..options.clone() };
    let lsm = Lsm::open(&copy.location(), &options).await?;
    let mut set = WriteSet::default();
    set.delete(keys::OWNER);
    if !with_head {
        set.put(keys::EPOCH.to_vec(), meta::encode_epochs(next_epoch, next_epoch));
        lsm.drop_log_before(next_epoch);
    }
    let committed = lsm.commit(set).await;
    committed.and(lsm.close().await)
}
