//! Cardinality of the head: the metrics, labels and values with the most series. That of a day is in
//! [`crate::read::cardinality`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use model::{BudgetError, Checkpoint, Labels, METRIC_NAME, Matcher, TimeRange};
use roaring::RoaringBitmap;

use crate::head::Head;
use crate::head::series::NONE;
use crate::index::{LabelIndex, is_restricted};
use crate::window::PartitionId;

/// Counts by name.
pub type Counted = Vec<(String, u64)>;

/// Cardinality of the head; each list is in descending order.
///
/// Source: `PostingsStats` of Prometheus, as `/api/v1/status/tsdb` shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// Number of series.
    pub series: u64,
    /// Number of pairs of a label and a value.
    pub label_pairs: u64,
    /// Open windows, summed over series.
    pub chunks: u64,
    /// The earliest and the latest time of a sample, ms since the epoch; `None` without any.
    pub times_ms: Option<TimeRange>,
    /// Number of series by metric.
    pub series_by_metric: Counted,
    /// Number of values by label.
    pub values_by_label: Counted,
    /// Bytes of the name and values in all series by label.
    pub bytes_by_label: Counted,
    /// Number of series by label pair, written `name=value`.
    pub series_by_pair: Counted,
}

impl Head {
    /// Counts the series that pass all matchers, with at most `limit` entries in each list.
    ///
    /// Errors: the query exceeds its budget.
    pub(crate) fn cardinality(
        &self,
        matchers: &[Matcher],
        limit: usize,
        watch: &mut Checkpoint,
    ) -> Result<Cardinality, BudgetError> {
        let index = self.index_read();
        let among = match matchers {
            [] => None,
            matchers => Some(index.select(matchers, watch)?),
        };
        let mut found = by_label(&index, among.as_ref(), limit, watch)?;
        drop(index);
        self.for_each(|slot, series| {
            if among.as_ref().is_some_and(|among| !among.contains(slot)) {
                return;
            }
            found.series += 1;
            for window in &series.windows {
                found.chunks += 1;
                let times = TimeRange::new(window.min_ms, window.max_ms);
                found.times_ms = Some(found.times_ms.map_or(times, |all| all.join(times)));
            }
        });
        Ok(found)
    }

    /// Returns slots and labels of the series that pass all matchers, have unsealed samples of a day,
    /// and are not known to be registered in its partition.
    ///
    /// Errors: the query exceeds its budget.
    pub(crate) fn unregistered(
        &self,
        day: PartitionId,
        matchers: &[Matcher],
        watch: &mut Checkpoint,
    ) -> Result<Vec<(u32, Labels)>, BudgetError> {
        let among = match is_restricted(matchers) {
            true => Some(self.index_read().select(matchers, watch)?),
            false => None,
        };
        let mut found = Vec::new();
        self.for_each(|slot, series| {
            let is_registered = series.partition == day && series.id_in_partition != NONE;
            if is_registered || among.as_ref().is_some_and(|among| !among.contains(slot)) {
                return;
            }
            if series.windows.iter().any(|open| open.window.partition() == day) {
                found.push((slot, series.labels.clone()));
            }
        });
        Ok(found)
    }
}

/// Counts the series of an index by label; with `among`, only these.
fn by_label(
    index: &LabelIndex,
    among: Option<&RoaringBitmap>,
    limit: usize,
    watch: &mut Checkpoint,
) -> Result<Cardinality, BudgetError> {
    let (mut metrics, mut pairs) = (Largest::new(limit), Largest::new(limit));
    let (mut values, mut bytes) = (Largest::new(limit), Largest::new(limit));
    let mut found = Cardinality::default();
    for name in index.names() {
        let (mut value_count, mut label_bytes) = (0, 0);
        for (value, ids) in index.values(name) {
            watch.work(value.len())?;
            let series = among.map_or(ids.len(), |among| ids.count_among(among));
            if series == 0 {
                continue;
            }
            value_count += 1;
            // The packed form: both texts, and a byte for the length of each.
            label_bytes += series * (name.len() + value.len() + 2) as u64;
            if name == METRIC_NAME {
                metrics.offer(series, || value.to_string());
            }
            pairs.offer(series, || format!("{name}={value}"));
        }
        if value_count == 0 {
            continue;
        }
        found.label_pairs += value_count;
        values.offer(value_count, || name.to_owned());
        bytes.offer(label_bytes, || name.to_owned());
    }
    found.series_by_metric = metrics.into_sorted();
    found.values_by_label = values.into_sorted();
    found.bytes_by_label = bytes.into_sorted();
    found.series_by_pair = pairs.into_sorted();
    Ok(found)
}

/// The `limit` largest of the offered counts; equal counts are in the order of the offers.
pub(crate) struct Largest<N> {
    limit: usize,
    /// Heap with the smallest count on top.
    kept: BinaryHeap<Reverse<(u64, Reverse<u64>, N)>>,
    offered: u64,
}

impl<N: Ord> Largest<N> {
    pub(crate) fn new(limit: usize) -> Largest<N> {
        Largest { limit, kept: BinaryHeap::new(), offered: 0 }
    }

    pub(crate) fn offer(&mut self, count: u64, name: impl FnOnce() -> N) {
        self.offered += 1;
        let is_full = self.kept.len() >= self.limit;
        let is_smaller = |least: &Reverse<(u64, Reverse<u64>, N)>| count <= least.0.0;
        if self.limit == 0 || is_full && self.kept.peek().is_some_and(is_smaller) {
            return;
        }
        if is_full {
            self.kept.pop();
        }
        self.kept.push(Reverse((count, Reverse(self.offered), name())));
    }

    pub(crate) fn into_sorted(self) -> Vec<(N, u64)> {
        let sorted = self.kept.into_sorted_vec().into_iter();
        sorted.map(|Reverse((count, _, name))| (name, count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::{Budget, Labels};

    use super::*;

    #[test]
    fn the_largest_come_first_and_equal_ones_in_the_order_of_names() {
        let mut index = LabelIndex::default();
        let rows = [("a", "1", "x"), ("b", "1", "x"), ("b", "2", "x"), ("c", "3", "y")];
        for (id, (metric, job, zone)) in rows.into_iter().enumerate() {
            let labels = Labels::from_pairs([("__name__", metric), ("job", job), ("zone", zone)]);
            index.insert(id as u32, &labels);
        }
        let check = |limit: usize, expected: [&[(&str, u64)]; 4]| {
            let mut watch = Checkpoint::new(&Budget::unlimited());
            let found = by_label(&index, None, limit, &mut watch).unwrap();
            let lists = [
                &found.series_by_metric,
                &found.values_by_label,
                &found.bytes_by_label,
                &found.series_by_pair,
            ];
            let plain = |list: &Counted| -> Vec<(String, u64)> { list.clone() };
            for (list, expected) in lists.into_iter().zip(expected) {
                let expected: Vec<_> =
                    expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
                assert_eq!(plain(list), expected, "{limit}");
            }
            assert_eq!(found.label_pairs, 8);
        };
        check(
            9,
            [
                &[("b", 2), ("a", 1), ("c", 1)],
                &[("__name__", 3), ("job", 3), ("zone", 2)],
                &[("__name__", 44), ("zone", 28), ("job", 24)],
                &[
                    ("zone=x", 3),
                    ("__name__=b", 2),
                    ("job=1", 2),
                    ("__name__=a", 1),
                    ("__name__=c", 1),
                    ("job=2", 1),
                    ("job=3", 1),
                    ("zone=y", 1),
                ],
            ],
        );
        check(1, [&[("b", 2)], &[("__name__", 3)], &[("__name__", 44)], &[("zone=x", 3)]]);
        check(0, [&[], &[], &[], &[]]);
    }
}
