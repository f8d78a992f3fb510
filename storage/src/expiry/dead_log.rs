//! Removal of log epochs that are fully sealed.

use crate::core::Core;
use crate::core::seal_state::SealState;
use crate::error::StoreError;
use crate::keys;
use crate::lsm::WriteSet;
use crate::meta::encode_epochs;

/// Removes log epochs that are fully sealed, and the record of deleted days once the log has no
/// records of them.
pub(crate) async fn drop_dead_log(core: &Core, state: &mut SealState) -> Result<(), StoreError> {
    let (current, first, clears_kept_from) = {
        let mut log = core.log.lock().await;
        let current = log.epoch;
        // In order: a start replays every epoch from the first one on.
        while let Some((epoch, info)) = log.epochs.first_key_value()
            && *epoch < current
            && info.windows.is_empty()
        {
            log.epochs.pop_first();
        }
        core.log_counters.note_log(log.bytes(), log.newest_ms);
        let first = log.epochs.first_key_value().map_or(current, |(epoch, _)| *epoch);
        (current, first.max(state.first_epoch), state.can_clear_kept_from(&log, first))
    };
    let mut set = WriteSet::default();
    if first > state.first_epoch {
        set.put(keys::EPOCH.to_vec(), encode_epochs(current, first));
    }
    if clears_kept_from {
        set.delete(keys::KEPT_FROM);
    }
    core.lsm.commit(set).await?;
    state.first_epoch = first;
    if clears_kept_from {
        state.kept_from = None;
    }
    core.lsm.drop_log_before(state.first_epoch);
    Ok(())
}
