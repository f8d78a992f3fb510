//! Exemplars accepted by a commit, judged by the ring and by earlier writes of the same commit.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;
use model::{Batch, Exemplar, Labels};

use super::ring::Ring;
use super::{AcceptedExemplar, ExemplarRing};
use crate::index::KnownLabels;
use crate::outcome::{AppendOutcome, REJECTIONS_MAX};
use crate::window::TimeBounds;

/// Accepted exemplars that are not durable yet.
#[derive(Default)]
pub(crate) struct ExemplarStage {
    taken: Vec<AcceptedExemplar>,
    /// Series as the writes so far have changed them.
    series: HashMap<Labels, Staged, RandomState>,
    /// Counts the writes of the commit.
    write_count: usize,
}

/// The exemplars of a series after the writes so far.
struct Staged {
    /// The newest exemplar, those of the current write included.
    newest: Option<Exemplar>,
    /// The newest exemplar before the current write.
    newest_before: Option<Exemplar>,
    /// Index of the current write.
    write_index: usize,
    /// Times of staged exemplars.
    times_ms: BTreeSet<i64>,
}

/// Decision on an exemplar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Take,
    Duplicate,
    OutOfOrder,
}

impl ExemplarStage {
    /// Returns whether no exemplar is staged.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    pub(super) fn exemplars(&self) -> &[AcceptedExemplar] {
        &self.taken
    }

    /// Empties the stage and returns its exemplars.
    pub(super) fn take(&mut self) -> Vec<AcceptedExemplar> {
        self.clear();
        std::mem::take(&mut self.taken)
    }

    /// Begins a commit.
    pub(crate) fn begin(&mut self) {
        self.clear();
        self.taken.clear();
    }

    fn clear(&mut self) {
        self.series.clear();
        self.write_count = 0;
    }

    /// Decides on the exemplars of a write, after its samples: their series must be in the head.
    ///
    /// An exemplar that is out of order by the state before the write is refused and reported. One
    /// overtaken within the same write is ignored. Prometheus does the same, as it judges once
    /// while reading a request and once while committing it.
    /// Source: `AppendExemplar` and `commitExemplars` in `tsdb/head_append.go` of Prometheus.
    pub(crate) fn decide(
        &mut self,
        exemplars: &ExemplarRing,
        head: &impl KnownLabels,
        bounds: TimeBounds,
        batch: &Batch,
        outcome: &mut AppendOutcome,
    ) {
        if batch.exemplars.is_empty() {
            return;
        }
        let ring = exemplars.lock();
        let counts = &mut outcome.exemplars;
        if !ring.is_enabled() {
            counts.ignored += batch.exemplars.len();
            return;
        }
        self.write_count += 1;
        for brought in &batch.exemplars {
            let labels = head.labels_of(batch.labels_bytes(brought.series_index as usize));
            let Some(labels) = labels.filter(|_| brought.timestamp_ms <= bounds.max_ms) else {
                counts.dropped += 1;
                continue;
            };
            let exemplar = Exemplar {
                labels: brought.labels.clone(),
                timestamp_ms: brought.timestamp_ms,
                value: brought.value,
            };
            let staged = self.staged(&ring, &labels);
            let window_ms = bounds.out_of_order_window_ms;
            match judge(staged.newest_before.as_ref(), &exemplar, window_ms) {
                Verdict::Duplicate => counts.ignored += 1,
                Verdict::OutOfOrder => {
                    counts.out_of_order += 1;
                    if counts.out_of_order_series.len() < REJECTIONS_MAX {
                        counts.out_of_order_series.push(labels);
                    }
                }
                Verdict::Take if staged.takes(&ring, &labels, &exemplar, window_ms) => {
                    staged.add(&exemplar);
                    self.taken.push((labels, exemplar));
                    counts.accepted += 1;
                }
                Verdict::Take => counts.ignored += 1,
            }
        }
    }

    fn staged(&mut self, ring: &Ring, labels: &Labels) -> &mut Staged {
        let write_index = self.write_count;
        let staged = self.series.entry(labels.clone()).or_insert_with(|| Staged {
            newest: ring.newest(labels).cloned(),
            newest_before: None,
            write_index: 0,
            times_ms: BTreeSet::new(),
        });
        if staged.write_index != write_index {
            staged.write_index = write_index;
            staged.newest_before = staged.newest.clone();
        }
        staged
    }
}

impl Staged {
    /// Returns whether an exemplar is accepted by the current state. An out-of-order one whose time
    /// is held counts as a duplicate.
    fn takes(&self, ring: &Ring, labels: &Labels, e: &Exemplar, window_ms: Option<i64>) -> bool {
        let is_late = self.newest.as_ref().is_some_and(|n| e.timestamp_ms < n.timestamp_ms);
        let is_held =
            || self.times_ms.contains(&e.timestamp_ms) || ring.holds(labels, e.timestamp_ms);
        judge(self.newest.as_ref(), e, window_ms) == Verdict::Take && !(is_late && is_held())
    }

    fn add(&mut self, exemplar: &Exemplar) {
        self.times_ms.insert(exemplar.timestamp_ms);
        if self.newest.as_ref().is_none_or(|n| n.timestamp_ms <= exemplar.timestamp_ms) {
            self.newest = Some(exemplar.clone());
        }
    }
}

/// Judges an exemplar by the newest of its series. `window_ms` is the maximum age relative to that;
/// `None` for no limit.
///
/// Source: `validateExemplar` in `tsdb/exemplar.go` of Prometheus.
fn judge(newest: Option<&Exemplar>, exemplar: &Exemplar, window_ms: Option<i64>) -> Verdict {
    let Some(newest) = newest else { return Verdict::Take };
    if newest.is_same(exemplar) {
        return Verdict::Duplicate;
    }
    let (time_ms, newest_ms) = (exemplar.timestamp_ms, newest.timestamp_ms);
    let is_too_late = time_ms < newest_ms
        && window_ms.is_some_and(|window_ms| time_ms <= newest_ms.saturating_sub(window_ms));
    if is_too_late || (time_ms == newest_ms && exemplar.is_before_at_same_time(newest)) {
        return Verdict::OutOfOrder;
    }
    Verdict::Take
}
