//! Series lookups: the sorted, distinct label sets that any selector selects.

use std::sync::Arc;

use model::{
    Budget, Checkpoint, Labels, Matcher, MetadataQuery, Reservation, SourceError, TimeRange,
};

use super::partition::{self, PartitionSelection};
use super::select::{Pin, SERIES_BYTES, matching_in_order};
use crate::core::Core;
use crate::head::series::HeadSeries;
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
        let lsm = lsm.for_query(budget);
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
            charge.grow(
                labels.iter().map(|l| SERIES_BYTES + l.as_bytes().len()).sum::<usize>() as u64
            )?;
            lists.push(labels);
        }
    }
    core.index.trim();
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
