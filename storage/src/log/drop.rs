//! Deletes that the head carries out in turns with commits.
//!
//! A delete of many series takes a while, and commits do not wait for it:
//!
//! ```text
//! under the lock of the log   the epoch ends, the tombstone is durable
//! beside it                   the series are found: those that come later have nothing of the epoch
//! in turns with commits       some series at a time drop what is deleted of epochs up to it
//! a commit to a series        drops it there before it decides on anything: what is decided does
//!                             not depend on how far the delete has come, as it does not in replay;
//!                             while the series are sought, it asks the matchers of this one
//! a seal                      waits for all of it: its runs are no more covered by the tombstone
//! ```

use std::sync::Arc;

use model::{Labels, Matcher, TimeRange};
use roaring::RoaringBitmap;
use tokio::sync::oneshot;

use super::commit::Log;
use crate::delete::{self, Tombstone};
use crate::error::StoreError;
use crate::head::Head;
use crate::head::series::HeadSeries;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};

/// Bytes of series from which a turn drops samples of no more of them.
const TURN_BYTES: usize = 256 << 10;

/// Delete under way: samples that the head still holds.
pub(crate) struct Dropping {
    /// Up to which epoch it is deleted.
    epoch: u32,
    start_ms: i64,
    end_ms: i64,
    series: Covered,
    result: Result<(), StoreError>,
    /// Told once all have.
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// The series that a delete covers. A slot may have been given to another series since: that has
/// nothing of these epochs.
enum Covered {
    /// They have not been found yet; some have dropped it all the same.
    Sought { selectors: Selectors, dropped: RoaringBitmap },
    /// Slots that have not dropped it.
    Found(RoaringBitmap),
}

/// A series is covered that passes all matchers of one of them.
type Selectors = Arc<[Vec<Matcher>]>;

impl Covered {
    /// Takes a series off, if it is covered and has not dropped it.
    fn take(&mut self, slot: u32, labels: &Labels) -> bool {
        match self {
            Covered::Found(slots) => slots.remove(slot),
            Covered::Sought { selectors, dropped } => {
                let passes =
                    |all: &Vec<Matcher>| all.iter().all(|m| m.matches(labels.get(m.name())));
                selectors.iter().any(passes) && dropped.insert(slot)
            }
        }
    }
}

impl Log {
    /// Begins to drop what a tombstone covers, which is durable and masks it in runs. It is dropped
    /// by [`Log::drop_some`], once its series have been found; the answer comes then.
    pub(crate) fn begin_drop(
        &mut self,
        tombstone: &Tombstone,
    ) -> oneshot::Receiver<Result<(), StoreError>> {
        let (done, answer) = oneshot::channel();
        let selectors = tombstone.selectors.clone().into();
        self.dropping.push_back(Dropping {
            epoch: tombstone.epoch,
            start_ms: tombstone.start_ms,
            end_ms: tombstone.end_ms,
            series: Covered::Sought { selectors, dropped: RoaringBitmap::new() },
            result: Ok(()),
            done,
        });
        answer
    }

    /// A delete whose series are to be found: its epoch, and what selects them.
    pub(crate) fn sought(&self) -> Option<(u32, Selectors)> {
        self.dropping.iter().find_map(|dropping| match &dropping.series {
            Covered::Sought { selectors, .. } => Some((dropping.epoch, Arc::clone(selectors))),
            Covered::Found(_) => None,
        })
    }

    /// Notes the series of a delete, found since it has begun.
    pub(crate) fn note_found(&mut self, epoch: u32, found: Result<RoaringBitmap, StoreError>) {
        let Some(dropping) = self.dropping.iter_mut().find(|dropping| dropping.epoch == epoch)
        else {
            return;
        };
        // Who waited for the same may have been quicker.
        let Covered::Sought { dropped, .. } = &dropping.series else { return };
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

    /// Drops what has been deleted of some series, if those of the first delete have been found:
    /// of `series_max` at most.
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
            // Whoever has gone meanwhile does not need the answer.
            let _ = dropping.done.send(dropping.result);
        }
    }

    /// Drops what has been deleted of one series, which is about to be written to.
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

    /// Ends the epoch, so that a delete covers all that is in the log, and makes its tombstone
    /// durable.
    ///
    /// Errors: after one, it is not known whether it is there, and the log takes nothing more.
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
        self.epoch += 1;
        lsm.commit(set).await.inspect_err(|error| self.failure.set(error))?;
        Ok(tombstone)
    }
}
