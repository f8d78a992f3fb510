//! Replacement of samples by their summaries, day by day, after the retention of samples.
//!
//! ```text
//! per day before the retention of samples:
//!   mark      a record of the store: writes to the day are refused from now on
//!   seal      samples of the day that are in the log alone
//!   per metric and window; other maintenance runs after each publication:
//!     blocks    all runs are merged into one: summaries, and samples of the series that they cannot
//!               represent; not visible, as in a seal
//!   publish   as in the cleanup of deletes
//!   mark      the day is whole
//! later     the old blocks are deleted, once all selections that may read them have ended
//! ```
//!
//! A crash leaves a day that is not whole, which the next start continues. Windows that are already
//! summarized are skipped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::rewrite::{KeptData, NewRun, PartitionRewrite, masks_of, reserve};
use super::{SealExtent, seal};
use crate::block::BlockEntry;
use crate::core::Core;
use crate::core::seal_state::{SealState, Summarizing};
use crate::delete::Masks;
use crate::error::StoreError;
use crate::index::partition::PartitionIndex;
use crate::index::runs::MetricRun;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};
use crate::meta::Summarized;
use crate::value;
use crate::window::{PartitionId, Window};

/// Number of full writes whose bytes a round reads at most, even if it has replaced no blocks.
const WRITES_PER_ROUND: u64 = 8;

/// Replaces some samples beyond their retention by summaries: at most those of one publication, so
/// that other maintenance runs in between. Returns whether there may be more.
///
/// Errors: a day cannot be read or written; the caller retries.
pub(crate) async fn summarize_expired(core: &Arc<Core>) -> Result<bool, StoreError> {
    let time = core.observe_retention_time();
    let Some(floor_ms) = core.keeping().samples_floor_ms(time) else { return Ok(false) };
    let first_kept = PartitionId::of(floor_ms);
    let mut state = core.sealing.lock().await;
    let Some(partition) = next_day(core, &state, first_kept).await else { return Ok(false) };
    mark(core, &mut state, Summarized { before: partition.next(), is_whole: false }).await?;
    if open_day(core).await.is_some_and(|day| day <= partition) {
        drop(state);
        seal(core, SealExtent::All).await?;
        state = core.sealing.lock().await;
        if open_day(core).await.is_some_and(|day| day <= partition) {
            return Ok(false);
        }
    }
    if !summarize_some(core, &mut state, partition).await? {
        return Ok(true);
    }
    state.summarizing = None;
    mark(core, &mut state, Summarized { before: partition.next(), is_whole: true }).await?;
    core.counters.note_day_summarized();
    Ok(true)
}

/// Returns the first day before `first_kept` that is not yet summarized as a whole: a sealed one,
/// or one of which the log has samples.
async fn next_day(core: &Core, state: &SealState, first_kept: PartitionId) -> Option<PartitionId> {
    let first = match state.summarized {
        None => PartitionId::MIN,
        Some(Summarized { before, is_whole: true }) => before,
        Some(Summarized { before, is_whole: false }) => PartitionId::new(before.number() - 1),
    };
    if first >= first_kept {
        return None;
    }
    let days = first..first_kept;
    let open = open_day(core).await.filter(|day| days.contains(day));
    let sealed = core.read_partitions(|all| all.range(days).next().map(|(day, _)| *day));
    open.into_iter().chain(sealed).min()
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
    core.lsm.commit(set).await?;
    state.summarized = Some(summarized);
    Ok(())
}

/// Returns the day of the earliest samples in the log that are not sealed.
async fn open_day(core: &Core) -> Option<PartitionId> {
    let windows = core.log.lock().await.open_windows();
    windows.map(|(first, _)| PartitionId::of(first.start_ms()))
}

/// Summarizes metrics of a day, from the end of the last round to the end of this one. Returns
/// whether all are done.
async fn summarize_some(
    core: &Arc<Core>,
    state: &mut SealState,
    partition: PartitionId,
) -> Result<bool, StoreError> {
    let Some(index) = core.partition(partition) else { return Ok(true) };
    let (epoch, tombstones) = reserve(core).await?;
    let masks = masks_of(core, &index, &tombstones).await?;
    let mut rewrite = PartitionRewrite::new(core, partition, epoch);
    let result = summarize_metrics(core, &mut rewrite, state, &index, &masks).await;
    rewrite.leave(state);
    result
}

/// Summarizes metrics of a day up to the end of the round. Samples of windows with damaged blocks
/// are kept until their day is deleted. Returns whether all metrics are done.
async fn summarize_metrics(
    core: &Arc<Core>,
    rewrite: &mut PartitionRewrite<'_>,
    state: &mut SealState,
    index: &PartitionIndex,
    masks: &Masks,
) -> Result<bool, StoreError> {
    let day = index.partition;
    let mut progress = match state.summarizing {
        Some(progress) if progress.day == day => progress,
        _ => Summarizing { day, next: (0, Window::MIN), summarized: 0, kept: 0, damaged: 0 },
    };
    let round_bytes = WRITES_PER_ROUND * core.options.sizes.write_bytes as u64;
    let mut read_bytes = 0;
    let metrics = metrics_of(&core.lsm, day).await?;
    for metric in metrics.range(progress.next.0..) {
        let first = if *metric == progress.next.0 { progress.next.1 } else { Window::MIN };
        for (window, runs) in index.windows_of(&core.lsm, *metric).await?.range(first..) {
            if core.is_closing.load(Ordering::Relaxed) {
                return Err(StoreError::Closed);
            }
            match summarize_window(rewrite, (*metric, *window), runs, masks).await {
                Ok((summarized, kept)) => {
                    progress.summarized += summarized;
                    progress.kept += kept;
                }
                Err(error @ StoreError::Corrupt { .. }) => {
                    if progress.damaged == 0 {
                        log_damage(day, &error);
                    }
                    progress.damaged += 1;
                }
                Err(error) => return Err(error),
            }
            let blocks = runs.iter().flat_map(|run| run.blocks.iter());
            read_bytes += blocks.map(|entry| u64::from(entry.bytes)).sum::<u64>();
            if rewrite.publish_if_large(state).await? || read_bytes >= round_bytes {
                rewrite.publish(state).await?;
                progress.next = (*metric, window.next());
                state.summarizing = Some(progress);
                return Ok(false);
            }
        }
    }
    rewrite.publish(state).await?;
    let (day, Summarizing { summarized, kept, damaged, .. }) = (day.date(), progress);
    tracing::info!(day, summarized, kept, damaged, "replaced the samples of blocks by summaries");
    Ok(true)
}

/// Logs the first damage of a day.
fn log_damage(day: PartitionId, error: &StoreError) {
    let day = day.date();
    tracing::error!(day, %error, "failed to replace some samples of a day by summaries");
}

/// Summarizes the runs of a window. Returns the number of summarized and of kept blocks.
async fn summarize_window(
    rewrite: &mut PartitionRewrite<'_>,
    (metric, window): (u64, Window),
    runs: &[MetricRun],
    masks: &Masks,
) -> Result<(u64, u64), StoreError> {
    if let [run] = runs {
        // Nothing is written to a summarized window, and deletes of its series are cleaned.
        if run.blocks.iter().any(BlockEntry::is_summarized) {
            return Ok((0, 0));
        }
        if !rewrite.can_summarize_any((metric, window), runs, masks).await? {
            return Ok((0, run.blocks.len() as u64));
        }
    }
    let mut new = NewRun::new(metric, window);
    rewrite.merge_runs(&mut new, runs, masks, KeptData::Summaries).await?;
    let summarized = new.entries.iter().filter(|entry| entry.is_summarized()).count() as u64;
    let kept = new.entries.len() as u64 - summarized;
    if summarized > 0 || runs.len() > 1 {
        rewrite.replace(new, runs);
    }
    Ok((summarized, kept))
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
