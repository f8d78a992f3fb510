//! Leftovers of cleaning a day: deleted, and their space freed, once all selections that may read
//! them have ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{recover, sweep};
use crate::core::Core;
use crate::core::seal_state::Leftovers;
use crate::core::seal_state::SealState;
use crate::error::StoreError;
use crate::window::PartitionId;

/// Schedules the deletion of empty days that a crash has left.
pub(crate) async fn note_emptied(core: &Core) {
    let mut state = core.sealing.lock().await;
    let partitions: Vec<PartitionId> = core.read_partitions(|all| all.keys().copied().collect());
    for partition in partitions.into_iter().filter(|number| core.index.has_deleted(*number)) {
        let Some(index) = core.partition(partition) else { continue };
        if index.deleted.len() == u64::from(index.series_count) {
            state.leftovers.push_back(Leftovers::ids(0, partition));
        }
    }
}

/// Deletes leftovers that no selection reads, and adds their days to `shrunk`.
pub(super) async fn delete_leftovers(
    core: &Core,
    state: &mut SealState,
    shrunk: &mut BTreeSet<PartitionId>,
) -> Result<(), StoreError> {
    while let Some(leftovers) = state.leftovers.front()
        && core.selections.have_ended_before(leftovers.unread_from)
    {
        for intent in &leftovers.intents {
            if let Some(bytes) = core.lsm.get(intent).await? {
                recover::undo_intent(&core.lsm, intent, &bytes).await?;
            }
        }
        if leftovers.ids {
            match sweep::sweep_index(core, leftovers.partition).await {
                // The damaged index entries take space, but no selection reads them: go on.
                Err(error @ StoreError::Corrupt { .. }) => {
                    tracing::error!(%error, "failed to remove deleted series from an index");
                }
                result => result?,
            }
        }
        shrunk.insert(leftovers.partition);
        state.leftovers.pop_front();
    }
    Ok(())
}

/// Compacts partitions, to free the space of deleted samples. May wait for the object store, so
/// no caller waits for it.
pub(super) async fn free_space(core: Arc<Core>, partitions: BTreeSet<PartitionId>) {
    match super::write_out(&core).await {
        Ok(()) => {
            partitions.into_iter().for_each(|partition| core.lsm.compact_partition(partition));
        }
        Err(error) => tracing::warn!(%error, "failed to free the space of deleted samples"),
    }
}
