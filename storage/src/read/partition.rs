//! Reads of a partition: from matchers to ids, to labels, to the frames in its blocks.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use futures::future::{FutureExt, TryFutureExt, try_join};
use model::{Budget, Labels, METRIC_NAME, MatchOp, Matcher, Reservation, SourceError, TimeRange};
use roaring::RoaringBitmap;

use super::blocks::{self, BlockRequest, BlockSource, WantedRun};
use super::summaries::WantedSummaries;
use crate::block::BlockEntry;
use crate::core::Core;
use crate::delete::{Masks, TombstoneSnapshot};
use crate::error::StoreError;
use crate::index::partition::{Order, PartitionIndex};
use crate::index::results::Resolved;
use crate::index::runs::MetricRun;
use crate::keys;
use crate::loaded::order::sort_by_labels;
use crate::lsm::Lsm;
use crate::parallel::shares::apart;
use crate::parallel::yielder::Yielder;
use crate::samples::part::Parts;
use crate::window::Window;

/// Loaded data of a partition.
pub(crate) struct Loaded {
    /// Series by labels, with their frames, the earlier write first.
    pub(crate) series: Vec<(Labels, Parts)>,
}

/// Share of all series below which they are sorted by comparing labels.
const ORDER_SHARE: usize = 8;
/// Maximum number of metrics whose directories are read before their series.
const METRICS_LOOKED_AT: usize = 4096;

/// Returns the ids of unwanted series, given the latest sealed time in the range.
pub(crate) type Unwanted<'a> = dyn Fn(i64) -> RoaringBitmap + Sync + 'a;

/// Loads the wanted, matching series of a partition in a time range.
///
/// `charge` is called before the bytes of blocks are read.
pub(crate) async fn load(
    core: &Core,
    wanted: &PartitionSelection<'_>,
    unwanted: &Unwanted<'_>,
    charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
    budget: &Budget,
) -> Result<Loaded, SourceError> {
    let PartitionSelection { lsm, index, tombstones, matchers, range, summaries } = *wanted;
    let mut yielder = Yielder::new(budget);
    let windows = Window::of(range.start_ms)..=Window::of(range.end_ms);
    let mut of_latest = yielder.fork();
    let latest = latest_of(lsm, index, matchers, &windows, range, &mut of_latest);
    let resolved = if unwanted(i64::MIN).is_empty() {
        // Together: both wait for the object store. Without blocks in the range, the series are not needed.
        let latest = latest.map(|sealed| sealed.map_err(Some)?.ok_or(None));
        let series = index.series(lsm, &core.head, matchers, &mut yielder).map_err(Some);
        match try_join(latest, series).await {
            Ok((_, resolved)) => resolved,
            Err(None) => return Ok(Loaded { series: Vec::new() }),
            Err(Some(error)) => return Err(error),
        }
    } else {
        let Some(sealed_ms) = latest.await? else { return Ok(Loaded { series: Vec::new() }) };
        let ids = index.resolve(lsm, matchers, &mut yielder).await? - unwanted(sealed_ms);
        let labels = index.labels_of(lsm, &core.head, &ids, &mut yielder).await?;
        Arc::new(Resolved::new(labels))
    };
    let labels = &resolved.labels;
    if labels.is_empty() {
        return Ok(Loaded { series: Vec::new() });
    }
    charge(labels.iter().map(|(_, l)| l.as_bytes().len() + 64).sum())?;
    let masks = masks_of(lsm, index, tombstones, range, labels, &mut yielder).await?;
    charge(masks.bytes())?;
    let source = BlockSource {
        lsm,
        columns: &core.columns,
        sizes: &core.options.sizes,
        masks: &masks,
        summaries,
        counters: &core.counters,
    };
    let parts =
        load_parts(&source, index, &resolved, &windows, range, charge, &mut yielder).await?;
    let found = labels
        .iter()
        .zip(parts)
        .filter(|(_, parts)| !parts.is_empty())
        .map(|((id, labels), parts)| (*id, (labels.clone(), parts)))
        .collect();
    Ok(Loaded { series: sort_with_index(core, index, found, budget).await? })
}

/// Loads the parts of some series in a time range and its windows.
async fn load_parts(
    source: &BlockSource<'_>,
    index: &PartitionIndex,
    resolved: &Resolved,
    windows: &RangeInclusive<Window>,
    range: TimeRange,
    charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
    yielder: &mut Yielder,
) -> Result<Vec<Parts>, SourceError> {
    let runs = wanted_runs(source.lsm, index, &resolved.metrics, windows, range).await?;
    blocks::load(source, runs, &resolved.labels, range, charge, yielder).await
}

/// Returns the deleted times of some series.
async fn masks_of(
    lsm: &Lsm,
    index: &PartitionIndex,
    tombstones: &TombstoneSnapshot,
    range: TimeRange,
    labels: &[(u32, Labels)],
    yielder: &mut Yielder,
) -> Result<Masks, SourceError> {
    if tombstones.is_empty() {
        return Ok(Masks::default());
    }
    let ids = labels.iter().map(|(id, _)| *id).collect();
    Box::pin(Masks::of(lsm, index, tombstones, range, &ids, yielder)).await
}

/// Returns the latest time of the blocks that may hold matching samples in a range, by the
/// directories of their metrics. Returns `i64::MAX` if these are not read, and `None` if there are
/// no such blocks. Most queries need only newer samples.
async fn latest_of(
    lsm: &Lsm,
    index: &PartitionIndex,
    matchers: &[Matcher],
    windows: &RangeInclusive<Window>,
    TimeRange { start_ms, end_ms }: TimeRange,
    yielder: &mut Yielder,
) -> Result<Option<i64>, SourceError> {
    let equal = |m: &&Matcher| m.name() == METRIC_NAME && m.op() == MatchOp::Equal;
    let metrics: Vec<u64> = match matchers.iter().find(equal) {
        Some(matcher) => vec![keys::metric_hash(matcher.value())],
        None if !index.is_cached() => return Ok(Some(i64::MAX)),
        None => {
            let names = index.label_values(lsm, METRIC_NAME, yielder).await?;
            if names.len() > METRICS_LOOKED_AT {
                return Ok(Some(i64::MAX));
            }
            let named = names.iter().map(|(name, _)| keys::metric_hash(name));
            named.chain([keys::metric_hash("")]).collect()
        }
    };
    let overlaps = |e: &&BlockEntry| e.min_ms <= end_ms && e.max_ms >= start_ms;
    let runs = index.runs_of(lsm, &metrics).await?;
    let near = runs.iter().flat_map(|runs| runs.iter()).filter(|run| windows.contains(&run.window));
    let times = near.flat_map(|run| run.blocks.iter().filter(overlaps)).map(|e| e.max_ms);
    Ok(times.max())
}

/// Sorts series of a partition by labels; many of them by the order that the index knows.
async fn sort_with_index<T>(
    core: &Core,
    index: &Arc<PartitionIndex>,
    mut found: Vec<(u32, (Labels, T))>,
    budget: &Budget,
) -> Result<Vec<(Labels, T)>, SourceError> {
    let is_large = found.len() > core.options.sizes.compared_series_max
        && found.len() * ORDER_SHARE > index.series_count as usize;
    let order = if is_large { order_of(index).await? } else { None };
    match order {
        Some(Order::ById) => {}
        Some(Order::Ranks(ranks)) => found.sort_unstable_by_key(|(id, _)| ranks[*id as usize]),
        None => {
            let series = found.into_iter().map(|(_, series)| series).collect();
            return Ok(sort_by_labels(series, budget)?);
        }
    }
    Ok(found.into_iter().map(|(_, series)| series).collect())
}

/// Wanted series of a partition.
#[derive(Clone, Copy)]
pub(crate) struct PartitionSelection<'a> {
    pub(crate) lsm: &'a Lsm,
    pub(crate) index: &'a Arc<PartitionIndex>,
    pub(crate) tombstones: &'a TombstoneSnapshot,
    pub(crate) matchers: &'a [Matcher],
    pub(crate) range: TimeRange,
    /// Summaries that may replace samples.
    pub(crate) summaries: Option<&'a WantedSummaries>,
}

/// Returns the sorted labels of the matching series of a partition, without series whose samples in
/// the range are all deleted.
///
/// Source: chunks that tombstones cover are skipped in `blockBaseSeriesSet` of `tsdb/querier.go` of
/// Prometheus, and series without any other.
pub(crate) async fn matching_labels(
    core: &Core,
    wanted: &PartitionSelection<'_>,
    budget: &Budget,
) -> Result<Vec<Labels>, SourceError> {
    let PartitionSelection { lsm, index, tombstones, matchers, range, .. } = *wanted;
    let mut yielder = Yielder::new(budget);
    let resolved = index.series(lsm, &core.head, matchers, &mut yielder).await?;
    let labels = &resolved.labels;
    let masks = masks_of(lsm, index, tombstones, range, labels, &mut yielder).await?;
    let without = match masks.is_empty() {
        true => RoaringBitmap::new(),
        false => Box::pin(without_samples(core, wanted, &masks, &mut yielder)).await?,
    };
    let listed = labels.iter().filter(|(id, _)| !without.contains(*id));
    let found = listed.map(|(id, labels)| (*id, (labels.clone(), ()))).collect();
    let sorted = sort_with_index(core, index, found, budget).await?;
    Ok(sorted.into_iter().map(|(labels, ())| labels).collect())
}

/// Returns the ids of masked series whose samples in the range are all deleted.
async fn without_samples(
    core: &Core,
    wanted: &PartitionSelection<'_>,
    masks: &Masks,
    yielder: &mut Yielder,
) -> Result<RoaringBitmap, SourceError> {
    let PartitionSelection { lsm, index, range, .. } = *wanted;
    // For samples that are only checked here.
    let mut of_samples = Reservation::empty(yielder.budget());
    let charge = &mut |bytes| of_samples.grow(bytes as u64).map_err(SourceError::from);
    charge(masks.bytes())?;
    let doubtful = index.labels_of(lsm, &core.head, masks.ids(), yielder).await?;
    let doubtful = Resolved::new(doubtful);
    let windows = Window::of(range.start_ms)..=Window::of(range.end_ms);
    let existing = WantedSummaries::existing();
    let source = BlockSource {
        lsm,
        columns: &core.columns,
        sizes: &core.options.sizes,
        masks,
        summaries: Some(&existing),
        counters: &core.counters,
    };
    let parts = load_parts(&source, index, &doubtful, &windows, range, charge, yielder).await?;
    let mut without = RoaringBitmap::new();
    for ((id, _), parts) in doubtful.labels.iter().zip(parts) {
        if !parts.iter().any(|part| part.times().overlaps(range)) {
            without.insert(*id);
        }
    }
    Ok(without)
}

/// Returns the label order of a partition; the first call takes a while.
async fn order_of(index: &Arc<PartitionIndex>) -> Result<Option<Order>, SourceError> {
    if index.has_order() {
        return Ok(index.order());
    }
    let index = Arc::clone(index);
    apart(move || index.order()).await
}

/// Returns the runs of each metric in the windows, with the blocks that hold wanted ids.
async fn wanted_runs(
    lsm: &Lsm,
    index: &PartitionIndex,
    metrics: &BTreeMap<u64, RoaringBitmap>,
    windows: &RangeInclusive<Window>,
    TimeRange { start_ms, end_ms }: TimeRange,
) -> Result<Vec<(u64, Vec<WantedRun>)>, StoreError> {
    let hashes: Vec<u64> = metrics.keys().copied().collect();
    let runs = index.runs_of(lsm, &hashes).await?;
    let mut found = Vec::with_capacity(hashes.len());
    for ((metric, ids), runs) in metrics.iter().zip(runs) {
        let is_wanted = |e: &BlockEntry| {
            e.min_ms <= end_ms
                && e.max_ms >= start_ms
                && ids.range_cardinality(e.first_id..=e.last_id) > 0
        };
        let want = |e: &BlockEntry| match is_wanted(e) {
            false => BlockRequest::Nothing,
            true if e.is_summarized() => BlockRequest::Summaries,
            true => BlockRequest::Bytes,
        };
        let wanted_run = |run: &MetricRun| WantedRun {
            window: run.window,
            epoch: run.epoch,
            entries: run.blocks.iter().map(|entry| (*entry, want(entry))).collect(),
        };
        let in_windows = runs.iter().filter(|run| windows.contains(&run.window));
        let wanted: Vec<WantedRun> = in_windows.map(wanted_run).collect();
        if !wanted.is_empty() {
            found.push((*metric, wanted));
        }
    }
    Ok(found)
}
