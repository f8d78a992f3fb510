//! Reading what queries will ask for first, after a start: the index and the blocks of the last
//! days.
//!
//! Nobody waits for it, and it keeps nobody from anything but a few requests to the object store.
//! The newest day comes first, its index before its blocks, whose bytes go to the caches below.

use std::sync::Arc;
use std::time::Instant;

use model::{Budget, SourceError};

use super::breather::Breather;
use crate::index::facts::Facts;
use crate::keys;
use crate::store::Inner;
use crate::window::TIME_MAX_MS;

/// Warms the caches with the days of a span of time up to now.
///
/// Errors are logged: queries will meet them again.
pub(crate) async fn warm_up(inner: Arc<Inner>, span_ms: i64) {
    let started = Instant::now();
    let start_ms = inner.options.clock.now_ms().saturating_sub(span_ms);
    let days = inner.partitions_between(start_ms.max(inner.visible_min_ms()), TIME_MAX_MS);
    let mut bytes_left = block_bytes_max(&inner);
    for facts in days.iter().rev() {
        let warmed = async {
            warm_index(&inner, facts).await?;
            warm_blocks(&inner, facts, &mut bytes_left).await
        };
        if let Err(error) = warmed.await {
            tracing::error!(day = facts.number, %error, "a day cannot be read ahead of queries");
        }
        inner.index.trim();
        if bytes_left == 0 {
            break;
        }
    }
    tracing::info!(
        days = days.len(),
        seconds = started.elapsed().as_secs_f64(),
        bytes = inner.counters.warmed_bytes(),
        "the caches are warm"
    );
}

/// So many bytes of blocks stay in the caches: of the one in memory, what is young.
fn block_bytes_max(inner: &Inner) -> u64 {
    let disk = inner.options.disk_cache.as_ref().map_or(0, |cache| cache.bytes_max);
    disk.max(inner.options.cache_bytes_max as u64) / 2
}

/// Reads labels, their values and the runs of a day.
async fn warm_index(inner: &Inner, facts: &Facts) -> Result<(), SourceError> {
    if !facts.are_kept() {
        return Ok(());
    }
    let mut breather = Breather::new(&Budget::unlimited());
    for name in facts.names(&inner.lsm, &mut breather).await?.iter() {
        if inner.index.is_full() {
            return Ok(());
        }
        facts.table(&inner.lsm, name, &mut breather).await?;
    }
    let all = (0..facts.series_count).collect();
    let labels = facts.labels_of(&inner.lsm, &inner.head, &all, &mut breather).await?;
    let mut metrics: Vec<u64> =
        labels.iter().map(|(_, labels)| keys::metric_hash(labels.metric_name())).collect();
    metrics.sort_unstable();
    metrics.dedup();
    facts.runs_of(&inner.lsm, &metrics).await?;
    Ok(())
}

/// Reads the blocks of a day, as many as the caches hold.
async fn warm_blocks(
    inner: &Inner,
    facts: &Facts,
    bytes_left: &mut u64,
) -> Result<(), SourceError> {
    let mut scan = inner.lsm.scan_prefix(&keys::blocks(facts.number)).await?;
    while *bytes_left > 0
        && let Some((key, value)) = scan.next().await?
    {
        let bytes = (key.len() + value.len()) as u64;
        *bytes_left = bytes_left.saturating_sub(bytes);
        inner.counters.note_warmed(bytes);
    }
    Ok(())
}
