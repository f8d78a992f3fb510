//! Group commit: one durable record for all waiting writes.
//!
//! ```text
//! take the waiting writes → decide sample by sample → one record → durable → apply → answer
//! ```
//!
//! The first writer that finds no leader starts the task that takes groups and answers them
//! (`store::group_commit`); [`Log::commit`] does the steps in between.
//!
//! Decisions depend on the state after all earlier records, and only accepted samples are
//! logged. So a record is applied without checks, and a replay of all records ends in the same
//! state. Nothing is applied before it is durable, with one exception: deciding creates series
//! and advances the newest times in the head; only samples are applied later. After a failed
//! commit, the store takes no more writes until it is opened again.
//!
//! A log epoch is the log between two seals. All samples of a window and an epoch are sealed
//! together ([`crate::seal`]), and replay skips sealed samples.

use std::collections::{BTreeMap, VecDeque};

use model::Labels;
use tokio::time::Instant;

use super::apply::{SlottedRecord, apply, ends};
use super::drop::PendingDelete;
use super::failure::LogFailure;
use super::queue::PendingWrite;
use super::record::LogRecord;
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::exemplar::{ExemplarRing, ExemplarStage};
use crate::head::{Head, SlotShare};
use crate::keys;
use crate::lsm::{Lsm, WriteSet};
use crate::metadata::{Metadata, MetadataStage};
use crate::options::Clock;
use crate::outcome::{AppendOutcome, ExemplarCounts};
use crate::retention::RetentionFloors;
use crate::samples::scratch::Scratch;
use crate::window::{TimeBounds, Window};

/// Contents of a log epoch.
#[derive(Debug, Default, Clone)]
pub(crate) struct EpochInfo {
    /// Number of samples in each window.
    pub(crate) windows: BTreeMap<Window, u64>,
    /// Records, numbered from 0.
    pub(crate) record_count: u64,
    /// Bytes of the records.
    pub(crate) bytes: u64,
    /// Number of series that it defines.
    pub(crate) ref_count: u32,
    /// Time of the earliest sample of its records, whether open, sealed or deleted.
    pub(crate) earliest_ms: Option<i64>,
}

impl EpochInfo {
    /// Notes the time of the earliest sample of a record.
    pub(super) fn note_earliest(&mut self, record_ms: Option<i64>) {
        self.earliest_ms = self.earliest_ms.into_iter().chain(record_ms).min();
    }
}

/// Writer of log and head. A task locks it to commit.
pub(crate) struct Log {
    /// Current epoch, to which records are written.
    pub(crate) epoch: Epoch,
    /// Epochs that are not fully sealed, including the current one once it has a record.
    pub(crate) epochs: BTreeMap<Epoch, EpochInfo>,
    /// Time of the newest sample of all.
    pub(crate) newest_ms: i64,
    /// Start of the last write to the store.
    pub(crate) write_started_at: Option<Instant>,
    pub(super) failure: LogFailure,
    /// Deletes that the head has not applied to all series yet, in the order of their epochs.
    pub(super) dropping: VecDeque<PendingDelete>,
    pub(super) scratch: Scratch,
    /// The record that is being filled.
    pub(super) record: LogRecord,
    /// Slot of each run of `record`.
    pub(super) slots: Vec<u32>,
    /// Series that the record creates.
    pub(super) created: Vec<(u32, Labels)>,
    /// Exemplars and metadata that are written with the record.
    pub(super) staged_exemplars: ExemplarStage,
    pub(super) staged_metadata: MetadataStage,
}

/// Targets of a commit: the store and its state in memory.
pub(crate) struct LogTarget<'a> {
    pub(crate) lsm: &'a Lsm,
    pub(crate) head: &'a Head,
    pub(crate) exemplar_ring: &'a ExemplarRing,
    pub(crate) metadata: &'a Metadata,
    pub(crate) clock: &'a dyn Clock,
}

/// Result of a commit.
pub(crate) struct Committed {
    /// Outcome of each write of the group.
    pub(crate) outcomes: Vec<AppendOutcome>,
    pub(crate) counts: CommitCounts,
}

/// Counts of one commit.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct CommitCounts {
    /// Accepted samples.
    pub(crate) samples: usize,
    /// Accepted histograms.
    pub(crate) histograms: usize,
    /// Samples that the store already has.
    pub(crate) duplicates: usize,
    /// Rejected samples.
    pub(crate) rejected: usize,
    /// Exemplars by outcome.
    pub(crate) exemplar_counts: ExemplarCounts,
    /// Metadata entries that were dropped.
    pub(crate) metadata_dropped: usize,
    /// Accepted samples that are older than the newest sample of their series.
    pub(crate) out_of_order: usize,
    /// Bytes of the log record.
    pub(crate) log_bytes: usize,
    /// Bytes of the log that are not sealed yet.
    pub(crate) log_bytes_open: u64,
    /// Time of the newest sample of all.
    pub(crate) newest_ms: i64,
}

impl Log {
    /// Creates a log that writes to an epoch without records.
    pub(crate) fn new(epoch: Epoch) -> Log {
        Log {
            epoch,
            epochs: BTreeMap::new(),
            newest_ms: i64::MIN,
            write_started_at: None,
            failure: LogFailure::default(),
            dropping: VecDeque::new(),
            scratch: Scratch::new(),
            record: LogRecord::default(),
            slots: Vec::new(),
            created: Vec::new(),
            staged_exemplars: ExemplarStage::default(),
            staged_metadata: MetadataStage::default(),
        }
    }

    /// Returns the bytes of all epochs that are not fully sealed.
    pub(crate) fn bytes(&self) -> u64 {
        self.epochs.values().map(|info| info.bytes).sum()
    }

    /// Returns the first and the last window with unsealed samples.
    pub(crate) fn open_windows(&self) -> Option<(Window, Window)> {
        let all = self.epochs.values().filter_map(|info| ends(&info.windows));
        all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Returns whether records of epochs from `first_epoch` on have samples before a time.
    pub(crate) fn has_records_before(&self, first_epoch: Epoch, time_ms: i64) -> bool {
        let is_before = |info: &EpochInfo| info.earliest_ms.is_some_and(|ms| ms < time_ms);
        self.epochs.range(first_epoch..).any(|(_, info)| is_before(info))
    }

    /// Returns the failure of the log, which its queue shares.
    pub(crate) fn failure(&self) -> &LogFailure {
        &self.failure
    }

    /// Returns an error once a commit has failed.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.failure.get().map_or(Ok(()), Err)
    }

    /// Decides on the writes of a group and makes the accepted samples durable.
    ///
    /// Errors: the state of the store is unknown, and the log takes no more writes.
    pub(crate) async fn commit(
        &mut self,
        target: &LogTarget<'_>,
        bounds: TimeBounds,
        floors: &RetentionFloors<'_>,
        group: &mut [PendingWrite],
    ) -> Result<Committed, StoreError> {
        self.check()?;
        self.begin();
        let mut outcomes = Vec::with_capacity(group.len());
        let mut out_of_order = 0;
        for pending in group {
            let mut outcome = self.decide(target.head, bounds, floors, pending, &mut out_of_order);
            let batch = &pending.batch;
            let LogTarget { head, exemplar_ring, metadata, .. } = *target;
            self.staged_exemplars.decide(exemplar_ring, head, bounds, batch, &mut outcome);
            self.staged_metadata.decide(metadata, batch, &mut outcome);
            outcomes.push(outcome);
        }
        let histograms = self.record.histograms.len();
        let log_bytes =
            self.write_and_apply(target).await.inspect_err(|error| self.failure.set(error))?;
        let counts = CommitCounts {
            samples: outcomes.iter().map(|o| o.accepted).sum(),
            histograms,
            duplicates: outcomes.iter().map(|o| o.duplicates).sum(),
            rejected: outcomes.iter().map(|o| o.rejected.total()).sum(),
            exemplar_counts: outcomes.iter().map(|o| o.exemplars.counts()).sum(),
            metadata_dropped: outcomes.iter().map(|o| o.metadata_dropped).sum(),
            out_of_order,
            log_bytes,
            log_bytes_open: self.bytes(),
            newest_ms: self.newest_ms,
        };
        Ok(Committed { outcomes, counts })
    }

    /// Makes the record durable with exemplars and metadata, then applies them. Returns the length
    /// of the record.
    async fn write_and_apply(&mut self, target: &LogTarget<'_>) -> Result<usize, StoreError> {
        let LogTarget { lsm, head, exemplar_ring, metadata, clock } = *target;
        let has_record = !self.record.runs.is_empty();
        if !has_record && self.staged_exemplars.is_empty() && self.staged_metadata.is_empty() {
            return Ok(0);
        }
        let mut set = WriteSet::default();
        let mut log_bytes = 0;
        if has_record {
            let record = self.record.encode();
            let sequence = self.epochs.get(&self.epoch).map_or(0, |info| info.record_count);
            log_bytes = record.len();
            set.put(keys::log(self.epoch, sequence), record);
        }
        let exemplar_bytes = exemplar_ring.put(&self.staged_exemplars, &mut set);
        metadata.put(&self.staged_metadata, &mut set);
        self.write_started_at = Some(Instant::now());
        lsm.commit(set).await?;
        exemplar_ring.apply(&mut self.staged_exemplars, exemplar_bytes);
        metadata.apply(&mut self.staged_metadata);
        if has_record {
            let metrics = self.created.iter().map(|(_, labels)| labels.metric_name());
            head.created.note(clock.now_ms(), metrics);
            self.apply_record(head, log_bytes);
        }
        Ok(log_bytes)
    }

    /// Applies the record, which is durable and has `log_bytes` bytes, to the head.
    fn apply_record(&mut self, head: &Head, log_bytes: usize) {
        let info = self.epochs.entry(self.epoch).or_default();
        info.record_count += 1;
        info.bytes += log_bytes as u64;
        info.ref_count = self.record.first_ref + self.record.definitions.len() as u32;
        let earliest_ms = self.record.earliest_ms();
        info.note_earliest(earliest_ms);
        let record = SlottedRecord { epoch: self.epoch, record: &self.record, slots: &self.slots };
        let (windows, scratch) = (&mut info.windows, &mut self.scratch);
        let newest_ms = apply(head, record, SlotShare::ALL, |_| true, windows, scratch);
        head.note_open(ends(&info.windows));
        self.newest_ms = self.newest_ms.max(newest_ms);
        if !self.created.is_empty() {
            head.file(self.created.drain(..));
        }
        // Last: a reader that missed a part of the record has read an earlier number.
        if let Some(earliest_ms) = earliest_ms {
            head.changes.note(earliest_ms);
        }
    }
}
