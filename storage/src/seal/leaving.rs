//! What cleaning leaves behind of a day for selections that may still read it: it goes once they have
//! ended, and gives its space back.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{recover, sweep};
use crate::core::Core;
use crate::core::seal_state::Leaving;
use crate::core::seal_state::SealState;
use crate::error::StoreError;

/// Notes days of which nothing is left, and which a crash has left all the same.
pub(crate) async fn note_emptied(core: &Core) {
    let mut state = core.sealing.lock().await;
    let partitions: Vec<i64> = core.read_partitions(|all| all.keys().copied().collect());
    for partition in partitions.into_iter().filter(|number| core.index.has_deleted(*number)) {
        let Some(index) = core.partition(partition) else { continue };
        if index.deleted.len() == u64::from(index.series_count) {
            state.leaving.push_back(Leaving::ids(0, partition));
        }
    }
}

/// Deletes what no selection reads any more, and notes of which days.
pub(super) async fn delete_left(
    core: &Core,
    state: &mut SealState,
    shrunk: &mut BTreeSet<i64>,
) -> Result<(), StoreError> {
    while let Some(leaving) = state.leaving.front()
        && core.selections.have_ended_before(leaving.unread_from)
    {
        for intent in &leaving.intents {
            if let Some(bytes) = core.lsm.get(intent).await? {
                recover::undo_intent(&core.lsm, intent, &bytes).await?;
            }
        }
        if leaving.ids {
            match sweep::sweep_index(core, leaving.partition).await {
                // It takes room and is not read; it keeps nothing else from being done.
                Err(error @ StoreError::Corrupt { .. }) => {
                    tracing::error!(%error, "what is left of deleted series in an index stays");
                }
                result => result?,
            }
        }
        shrunk.insert(leaving.partition);
        state.leaving.pop_front();
    }
    Ok(())
}

/// Has the files of partitions merged. That waits for as long as the object store takes no files,
/// and nobody waits for it.
pub(super) async fn give_back(core: Arc<Core>, partitions: BTreeSet<i64>) {
    match super::write_out(&core).await {
        Ok(()) => {
            partitions.into_iter().for_each(|partition| core.lsm.compact_partition(partition));
        }
        Err(error) => tracing::warn!(%error, "deleted samples still take room in files"),
    }
}
