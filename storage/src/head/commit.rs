//! The log: group commit, led by whoever finds no leader, and replay.
//!
//! ```text
//! take everyone who waits → decide sample by sample → one record → durable → apply → answer
//! ```
//!
//! Decisions are made on the state that all earlier records have led to, and only what is
//! accepted is logged. So applying a record is blind, and replay, which does nothing else,
//! ends in the same state. Nothing is applied before it is durable; after a commit that
//! failed, the store takes no more writes until it is opened again.
//!
//! A log epoch is the log between two seals. A window's samples of an epoch are sealed all
//! together ([`crate::seal`]), and what is sealed is skipped in replay.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use model::{Batch, Labels};
use tokio::sync::oneshot;

use super::Head;
use super::record::Columns;
use super::series::{HeadSeries, Scratch};
use crate::error::StoreError;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};
use crate::outcome::{AppendOutcome, RejectReason};
use crate::window::window_of;

/// Samples from which a record takes no further writes in.
const RECORD_SAMPLES: usize = 256 << 10;
/// How far behind the newest sample Prometheus' head takes a sample in order.
/// Source: half of the chunk range, `appendableMinValidTime` in `tsdb/head_append.go`.
const IN_ORDER_SPAN_MS: i64 = 60 * 60 * 1000;

/// A write that waits for its commit.
pub(crate) struct Pending {
    batch: Batch,
    /// The slot of each series, where there was one. Series may have been forgotten since, so
    /// it counts only if its labels are still the same.
    slots: Vec<Option<u32>>,
    answer: oneshot::Sender<Result<AppendOutcome, StoreError>>,
}

impl Pending {
    /// A write, its series looked up already, outside of the one task that commits.
    pub(crate) fn new(
        head: &Head,
        batch: Batch,
        answer: oneshot::Sender<Result<AppendOutcome, StoreError>>,
    ) -> Pending {
        let slots = (0..batch.series.len()).map(|i| head.find(batch.labels_bytes(i))).collect();
        Pending { batch, slots, answer }
    }

    /// How many samples wait.
    pub(crate) fn sample_count(&self) -> usize {
        self.batch.sample_count()
    }
}

/// Who waits for a commit.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Pending>,
    /// Samples that wait or are being committed.
    samples: usize,
    is_led: bool,
    failed: Option<StoreError>,
}

impl Queue {
    /// Lines up a write; whether the caller has to see to it that someone leads.
    ///
    /// Errors: the queue is full, or an earlier commit has failed.
    pub(crate) fn push(&self, pending: Pending, limit: usize) -> Result<bool, StoreError> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let waiting = state.samples + pending.batch.sample_count();
        if state.samples > 0 && waiting > limit {
            return Err(StoreError::Overloaded { waiting, limit });
        }
        state.samples = waiting;
        state.waiting.push_back(pending);
        Ok(!std::mem::replace(&mut state.is_led, true))
    }

    /// Those who share the next record; none, and no leader any more, if nobody waits.
    pub(crate) fn take(&self) -> Vec<Pending> {
        let mut state = self.lock();
        let mut group = Vec::new();
        let mut samples = 0;
        while samples < RECORD_SAMPLES
            && let Some(pending) = state.waiting.pop_front()
        {
            samples += pending.batch.sample_count();
            group.push(pending);
        }
        state.is_led = !group.is_empty();
        group
    }

    /// Gives the room of a committed group back.
    pub(crate) fn release(&self, samples: usize) {
        let mut state = self.lock();
        state.samples = state.samples.saturating_sub(samples);
    }

    /// Refuses everyone who waits, and every later write.
    pub(crate) fn fail(&self, error: &StoreError) {
        let waiting = {
            let mut state = self.lock();
            state.failed.get_or_insert_with(|| error.clone());
            state.samples = 0;
            state.is_led = false;
            std::mem::take(&mut state.waiting)
        };
        for pending in waiting {
            let _ = pending.answer.send(Err(error.clone()));
        }
    }

    /// Refuses later writes; those who wait are still committed.
    pub(crate) fn refuse(&self, error: &StoreError) {
        self.lock().failed.get_or_insert_with(|| error.clone());
    }

    /// Whether someone commits.
    pub(crate) fn is_led(&self) -> bool {
        self.lock().is_led
    }

    /// Samples that wait or are being committed.
    pub(crate) fn sample_count(&self) -> usize {
        self.lock().samples
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What times are taken at the moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The earliest time within the retention.
    pub(crate) min_ms: i64,
    /// The latest time.
    pub(crate) max_ms: i64,
    /// How far behind the newest sample one may lie; `None` for any distance.
    pub(crate) out_of_order_window_ms: Option<i64>,
}

/// What a log epoch holds.
#[derive(Debug, Default, Clone)]
pub(crate) struct EpochInfo {
    /// Windows that its samples fall into.
    pub(crate) windows: BTreeSet<i64>,
    /// Records, numbered from 0.
    pub(crate) record_count: u64,
    /// Bytes of the records.
    pub(crate) bytes: u64,
    /// Series that it has defined.
    pub(crate) ref_count: u32,
}

/// The one writer of log and head. Whoever holds it commits.
pub(crate) struct Log {
    /// The epoch that records are written in.
    pub(crate) epoch: u32,
    /// Epochs that are not sealed whole, the current one included once it has a record.
    pub(crate) epochs: BTreeMap<u32, EpochInfo>,
    /// Time of the newest sample of all.
    pub(crate) newest_ms: i64,
    /// When the last record was written.
    pub(crate) committed_at: Option<Instant>,
    /// Why the last commit failed.
    failed: Option<StoreError>,
    scratch: Scratch,
    columns: Columns,
    /// The slot of each run of `columns`.
    slots: Vec<u32>,
    /// Series that the record creates.
    created: Vec<(u32, Labels)>,
}

/// What a commit has done, for the counters.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Done {
    /// Accepted samples.
    pub(crate) samples: usize,
    /// Samples that were held already.
    pub(crate) duplicates: usize,
    /// Refused samples.
    pub(crate) rejected: usize,
    /// Accepted samples that were older than the newest of their series.
    pub(crate) out_of_order: usize,
    /// Bytes of the log record.
    pub(crate) log_bytes: usize,
    /// Bytes of the log that are not sealed yet.
    pub(crate) log_bytes_open: u64,
    /// Time of the newest sample of all.
    pub(crate) newest_ms: i64,
}

impl Log {
    /// A log that writes in an epoch that has no record yet.
    pub(crate) fn new(epoch: u32) -> Log {
        Log {
            epoch,
            epochs: BTreeMap::new(),
            newest_ms: i64::MIN,
            committed_at: None,
            failed: None,
            scratch: Scratch::new(),
            columns: Columns::default(),
            slots: Vec::new(),
            created: Vec::new(),
        }
    }

    /// Bytes of all epochs that are not sealed whole.
    pub(crate) fn bytes(&self) -> u64 {
        self.epochs.values().map(|info| info.bytes).sum()
    }

    /// Why the last commit failed, if it did.
    pub(crate) fn failed(&self) -> Option<StoreError> {
        self.failed.clone()
    }

    /// Commits what waits in a group; then tells `done`, with nothing where it has failed, and
    /// answers.
    pub(crate) async fn commit(
        &mut self,
        lsm: &Lsm,
        head: &Head,
        bounds: Bounds,
        group: Vec<Pending>,
        done: impl FnOnce(Option<Done>),
    ) -> Result<(), StoreError> {
        let mut outcomes = Vec::with_capacity(group.len());
        let result = match self.failed.clone() {
            Some(error) => Err(error),
            None => {
                self.begin();
                let mut out_of_order = 0;
                for pending in &group {
                    outcomes.push(self.decide(head, bounds, pending, &mut out_of_order));
                }
                let log_bytes = self.write(lsm, head).await;
                log_bytes.map(|log_bytes| Done { out_of_order, log_bytes, ..Done::default() })
            }
        };
        match result {
            Err(error) => {
                self.failed.get_or_insert_with(|| error.clone());
                done(None);
                for pending in group {
                    let _ = pending.answer.send(Err(error.clone()));
                }
                Err(error)
            }
            Ok(committed) => {
                done(Some(Done {
                    samples: outcomes.iter().map(|o| o.accepted).sum(),
                    duplicates: outcomes.iter().map(|o| o.duplicates).sum(),
                    rejected: outcomes.iter().map(|o| o.rejected).sum(),
                    log_bytes_open: self.bytes(),
                    newest_ms: self.newest_ms,
                    ..committed
                }));
                for (pending, outcome) in group.into_iter().zip(outcomes) {
                    // Whoever has gone meanwhile does not need the answer.
                    let _ = pending.answer.send(Ok(outcome));
                }
                Ok(())
            }
        }
    }

    fn begin(&mut self) {
        self.columns.clear();
        self.columns.first_ref = self.epochs.get(&self.epoch).map_or(0, |info| info.ref_count);
        self.slots.clear();
        self.created.clear();
    }

    /// Decides on every sample of a write, and puts the accepted ones into the record.
    fn decide(
        &mut self,
        head: &Head,
        bounds: Bounds,
        pending: &Pending,
        out_of_order: &mut usize,
    ) -> AppendOutcome {
        let mut outcome = AppendOutcome::default();
        for index in 0..pending.batch.series.len() {
            let run = Run { batch: &pending.batch, index, bounds };
            let known = pending.slots[index];
            let decided = known
                .and_then(|slot| self.decide_at(head, slot, &run, &mut outcome))
                .or_else(|| {
                    let slot = head.find(pending.batch.labels_bytes(index))?;
                    self.decide_at(head, slot, &run, &mut outcome)
                });
            match decided {
                Some(count) => *out_of_order += count,
                None => self.decide_new(head, &run, &mut outcome),
            }
        }
        outcome
    }

    /// The same for one series, as [`Log::decide_run`]; none if the slot is not, or no longer,
    /// that of the series.
    fn decide_at(
        &mut self,
        head: &Head,
        slot: u32,
        run: &Run<'_>,
        outcome: &mut AppendOutcome,
    ) -> Option<usize> {
        let labels = run.batch.labels_bytes(run.index);
        let mut shard = head.shard(slot);
        let series = shard.series(slot).filter(|series| series.labels.as_bytes() == labels)?;
        Some(self.decide_run(slot, series, run, outcome))
    }

    /// The same for a series that is not in the head: it is created once a sample is accepted.
    fn decide_new(&mut self, head: &Head, run: &Run<'_>, outcome: &mut AppendOutcome) {
        let batch = run.batch;
        let labels = batch.labels(run.index);
        let is_too_long = |(name, value): (&str, &str)| {
            name.len() > keys::NAME_BYTES_MAX || value.len() > keys::VALUE_BYTES_MAX
        };
        if labels.iter().any(is_too_long) {
            for at in batch.samples(run.index) {
                let reason = RejectReason::LabelTooLong;
                outcome.reject(|| labels.clone(), batch.timestamps[at], reason);
            }
            return;
        }
        let mut series = HeadSeries::new(labels);
        let accepted_before = outcome.accepted;
        self.decide_run(0, &mut series, run, outcome);
        if outcome.accepted > accepted_before {
            let labels = series.labels.clone();
            let slot = head.create(series);
            if let Some(last) = self.slots.last_mut() {
                *last = slot;
            }
            self.created.push((slot, labels));
        }
    }

    /// Decides on the samples of one series; returns how many were taken out of order.
    fn decide_run(
        &mut self,
        slot: u32,
        series: &mut HeadSeries,
        run: &Run<'_>,
        outcome: &mut AppendOutcome,
    ) -> usize {
        let mut count = 0;
        let mut out_of_order = 0;
        for at in run.batch.samples(run.index) {
            let (timestamp_ms, value) = (run.batch.timestamps[at], run.batch.values[at]);
            match decide_sample(series, timestamp_ms, value.to_bits(), self.newest_ms, run.bounds) {
                Decision::Accept => {
                    if timestamp_ms > series.newest_ms {
                        series.newest_ms = timestamp_ms;
                        series.newest_bits = value.to_bits();
                    } else {
                        out_of_order += 1;
                    }
                    self.columns.timestamps.push(timestamp_ms);
                    self.columns.values.push(value);
                    count += 1;
                }
                Decision::Duplicate => outcome.duplicates += 1,
                Decision::Reject(reason) => {
                    outcome.reject(|| series.labels.clone(), timestamp_ms, reason);
                }
            }
        }
        if count > 0 {
            if series.log_epoch != self.epoch {
                series.log_epoch = self.epoch;
                series.log_ref = self.columns.first_ref + self.columns.definitions.len() as u32;
                self.columns.definitions.push(series.labels.clone());
            }
            self.columns.runs.push((series.log_ref, count));
            self.slots.push(slot);
            outcome.accepted += count as usize;
        }
        out_of_order
    }

    /// Makes the record durable, then applies it. Returns its length.
    async fn write(&mut self, lsm: &Lsm, head: &Head) -> Result<usize, StoreError> {
        if self.columns.runs.is_empty() {
            return Ok(0);
        }
        let record = self.columns.encode();
        let sequence = self.epochs.get(&self.epoch).map_or(0, |info| info.record_count);
        let log_bytes = record.len();
        let mut set = WriteSet::default();
        set.put(keys::log(self.epoch, sequence), record);
        self.committed_at = Some(Instant::now());
        lsm.commit(set).await?;
        let info = self.epochs.entry(self.epoch).or_default();
        info.record_count += 1;
        info.bytes += log_bytes as u64;
        info.ref_count = self.columns.first_ref + self.columns.definitions.len() as u32;
        let epoch = self.epoch;
        let newest_ms =
            apply(head, epoch, &self.columns, &self.slots, |_| true, info, &mut self.scratch);
        self.newest_ms = self.newest_ms.max(newest_ms);
        if !self.created.is_empty() {
            head.file(self.created.drain(..));
        }
        Ok(log_bytes)
    }
}

/// One series of a write.
struct Run<'a> {
    batch: &'a Batch,
    index: usize,
    bounds: Bounds,
}

enum Decision {
    Accept,
    Duplicate,
    Reject(RejectReason),
}

/// Whether a sample is taken.
///
/// Source: `appendable` in `tsdb/head_append.go` of Prometheus, where an out-of-order window
/// is set; without one, samples of any age are taken, and another value is refused as far as
/// the raw samples of the head tell.
fn decide_sample(
    series: &HeadSeries,
    timestamp_ms: i64,
    bits: u64,
    head_newest_ms: i64,
    bounds: Bounds,
) -> Decision {
    if timestamp_ms < bounds.min_ms || timestamp_ms > bounds.max_ms {
        return Decision::Reject(RejectReason::OutOfBounds);
    }
    let in_order_min_ms = match bounds.out_of_order_window_ms {
        None => i64::MIN,
        Some(_) => head_newest_ms.saturating_sub(IN_ORDER_SPAN_MS),
    };
    if timestamp_ms > series.newest_ms && timestamp_ms >= in_order_min_ms {
        return Decision::Accept;
    }
    let late_min_ms = match bounds.out_of_order_window_ms {
        None => i64::MIN,
        Some(0) => i64::MAX,
        Some(window_ms) => head_newest_ms.saturating_sub(window_ms),
    };
    let is_newest = timestamp_ms == series.newest_ms && timestamp_ms >= in_order_min_ms;
    if timestamp_ms >= late_min_ms || is_newest {
        return match series.holds(timestamp_ms, bits) {
            Some(true) => Decision::Duplicate,
            Some(false) => Decision::Reject(RejectReason::DuplicateSample),
            None => Decision::Accept,
        };
    }
    Decision::Reject(match bounds.out_of_order_window_ms {
        Some(window_ms) if window_ms > 0 => RejectReason::TooOld,
        _ if timestamp_ms < in_order_min_ms => RejectReason::OutOfBounds,
        _ => RejectReason::OutOfOrder,
    })
}

/// Adds the samples of a record to the series in the given slots, but for those in windows
/// that are not wanted. Returns the latest time.
fn apply(
    head: &Head,
    epoch: u32,
    columns: &Columns,
    slots: &[u32],
    mut is_wanted: impl FnMut(i64) -> bool,
    info: &mut EpochInfo,
    scratch: &mut Scratch,
) -> i64 {
    let mut at = 0;
    let mut newest_ms = i64::MIN;
    let mut recent = None;
    for (slot, (_, count)) in slots.iter().zip(&columns.runs) {
        let range = at..at + *count as usize;
        at = range.end;
        let mut shard = head.shard(*slot);
        let Some(series) = shard.series(*slot) else { continue };
        for (timestamp_ms, value) in
            columns.timestamps[range.clone()].iter().zip(&columns.values[range])
        {
            let window = window_of(*timestamp_ms);
            let wanted = match recent {
                Some((recent, wanted)) if recent == window => wanted,
                _ => {
                    let wanted = is_wanted(window);
                    if wanted {
                        info.windows.insert(window);
                    }
                    recent = Some((window, wanted));
                    wanted
                }
            };
            newest_ms = newest_ms.max(*timestamp_ms);
            if wanted {
                series.append(epoch, *timestamp_ms, *value, scratch);
            } else {
                series.note_newest(*timestamp_ms, *value);
            }
        }
    }
    newest_ms
}

/// Rebuilds the head from the log: everything but the windows that `watermarks` call sealed
/// up to an epoch. The next record goes to a new epoch.
pub(crate) async fn replay(
    lsm: &Lsm,
    head: &Head,
    first_epoch: u32,
    next_epoch: u32,
    watermarks: &BTreeMap<i64, u32>,
) -> Result<Log, StoreError> {
    let mut log = Log::new(next_epoch);
    let mut slots_of_refs: Vec<u32> = Vec::new();
    let mut epoch_before = None;
    let mut scan = lsm.scan(&keys::log_epoch(first_epoch), keys::LOG_END).await?;
    while let Some((key, value)) = scan.next().await? {
        let corrupt = |detail: String| StoreError::Corrupt {
            location: format!("log record {}", keys::printable(&key)),
            detail,
        };
        let (epoch, sequence) =
            keys::parse_log(&key).ok_or_else(|| corrupt("malformed key".to_owned()))?;
        if epoch_before != Some(epoch) {
            slots_of_refs.clear();
            epoch_before = Some(epoch);
        }
        let info = log.epochs.entry(epoch).or_default();
        if sequence != info.record_count {
            return Err(corrupt(format!("expected record {} of the epoch", info.record_count)));
        }
        let columns = Columns::decode(&value).map_err(corrupt)?;
        if columns.first_ref as usize != slots_of_refs.len() {
            return Err(corrupt(format!("expected reference {}", slots_of_refs.len())));
        }
        define(head, &columns.definitions, &mut slots_of_refs);
        let slots = columns
            .runs
            .iter()
            .map(|(reference, _)| slots_of_refs.get(*reference as usize).copied())
            .collect::<Option<Vec<u32>>>()
            .ok_or_else(|| corrupt("a series is not defined".to_owned()))?;
        info.record_count += 1;
        info.bytes += value.len() as u64;
        info.ref_count = slots_of_refs.len() as u32;
        let is_wanted = |window: i64| watermarks.get(&window).is_none_or(|sealed| *sealed < epoch);
        let newest_ms = apply(head, epoch, &columns, &slots, is_wanted, info, &mut log.scratch);
        log.newest_ms = log.newest_ms.max(newest_ms);
        log.epoch = log.epoch.max(epoch + 1);
    }
    Ok(log)
}

/// Finds or creates the series that a record defines.
fn define(head: &Head, definitions: &[Labels], slots_of_refs: &mut Vec<u32>) {
    let mut created = Vec::new();
    for labels in definitions {
        slots_of_refs.push(head.find(labels.as_bytes()).unwrap_or_else(|| {
            let slot = head.create(HeadSeries::new(labels.clone()));
            created.push((slot, labels.clone()));
            slot
        }));
    }
    if !created.is_empty() {
        head.file(created);
    }
}
