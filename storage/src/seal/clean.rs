//! Taking deleted samples out of the files: runs that a tombstone covers are written anew.
//!
//! ```text
//! per day with something that is covered; seals may come between two days:
//!   reserve   a log epoch without records, whose number the new runs bear
//!   per metric and window with covered blocks:
//!     blocks    all runs merged into one, without what is deleted; not visible, as in a seal
//!   publish   one write, or a few where it is much: the new run directories, the old ones go,
//!             intents list the old blocks
//! done      tombstones mask nothing any more; they go once no log record is left that they cover
//! later     the old blocks go, once all selections have ended that may read them
//! ```
//!
//! Each day is cleaned of all deletes that came before its number was reserved, those included that
//! have come since the first day: a run that bears a later number than a delete must hold nothing
//! of what it covers. What is sealed afterwards has a later number still, and the head has dropped
//! what is covered before that. So once all days are done, the deletes that had come before the
//! first are.
//!
//! A crash before *publish* leaves blocks and one after it old blocks that nobody reads, and
//! intents by which the next start deletes them. Until *done* the tombstones stay, so that all
//! of it is begun again; a run that has been written anew has a number that none of them covers.
//!
//! [`rewrite`](super::rewrite) cleans a day, [`leaving`](super::leaving) is what comes *later*.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Which;
use super::leaving::{delete_left, give_back};
use super::rewrite::clean_partition;
use crate::core::Core;
use crate::core::seal_state::SealState;
use crate::delete::{Snapshot, TOMBSTONES_MAX, Tombstone};
use crate::error::StoreError;
use crate::keys;
use crate::lsm::WriteSet;
use crate::meta;

/// Tombstones from which on the log is sealed, so that they can be removed.
const TOMBSTONES_SEAL: usize = TOMBSTONES_MAX / 4;

/// Rewrites what tombstones cover, and forgets them. Says whether anything was written anew.
///
/// What cannot be cleaned keeps its tombstones, and keeps none of the rest from it; the first
/// error is returned at the end.
pub(crate) async fn clean_tombstones(core: &Arc<Core>) -> Result<bool, StoreError> {
    if core.tombstones.counts().0 >= TOMBSTONES_SEAL {
        // Else the log would keep them all.
        super::seal(core, Which::All).await?;
    }
    // One at a time: two would only write the same anew twice.
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
    let partitions: Vec<i64> = core.read_partitions(|all| all.keys().copied().collect());
    let (mut has_changed, mut first_error) = (false, None);
    for partition in partitions {
        // Whoever waits to seal comes before the next day.
        let mut state = core.sealing.lock().await;
        match clean_partition(core, &mut state, &tombstones, partition).await {
            Ok(changed) => has_changed |= changed,
            Err(error) if error.ends_writes() => return Err(error),
            Err(error) => {
                tracing::error!(partition, %error, "deleted samples cannot be taken out of a day");
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
    tidy(core).await?;
    if has_changed {
        tracing::info!(tombstones = tombstones.len(), "deleted samples have been cleaned up");
    }
    Ok(has_changed)
}

/// Deletes what cleaning has left for selections under way, and forgets tombstones that are spent.
pub(crate) async fn tidy(core: &Arc<Core>) -> Result<(), StoreError> {
    let mut shrunk = BTreeSet::new();
    let result = {
        let mut state = core.sealing.lock().await;
        let deleted = delete_left(core, &mut state, &mut shrunk).await;
        deleted.and(forget_spent(core, &state).await)
    };
    if !shrunk.is_empty() {
        tokio::spawn(give_back(Arc::clone(core), shrunk));
    }
    result
}

/// Notes that no run holds what tombstones cover.
async fn note_cleaned(core: &Core, tombstones: &Snapshot) -> Result<(), StoreError> {
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

/// Forgets tombstones that cover nothing any more, neither in runs nor in the log.
async fn forget_spent(core: &Core, state: &SealState) -> Result<(), StoreError> {
    let all = core.tombstones.all();
    let is_spent = |t: &&Arc<Tombstone>| t.is_cleaned && t.epoch < state.first_epoch;
    let spent: Vec<u32> = all.values().filter(is_spent).map(|t| t.epoch).collect();
    if spent.is_empty() {
        return Ok(());
    }
    let mut set = WriteSet::default();
    for epoch in &spent {
        set.delete(&keys::tombstone(*epoch));
    }
    // No later epoch may have the number of one of them.
    let epoch = core.log.lock().await.epoch;
    set.put(keys::EPOCH.to_vec(), meta::encode_epochs(epoch, state.first_epoch));
    core.lsm.commit(set).await?;
    spent.into_iter().for_each(|epoch| core.tombstones.remove(epoch));
    Ok(())
}
