//! Merge of the series of the head and of partitions to one sorted set.
//!
//! Each list is sorted already, and most series of one are in the next as well, with the same label
//! set in memory: then only pointers are compared.

use std::cmp::Ordering;

use model::checkpoint::sort_by;
use model::{
    Budget, BudgetError, Checkpoint, Labels, Reservation, SourceError, TimeRange, sort_label_sets,
};

use crate::parallel::shares::{on_each, share_count};
use crate::samples::part::{Part, Parts};
use crate::samples::series_parts::SeriesParts;
use crate::samples::shared::Room;
use crate::sizes::Sizes;
use crate::summary::edges::Edges;

/// Work of placing a part, in bytes touched.
const PART_WORK: usize = 64;

/// Maximum number of series that are sorted without a check of the budget: less than a millisecond.
const SORTED_AT_ONCE_MAX: usize = 4_096;
/// Number of lists that are merged together.
const GROUP_LISTS: usize = 16;
/// Number of series that the data of parts is prefetched ahead.
pub(crate) const PARTS_AHEAD: usize = 8;

/// Series with its parts.
pub(crate) type FoundSeries = (Labels, Parts);

/// Series sorted by labels, each label set once.
#[derive(Default)]
pub(crate) struct Ordered {
    pub(crate) series: Vec<(Labels, SeriesParts)>,
    pub(crate) encoded_bytes: usize,
    pub(crate) column_bytes: usize,
}

/// Merges sorted lists. If two have a series, the parts of the earlier list come first. Summaries of
/// adjacent partitions are merged where no window between `edges` begins or ends.
///
/// Errors: a frame whose header cannot be read; those of the budget.
pub(crate) async fn order(
    sizes: &Sizes,
    lists: Vec<Vec<FoundSeries>>,
    range: TimeRange,
    edges: Option<Edges>,
    budget: &Budget,
) -> Result<Ordered, SourceError> {
    let series_count = lists.iter().map(Vec::len).sum();
    let shares = split(lists, share_count(sizes, series_count));
    let budget = budget.clone();
    let order_share = move |lists| order_share(lists, range, edges, &budget);
    let mut shares = on_each(sizes, series_count, shares, order_share).await?.into_iter();
    let mut all = shares.next().unwrap_or_default();
    for share in shares {
        all.series.extend(share.series);
        all.encoded_bytes += share.encoded_bytes;
        all.column_bytes += share.column_bytes;
    }
    Ok(all)
}

/// Sorts series by labels. Up to [`SORTED_AT_ONCE_MAX`] are sorted at once, the others with checks of
/// the budget.
///
/// Errors: those of the budget.
pub(crate) fn sort_by_labels<T>(
    series: Vec<(Labels, T)>,
    budget: &Budget,
) -> Result<Vec<(Labels, T)>, BudgetError> {
    if series.len() > SORTED_AT_ONCE_MAX {
        let weight = |(labels, _): &(Labels, T)| labels.as_bytes().len();
        return sort_by(series, &mut Checkpoint::new(budget), weight, |a, b| a.0.cmp(&b.0));
    }
    if series.is_sorted_by(|a, b| a.0 <= b.0) {
        return Ok(series);
    }
    let (labels, items): (Vec<Labels>, Vec<T>) = series.into_iter().unzip();
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    let sorted = sort_label_sets(labels.into_iter().zip(0_u32..).collect());
    let taken = |(labels, index): (Labels, u32)| Some((labels, items[index as usize].take()?));
    Ok(sorted.into_iter().filter_map(taken).collect())
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
    edges: Option<Edges>,
    budget: &Budget,
) -> Result<Ordered, SourceError> {
    let mut watch = Checkpoint::new(budget);
    let found = merge(lists, |parts: &mut Parts, more| parts.extend(more), &mut watch)?;
    let mut series: Vec<(Labels, SeriesParts)> = Vec::with_capacity(found.len());
    let (mut encoded_bytes, mut column_bytes) = (0, 0);
    let mut room = Room::default();
    // Until the summaries that they replace are freed.
    let mut of_copies = Reservation::empty(budget);
    let mut found = found.into_iter();
    loop {
        if let Some((_, ahead)) = found.as_slice().get(PARTS_AHEAD) {
            ahead.iter().for_each(Part::fetch);
        }
        let Some((labels, parts)) = found.next() else { break };
        watch.work(PART_WORK * (1 + parts.len()))?;
        let mut parts = SeriesParts::new(parts, start_ms, end_ms, &labels)?;
        if let Some(edges) = &edges {
            parts.merge_summaries(edges, &mut room);
            of_copies.grow(room.bytes() as u64 - of_copies.bytes())?;
        }
        if !parts.is_empty() {
            encoded_bytes += parts.bytes();
            column_bytes += parts.column_bytes();
            series.push((labels, parts));
        }
    }
    if room.bytes() > 0 {
        encoded_bytes += room.bytes();
        room.settle(series.iter_mut().flat_map(|(_, parts)| parts.summaries_mut()));
    }
    Ok(Ordered { series, encoded_bytes, column_bytes })
}

/// Merges sorted lists to one. `join` adds the item of a label set in a later list to that in an
/// earlier one.
///
/// Errors: those of the checkpoint.
pub(crate) fn merge<T>(
    mut lists: Vec<Vec<(Labels, T)>>,
    join: impl Fn(&mut T, T),
    watch: &mut Checkpoint,
) -> Result<Vec<(Labels, T)>, BudgetError> {
    lists.retain(|list| !list.is_empty());
    while lists.len() > 1 {
        let mut merged = Vec::with_capacity(lists.len().div_ceil(GROUP_LISTS));
        let mut rest = lists.into_iter();
        while rest.len() > 0 {
            merged.push(merge_group(rest.by_ref().take(GROUP_LISTS), &join, watch)?);
        }
        lists = merged;
    }
    Ok(lists.pop().unwrap_or_default())
}

/// Merges some lists: together while all have the same series, then two by two.
fn merge_group<T>(
    lists: impl Iterator<Item = Vec<(Labels, T)>>,
    join: &impl Fn(&mut T, T),
    watch: &mut Checkpoint,
) -> Result<Vec<(Labels, T)>, BudgetError> {
    let mut lists: Vec<_> = lists.map(Vec::into_iter).collect();
    let mut merged =
        Vec::with_capacity(lists.iter().map(ExactSizeIterator::len).max().unwrap_or(0));
    while have_same_series(&lists) {
        watch.work(PART_WORK * lists.len())?;
        let mut series = lists.iter_mut().filter_map(Iterator::next);
        let Some((labels, mut item)) = series.next() else { break };
        series.for_each(|(_, more)| join(&mut item, more));
        merged.push((labels, item));
    }
    let mut rest: Vec<Vec<_>> = lists.into_iter().map(Iterator::collect).collect();
    while rest.len() > 1 {
        let mut pairs = rest.into_iter();
        let mut halved = Vec::with_capacity(pairs.len().div_ceil(2));
        while let Some(first) = pairs.next() {
            halved.push(match pairs.next() {
                Some(second) => merge_two(first, second, join, watch)?,
                None => first,
            });
        }
        rest = halved;
    }
    merged.extend(rest.into_iter().flatten());
    Ok(merged)
}

/// Returns whether all lists have a next series, and the same one.
fn have_same_series<T>(lists: &[std::vec::IntoIter<(Labels, T)>]) -> bool {
    let mut next = lists.iter().map(|list| list.as_slice().first().map(|(labels, _)| labels));
    let Some(Some(labels)) = next.next() else { return false };
    next.all(|other| other == Some(labels))
}

fn merge_two<T>(
    first: Vec<(Labels, T)>,
    second: Vec<(Labels, T)>,
    join: &impl Fn(&mut T, T),
    watch: &mut Checkpoint,
) -> Result<Vec<(Labels, T)>, BudgetError> {
    if first.is_empty() || second.is_empty() {
        return Ok(if first.is_empty() { second } else { first });
    }
    let mut merged = Vec::with_capacity(first.len().max(second.len()));
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    while let (Some((a, _)), Some((b, _))) = (first.as_slice().first(), second.as_slice().first()) {
        watch.work(PART_WORK)?;
        let order = a.cmp(b);
        let next = if order.is_gt() { second.next() } else { first.next() };
        let Some((labels, mut item)) = next else { break };
        if order == Ordering::Equal
            && let Some((_, more)) = second.next()
        {
            join(&mut item, more);
        }
        merged.push((labels, item));
    }
    merged.extend(first);
    merged.extend(second);
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn series(number: u32) -> Labels {
        Labels::from_pairs([("n", format!("{number:03}").as_str())])
    }

    proptest! {
        /// Numbers of series of each list: most lists have the same, as days of a store do.
        #[test]
        fn merged_lists_have_each_series_once_and_items_in_order(
            count in 0_u32..20,
            gaps in prop::collection::vec((0_usize..40, 0_u32..20), 0..6),
            list_count in 0_usize..40,
        ) {
            let has = |list: usize, number: u32| !gaps.contains(&(list, number));
            let list = |list: usize| -> Vec<(Labels, Vec<usize>)> {
                let numbers = (0..count).filter(|number| has(list, *number));
                numbers.map(|number| (series(number), vec![list])).collect()
            };
            let lists: Vec<_> = (0..list_count).map(list).collect();
            let mut expected: BTreeMap<Labels, Vec<usize>> = BTreeMap::new();
            for (labels, items) in lists.iter().flatten() {
                expected.entry(labels.clone()).or_default().extend(items);
            }
            let budget = Budget::unlimited();
            let join = |items: &mut Vec<usize>, more| items.extend::<Vec<usize>>(more);
            let merged = merge(lists, join, &mut Checkpoint::new(&budget)).unwrap();
            prop_assert_eq!(merged, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
