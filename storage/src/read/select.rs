//! Resolves and loads a selection.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use model::{
    BoxFuture, Budget, BudgetError, Checkpoint, Labels, Matcher, Reservation, Selection, SeriesSet,
    SourceError, TimeRange,
};

use super::partition::{self, PartitionSelection};
use super::summaries::WantedSummaries;
use crate::core::Core;
use crate::head::Matching;
use crate::index::{Candidate, prune};
use crate::loaded::kept::{HeldOnce, SharedSeries};
use crate::loaded::newest::{self, Newest, NewestSample, NewestSeries, NewestSet};
use crate::loaded::order::{FoundSeries, Ordered, order, sort_by_labels};
use crate::loaded::set::{LoadedSeries, LoadedSet};
use crate::lsm::{OBJECT_STORE, ReadGuard};
use crate::parallel::shares::{apart, in_shares};
use crate::samples::part::{Part, Parts, TailRoom};
use crate::samples::series_parts::SeriesParts;
use crate::summary::edges::{Edges, Replaced};
use crate::window::Window;

/// Bytes that a series counts in addition to its samples.
pub(super) const SERIES_BYTES: usize = 128;
/// Maximum number of partitions that are loaded concurrently. Most of the time is spent waiting for
/// the object store.
const PARTITIONS_AT_ONCE: usize = 32;
/// Maximum number of partitions whose summaries are loaded concurrently: they are small.
const SUMMARIES_AT_ONCE: usize = 192;
/// Number of series that are visited, copied and charged together.
const VISITED_AT_ONCE: usize = 64;

/// Guard of a selection until it has loaded everything: visible data is not deleted before.
pub(crate) struct Pin {
    /// Earliest visible time.
    pub(super) visible_min_ms: i64,
    _read: ReadGuard,
}

impl Pin {
    /// Guards the data that is visible now.
    pub(crate) fn new(core: &Core) -> Pin {
        // In this order: hidden data may be deleted once all earlier selections have ended.
        let read = core.selections.begin();
        Pin { visible_min_ms: core.observe_visible_min_ms(), _read: read }
    }

    /// Returns the visible part of a time range; it may be empty.
    pub(super) fn visible(&self, times: TimeRange) -> TimeRange {
        TimeRange::new(times.start_ms.max(self.visible_min_ms), times.end_ms)
    }
}

/// Returns whether a read has found an SST missing or damaged.
pub(crate) fn is_lost<T>(read: &Result<T, SourceError>) -> bool {
    matches!(read, Err(SourceError::Corrupt { location, .. }) if location == OBJECT_STORE)
}

/// Resolves and loads a selection. Summaries replace samples where only windows are needed, unless
/// a series has both summaries and histograms in the range.
pub(crate) async fn select(
    core: &Arc<Core>,
    pin: Pin,
    selection: &Selection,
    budget: &Budget,
) -> Result<Arc<dyn SeriesSet>, SourceError> {
    let range = pin.visible(selection.times);
    let changes = &core.head.changes;
    if let Some(kept) = core.kept_sets.find(selection, range, changes) {
        budget.check()?;
        return set_of(core, kept, range, None, budget);
    }
    let edges = selection.windows.and_then(|windows| Edges::new(windows, range));
    let are_replaced = range.start_ms < core.summarized_before_ms.load(Ordering::Acquire);
    let preferred = if are_replaced { edges } else { edges.and_then(Edges::preferred) };
    // Before everything that it numbers.
    let version = changes.version();
    let mut loaded = match load(core, &pin, selection, preferred, budget).await {
        // Of a day whose samples another process has replaced.
        Err(SourceError::OnlySummaries { .. }) if preferred != edges => {
            load(core, &pin, selection, edges, budget).await?
        }
        loaded => loaded?,
    };
    if loaded.is_none() {
        loaded = load(core, &pin, selection, None, budget).await?;
    }
    let Some((series, charge)) = loaded else {
        unreachable!("samples need no second selection");
    };
    let visible = Selection { times: range, ..selection.clone() };
    core.kept_sets.keep(visible, version, &series, &core.columns);
    set_of(core, series, range, Some(charge), budget)
}

/// Returns series as the set of a query, which charges its budget for them.
fn set_of(
    core: &Core,
    series: SharedSeries,
    range: TimeRange,
    charge: Option<Reservation>,
    budget: &Budget,
) -> Result<Arc<dyn SeriesSet>, SourceError> {
    let charged = |bytes| charge.map_or_else(|| Reservation::new(budget, bytes), Ok);
    Ok(match series {
        SharedSeries::Loaded(loaded) => {
            budget.charge_series(loaded.series.len() as u64)?;
            let (charge, columns) = (charged(loaded.charged_bytes)?, Arc::clone(&core.columns));
            Arc::new(LoadedSet { loaded, range, columns, _charge: charge })
        }
        SharedSeries::Newest(newest) => {
            budget.charge_series(newest.series.len() as u64)?;
            let charge = charged(newest.charged_bytes)?;
            Arc::new(NewestSet { newest, _charge: charge })
        }
    })
}

/// Loads the series of a selection, and returns their memory charge. Returns `None` if summaries
/// between `edges` cannot be used.
async fn load(
    core: &Arc<Core>,
    pin: &Pin,
    selection: &Selection,
    edges: Option<Edges>,
    budget: &Budget,
) -> Result<Option<(SharedSeries, Reservation)>, SourceError> {
    let range = pin.visible(selection.times);
    // Before the head: a delete masks samples before it removes them from the head.
    let tombstones = core.tombstones.all();
    let mut charge = Reservation::empty(budget);
    let InHead { found, newest } =
        select_head(core, selection, range, edges, &mut charge, budget).await?;
    let mut lists = Vec::new();
    let summaries = edges.map(|edges| WantedSummaries::new(edges, windows_of(&found)));
    let summaries = summaries.as_ref();
    let (lsm, partitions) = core.partitions_between(range);
    let lsm = lsm.for_query(budget);
    let partitions = prune(&lsm, partitions, &selection.matchers, budget).await?;
    let at_once = if summaries.is_some() { SUMMARIES_AT_ONCE } else { PARTITIONS_AT_ONCE };
    let lsm = lsm.shared_by(partitions.len().min(at_once));
    let loads: Vec<BoxFuture<'_, _>> = partitions
        .iter()
        .map(|Candidate { index, .. }| {
            let (lsm, tombstones, matchers) = (&lsm, &tombstones, &selection.matchers[..]);
            let wanted = PartitionSelection { lsm, index, tombstones, matchers, range, summaries };
            load_partition(core, wanted, &newest, budget).boxed()
        })
        .collect();
    let mut loads = stream::iter(loads).buffered(at_once);
    while let Some((series, of_partition)) = loads.try_next().await? {
        charge.absorb(of_partition);
        lists.push(series);
    }
    drop(loads);
    core.index.trim();
    if found.is_empty() && lists.iter().all(Vec::is_empty) {
        let charged_bytes = charge.bytes();
        let newest = NewestSeries { series: newest, charged_bytes, held: HeldOnce::new() };
        return Ok(Some((SharedSeries::Newest(Arc::new(newest)), charge)));
    }
    // The order of writing: earlier partitions first, the head last.
    lists.push(found);
    lists.push(newest::found(newest));
    let Ordered { series, encoded_bytes, column_bytes } =
        order(&core.options.sizes, lists, range, edges, budget).await?;
    let needs_samples =
        |(_, parts): &(Labels, SeriesParts)| parts.has_summaries() && !parts.has_facts();
    let is_partial = edges.is_some();
    let edges = edges.filter(|edges| edges.replaced() == Replaced::ByFacts);
    if edges.is_some() && series.iter().any(needs_samples) {
        return Ok(None);
    }
    let (charged_bytes, held) = (charge.bytes(), HeldOnce::new());
    let loaded = LoadedSeries {
        series,
        encoded_bytes,
        column_bytes,
        is_partial,
        edges,
        has_histograms: OnceLock::new(),
        charged_bytes,
        held,
    };
    Ok(Some((SharedSeries::Loaded(Arc::new(loaded)), charge)))
}

/// Returns the windows of the samples of some series.
fn windows_of(found: &[FoundSeries]) -> BTreeSet<Window> {
    let mut windows = BTreeSet::new();
    for times in found.iter().flat_map(|(_, parts)| parts.iter().map(Part::times)) {
        let (mut window, last) = (Window::of(times.start_ms), Window::of(times.end_ms));
        while window <= last {
            windows.insert(window);
            window = window.next();
        }
    }
    windows
}

/// Loads a partition for a selection, and returns its memory charge. Series whose `newest` sample
/// is later than all sealed ones in the range are unwanted.
async fn load_partition(
    core: &Arc<Core>,
    wanted: PartitionSelection<'_>,
    newest: &[Newest],
    budget: &Budget,
) -> Result<(Vec<FoundSeries>, Reservation), SourceError> {
    budget.check()?;
    let mut charge = Reservation::empty(budget);
    let mut add = |bytes| charge.grow(bytes as u64).map_err(SourceError::from);
    let unwanted = |sealed_ms| newest::ids_after(newest, wanted.index.partition, sealed_ms);
    let loaded = partition::load(core, &wanted, &unwanted, &mut add, budget).await?;
    Ok((loaded.series, charge))
}

/// Returns the matching series of the head, sorted by labels as far as their order is known.
pub(super) async fn matching_in_order(
    core: &Arc<Core>,
    matchers: &[Matcher],
    budget: &Budget,
) -> Result<Matching, SourceError> {
    let matching = core.head.matching(matchers, &mut Checkpoint::new(budget))?;
    if matching.len() <= core.options.sizes.inline_series_max {
        return Ok(core.head.ordered(matching));
    }
    let core = Arc::clone(core);
    apart(move || core.head.ordered(matching)).await
}

/// Series of the head, each list sorted by labels.
struct InHead {
    found: Vec<FoundSeries>,
    /// Series of which only the newest sample matters.
    newest: Vec<Newest>,
}

/// Copies the matching series of the head, without floats that no window between `edges` sees.
async fn select_head(
    core: &Arc<Core>,
    selection: &Selection,
    range: TimeRange,
    edges: Option<Edges>,
    charge: &mut Reservation,
    budget: &Budget,
) -> Result<InHead, SourceError> {
    let matching = Arc::new(matching_in_order(core, &selection.matchers, budget).await?);
    let share = {
        let (core, matching) = (Arc::clone(core), Arc::clone(&matching));
        let (selection, budget) = (selection.clone(), budget.clone());
        move |positions| visit_head(&core, &matching, positions, &selection, range, edges, &budget)
    };
    let (mut found, mut newest) = (Vec::new(), Vec::new());
    let sizes = &core.options.sizes;
    for (in_share, of_share) in in_shares(sizes, matching.len(), share).await? {
        charge.absorb(of_share);
        append(&mut found, in_share.found);
        append(&mut newest, in_share.newest);
    }
    if !core.head.is_ordered(&matching) {
        found = sort_by_labels(found, budget)?;
        newest = sort_by_labels(newest, budget)?;
    }
    Ok(InHead { found, newest })
}

/// Copies some of the matching series of the head, by index, as [`select_head`].
fn visit_head(
    core: &Core,
    matching: &Matching,
    positions: Range<usize>,
    selection: &Selection,
    TimeRange { start_ms, end_ms }: TimeRange,
    edges: Option<Edges>,
    budget: &Budget,
) -> Result<(InHead, Reservation), BudgetError> {
    let mut charge = Reservation::empty(budget);
    let are_columns_kept = core.columns.bytes_max() > 0;
    let mut in_head = InHead { found: Vec::new(), newest: Vec::new() };
    if !selection.only_newest {
        in_head.found.reserve(positions.len());
    }
    let mut room = TailRoom::default();
    let end = positions.end;
    for start in positions.step_by(VISITED_AT_ONCE) {
        budget.check()?;
        let positions = start..end.min(start + VISITED_AT_ONCE);
        let InHead { found, newest } = &mut in_head;
        let (found_before, newest_before) = (found.len(), newest.len());
        core.head.fetch(matching, positions.clone());
        if are_columns_kept && !selection.only_newest {
            core.head.fetch_columns(matching, positions.clone());
        }
        core.head.visit(matching, positions, &selection.matchers, |series| {
            if selection.only_newest
                && let Some(sample) = series.newest_raw(start_ms, end_ms)
            {
                newest.push((series.labels.clone(), NewestSample::new(series, sample.0, sample.1)));
                return;
            }
            if !series.overlaps(start_ms, end_ms) {
                return;
            }
            let mut parts = Parts::new();
            series.parts(start_ms, end_ms, are_columns_kept, &mut parts, &mut room);
            found.push((series.labels.clone(), parts));
        });
        let new = &mut found[found_before..];
        room.settle(new.iter_mut().flat_map(|(_, parts)| parts).filter_map(Part::tail_mut));
        if let Some(edges) = edges {
            // Reset hints of histograms refer to earlier samples.
            let has_frames = |parts: &Parts| {
                parts.iter().any(|p| matches!(p, Part::Frame(_) | Part::Histograms(_)))
            };
            let of_floats = new.iter_mut().filter(|(_, parts)| !has_frames(parts));
            of_floats.for_each(|(_, parts)| parts.retain(|part| edges.see(part.times())));
        }
        let parts_bytes = |(_, parts): &FoundSeries| parts.iter().map(Part::bytes).sum::<usize>();
        let found_bytes: usize = new.iter().map(|found| parts_bytes(found) + SERIES_BYTES).sum();
        charge.grow((found_bytes + size_of_val(&newest[newest_before..])) as u64)?;
    }
    Ok((in_head, charge))
}

/// Appends a list to another one, which is mostly empty.
fn append<T>(list: &mut Vec<T>, mut more: Vec<T>) {
    if list.is_empty() {
        *list = more;
    } else {
        list.append(&mut more);
    }
}
