//! Phases *publish* and *forget* of a seal: the samples of a window become visible in the blocks,
//! then leave the head.

use super::blocks::InvisibleBlocks;
use super::series::{SealScope, SealedSeries};
use crate::block;
use crate::core::Core;
use crate::core::seal_state::SealState;
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::keys;
use crate::log::commit::EpochInfo;
use crate::meta;
use crate::value;
use crate::window::Window;

/// Makes the blocks of a window visible, and replay skip its log records.
pub(super) async fn publish(
    core: &Core,
    state: &mut SealState,
    SealScope { window, epoch }: SealScope,
    blocks: InvisibleBlocks,
    intents: &[Vec<u8>],
) -> Result<(), StoreError> {
    let mut set = blocks.last;
    for (metric, entries) in blocks.directories {
        let key = keys::directory(metric, window, epoch);
        let bytes = block::encode_directory(&key, &entries);
        set.put(key, bytes);
    }
    intents.iter().for_each(|intent| set.delete(intent));
    let (first_epoch, clears_kept_from) = {
        let log = core.log.lock().await;
        let is_needed = |(number, info): (&Epoch, &EpochInfo)| {
            (*number > epoch || info.windows.keys().any(|w| *w != window)).then_some(*number)
        };
        let first_epoch = log.epochs.iter().find_map(is_needed).unwrap_or(epoch.next());
        (first_epoch, state.can_clear_kept_from(&log, first_epoch))
    };
    let key = keys::watermark(window);
    let bytes = value::encode_u32(&key, epoch.number());
    set.put(key, bytes);
    let outdated: Vec<Window> = state
        .watermarks
        .iter()
        .filter(|(other, sealed)| **other != window && **sealed < first_epoch)
        .map(|(other, _)| *other)
        .collect();
    for other in &outdated {
        set.delete(&keys::watermark(*other));
    }
    set.put(keys::EPOCH.to_vec(), meta::encode_epochs(epoch.next(), first_epoch));
    if clears_kept_from {
        set.delete(keys::KEPT_FROM);
    }
    let committed = core.lsm.commit(set).await;
    // Before the head drops the samples: a selection that misses them there must find the new
    // runs. Even after a failure, since the write may or may not be stored.
    core.index.invalidate_runs(window.partition());
    committed?;
    state.first_epoch = first_epoch;
    if clears_kept_from {
        state.kept_from = None;
    }
    state.watermarks.insert(window, epoch);
    for other in &outdated {
        state.watermarks.remove(other);
    }
    let mut log = core.log.lock().await;
    for (_, info) in log.epochs.range_mut(..=epoch) {
        info.windows.remove(&window);
    }
    core.head.set_open(log.open_windows());
    Ok(())
}

/// Drops the sealed samples from the head.
pub(super) fn forget(core: &Core, SealScope { window, epoch }: SealScope, sealed: &[SealedSeries]) {
    for SealedSeries { slot, .. } in sealed {
        if let Some(series) = core.head.shard(*slot).series(*slot) {
            core.head.note_shrunk(series.drop_window(window, epoch));
            core.head.deactivate_if_empty(series);
        }
    }
}
