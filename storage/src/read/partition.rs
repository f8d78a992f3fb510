//! Reads of a partition: from matchers to ids, to labels, to the frames in its blocks.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use futures::future::{FutureExt, TryFutureExt, join, try_join};
use model::{Budget, Labels, METRIC_NAME, MatchOp, Matcher, Reservation, SourceError, TimeRange};
use roaring::RoaringBitmap;

use super::blocks::{self, BlockRequest, BlockSource, LoadError, WantedRun};
use super::summaries::WantedSummaries;
use crate::block::BlockEntry;
use crate::core::Core;
use crate::delete::{Masks, TombstoneSnapshot};
use crate::error::StoreError;
use crate::index::partition::{Order, PartitionIndex};
use crate::index::results::{Resolved, SeriesIds};
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
    let PartitionSelection { lsm, index, matchers, .. } = *wanted;
    let mut yielder = Yielder::new(budget);
    let mut of_latest = yielder.fork();
    let latest = latest_of(wanted, &mut of_latest);
    let are_all_wanted = unwanted(i64::MIN).is_empty();
    let found = if are_all_wanted {
        // Together: both wait for the object store. Without blocks in the range, the series are not needed.
        let latest = latest.map(|sealed| sealed.map_err(Some)?.ok_or(None));
        let found = find(core, wanted, &mut yielder).map_err(Some);
        match try_join(latest, found).await {
            Ok((_, found)) => found,
            Err(None) => return Ok(Loaded { series: Vec::new() }),
            Err(Some(error)) => return Err(error),
        }
    } else {
        let Some(sealed_ms) = latest.await? else { return Ok(Loaded { series: Vec::new() }) };
        let ids = index.resolve(lsm, matchers, &mut yielder).await? - unwanted(sealed_ms);
        match metric_of(matchers) {
            Some(metric) => Found::Ids(SeriesIds::of_metric(metric, ids)),
            None => {
                let labels = index.labels_of(lsm, &core.head, &ids, &mut yielder).await?;
                Found::Series(Arc::new(Resolved::new(labels)))
            }
        }
    };
    let (series, parts) = match found {
        Found::Series(series) => {
            charge(labels_bytes(&series.labels))?;
            let parts = load_parts(core, wanted, &series.ids, charge, &mut yielder).await?;
            (series, parts)
        }
        Found::Ids(ids) => {
            // Together: both wait for the object store. The labels are kept even if the load fails.
            let mut of_labels = yielder.fork();
            let labels = load_labels(core, wanted, &ids, &mut of_labels);
            let parts = load_parts(core, wanted, &ids, charge, &mut yielder);
            let (labels, parts) = join(labels, parts).await;
            let (labels, labels_charge) = labels?;
            let series = Arc::new(Resolved::of(labels, ids));
            if are_all_wanted {
                index.keep_series(matchers, &series);
            }
            let parts = parts?;
            drop(labels_charge);
            charge(labels_bytes(&series.labels))?;
            (series, parts)
        }
    };
    let found = series.labels.iter().zip(parts).filter(|(_, parts)| !parts.is_empty());
    let found = found.map(|((id, labels), parts)| (*id, (labels.clone(), parts))).collect();
    Ok(Loaded { series: sort_with_index(core, index, found, budget).await? })
}

/// Series that pass the matchers.
enum Found {
    Series(Arc<Resolved>),
    /// Ids of a known metric. Their samples can be read without their labels.
    Ids(SeriesIds),
}

/// Finds the series that pass the matchers; only their ids if that saves waiting for labels.
async fn find(
    core: &Core,
    wanted: &PartitionSelection<'_>,
    yielder: &mut Yielder,
) -> Result<Found, SourceError> {
    let PartitionSelection { lsm, index, matchers, .. } = *wanted;
    match (index.kept_series(matchers), metric_of(matchers)) {
        (Some(kept), _) => Ok(Found::Series(kept)),
        (None, Some(metric)) => {
            let ids = index.resolve(lsm, matchers, yielder).await?;
            Ok(Found::Ids(SeriesIds::of_metric(metric, ids)))
        }
        (None, None) => Ok(Found::Series(index.series(lsm, &core.head, matchers, yielder).await?)),
    }
}

/// Loads the labels of some series, and their memory charge.
async fn load_labels(
    core: &Core,
    wanted: &PartitionSelection<'_>,
    ids: &SeriesIds,
    yielder: &mut Yielder,
) -> Result<(Vec<(u32, Labels)>, Reservation), SourceError> {
    let ids = ids.all.iter().copied().collect();
    let labels = wanted.index.labels_of(wanted.lsm, &core.head, &ids, yielder).await?;
    let charge = Reservation::new(yielder.budget(), labels_bytes(&labels) as u64)?;
    Ok((labels, charge))
}

/// Returns the memory charge of labels.
fn labels_bytes(labels: &[(u32, Labels)]) -> usize {
    labels.iter().map(|(_, labels)| labels.as_bytes().len() + 64).sum()
}

/// Loads the parts of some series, without deleted samples.
async fn load_parts(
    core: &Core,
    wanted: &PartitionSelection<'_>,
    ids: &SeriesIds,
    charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
    yielder: &mut Yielder,
) -> Result<Vec<Parts>, SourceError> {
    if ids.all.is_empty() {
        return Ok(Vec::new());
    }
    let masks = masks_of(wanted, &ids.all, yielder).await?;
    charge(masks.bytes())?;
    load_unmasked(core, wanted, ids, &masks, charge, yielder).await
}

/// Loads the parts of some series, without masked samples.
async fn load_unmasked(
    core: &Core,
    wanted: &PartitionSelection<'_>,
    ids: &SeriesIds,
    masks: &Masks,
    charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
    yielder: &mut Yielder,
) -> Result<Vec<Parts>, SourceError> {
    let PartitionSelection { lsm, index, range, summaries, .. } = *wanted;
    let source = BlockSource {
        lsm,
        columns: &core.columns,
        sizes: &core.options.sizes,
        masks,
        summaries,
        counters: &core.counters,
    };
    let runs = wanted_runs(wanted, &ids.of_metrics).await?;
    match blocks::load(&source, runs, &ids.all, range, charge, yielder).await {
        Ok(parts) => Ok(parts),
        Err(LoadError::Other(error)) => Err(error),
        Err(LoadError::OfSeries { id, mut error }) => {
            if let SourceError::Corrupt { series, .. } = &mut error {
                let ids = RoaringBitmap::from_iter([id]);
                let labels = index.labels_of(lsm, &core.head, &ids, yielder).await;
                let labels = labels.ok().and_then(|mut found| found.pop());
                *series = labels.map_or_else(|| id.to_string(), |(_, labels)| labels.to_string());
            }
            Err(error)
        }
    }
}

/// Returns the deleted times of some series.
async fn masks_of(
    wanted: &PartitionSelection<'_>,
    ids: &[u32],
    yielder: &mut Yielder,
) -> Result<Masks, SourceError> {
    let PartitionSelection { lsm, index, tombstones, range, .. } = *wanted;
    if tombstones.is_empty() {
        return Ok(Masks::default());
    }
    let ids = ids.iter().copied().collect();
    Box::pin(Masks::of(lsm, index, tombstones, range, &ids, yielder)).await
}

/// Returns the hash of the metric to which the matchers restrict series.
fn metric_of(matchers: &[Matcher]) -> Option<u64> {
    let is_equal = |m: &&Matcher| m.name() == METRIC_NAME && m.op() == MatchOp::Equal;
    matchers.iter().find(is_equal).map(|matcher| keys::metric_hash(matcher.value()))
}

/// Returns the latest time of the blocks that may hold matching samples in a range, by the
/// directories of their metrics. Returns `i64::MAX` if these are not read, and `None` if there are
/// no such blocks. Most queries need only newer samples.
async fn latest_of(
    wanted: &PartitionSelection<'_>,
    yielder: &mut Yielder,
) -> Result<Option<i64>, SourceError> {
    let PartitionSelection { lsm, index, matchers, range, .. } = *wanted;
    let metrics: Vec<u64> = match metric_of(matchers) {
        Some(metric) => vec![metric],
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
    let overlaps = |e: &&BlockEntry| range.overlaps(TimeRange::new(e.min_ms, e.max_ms));
    let windows = windows_of(range);
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
    let PartitionSelection { lsm, index, matchers, .. } = *wanted;
    let mut yielder = Yielder::new(budget);
    let resolved = index.series(lsm, &core.head, matchers, &mut yielder).await?;
    let masks = masks_of(wanted, &resolved.ids.all, &mut yielder).await?;
    let without = match masks.is_empty() {
        true => RoaringBitmap::new(),
        false => Box::pin(without_samples(core, wanted, &masks, &mut yielder)).await?,
    };
    let listed = resolved.labels.iter().filter(|(id, _)| !without.contains(*id));
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
    // For samples that are only checked here.
    let mut of_samples = Reservation::empty(yielder.budget());
    let charge = &mut |bytes| of_samples.grow(bytes as u64).map_err(SourceError::from);
    charge(masks.bytes())?;
    let doubtful = wanted.index.labels_of(wanted.lsm, &core.head, masks.ids(), yielder).await?;
    let doubtful = Resolved::new(doubtful);
    let existing = WantedSummaries::existing();
    let wanted = PartitionSelection { summaries: Some(&existing), ..*wanted };
    let parts = load_unmasked(core, &wanted, &doubtful.ids, masks, charge, yielder).await?;
    let mut without = RoaringBitmap::new();
    for ((id, _), parts) in doubtful.labels.iter().zip(parts) {
        if !parts.iter().any(|part| part.times().overlaps(wanted.range)) {
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
    wanted: &PartitionSelection<'_>,
    metrics: &BTreeMap<u64, RoaringBitmap>,
) -> Result<Vec<(u64, Vec<WantedRun>)>, StoreError> {
    let hashes: Vec<u64> = metrics.keys().copied().collect();
    let runs = wanted.index.runs_of(wanted.lsm, &hashes).await?;
    let (range, windows) = (wanted.range, windows_of(wanted.range));
    let mut found = Vec::with_capacity(hashes.len());
    for ((metric, ids), runs) in metrics.iter().zip(runs) {
        let is_wanted = |e: &BlockEntry| {
            range.overlaps(TimeRange::new(e.min_ms, e.max_ms))
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

/// Returns the windows that hold samples of a range.
fn windows_of(range: TimeRange) -> RangeInclusive<Window> {
    Window::of(range.start_ms)..=Window::of(range.end_ms)
}
