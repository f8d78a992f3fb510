//! Merge of the series of the head and of partitions to one sorted set.
//!
//! Each list is sorted already, and most series of one are in the next as well, with the same label
//! set in memory: then only pointers are compared.

use std::cmp::Ordering;

use model::{Budget, BudgetError, Checkpoint, Labels, SourceError, TimeRange};

use crate::parallel::shares::{on_each, share_count};
use crate::samples::part::{Part, Parts};
use crate::samples::series_parts::SeriesParts;
use crate::sizes::Sizes;

/// Work of placing a part, in bytes touched.
const PART_WORK: usize = 64;

/// Number of series that the data of parts is prefetched ahead.
pub(crate) const PARTS_AHEAD: usize = 8;

/// Series with its parts.
pub(crate) type FoundSeries = (Labels, Parts);

/// Series sorted by labels, each label set once.
#[derive(Default)]
pub(crate) struct Ordered {
    pub(crate) series: Vec<(Labels, SeriesParts)>,
    pub(crate) encoded_bytes: usize,
}

/// Merges sorted lists. If two have a series, the parts of the earlier list come first.
///
/// Errors: a frame whose header cannot be read; those of the budget.
pub(crate) async fn order(
    sizes: &Sizes,
    lists: Vec<Vec<FoundSeries>>,
    range: TimeRange,
    budget: &Budget,
) -> Result<Ordered, SourceError> {
    let series_count = lists.iter().map(Vec::len).sum();
    let shares = split(lists, share_count(sizes, series_count));
    let budget = budget.clone();
    let order_share = move |lists| order_share(lists, range, &budget);
    let mut shares = on_each(sizes, series_count, shares, order_share).await?.into_iter();
    let mut all = shares.next().unwrap_or_default();
    for share in shares {
        all.series.extend(share.series);
        all.encoded_bytes += share.encoded_bytes;
    }
    Ok(all)
}

/// Splits sorted lists at common labels, into at most `share_count` shares of about equal size.
fn split(mut lists: Vec<Vec<FoundSeries>>, share_count: usize) -> Vec<Vec<Vec<FoundSeries>>> {
    let mut shares = Vec::with_capacity(share_count);
    for share in (1..share_count).rev() {
        let Some(longest) = lists.iter().max_by_key(|list| list.len()) else { break };
        let Some((boundary, _)) = longest.get(longest.len() * share / (share + 1)) else { break };
        let boundary = boundary.clone();
        let cut = |list: &mut Vec<FoundSeries>| {
            list.split_off(list.partition_point(|(labels, _)| *labels < boundary))
        };
        shares.push(lists.iter_mut().map(cut).collect());
    }
    shares.push(lists);
    shares.reverse();
    shares
}

fn order_share(
    lists: Vec<Vec<FoundSeries>>,
    TimeRange { start_ms, end_ms }: TimeRange,
    budget: &Budget,
) -> Result<Ordered, SourceError> {
    let mut watch = Checkpoint::new(budget);
    let found = merge(lists, &mut watch)?;
    let mut series: Vec<(Labels, SeriesParts)> = Vec::with_capacity(found.len());
    let mut encoded_bytes = 0;
    let mut found = found.into_iter();
    loop {
        if let Some((_, ahead)) = found.as_slice().get(PARTS_AHEAD) {
            ahead.iter().for_each(Part::fetch);
        }
        let Some((labels, parts)) = found.next() else { break };
        watch.work(PART_WORK * (1 + parts.len()))?;
        let parts = SeriesParts::new(parts, start_ms, end_ms, &labels)?;
        if !parts.is_empty() {
            encoded_bytes += parts.bytes();
            series.push((labels, parts));
        }
    }
    Ok(Ordered { series, encoded_bytes })
}

/// Merges sorted lists to one.
///
/// Errors: those of the checkpoint.
pub(crate) fn merge(
    mut lists: Vec<Vec<FoundSeries>>,
    watch: &mut Checkpoint,
) -> Result<Vec<FoundSeries>, BudgetError> {
    while lists.len() > 1 {
        let mut merged = Vec::with_capacity(lists.len().div_ceil(2));
        let mut rest = lists.into_iter();
        while let Some(first) = rest.next() {
            merged.push(match rest.next() {
                Some(second) => merge_two(first, second, watch)?,
                None => first,
            });
        }
        lists = merged;
    }
    Ok(lists.pop().unwrap_or_default())
}

fn merge_two(
    first: Vec<FoundSeries>,
    second: Vec<FoundSeries>,
    watch: &mut Checkpoint,
) -> Result<Vec<FoundSeries>, BudgetError> {
    if first.is_empty() || second.is_empty() {
        return Ok(if first.is_empty() { second } else { first });
    }
    let mut merged = Vec::with_capacity(first.len().max(second.len()));
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    while let (Some((a, _)), Some((b, _))) = (first.as_slice().first(), second.as_slice().first()) {
        watch.work(PART_WORK)?;
        let order = a.cmp(b);
        let next = if order.is_gt() { second.next() } else { first.next() };
        let Some((labels, mut parts)) = next else { break };
        if order == Ordering::Equal {
            parts.extend(second.next().into_iter().flat_map(|(_, parts)| parts));
        }
        merged.push((labels, parts));
    }
    merged.extend(first);
    merged.extend(second);
    Ok(merged)
}
