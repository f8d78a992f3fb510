//! Warm-up after a start: reads the index and the blocks of the last days into the caches.
//!
//! It runs in the background and sends only a few requests at a time. The newest day comes first,
//! and its index before its blocks.

use std::sync::Arc;
use std::time::Instant;

use model::{Budget, SourceError, TimeRange};
use roaring::RoaringBitmap;

use super::select::Pin;
use crate::core::Core;
use crate::index::partition::PartitionIndex;
use crate::keys;
use crate::lsm::Lsm;
use crate::parallel::yielder::Yielder;
use crate::window::PartitionId;

/// Warms the caches with the partitions of a time span up to now.
///
/// Errors are logged: queries will get them again.
pub(crate) async fn warm_up(core: Arc<Core>, span_ms: i64) {
    let started = Instant::now();
    let start_ms = core.options.clock.now_ms().saturating_sub(span_ms);
    let first = PartitionId::of(start_ms);
    let days: Vec<PartitionId> =
        core.read_partitions(|all| all.range(first..).map(|(number, _)| *number).collect());
    let mut bytes_left = block_bytes_max(&core);
    for day in days.iter().rev() {
        if let Err(error) = warm_day(&core, *day, &mut bytes_left).await {
            tracing::error!(day = day.number(), %error, "cache warm-up of a day failed");
        }
        core.index.trim();
        if bytes_left == 0 {
            break;
        }
    }
    tracing::info!(
        days = days.len(),
        seconds = started.elapsed().as_secs_f64(),
        bytes = core.counters.warmed_bytes(),
        "the caches are warm"
    );
}

/// Warms the caches with a day, unless it has been deleted.
async fn warm_day(
    core: &Arc<Core>,
    day: PartitionId,
    bytes_left: &mut u64,
) -> Result<(), SourceError> {
    // Like a selection, keeps deleted parts of the index until it has been read.
    let pin = Pin::new(core);
    if day.end_ms() <= pin.visible_min_ms {
        return Ok(());
    }
    let last_ms = day.end_ms() - 1;
    let (lsm, index) = core.partitions_between(TimeRange::new(last_ms, last_ms));
    let [index] = &index[..] else { return Ok(()) };
    warm_index(core, &lsm, index).await?;
    drop(pin);
    warm_blocks(core, &lsm, index, bytes_left).await
}

/// Returns the bytes of blocks that stay in the caches: of the block cache, its young generation.
fn block_bytes_max(core: &Core) -> u64 {
    let disk = core.options.disk_cache.as_ref().map_or(0, |cache| cache.bytes_max);
    disk.max(core.options.cache_bytes_max as u64) / 2
}

/// Reads labels, their values and the runs of a day.
async fn warm_index(core: &Core, lsm: &Lsm, index: &PartitionIndex) -> Result<(), SourceError> {
    if !index.is_cached() {
        return Ok(());
    }
    let mut yielder = Yielder::new(&Budget::unlimited());
    for name in index.names(lsm, &mut yielder).await?.iter() {
        if core.index.is_full() {
            return Ok(());
        }
        index.label_values(lsm, name, &mut yielder).await?;
    }
    let all = (0..index.series_count).collect::<RoaringBitmap>() - &*index.deleted;
    let labels = index.labels_of(lsm, &core.head, &all, &mut yielder).await?;
    let mut metrics: Vec<u64> =
        labels.iter().map(|(_, labels)| keys::metric_hash(labels.metric_name())).collect();
    metrics.sort_unstable();
    metrics.dedup();
    index.runs_of(lsm, &metrics).await?;
    Ok(())
}

/// Reads the blocks of a day until the caches are full.
async fn warm_blocks(
    core: &Core,
    lsm: &Lsm,
    index: &PartitionIndex,
    bytes_left: &mut u64,
) -> Result<(), SourceError> {
    let mut scan = lsm.scan_prefix(&keys::blocks(index.partition)).await?;
    while *bytes_left > 0
        && let Some((key, value)) = scan.next().await?
    {
        let bytes = (key.len() + value.len()) as u64;
        *bytes_left = bytes_left.saturating_sub(bytes);
        core.counters.note_warmed(bytes);
    }
    Ok(())
}
