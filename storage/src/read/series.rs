//! Series lookups: the sorted, distinct label sets that any selector selects.

use std::sync::Arc;

use model::{
    Budget, BudgetError, Checkpoint, Labels, Matcher, MetadataQuery, Reservation, SourceError,
    TimeRange,
};

use super::partition::{self, PartitionSelection};
use super::select::{Pin, SERIES_BYTES, matching_in_order};
use crate::core::Core;
use crate::head::series::HeadSeries;
use crate::index::lists::ListKey;
use crate::index::results::Resolved;
use crate::index::{Candidate, prune};
use crate::loaded::order::{merge, sort_by_labels};
use crate::parallel::yielder::Yielder;

/// Number of series of the head that are visited before other tasks may run.
const VISITED_AT_ONCE: usize = 256;

/// Returns the sorted, distinct label sets that pass any of the selectors, up to the limit.
pub(crate) async fn series(
    core: &Arc<Core>,
    pin: &Pin,
    query: &MetadataQuery,
    budget: &Budget,
) -> Result<Vec<Labels>, SourceError> {
    let range = pin.visible(query.times);
    let limit = if query.limit == 0 { usize::MAX } else { query.limit };
    let mut charge = Reservation::empty(budget);
    let tombstones = core.tombstones.all();
    let any = [Vec::new()];
    let selectors = if query.selectors.is_empty() { &any[..] } else { &query.selectors[..] };
    let mut lists = Vec::new();
    for matchers in selectors {
        let head = of_head(core, matchers, range, &mut charge, budget).await?;
        lists.push(head);
        let (lsm, partitions) = core.partitions_between(range);
        // Only deletes make series depend on more than the partitions.
        let key = ListKey::of(None, matchers, &partitions).filter(|_| tombstones.is_empty());
        if let Some(kept) = key.as_ref().and_then(|key| core.kept_series.find(key)) {
            let kept = &kept[..kept.len().min(limit)];
            charge.grow(bytes_of(kept))?;
            lists.push(kept.to_vec());
            continue;
        }
        let lsm = lsm.for_query(budget);
        let mut sealed = Vec::new();
        let (mut before, mut yielder): (Option<Arc<Resolved>>, _) = (None, Yielder::new(budget));
        for Candidate { index, known } in prune(&lsm, partitions, matchers, budget).await? {
            let known = known.filter(|_| tombstones.is_empty());
            // Most days have the series of the day before.
            if let (Some(known), Some(before)) = (&known, &before) {
                yielder.work(known.compared_with(before)).await?;
                if known.has_series_of(before) {
                    continue;
                }
            }
            before = known;
            budget.check()?;
            let wanted = PartitionSelection {
                lsm: &lsm,
                index: &index,
                tombstones: &tombstones,
                matchers,
                range,
                summaries: None,
            };
            let labels = partition::matching_labels(core, &wanted, budget).await?;
            charge.grow(bytes_of(&labels))?;
            sealed.push(labels);
        }
        let sealed = first_of(sealed, limit, budget)?;
        if let Some(key) = key.filter(|_| sealed.len() < limit) {
            core.kept_series.keep(key, &sealed);
        }
        lists.push(sealed);
    }
    core.index.trim();
    Ok(first_of(lists, limit, budget)?)
}

fn bytes_of(series: &[Labels]) -> u64 {
    series.iter().map(|labels| SERIES_BYTES + labels.as_bytes().len()).sum::<usize>() as u64
}

/// Returns the first distinct label sets of sorted lists.
fn first_of(
    mut lists: Vec<Vec<Labels>>,
    limit: usize,
    budget: &Budget,
) -> Result<Vec<Labels>, BudgetError> {
    if lists.len() == 1 {
        lists[0].truncate(limit);
        return Ok(lists.swap_remove(0));
    }
    // The first `limit` of each list contain the first `limit` of all.
    let bare =
        |list: Vec<Labels>| list.into_iter().take(limit).map(|labels| (labels, ())).collect();
    let lists = lists.into_iter().map(bare).collect();
    let merged = merge(lists, |(), ()| {}, &mut Checkpoint::new(budget))?;
    Ok(merged.into_iter().take(limit).map(|(labels, _)| labels).collect())
}

/// Returns the label sets of matching series of the head that may have samples in the range.
async fn of_head(
    core: &Arc<Core>,
    matchers: &[Matcher],
    TimeRange { start_ms, end_ms }: TimeRange,
    charge: &mut Reservation,
    budget: &Budget,
) -> Result<Vec<Labels>, SourceError> {
    let matching = matching_in_order(core, matchers, budget).await?;
    let mut yielder = Yielder::new(budget);
    let mut found = Vec::new();
    let mut result = Ok(());
    let mut visit = |series: &HeadSeries| {
        if result.is_ok() && series.overlaps(start_ms, end_ms) {
            result = charge.grow(SERIES_BYTES as u64);
            found.push(series.labels.clone());
        }
    };
    for start in (0..matching.len()).step_by(VISITED_AT_ONCE) {
        let positions = start..matching.len().min(start + VISITED_AT_ONCE);
        core.head.fetch(&matching, positions.clone());
        core.head.visit(&matching, positions, matchers, &mut visit);
        yielder.work(VISITED_AT_ONCE).await?;
    }
    result?;
    if core.head.is_ordered(&matching) {
        return Ok(found);
    }
    let found = found.into_iter().map(|labels| (labels, ())).collect();
    Ok(sort_by_labels(found, budget)?.into_iter().map(|(labels, ())| labels).collect())
}
