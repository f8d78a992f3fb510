//! Turning the state of a reader into that of the writer, in place.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::Core;
use super::seal_state::{SealState, deleting_before};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::lsm::Lsm;
use crate::meta::Meta;
use crate::retention::{Keeping, Rule};

impl Core {
    /// Continues with an LSM that this process writes to. The head must have all of its log records,
    /// and `meta` is what the LSM records about the store. The queue still refuses writes.
    ///
    /// Running selections keep the view of the reader. The rest of the state is set as at a start:
    /// a reader does not know what is left to be deleted, nor which epochs are used up.
    /// Errors: exemplars or metadata cannot be read; nothing has changed.
    pub(crate) async fn promote(&self, lsm: Lsm, mut meta: Meta) -> Result<(), StoreError> {
        self.exemplar_ring.reload(&lsm).await?;
        self.metadata.reload(&lsm).await?;
        let mut sealing = self.sealing.lock().await;
        let mut log = self.log.lock().await;
        let deleted = self.tombstones.all().last_key_value().map(|(epoch, _)| epoch.next());
        log.epoch = log.epoch.max(meta.next_epoch).max(deleted.unwrap_or(Epoch::FIRST));
        let deleting = deleting_before(&meta, &log);
        *sealing = SealState::new(&meta, deleting);
        self.summarized_before_ms.store(meta.summarized_before_ms(), Ordering::Release);
        if let Some(first_kept) = deleting {
            self.head.changes.note_deleted_before(first_kept.start_ms());
        }
        for (partition, deleted) in std::mem::take(&mut meta.deleted_ids) {
            self.set_deleted(partition, deleted);
        }
        {
            let mut keeping = self.keeping.write().unwrap_or_else(PoisonError::into_inner);
            *keeping = Arc::new(Keeping::new(keeping.retention(), &meta.rules));
            let mut stored = self.stored_rules.lock().unwrap_or_else(PoisonError::into_inner);
            *stored = meta.rules.encode(Rule::expired_before_ms);
        }
        // As a replay does, for records whose samples are all sealed.
        self.head.for_each(|_, series| self.head.deactivate_if_empty(series));
        self.head.forget_deleted();
        // Selections take the LSM under this lock.
        let _partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        self.lsm.promote(lsm);
        Ok(())
    }
}
