//! Grouping of series.

use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use model::checkpoint::sort_by;
use model::labels::push_packed;
use model::{Checkpoint, Labels, METRIC_NAME, Reservation, prefetch};

use crate::error::QueryError;
use crate::exec::aggregate::leaves::Leaves;
use crate::exec::operator::{Context, LABELS_AHEAD, SeriesMeta, VectorOperator};
use crate::plan::Aggregation;

/// Bytes of a series: its entry in `order`, and up to three words while sorting and, later, in the
/// leaves.
const SERIES_BYTES: usize = 4 * size_of::<u32>();
/// Bytes of a group without its labels: its entries in tables that may be half full.
const GROUP_BYTES: usize = 2 * (size_of::<(Vec<u8>, u32)>() + size_of::<SeriesMeta>() + 8);

/// Bytes of labels in addition to their own.
const LABELS_BYTES: usize = 2 * size_of::<usize>();

/// Order of the series of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupOrder {
    /// By labels, regardless of other loaded series.
    ByLabels,
    /// Any, for results that do not depend on the order.
    Any,
}

/// Groups of an aggregation.
///
/// Shape: group `g` owns the rows `starts[g]..starts[g + 1]` of `order`.
/// Invariant: groups are in the order of their first series.
#[derive(Debug)]
pub(super) struct Groups {
    /// Series, sorted by group.
    pub(super) order: Vec<u32>,
    starts: Vec<u32>,
    /// Order of the series of a group.
    pub(super) group_order: GroupOrder,
    /// True if the query groups all series into one.
    pub(super) is_all: bool,
    /// Labels of each group, and whether its name is dropped.
    pub(super) metas: Vec<SeriesMeta>,
    /// Set by the first aggregation that needs leaves.
    leaves: OnceLock<Leaves>,
}

/// Groups that later queries may share, charged to the budget of the current query.
#[derive(Debug)]
pub(super) struct ChargedGroups {
    groups: Arc<Groups>,
    _reservation: Reservation,
}

impl Deref for ChargedGroups {
    type Target = Groups;

    fn deref(&self) -> &Groups {
        &self.groups
    }
}

impl Groups {
    /// Groups the series of `input`, or finds the groups of an earlier query. Ignores the label
    /// `ignored`, which `count_values` sets.
    ///
    /// Errors: the limits of the query.
    pub(super) fn of(
        ctx: &Context,
        input: &dyn VectorOperator,
        aggregation: &Aggregation,
        group_order: GroupOrder,
        ignored: Option<&str>,
    ) -> Result<ChargedGroups, QueryError> {
        let Some(derived) = input.derived() else {
            return Groups::charged(ctx, input, aggregation, group_order, ignored);
        };
        let key = key_of(aggregation, group_order, ignored);
        if let Some(groups) = derived.find::<Groups>(&key) {
            let reservation = Reservation::new(&ctx.budget, groups.bytes() as u64)?;
            return Ok(ChargedGroups { groups, _reservation: reservation });
        }
        let found = Groups::charged(ctx, input, aggregation, group_order, ignored)?;
        derived.keep(&key, &found.groups, found.bytes());
        Ok(found)
    }

    fn charged(
        ctx: &Context,
        input: &dyn VectorOperator,
        aggregation: &Aggregation,
        group_order: GroupOrder,
        ignored: Option<&str>,
    ) -> Result<ChargedGroups, QueryError> {
        let (mut groups, reservation) =
            Groups::build(ctx, input.series(), aggregation, group_order, ignored)?;
        if group_order == GroupOrder::ByLabels {
            groups.sort(ctx, input)?;
        }
        Ok(ChargedGroups { groups: Arc::new(groups), _reservation: reservation })
    }

    /// Returns the division of the groups of `input`, the operator that was grouped, into leaves.
    ///
    /// Errors: the limits of the query.
    pub(super) fn leaves(
        &self,
        ctx: &Context,
        input: &dyn VectorOperator,
    ) -> Result<&Leaves, QueryError> {
        if let Some(leaves) = self.leaves.get() {
            return Ok(leaves);
        }
        let leaves = match self.group_order {
            GroupOrder::ByLabels => Leaves::new(ctx, input.series(), self)?,
            GroupOrder::Any => Leaves::by_place(self),
        };
        Ok(self.leaves.get_or_init(|| leaves))
    }

    /// Returns the size in memory, with leaves.
    fn bytes(&self) -> usize {
        let labels = |meta: &SeriesMeta| LABELS_BYTES + meta.labels.as_bytes().len();
        let words = self.order.len() + self.starts.len();
        size_of::<Groups>()
            + words * size_of::<u32>()
            + size_of_val(&self.metas[..])
            + self.metas.iter().map(labels).sum::<usize>()
            + Leaves::bytes_max(self)
    }

    fn build(
        ctx: &Context,
        series: &[SeriesMeta],
        aggregation: &Aggregation,
        group_order: GroupOrder,
        ignored: Option<&str>,
    ) -> Result<(Groups, Reservation), QueryError> {
        let mut reservation = Reservation::new(&ctx.budget, (series.len() * SERIES_BYTES) as u64)?;
        let mut checkpoint = Checkpoint::new(&ctx.budget);
        let mut places: HashMap<Vec<u8>, u32, RandomState> = HashMap::default();
        let mut metas: Vec<SeriesMeta> = Vec::new();
        let (mut key, mut key_before, mut group_before) = (Vec::new(), Vec::new(), None);
        let mut group_of = Vec::with_capacity(series.len());
        let mut sizes: Vec<u32> = Vec::new();
        for (index, meta) in series.iter().enumerate() {
            if let Some(ahead) = series.get(index + LABELS_AHEAD) {
                prefetch(ahead.labels.as_bytes());
            }
            checkpoint.work(meta.labels.as_bytes().len())?;
            key.clear();
            push_key(&mut key, &meta.labels, aggregation, ignored);
            let known = match group_before {
                // Consecutive series are often in one group.
                Some(before) if key == key_before => Some(before),
                _ => places.get(&key).copied(),
            };
            let group = match known {
                Some(group) => group,
                None => {
                    reservation.grow((GROUP_BYTES + 2 * key.len()) as u64)?;
                    let labels = Labels::from_checked_bytes(&key);
                    metas.push(SeriesMeta { labels, drop_name: false });
                    sizes.push(0);
                    places.insert(key.clone(), metas.len() as u32 - 1);
                    metas.len() as u32 - 1
                }
            };
            std::mem::swap(&mut key, &mut key_before);
            group_before = Some(group);
            metas[group as usize].drop_name |= meta.drop_name;
            sizes[group as usize] += 1;
            group_of.push(group);
        }
        metas.shrink_to_fit();
        let mut starts = Vec::with_capacity(sizes.len() + 1);
        starts.push(0u32);
        for size in &sizes {
            starts.push(starts[starts.len() - 1] + size);
        }
        let mut next = starts.clone();
        let mut order = vec![0u32; series.len()];
        for (index, group) in group_of.iter().enumerate() {
            let place = &mut next[*group as usize];
            order[*place as usize] = index as u32;
            *place += 1;
        }
        let is_all = !aggregation.is_without && aggregation.grouping.is_empty();
        let leaves = OnceLock::new();
        Ok((Groups { order, starts, group_order, is_all, metas, leaves }, reservation))
    }

    /// Sorts the series of each group by labels; most operators already return them sorted.
    fn sort(&mut self, ctx: &Context, input: &dyn VectorOperator) -> Result<(), QueryError> {
        if input.is_sorted() {
            return Ok(());
        }
        let series = input.series();
        let mut checkpoint = Checkpoint::new(&ctx.budget);
        let labels = |index: &u32| &series[*index as usize].labels;
        for group in 0..self.metas.len() {
            let rows = self.rows(group);
            let in_order = |row: usize| {
                if let Some(ahead) = self.order.get(row + LABELS_AHEAD) {
                    prefetch(labels(ahead).as_bytes());
                }
                labels(&self.order[row - 1]) <= labels(&self.order[row])
            };
            if rows.clone().skip(1).all(in_order) {
                continue;
            }
            let weight = |index: &u32| labels(index).as_bytes().len();
            let unsorted = self.order[rows.clone()].to_vec();
            let sorted =
                sort_by(unsorted, &mut checkpoint, weight, |a, b| labels(a).cmp(labels(b)))?;
            self.order[rows].copy_from_slice(&sorted);
        }
        Ok(())
    }

    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.metas.len()
    }

    /// Returns the rows of a group.
    pub(super) fn rows(&self, group: usize) -> Range<usize> {
        self.starts[group] as usize..self.starts[group + 1] as usize
    }

    /// Returns the group of a row.
    pub(super) fn group_of_row(&self, row: usize) -> usize {
        self.starts.partition_point(|start| *start as usize <= row) - 1
    }
}

/// Returns the key of groups among the values derived from their series.
fn key_of(aggregation: &Aggregation, group_order: GroupOrder, ignored: Option<&str>) -> Vec<u8> {
    let mut key = vec![group_order as u8, u8::from(aggregation.is_without)];
    push_packed(&mut key, b"", ignored.unwrap_or_default().as_bytes());
    for label in &aggregation.grouping {
        push_packed(&mut key, b"", label.as_bytes());
    }
    key
}

/// Writes the packed labels of a series' group.
///
/// Source: `generateGroupingLabels` of Prometheus.
fn push_key(key: &mut Vec<u8>, labels: &Labels, aggregation: &Aggregation, ignored: Option<&str>) {
    let is_ignored = |name: &[u8]| ignored.is_some_and(|ignored| ignored.as_bytes() == name);
    let mut grouping = aggregation.grouping.iter().map(String::as_bytes).peekable();
    for (name, value) in labels.iter_bytes() {
        // Both are sorted by name.
        while grouping.next_if(|label| *label < name).is_some() {}
        let is_named = grouping.peek() == Some(&name);
        if !is_named && !aggregation.is_without {
            if grouping.peek().is_none() {
                return;
            }
            continue;
        }
        let is_kept = !aggregation.is_without || !is_named && name != METRIC_NAME.as_bytes();
        if is_kept && !is_ignored(name) {
            push_packed(key, name, value);
        }
    }
}
