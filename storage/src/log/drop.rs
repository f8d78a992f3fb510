//! Deletes that the head applies in turns with commits.
//!
//! A delete of many series takes a while, and commits do not wait for it:
//!
//! ```text
//! under the lock of the log   the epoch ends, and the tombstone is made durable
//! without the lock            the series are searched; later series have no samples of the epoch
//! in turns with commits       a few series at a time drop their deleted samples
//! a commit to a series        first drops its deleted samples. So decisions are the same as in
//!                             replay, whatever the progress of the delete. Until the search has
//!                             ended, the matchers are applied to the series.
//! a seal                      waits for the end: the tombstone does not cover the runs of the seal
//! ```

use std::sync::Arc;

use model::{Labels, Matcher, TimeRange};
use roaring::RoaringBitmap;
use tokio::sync::oneshot;

use super::commit::Log;
use crate::delete::{self, Tombstone};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::head::Head;
use crate::head::series::HeadSeries;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};

/// Bytes of series after which a turn ends.
const TURN_BYTES: usize = 256 << 10;

/// Delete in progress, whose samples the head still holds in part.
pub(crate) struct PendingDelete {
    /// Last epoch whose samples are deleted.
    epoch: Epoch,
    start_ms: i64,
    end_ms: i64,
    series: Covered,
    result: Result<(), StoreError>,
    /// Receives the result once all series have dropped their deleted samples.
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// Series that a delete covers. If a slot has a new series since, that has no samples of the
/// deleted epochs.
enum Covered {
    /// The search is in progress; the slots in `dropped` have dropped their deleted samples.
    Searching { selectors: Selectors, dropped: RoaringBitmap },
    /// Slots that still have deleted samples.
    Found(RoaringBitmap),
}

/// Sets of matchers; a series is covered if it passes all matchers of one set.
type Selectors = Arc<[Vec<Matcher>]>;

impl Covered {
    /// Marks a series as done. Returns whether it was covered and still had deleted samples.
    fn take(&mut self, slot: u32, labels: &Labels) -> bool {
        match self {
            Covered::Found(slots) => slots.remove(slot),
            Covered::Searching { selectors, dropped } => {
                let passes =
                    |all: &Vec<Matcher>| all.iter().all(|m| m.matches(labels.get(m.name())));
                selectors.iter().any(passes) && dropped.insert(slot)
            }
        }
    }
}

impl Log {
    /// Begins to drop the samples that a tombstone covers; it is durable and masks them in runs.
    /// [`Log::drop_some`] drops them once their series have been found, and sends the answer.
    pub(crate) fn begin_drop(
        &mut self,
        tombstone: &Tombstone,
    ) -> oneshot::Receiver<Result<(), StoreError>> {
        let (done, answer) = oneshot::channel();
        let selectors = tombstone.selectors.clone().into();
        self.dropping.push_back(PendingDelete {
            epoch: tombstone.epoch,
            start_ms: tombstone.start_ms,
            end_ms: tombstone.end_ms,
            series: Covered::Searching { selectors, dropped: RoaringBitmap::new() },
            result: Ok(()),
            done,
        });
        answer
    }

    /// Returns the epoch and the selectors of the first delete whose series are not found yet.
    pub(crate) fn next_search(&self) -> Option<(Epoch, Selectors)> {
        self.dropping.iter().find_map(|dropping| match &dropping.series {
            Covered::Searching { selectors, .. } => Some((dropping.epoch, Arc::clone(selectors))),
            Covered::Found(_) => None,
        })
    }

    /// Sets the series of a delete.
    pub(crate) fn note_found(&mut self, epoch: Epoch, found: Result<RoaringBitmap, StoreError>) {
        let Some(dropping) = self.dropping.iter_mut().find(|dropping| dropping.epoch == epoch)
        else {
            return;
        };
        // Another task may have found them first.
        let Covered::Searching { dropped, .. } = &dropping.series else { return };
        match found {
            Ok(slots) => dropping.series = Covered::Found(slots - dropped),
            Err(error) => {
                dropping.series = Covered::Found(RoaringBitmap::new());
                dropping.result = Err(error);
            }
        }
    }

    /// Returns whether some series hold deleted samples.
    pub(crate) fn is_dropping(&self) -> bool {
        !self.dropping.is_empty()
    }

    /// Drops deleted samples from at most `series_max` series, if the series of the first delete
    /// have been found.
    pub(crate) fn drop_some(&mut self, head: &Head, series_max: u64) {
        let Some(dropping) = self.dropping.front_mut() else { return };
        let Covered::Found(slots) = &mut dropping.series else { return };
        let scratch = &mut self.scratch;
        let (mut count, mut bytes) = (0, 0);
        for slot in slots.iter() {
            if count == series_max || bytes >= TURN_BYTES {
                break;
            }
            count += 1;
            let mut shard = head.shard(slot);
            let Some(series) = shard.series(slot) else { continue };
            bytes += series.bytes();
            let range = TimeRange::new(dropping.start_ms, dropping.end_ms);
            if let Err(error) = head.drop_of(series, range, dropping.epoch, scratch) {
                dropping.result = Err(error);
            }
        }
        slots.remove_smallest(count);
        if slots.is_empty()
            && let Some(dropping) = self.dropping.pop_front()
        {
            // The receiver may have stopped waiting.
            let _ = dropping.done.send(dropping.result);
        }
    }

    /// Drops the deleted samples of one series before a write to it.
    #[cold]
    pub(super) fn drop_before_write(&mut self, head: &Head, slot: u32, series: &mut HeadSeries) {
        for dropping in &mut self.dropping {
            if dropping.series.take(slot, &series.labels) {
                let range = TimeRange::new(dropping.start_ms, dropping.end_ms);
                if let Err(error) = head.drop_of(series, range, dropping.epoch, &mut self.scratch) {
                    dropping.result = Err(error);
                }
            }
        }
    }

    /// Ends the epoch, so that a delete covers all samples of the log, and makes its tombstone
    /// durable.
    ///
    /// Errors: the tombstone may or may not be durable, and the log takes no more writes.
    pub(crate) async fn end_epoch(
        &mut self,
        lsm: &Lsm,
        selectors: Vec<Vec<Matcher>>,
        TimeRange { start_ms, end_ms }: TimeRange,
    ) -> Result<Tombstone, StoreError> {
        self.check()?;
        let epoch = self.epoch;
        let tombstone = Tombstone { epoch, start_ms, end_ms, selectors, is_cleaned: false };
        let key = keys::tombstone(epoch);
        let mut set = WriteSet::default();
        set.put(key.clone(), delete::encode(&key, &tombstone));
        self.epoch = self.epoch.next();
        lsm.commit(set).await.inspect_err(|error| self.failure.set(error))?;
        Ok(tombstone)
    }
}
