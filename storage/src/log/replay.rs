//! Replaying the log: all of it at a start, and record by record in a reader.

use std::collections::VecDeque;
use std::sync::Arc;

use model::Labels;

use super::apply::{apply, ends};
use super::commit::Log;
use super::record::LogRecord;
use crate::delete::{Tombstone, TombstoneSnapshot, Tombstones};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::head::Head;
use crate::head::series::HeadSeries;
use crate::keys;
use crate::lsm::Lsm;
use crate::meta::Meta;
use crate::window::Window;

/// Position of a replay in the log.
#[derive(Default)]
pub(crate) struct Replay {
    /// The epoch of the last record.
    epoch: Option<Epoch>,
    /// Slots of the series that this epoch has defined, by reference.
    slots_of_refs: Vec<u32>,
    /// Bits of the last float of each of them in this epoch.
    logged: Vec<u64>,
    /// The epoch of the last applied delete.
    deleted: Option<Epoch>,
    /// Deletes that have not been applied, in order.
    deletes: VecDeque<Arc<Tombstone>>,
}

/// Rebuilds the head from the log, without deleted samples and without windows that are sealed
/// according to the watermarks. The next record is written to a new epoch.
pub(crate) async fn replay(
    lsm: &Lsm,
    head: &Head,
    meta: &Meta,
    tombstones: &Tombstones,
) -> Result<(Log, Replay), StoreError> {
    let mut log = Log::new(meta.next_epoch);
    let mut replay = Replay::default();
    let tombstones = tombstones.all();
    let first_epoch = meta.first_epoch;
    replay.deletes.extend(tombstones.range(first_epoch..).map(|(_, t)| Arc::clone(t)));
    let mut scan = lsm.scan(&keys::log_epoch(first_epoch), keys::LOG_END).await?;
    while let Some((key, value)) = scan.next().await? {
        replay.record(head, &mut log, &key, &value, |window, epoch| meta.is_open(window, epoch))?;
    }
    replay.end_deletes(head)?;
    check_ends(&log, meta)?;
    // A series whose samples are all sealed has no window.
    head.for_each(|_, series| head.deactivate_if_empty(series));
    replay.deleted = tombstones.last_key_value().map(|(epoch, _)| *epoch);
    log.epoch = log.epoch.max(replay.deleted.map_or(Epoch::FIRST, Epoch::next));
    Ok((log, replay))
}

/// Checks that each epoch still has all records that the last start has counted.
///
/// Errors: records are missing at the end of an epoch.
pub(crate) fn check_ends(log: &Log, meta: &Meta) -> Result<(), StoreError> {
    for (epoch, expected) in meta.known_records() {
        let found = log.epochs.get(&epoch).map_or(0, |info| info.record_count);
        if found < expected {
            return Err(StoreError::Corrupt {
                location: format!("log record {}", keys::printable(&keys::log(epoch, found))),
                detail: format!("it is missing: the epoch had {expected} records"),
            });
        }
    }
    Ok(())
}

impl Replay {
    /// Returns the epoch of the last record.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Returns the epoch and sequence number of the next record, if it is in the same epoch.
    pub(crate) fn next_record(&self, log: &Log) -> (Epoch, u64) {
        let epoch = self.epoch.unwrap_or(Epoch::FIRST);
        (epoch, log.epochs.get(&epoch).map_or(0, |info| info.record_count))
    }

    /// Returns whether a record is the first one of its epoch.
    pub(crate) fn begins_epoch(&self, key: &[u8]) -> bool {
        keys::parse_log(key).is_some_and(|(epoch, _)| self.epoch != Some(epoch))
    }

    /// Adds deletes that have not been applied yet.
    pub(crate) fn expect_deletes(&mut self, all: &TombstoneSnapshot) {
        let last = self.deletes.back().map(|t| t.epoch).max(self.deleted);
        let new = all.range(last.map_or(Epoch::FIRST, Epoch::next)..);
        self.deletes.extend(new.map(|(_, tombstone)| Arc::clone(tombstone)));
    }

    /// Applies the deletes that follow the last record.
    pub(crate) fn end_deletes(&mut self, head: &Head) -> Result<(), StoreError> {
        self.delete_before(head, Epoch::NEVER)
    }

    fn delete_before(&mut self, head: &Head, epoch: Epoch) -> Result<(), StoreError> {
        while let Some(tombstone) = self.deletes.pop_front_if(|tombstone| tombstone.epoch < epoch) {
            self.deleted = Some(tombstone.epoch);
            head.delete(&tombstone)?;
            head.changes.note(tombstone.start_ms);
        }
        Ok(())
    }

    /// Applies a record, except samples of windows that are not open in its epoch. Returns the
    /// time of the earliest sample.
    ///
    /// Errors: damaged bytes, or a record that is not the next one.
    pub(crate) fn record(
        &mut self,
        head: &Head,
        log: &mut Log,
        key: &[u8],
        value: &[u8],
        is_open: impl Fn(Window, Epoch) -> bool,
    ) -> Result<Option<i64>, StoreError> {
        let corrupt = |detail: String| StoreError::Corrupt {
            location: format!("log record {}", keys::printable(key)),
            detail,
        };
        let (epoch, sequence) =
            keys::parse_log(key).ok_or_else(|| corrupt("malformed key".to_owned()))?;
        if self.epoch != Some(epoch) {
            self.slots_of_refs.clear();
            self.logged.clear();
            self.epoch = Some(epoch);
            self.delete_before(head, epoch)?;
        }
        let info = log.epochs.entry(epoch).or_default();
        if sequence != info.record_count {
            return Err(corrupt(format!("expected record {} of the epoch", info.record_count)));
        }
        let record = LogRecord::decode(value, Some(&mut self.logged)).map_err(corrupt)?;
        define(head, &record.definitions, &mut self.slots_of_refs);
        let slots = record
            .runs
            .iter()
            .map(|run| self.slots_of_refs.get(run.reference as usize).copied())
            .collect::<Option<Vec<u32>>>()
            .ok_or_else(|| corrupt("a series is not defined".to_owned()))?;
        info.record_count += 1;
        info.bytes += value.len() as u64;
        info.ref_count = self.slots_of_refs.len() as u32;
        let earliest_ms = record.earliest_ms();
        info.note_earliest(earliest_ms);
        let is_wanted = |window: Window| is_open(window, epoch);
        let newest_ms = apply(head, epoch, &record, &slots, is_wanted, info, &mut log.scratch);
        head.note_open(ends(&info.windows));
        log.newest_ms = log.newest_ms.max(newest_ms);
        log.epoch = log.epoch.max(epoch.next());
        Ok(earliest_ms)
    }
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
