//! Seal of one window, phase by phase.

use std::sync::Arc;

use super::blocking;
use super::blocks::write_blocks;
use super::publish::{forget, publish};
use super::register::register;
use super::series::{SealScope, gather};
use crate::core::Core;
use crate::core::seal_state::{Leftovers, SealState};
use crate::error::StoreError;
use crate::expiry;

/// Seals the samples of a window in the head up to an epoch. `slots` are those of all series with such
/// samples.
///
/// Errors: blocks that are already written stay invisible, and the next tidying deletes them.
pub(super) async fn seal_window(
    core: &Arc<Core>,
    state: &mut SealState,
    scope: SealScope,
    slots: Vec<u32>,
) -> Result<(), StoreError> {
    let mut intents = Vec::new();
    let sealed = run_phases(core, state, scope, slots, &mut intents).await;
    if sealed.is_err() && !intents.is_empty() {
        state.leftovers.push_back(Leftovers::unpublished(scope.window.partition(), intents));
    }
    sealed
}

/// Runs the phases. Adds the intents of blocks to `intents` before it writes the blocks.
async fn run_phases(
    core: &Arc<Core>,
    state: &mut SealState,
    scope: SealScope,
    slots: Vec<u32>,
    intents: &mut Vec<Vec<u8>>,
) -> Result<(), StoreError> {
    let shared = Arc::clone(core);
    let mut series = blocking(move || gather(&shared, scope, &slots)).await?;
    register(core, scope.window.partition(), &mut series).await?;
    let series = blocking(move || {
        series.sort_unstable_by_key(|series| (series.metric, series.id));
        Arc::new(series)
    })
    .await?;
    let blocks = write_blocks(core, state, scope, &series, intents).await?;
    let (block_count, block_bytes) = (blocks.count, blocks.bytes);
    publish(core, state, scope, blocks, intents).await?;
    let (shared, sealed) = (Arc::clone(core), Arc::clone(&series));
    // The commit that waits for this task's thread would wait for all series.
    blocking(move || forget(&shared, scope, &sealed)).await?;
    core.counters.note_seal(block_count, block_bytes);
    let (window, epoch) = (scope.window.number(), scope.epoch.number());
    tracing::debug!(window, epoch, series = series.len(), block_count, block_bytes, "sealed");
    expiry::drop_dead_log(core, state).await
}
