//! Grouping of series.

use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use model::checkpoint::sort_by;
use model::labels::push_packed;
use model::{Checkpoint, Labels, METRIC_NAME, Reservation, prefetch};

use crate::error::QueryError;
use crate::exec::operator::{Context, LABELS_AHEAD, SeriesMeta, VectorOperator};
use crate::plan::Aggregation;

/// Bytes of a series: its entry in `order`, and three copies of it during sorting.
const SERIES_BYTES: usize = 4 * size_of::<u32>();
/// Bytes of a group without its labels: its entries in tables that may be half full.
const GROUP_BYTES: usize = 2 * (size_of::<(Vec<u8>, u32)>() + size_of::<SeriesMeta>() + 8);

/// Groups of an aggregation.
///
/// Shape: group `g` owns the rows `starts[g]..starts[g + 1]` of `order`.
/// Invariant: groups are in the order of their first series. In a group, series are sorted by
/// labels, regardless of other loaded series, unless created by [`Groups::unsorted`].
#[derive(Debug)]
pub(super) struct Groups {
    /// Series, sorted by group.
    pub(super) order: Vec<u32>,
    starts: Vec<u32>,
    /// True if the query groups all series into one.
    pub(super) is_all: bool,
    /// Labels of each group, and whether its name is dropped.
    pub(super) metas: Vec<SeriesMeta>,
    _reservation: Reservation,
}

impl Groups {
    /// Groups the series of `input`.
    ///
    /// Errors: the limits of the query.
    pub(super) fn new(
        ctx: &Context,
        input: &dyn VectorOperator,
        aggregation: &Aggregation,
    ) -> Result<Groups, QueryError> {
        Groups::build(ctx, input.series(), aggregation, None)?.sorted(ctx, input)
    }

    /// Groups `series` without sorting inside groups, for results that do not depend on the order.
    ///
    /// Errors: the limits of the query.
    pub(super) fn unsorted(
        ctx: &Context,
        series: &[SeriesMeta],
        aggregation: &Aggregation,
    ) -> Result<Groups, QueryError> {
        Groups::build(ctx, series, aggregation, None)
    }

    /// Groups the series of `input`, ignoring `label`, which `count_values` sets.
    ///
    /// Errors: the limits of the query.
    pub(super) fn without_label(
        ctx: &Context,
        input: &dyn VectorOperator,
        aggregation: &Aggregation,
        label: &str,
    ) -> Result<Groups, QueryError> {
        Groups::build(ctx, input.series(), aggregation, Some(label))?.sorted(ctx, input)
    }

    fn build(
        ctx: &Context,
        series: &[SeriesMeta],
        aggregation: &Aggregation,
        ignored: Option<&str>,
    ) -> Result<Groups, QueryError> {
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
        let mut starts = vec![0u32];
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
        Ok(Groups { order, starts, is_all, metas, _reservation: reservation })
    }

    /// Sorts the series of each group by labels; most operators already return them sorted.
    fn sorted(mut self, ctx: &Context, input: &dyn VectorOperator) -> Result<Groups, QueryError> {
        if input.is_sorted() {
            return Ok(self);
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
        Ok(self)
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
