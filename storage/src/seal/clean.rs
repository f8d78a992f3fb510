//! Cleanup of deleted samples: rewrites the runs that a tombstone covers.
//!
//! ```text
//! per day with covered samples; seals may run between two days:
//!   reserve   a log epoch without records, which the new runs get
//!   per metric and window with covered blocks:
//!     blocks    all runs are merged into one, without deleted samples; not visible, as in a seal
//!   publish   one write, or a few large ones: adds the new run directories, removes the old ones,
//!             and adds intents that list the old blocks
//! done      tombstones mask nothing; each is removed after the last log record that it covers
//! later     the old blocks are deleted, once all selections that may read them have ended
//! ```
//!
//! Cleaning a day applies all deletes that are older than the epoch reserved for the day. They may
//! be newer than those applied to the first day. This is necessary: a run must not contain samples
//! that a delete of an earlier epoch covers. Runs of later seals have a later epoch, and the head has dropped the covered
//! samples before. So once all days are done, all deletes before the first day are done.
//!
//! A crash before *publish* leaves new blocks, and a crash after it old blocks. No selection reads
//! them, and the next start deletes them by the intents. The tombstones remain until *done*, so
//! that the cleanup starts again; none of them covers the epoch of a rewritten run.
//!
//! [`rewrite`](super::rewrite) cleans a day, [`leftovers`](super::leftovers) does the step *later*.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::SealExtent;
use super::leftovers::{delete_leftovers, free_space};
use super::rewrite::clean_partition;
use crate::core::Core;
use crate::core::seal_state::SealState;
use crate::delete::{TOMBSTONES_MAX, Tombstone, TombstoneSnapshot};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::keys;
use crate::lsm::WriteSet;
use crate::meta;
use crate::window::PartitionId;

/// Number of tombstones from which the log is sealed, so that they can be removed.
const TOMBSTONES_SEAL: usize = TOMBSTONES_MAX / 4;

/// Rewrites the runs that tombstones cover, and removes the tombstones. Returns whether any run
/// was rewritten.
///
/// A day that cannot be cleaned keeps its tombstones and does not stop the cleanup of other days.
/// The first error is returned at the end.
pub(crate) async fn clean_tombstones(core: &Arc<Core>) -> Result<bool, StoreError> {
    if core.tombstones.counts().0 >= TOMBSTONES_SEAL {
        // Otherwise, records of the log would keep all of them.
        super::seal(core, SealExtent::All).await?;
    }
    // One at a time: two would rewrite the same runs twice.
    let _cleaning = core.cleaning.lock().await;
    {
        let mut state = core.sealing.lock().await;
        crate::expiry::drop_dead_log(core, &mut state).await?;
    }
    tidy(core).await?;
    let tombstones = core.tombstones.all();
    if tombstones.values().all(|tombstone| tombstone.is_cleaned) {
        return Ok(false);
    }
    let partitions: Vec<PartitionId> = core.read_partitions(|all| all.keys().copied().collect());
    let (mut has_changed, mut first_error) = (false, None);
    for partition in partitions {
        // A waiting seal runs before the next day.
        let mut state = core.sealing.lock().await;
        match clean_partition(core, &mut state, &tombstones, partition).await {
            Ok(changed) => has_changed |= changed,
            Err(error) if error.ends_writes() => return Err(error),
            Err(error) => {
                let partition = partition.number();
                tracing::error!(partition, %error, "failed to clean up deleted samples of a day");
                first_error.get_or_insert(error);
            }
        }
    }
    tidy(core).await?;
    if let Some(error) = first_error {
        return Err(error);
    }
    note_cleaned(core, &tombstones).await?;
    {
        let _state = core.sealing.lock().await;
        let _log = core.log_without_deleted().await;
        core.head.forget_deleted();
    }
    core.count_shared_labels().await;
    tidy(core).await?;
    if has_changed {
        tracing::info!(tombstones = tombstones.len(), "cleaned up deleted samples");
    }
    Ok(has_changed)
}

/// Deletes the leftovers of cleaning that no selection reads, and removes spent tombstones.
pub(crate) async fn tidy(core: &Arc<Core>) -> Result<(), StoreError> {
    let mut shrunk = BTreeSet::new();
    let result = {
        let mut state = core.sealing.lock().await;
        let deleted = delete_leftovers(core, &mut state, &mut shrunk).await;
        deleted.and(forget_spent(core, &state).await)
    };
    if !shrunk.is_empty() {
        tokio::spawn(free_space(Arc::clone(core), shrunk));
    }
    result
}

/// Marks tombstones as cleaned: no run has samples that they cover.
async fn note_cleaned(core: &Core, tombstones: &TombstoneSnapshot) -> Result<(), StoreError> {
    let mut set = WriteSet::default();
    let cleaned = |tombstone: &Tombstone| Tombstone {
        selectors: tombstone.selectors.clone(),
        is_cleaned: true,
        ..*tombstone
    };
    for tombstone in tombstones.values() {
        let key = keys::tombstone(tombstone.epoch);
        let bytes = crate::delete::encode(&key, &cleaned(tombstone));
        set.put(key, bytes);
    }
    core.lsm.commit(set).await?;
    for tombstone in tombstones.values() {
        core.tombstones.put(cleaned(tombstone));
    }
    Ok(())
}

/// Removes tombstones that cover no samples in runs or in the log.
async fn forget_spent(core: &Core, state: &SealState) -> Result<(), StoreError> {
    let all = core.tombstones.all();
    let is_spent = |t: &&Arc<Tombstone>| t.is_cleaned && t.epoch < state.first_epoch;
    let spent: Vec<Epoch> = all.values().filter(is_spent).map(|t| t.epoch).collect();
    if spent.is_empty() {
        return Ok(());
    }
    let mut set = WriteSet::default();
    for epoch in &spent {
        set.delete(&keys::tombstone(*epoch));
    }
    // No later epoch may have the number of a removed tombstone.
    let epoch = core.log.lock().await.epoch;
    set.put(keys::EPOCH.to_vec(), meta::encode_epochs(epoch, state.first_epoch));
    core.lsm.commit(set).await?;
    spent.into_iter().for_each(|epoch| core.tombstones.remove(epoch));
    Ok(())
}
