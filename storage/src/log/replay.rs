//! Replaying the log: all of it at a start, and record by record in a reader.

use std::collections::{BTreeMap, VecDeque};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use model::Labels;

use super::apply::{SlottedRecord, apply, ends};
use super::commit::Log;
use super::record::LogRecord;
use crate::delete::{Tombstone, TombstoneSnapshot, Tombstones};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::head::series::HeadSeries;
use crate::head::{Head, SlotShare};
use crate::keys;
use crate::lsm::Lsm;
use crate::meta::Meta;
use crate::parallel::shares::SHARES_MAX;
use crate::samples::scratch::Scratch;
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

/// Decoded record of an epoch.
struct Decoded {
    epoch: Epoch,
    record: LogRecord,
    /// Slot of each run.
    slots: Vec<u32>,
    /// Time of the earliest sample.
    earliest_ms: Option<i64>,
}

impl Decoded {
    fn slotted(&self) -> SlottedRecord<'_> {
        SlottedRecord { epoch: self.epoch, record: &self.record, slots: &self.slots }
    }
}

/// Rebuilds the head from the log, without deleted samples and without windows that are sealed
/// according to the watermarks. The next record is written to a new epoch.
///
/// Records are decoded in order, on one thread. Other threads meanwhile apply those before, each to
/// the series of its shards. Once records define no more series, one sorts those of the head, for which
/// the first selection would wait.
pub(crate) async fn replay(
    lsm: &Lsm,
    head: &Arc<Head>,
    meta: &Meta,
    tombstones: &Tombstones,
    replayed_bytes: usize,
) -> Result<(Log, Replay), StoreError> {
    let mut log = Log::new(meta.next_epoch);
    let mut replay = Replay::default();
    let tombstones = tombstones.all();
    let first_epoch = meta.first_epoch;
    replay.deletes.extend(tombstones.range(first_epoch..).map(|(_, t)| Arc::clone(t)));
    let mut shares = Shares::new(head, meta);
    let (mut read, mut read_bytes, mut decoded) = (Vec::new(), 0, Vec::new());
    let (mut defined_count, mut is_sorting) = (0, false);
    let mut scan = lsm.scan(&keys::log_epoch(first_epoch), keys::LOG_END).await?;
    loop {
        let next = scan.next().await?;
        let epoch_of = |(key, _): &(Bytes, Bytes)| keys::parse_log(key).map(|(epoch, _)| epoch);
        let is_end =
            next.as_ref().is_none_or(|next| read.last().map(epoch_of) != Some(epoch_of(next)));
        if is_end || read_bytes >= replayed_bytes {
            let decode = |log: &mut Log| replay.decode_all(head, log, read.drain(..));
            decoded = shares.apply(&mut log, &decoded, decode)?;
            read_bytes = 0;
            let before = std::mem::replace(&mut defined_count, head.series_count());
            if !is_sorting && before > 0 && defined_count == before {
                let head = Arc::clone(head);
                tokio::task::spawn_blocking(move || head.keep_order());
                is_sorting = true;
            }
        }
        if is_end {
            // Deletes come between epochs.
            shares.apply(&mut log, &decoded, |_| ());
            decoded.clear();
        }
        let Some((key, value)) = next else { break };
        read_bytes += value.len();
        read.push((key, value));
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

/// Threads that apply records to the series of their shards.
struct Shares<'a> {
    head: &'a Head,
    meta: &'a Meta,
    scratches: Vec<Scratch>,
}

impl<'a> Shares<'a> {
    fn new(head: &'a Head, meta: &'a Meta) -> Shares<'a> {
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let scratches = (0..cores.min(SHARES_MAX)).map(|_| Scratch::new()).collect();
        Shares { head, meta, scratches }
    }

    /// Applies records of one epoch, and meanwhile runs other work on this thread.
    fn apply<T>(
        &mut self,
        log: &mut Log,
        decoded: &[Decoded],
        meanwhile: impl FnOnce(&mut Log) -> T,
    ) -> T {
        let Some(Decoded { epoch, .. }) = decoded.first() else { return meanwhile(log) };
        let (head, meta, count) = (self.head, self.meta, self.scratches.len());
        thread::scope(|scope| {
            let is_wanted = |window| meta.is_open(window, *epoch);
            let begin = |(index, scratch)| {
                let share = SlotShare { index, count };
                let apply = move || apply_share(head, decoded, share, is_wanted, scratch);
                (share, thread::Builder::new().spawn_scoped(scope, apply))
            };
            let begun: Vec<_> = self.scratches.iter_mut().enumerate().map(begin).collect();
            let result = meanwhile(log);
            let info = log.epochs.entry(*epoch).or_default();
            for (share, thread) in begun {
                let (windows, newest_ms) = match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                    // The system has no more threads.
                    Err(_) => apply_share(head, decoded, share, is_wanted, &mut Scratch::new()),
                };
                windows.into_iter().for_each(|(window, samples)| {
                    *info.windows.entry(window).or_default() += samples;
                });
                log.newest_ms = log.newest_ms.max(newest_ms);
            }
            head.note_open(ends(&info.windows));
            result
        })
    }
}

/// Applies a share of records. Returns the number of samples in each window, and the latest time.
fn apply_share(
    head: &Head,
    decoded: &[Decoded],
    share: SlotShare,
    is_wanted: impl Fn(Window) -> bool,
    scratch: &mut Scratch,
) -> (BTreeMap<Window, u64>, i64) {
    let (mut windows, mut newest_ms) = (BTreeMap::new(), i64::MIN);
    for decoded in decoded {
        let of_record = apply(head, decoded.slotted(), share, &is_wanted, &mut windows, scratch);
        newest_ms = newest_ms.max(of_record);
    }
    (windows, newest_ms)
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

    /// Decodes and applies a record, except samples of windows that are not open in its epoch.
    /// Returns the time of the earliest sample.
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
        let decoded = self.decode(head, log, key, value)?;
        let (epoch, earliest_ms) = (decoded.epoch, decoded.earliest_ms);
        let info = log.epochs.entry(epoch).or_default();
        let is_wanted = |window| is_open(window, epoch);
        let (windows, scratch) = (&mut info.windows, &mut log.scratch);
        let newest_ms = apply(head, decoded.slotted(), SlotShare::ALL, is_wanted, windows, scratch);
        head.note_open(ends(&info.windows));
        log.newest_ms = log.newest_ms.max(newest_ms);
        Ok(earliest_ms)
    }

    /// Decodes records of one epoch, as [`Replay::decode`].
    fn decode_all(
        &mut self,
        head: &Head,
        log: &mut Log,
        read: impl Iterator<Item = (Bytes, Bytes)>,
    ) -> Result<Vec<Decoded>, StoreError> {
        read.map(|(key, value)| self.decode(head, log, &key, &value)).collect()
    }

    /// Decodes a record, and creates the series that it defines. Before an epoch, applies the
    /// deletes between it and the one before, whose records must all be applied.
    ///
    /// Errors: damaged bytes, or a record that is not the next one.
    fn decode(
        &mut self,
        head: &Head,
        log: &mut Log,
        key: &[u8],
        value: &[u8],
    ) -> Result<Decoded, StoreError> {
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
        log.epoch = log.epoch.max(epoch.next());
        Ok(Decoded { epoch, record, slots, earliest_ms })
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
