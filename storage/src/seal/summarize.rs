//! Replacement of samples by their summaries, day by day, after the retention of samples.
//!
//! ```text
//! per day before the retention of samples:
//!   mark      a record of the store: writes to the day are refused from now on
//!   per metric and window:
//!     blocks    all runs are merged into one that has only summaries, and blocks of the series that
//!               summaries cannot represent; not visible, as in a seal
//!   publish   as in the cleanup of deletes
//!   mark      the day is whole
//! later     the old blocks are deleted, once all selections that may read them have ended
//! ```
//!
//! A crash leaves a day that is not whole, which the next start continues. Windows that are already
//! summarized are skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::rewrite::{Kept, NewRun, PartitionCleanup, masks_of, reserve};
use super::{SealExtent, seal};
use crate::block::BlockEntry;
use crate::core::Core;
use crate::core::seal_state::SealState;
use crate::delete::Masks;
use crate::error::StoreError;
use crate::index::partition::PartitionIndex;
use crate::index::runs::MetricRun;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};
use crate::meta::{FORMAT_SUMMARIZED, Summarized};
use crate::value;
use crate::window::{PartitionId, Window};

/// Replaces samples beyond their retention by summaries, until the store is closed.
pub(crate) async fn summarize_expired(core: &Arc<Core>) -> Result<(), StoreError> {
    let time = core.observe_retention_time();
    let Some(floor_ms) = core.keeping().samples_floor_ms(time) else { return Ok(()) };
    while !core.is_closing.load(Ordering::Relaxed) {
        let mut state = core.sealing.lock().await;
        let Some(partition) = next_day(core, &state, PartitionId::of(floor_ms)) else {
            return Ok(());
        };
        mark(core, &mut state, Summarized { before: partition.next(), is_whole: false }).await?;
        if has_open(core, partition).await {
            drop(state);
            seal(core, SealExtent::All).await?;
            state = core.sealing.lock().await;
            if has_open(core, partition).await {
                return Ok(());
            }
        }
        match summarize_day(core, &mut state, partition).await {
            Ok(()) => {}
            Err(error @ StoreError::Corrupt { .. }) => {
                // Damaged blocks are kept until their day is deleted.
                let day = partition.date();
                tracing::error!(day, %error, "failed to replace some samples of a day by summaries");
            }
            Err(error) => return Err(error),
        }
        mark(core, &mut state, Summarized { before: partition.next(), is_whole: true }).await?;
        core.counters.note_day_summarized();
    }
    Ok(())
}

/// Returns the first day before `first_kept` that is not yet summarized as a whole.
fn next_day(core: &Core, state: &SealState, first_kept: PartitionId) -> Option<PartitionId> {
    let first = match state.summarized {
        None => PartitionId::MIN,
        Some(Summarized { before, is_whole: true }) => before,
        Some(Summarized { before, is_whole: false }) => PartitionId::new(before.number() - 1),
    };
    if first >= first_kept {
        return None;
    }
    core.read_partitions(|all| all.range(first..first_kept).next().map(|(day, _)| *day))
}

/// Stores which days are summarized, and refuses writes to them.
async fn mark(
    core: &Core,
    state: &mut SealState,
    summarized: Summarized,
) -> Result<(), StoreError> {
    if state.summarized == Some(summarized) {
        return Ok(());
    }
    // Before the check for open samples.
    core.summarized_before_ms.fetch_max(summarized.before.start_ms(), Ordering::AcqRel);
    let mut set = WriteSet::default();
    set.put(keys::SUMMARIZED.to_vec(), summarized.encode());
    let format = value::encode_u32(keys::FORMAT, FORMAT_SUMMARIZED);
    set.put(keys::FORMAT.to_vec(), format);
    core.lsm.commit(set).await?;
    state.summarized = Some(summarized);
    Ok(())
}

/// Returns whether the log has samples of a day or earlier ones that are not sealed.
async fn has_open(core: &Core, partition: PartitionId) -> bool {
    let end = partition.next().first_window();
    core.log.lock().await.open_windows().is_some_and(|(first, _)| first < end)
}

async fn summarize_day(
    core: &Arc<Core>,
    state: &mut SealState,
    partition: PartitionId,
) -> Result<(), StoreError> {
    let Some(index) = core.partition(partition) else { return Ok(()) };
    let (epoch, tombstones) = reserve(core).await?;
    let masks = masks_of(core, &index, &tombstones).await?;
    let mut cleanup = PartitionCleanup::new(core, partition, epoch);
    let result = summarize_metrics(core, &mut cleanup, state, &index, &masks).await;
    cleanup.leave(state);
    let (summarized, kept) = result?;
    let day = partition.date();
    tracing::info!(day, summarized, kept, "replaced the samples of blocks by summaries");
    Ok(())
}

/// Summarizes all metrics of a day. Returns the number of summarized and of kept blocks.
///
/// Errors: the first damaged window, after all others are done; the LSM cannot be read or written.
async fn summarize_metrics(
    core: &Arc<Core>,
    cleanup: &mut PartitionCleanup<'_>,
    state: &mut SealState,
    index: &PartitionIndex,
    masks: &Masks,
) -> Result<(usize, usize), StoreError> {
    let (mut summarized, mut kept, mut first_error) = (0, 0, None);
    for metric in metrics_of(&core.lsm, index.partition).await? {
        let runs = index.runs_of(&core.lsm, &[metric]).await?.pop().unwrap_or_default();
        let mut windows: BTreeMap<Window, Vec<MetricRun>> = BTreeMap::new();
        for run in runs.iter() {
            windows.entry(run.window).or_default().push(run.clone());
        }
        for (window, runs) in windows {
            if core.is_closing.load(Ordering::Relaxed) {
                return Err(StoreError::Closed);
            }
            // Nothing is written to a summarized window, and deletes of its series are cleaned.
            if let [run] = &runs[..]
                && run.blocks.iter().any(BlockEntry::is_summarized)
            {
                continue;
            }
            let mut new = NewRun::new(metric, window);
            match cleanup.merge_runs(&mut new, &runs, masks, Kept::Summaries).await {
                Ok(()) => {}
                Err(error @ StoreError::Corrupt { .. }) => {
                    first_error.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error),
            }
            let replaced = new.entries.iter().filter(|entry| entry.is_summarized()).count();
            summarized += replaced;
            kept += new.entries.len() - replaced;
            if replaced > 0 || runs.len() > 1 {
                cleanup.replace(new, &runs);
                cleanup.publish_if_large(state).await?;
            }
        }
    }
    cleanup.publish(state).await?;
    first_error.map_or(Ok((summarized, kept)), Err)
}

/// Returns the metrics of a day that have blocks.
async fn metrics_of(lsm: &Lsm, partition: PartitionId) -> Result<BTreeSet<u64>, StoreError> {
    let mut metrics = BTreeSet::new();
    let mut scan = lsm.scan_prefix(&keys::directories(partition)).await?;
    while let Some((key, _)) = scan.next().await? {
        let (metric, ..) = keys::parse_directory(&key)
            .ok_or_else(|| value::corrupt(&key, "malformed directory key"))?;
        metrics.insert(metric);
    }
    Ok(metrics)
}
