//! Cardinality of a day: counts of series by the indexes of its partition and of the head, without
//! reading samples.
//!
//! ```text
//! partition  ids of the matching series, and the values of each label with their ids
//! head       matching series with unsealed samples of the day that the partition does not have
//! ```
//!
//! A series that is created or removed during a count may be missing in some of its lists. Deleted
//! series count until they are cleaned up, as in lists of label names.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use model::{
    Budget, BudgetError, Checkpoint, Labels, METRIC_NAME, Matcher, Reservation, SourceError,
    TimeRange,
};
use roaring::RoaringBitmap;
use smol_str::SmolStr;

use super::select::{Pin, SERIES_BYTES};
use crate::core::Core;
use crate::head::Head;
use crate::head::cardinality::Largest;
use crate::index::partition::{LabelValues, PartitionIndex, entry_bytes};
use crate::index::{Candidate, Ids, prune};
use crate::lsm::Lsm;
use crate::parallel::shares::apart;
use crate::parallel::yielder::Yielder;
use crate::window::PartitionId;

/// Maximum number of series whose labels are read instead of all postings.
const LABELS_MAX: u64 = 1024;
/// Share of the partition's series from which the labels of all are compared with those of the head.
const COMPARED_SHARE: usize = 16;
/// Maximum number of values that are counted while the index of the head is locked.
const VALUES_PER_TURN: usize = 256;
/// Work of counting the series of a value, in bytes touched.
const COUNT_WORK: usize = 64;

/// Wanted counts of a day.
#[derive(Debug, Clone)]
pub struct CardinalityQuery {
    /// A time of the day, in ms since the epoch.
    pub time_ms: i64,
    /// Matchers that all counted series pass.
    pub matchers: Vec<Matcher>,
    /// Label whose values are counted, too.
    pub label: Option<String>,
    /// Maximum number of entries in each list.
    pub limit: usize,
}

/// Counts of the series of a day, which is in UTC; each list is in descending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DayCardinality {
    /// Start of the day, in ms since the epoch.
    pub start_ms: i64,
    /// First time after the day.
    pub end_ms: i64,
    /// Number of series.
    pub series: u64,
    /// Number of series of the day before.
    pub series_before: u64,
    /// Number of pairs of a label and a value.
    pub label_pairs: u64,
    /// Series by metric.
    pub series_by_metric: Vec<CountChange>,
    /// Series that have a label.
    pub series_by_label: Vec<CountChange>,
    /// Values by label.
    pub values_by_label: Vec<CountChange>,
    /// Series by label pair.
    pub series_by_pair: Vec<PairChange>,
    /// Series by value of the label of the query.
    pub series_by_value: Vec<CountChange>,
}

/// Count of a day, and of the day before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountChange {
    /// Metric, label or value.
    pub name: String,
    /// Count of the day.
    pub count: u64,
    /// Count of the day before.
    pub before: u64,
}

/// Series of a label pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairChange {
    /// Label.
    pub label: String,
    /// Value.
    pub value: String,
    /// Count of the day.
    pub count: u64,
    /// Count of the day before.
    pub before: u64,
}

/// Counts the series of a day and of the day before.
pub(crate) async fn cardinality(
    core: &Arc<Core>,
    pin: &Pin,
    query: &CardinalityQuery,
    budget: &Budget,
) -> Result<DayCardinality, SourceError> {
    let day = PartitionId::of(query.time_ms);
    let earlier = PartitionId::new(day.number().saturating_sub(1));
    let of_day = DaySeries::find(core, pin, day, &query.matchers, budget).await?;
    let before = DaySeries::find(core, pin, earlier, &query.matchers, budget).await?;
    core.index.trim();
    let (core, query, budget) = (Arc::clone(core), query.clone(), budget.clone());
    let counting =
        move || count(&core.head, &of_day, &before, &query, &mut Checkpoint::new(&budget));
    let counted = apart(counting).await??;
    Ok(DayCardinality { start_ms: day.start_ms(), end_ms: day.end_ms(), ..counted })
}

/// Matching series of a day.
#[derive(Default)]
struct DaySeries {
    /// Ids of the partition.
    sealed: RoaringBitmap,
    /// Values by label, with ids of the partition; sorted by label.
    tables: Vec<(Box<str>, Arc<LabelValues>)>,
    /// Slots of the head.
    head: RoaringBitmap,
    /// Memory of the tables, which stay until both days are counted.
    _held: Option<Reservation>,
}

impl DaySeries {
    async fn find(
        core: &Arc<Core>,
        pin: &Pin,
        day: PartitionId,
        matchers: &[Matcher],
        budget: &Budget,
    ) -> Result<DaySeries, SourceError> {
        budget.check()?;
        let range = pin.visible(TimeRange::new(day.start_ms(), day.end_ms() - 1));
        if range.start_ms > range.end_ms {
            return Ok(DaySeries::default());
        }
        // Before the partition, to which a seal moves series.
        let mut in_head = Vec::new();
        if !core.head.is_beside(range.start_ms, range.end_ms) {
            let (core, matchers) = (Arc::clone(core), matchers.to_vec());
            let mut watch = Checkpoint::new(budget);
            in_head = apart(move || core.head.unregistered(day, &matchers, &mut watch)).await??;
        }
        let _held = Reservation::new(budget, (in_head.len() * SERIES_BYTES) as u64)?;
        let (lsm, partitions) = core.partitions_between(range);
        let lsm = lsm.for_query(budget);
        let mut found = DaySeries::default();
        if let Some(Candidate { index, .. }) =
            prune(&lsm, partitions, matchers, budget).await?.pop()
        {
            found = DaySeries::sealed(core, &lsm, &index, matchers, budget).await?;
            found.remove_known(core, &lsm, &index, &mut in_head, budget).await?;
        }
        found.head = in_head.into_iter().map(|(slot, _)| slot).collect();
        Ok(found)
    }

    /// Returns the matching series of a partition.
    async fn sealed(
        core: &Core,
        lsm: &Lsm,
        index: &PartitionIndex,
        matchers: &[Matcher],
        budget: &Budget,
    ) -> Result<DaySeries, SourceError> {
        let mut yielder = Yielder::new(budget);
        let sealed = index.resolve(lsm, matchers, &mut yielder).await?;
        let (mut tables, mut held) = (Vec::new(), Reservation::empty(budget));
        if sealed.len() <= LABELS_MAX {
            let series = index.labels_of(lsm, &core.head, &sealed, &mut yielder).await?;
            tables = tables_of(&series);
        } else {
            for name in index.names(lsm, &mut yielder).await?.iter() {
                let table = index.label_values(lsm, name, &mut yielder).await?;
                let bytes: usize = table.iter().map(entry_bytes).sum();
                held.grow(bytes as u64)?;
                tables.push((name.as_str().into(), table));
            }
        }
        Ok(DaySeries { sealed, tables, head: RoaringBitmap::new(), _held: Some(held) })
    }

    /// Removes series of the head that the partition has.
    async fn remove_known(
        &self,
        core: &Core,
        lsm: &Lsm,
        index: &PartitionIndex,
        in_head: &mut Vec<(u32, Labels)>,
        budget: &Budget,
    ) -> Result<(), SourceError> {
        let mut yielder = Yielder::new(budget);
        let mut doubtful = RoaringBitmap::new();
        if in_head.len() * COMPARED_SHARE > self.sealed.len() as usize {
            doubtful.clone_from(&self.sealed);
        } else {
            for (_, labels) in &*in_head {
                yielder.work(1).await?;
                doubtful |= self.with_pairs_of(labels);
            }
        }
        if in_head.is_empty() || doubtful.is_empty() {
            return Ok(());
        }
        let known = index.labels_of(lsm, &core.head, &doubtful, &mut yielder).await?;
        let _held = Reservation::new(budget, (known.len() * SERIES_BYTES) as u64)?;
        let known: HashSet<Labels> = known.into_iter().map(|(_, labels)| labels).collect();
        in_head.retain(|(_, labels)| !known.contains(labels));
        Ok(())
    }

    /// Returns the sealed series that have all pairs of a label set, and maybe more.
    fn with_pairs_of(&self, labels: &Labels) -> RoaringBitmap {
        let pairs = labels.iter().map(|(name, value)| self.sealed_ids(name, value));
        let Some(mut pairs) = pairs.collect::<Option<Vec<_>>>() else {
            return RoaringBitmap::new();
        };
        // The smallest set is copied.
        pairs.sort_unstable_by_key(|ids| ids.len());
        let Some((smallest, others)) = pairs.split_first() else { return RoaringBitmap::new() };
        let mut all = RoaringBitmap::new();
        smallest.add_to(&mut all);
        all &= &self.sealed;
        others.iter().for_each(|ids| ids.keep_in(&mut all));
        all
    }

    fn table(&self, name: &str) -> &LabelValues {
        let at = self.tables.binary_search_by(|(of_table, _)| (**of_table).cmp(name));
        at.map_or(&[], |at| &*self.tables[at].1)
    }

    fn sealed_ids(&self, name: &str, value: &str) -> Option<&Ids> {
        let table = self.table(name);
        let at = table.binary_search_by(|(of_table, _)| (**of_table).cmp(value)).ok()?;
        Some(&table[at].1)
    }

    fn series(&self) -> u64 {
        self.sealed.len() + self.head.len()
    }

    /// Returns the number of series of a label pair.
    fn of_pair(&self, head: &Head, name: &str, value: &str) -> u64 {
        let sealed = self.sealed_ids(name, value);
        let of_head = |ids: &Ids| ids.count_among(&self.head);
        let in_head = if self.head.is_empty() {
            0
        } else {
            head.index_read().ids(name, value).map_or(0, of_head)
        };
        sealed.map_or(0, |ids| ids.count_among(&self.sealed)) + in_head
    }

    /// Returns the names of all labels.
    fn names(&self, head: &Head) -> BTreeSet<Box<str>> {
        let mut names: BTreeSet<Box<str>> =
            self.tables.iter().map(|(name, _)| name.clone()).collect();
        if !self.head.is_empty() {
            names.extend(head.index_read().names().map(Box::from));
        }
        names
    }

    /// Visits the values of a label in order, with the number of series of each.
    ///
    /// Errors: those of the checkpoint.
    fn each_value(
        &self,
        head: &Head,
        name: &str,
        watch: &mut Checkpoint,
        mut visit: impl FnMut(&str, u64),
    ) -> Result<(), BudgetError> {
        let mut sealed = self.table(name).iter().peekable();
        let mut in_head = HeadValues::new(head, name, &self.head).peekable();
        loop {
            watch.work(COUNT_WORK)?;
            let order = match (sealed.peek(), in_head.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((of_sealed, _)), Some((of_head, _))) => (**of_sealed).cmp(of_head),
            };
            let (mut value, mut count) = (SmolStr::default(), 0);
            if order.is_le()
                && let Some((of_sealed, ids)) = sealed.next()
            {
                value.clone_from(of_sealed);
                count += ids.count_among(&self.sealed);
            }
            if order.is_ge()
                && let Some((of_head, series)) = in_head.next()
            {
                value = of_head;
                count += series;
            }
            if count > 0 {
                visit(&value, count);
            }
        }
    }
}

/// Values of a label in the head, in order, with the number of series among some slots.
///
/// The index is locked for [`VALUES_PER_TURN`] values at a time, so that new series do not wait for
/// a whole count.
struct HeadValues<'a> {
    head: &'a Head,
    name: &'a str,
    slots: &'a RoaringBitmap,
    /// Values of this turn.
    turn: std::vec::IntoIter<(SmolStr, u64)>,
    /// Last value of the last turn.
    last: Option<SmolStr>,
    is_done: bool,
}

impl<'a> HeadValues<'a> {
    fn new(head: &'a Head, name: &'a str, slots: &'a RoaringBitmap) -> HeadValues<'a> {
        let (turn, last) = (Vec::new().into_iter(), None);
        HeadValues { head, name, slots, turn, last, is_done: slots.is_empty() }
    }
}

impl Iterator for HeadValues<'_> {
    type Item = (SmolStr, u64);

    fn next(&mut self) -> Option<(SmolStr, u64)> {
        let next = self.turn.next();
        if next.is_some() || self.is_done {
            return next;
        }
        let counted = |(value, ids): (&SmolStr, &Ids)| (value.clone(), ids.count_among(self.slots));
        let index = self.head.index_read();
        let values = index.values_after(self.name, self.last.as_deref());
        let turn: Vec<(SmolStr, u64)> = values.take(VALUES_PER_TURN).map(counted).collect();
        drop(index);
        self.is_done = turn.len() < VALUES_PER_TURN;
        self.last = turn.last().map(|(value, _)| value.clone());
        self.turn = turn.into_iter();
        self.turn.next()
    }
}

/// Returns the values by label of some series.
fn tables_of(series: &[(u32, Labels)]) -> Vec<(Box<str>, Arc<LabelValues>)> {
    let mut names: BTreeMap<&str, BTreeMap<&str, RoaringBitmap>> = BTreeMap::new();
    for (id, labels) in series {
        for (name, value) in labels.iter() {
            names.entry(name).or_default().entry(value).or_default().insert(*id);
        }
    }
    let table = |values: BTreeMap<&str, RoaringBitmap>| {
        values.into_iter().map(|(value, ids)| (SmolStr::new(value), Ids::of(ids))).collect()
    };
    names.into_iter().map(|(name, values)| (name.into(), table(values))).collect()
}

/// Counts the series of a day by label, and those of the day before for the listed entries.
fn count(
    head: &Head,
    of_day: &DaySeries,
    before: &DaySeries,
    query: &CardinalityQuery,
    watch: &mut Checkpoint,
) -> Result<DayCardinality, BudgetError> {
    let limit = query.limit;
    let (mut metrics, mut focused) = (Largest::new(limit), Largest::new(limit));
    let (mut labels, mut values) = (Largest::new(limit), Largest::new(limit));
    let mut pairs = Largest::new(limit);
    let mut label_pairs = 0;
    for name in of_day.names(head) {
        let (name, mut value_count, mut series) = (&*name, 0, 0);
        let is_focused = query.label.as_deref() == Some(name);
        of_day.each_value(head, name, watch, |value, count| {
            value_count += 1;
            series += count;
            if name == METRIC_NAME {
                metrics.offer(count, || value.to_owned());
            }
            if is_focused {
                focused.offer(count, || value.to_owned());
            }
            pairs.offer(count, || (name.to_owned(), value.to_owned()));
        })?;
        if value_count > 0 {
            label_pairs += value_count;
            labels.offer(series, || name.to_owned());
            values.offer(value_count, || name.to_owned());
        }
    }
    let of_values = |list: Largest<String>, label: &str| {
        let change = |(name, count): (String, u64)| {
            let before = before.of_pair(head, label, &name);
            CountChange { name, count, before }
        };
        list.into_sorted().into_iter().map(change).collect()
    };
    let of_pair = |((label, value), count): ((String, String), u64)| {
        let before = before.of_pair(head, &label, &value);
        PairChange { label, value, count, before }
    };
    Ok(DayCardinality {
        start_ms: 0,
        end_ms: 0,
        series: of_day.series(),
        series_before: before.series(),
        label_pairs,
        series_by_metric: of_values(metrics, METRIC_NAME),
        series_by_value: of_values(focused, query.label.as_deref().unwrap_or_default()),
        series_by_pair: pairs.into_sorted().into_iter().map(of_pair).collect(),
        series_by_label: of_labels(labels, head, before, watch, |_, series| series)?,
        values_by_label: of_labels(values, head, before, watch, |values, _| values)?,
    })
}

/// Adds the counts of the day before to those of labels, by numbers of values and of series.
fn of_labels(
    list: Largest<String>,
    head: &Head,
    before: &DaySeries,
    watch: &mut Checkpoint,
    choose: impl Fn(u64, u64) -> u64,
) -> Result<Vec<CountChange>, BudgetError> {
    let mut changes = Vec::new();
    for (name, count) in list.into_sorted() {
        let (mut values, mut series) = (0, 0);
        before.each_value(head, &name, watch, |_, count| {
            values += 1;
            series += count;
        })?;
        changes.push(CountChange { name, count, before: choose(values, series) });
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreOptions;
    use crate::head::HeadLimits;
    use crate::head::series::HeadSeries;
    use crate::sizes::Sizes;

    #[test]
    fn series_are_created_during_a_count() {
        let head = Head::new(HeadLimits::new(&StoreOptions::default()), None, &Sizes::default());
        let create = |value: &str| {
            let labels = Labels::from_pairs([("pod", value)]);
            head.file([(head.create(HeadSeries::new(labels.clone())), labels)]);
        };
        let values: Vec<String> =
            (0..2 * VALUES_PER_TURN).map(|number| format!("p{number:04}")).collect();
        values.iter().for_each(|value| create(value));
        let slots = (0..=values.len() as u32).collect();
        let day = DaySeries { head: slots, ..DaySeries::default() };
        let (mut visited, mut watch) = (Vec::new(), Checkpoint::new(&Budget::unlimited()));
        day.each_value(&head, "pod", &mut watch, |value, count| {
            // This would wait forever for a lock that the count holds.
            if visited.is_empty() {
                create("q");
            }
            visited.push((value.to_owned(), count));
        })
        .unwrap();
        let expected = values.iter().map(String::as_str).chain(["q"]);
        assert_eq!(visited, expected.map(|value| (value.to_owned(), 1)).collect::<Vec<_>>());
    }
}
