//! Dropping deleted samples from the head. Nothing is appended to an epoch that has ended, so a
//! window of it is built anew from what is left.
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

use model::{HistogramSample, Labels, Matcher, ResetHint, SourceError, Watch};

use roaring::RoaringBitmap;
use tokio::sync::oneshot;

use super::Head;
use super::commit::Log;
use super::series::HeadSeries;
use super::window::OpenWindow;
use crate::chunk::HistogramBefore;
use crate::delete::{self, Kept, Tombstone};
use crate::error::StoreError;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};
use crate::samples::cursor::SeriesParts;
use crate::samples::decided::Decided;
use crate::samples::part::{Floats, Parts, TailRoom};
use crate::samples::scratch::Scratch;

/// Series that one turn drops samples of, and bytes of series from which it takes no more: some
/// hundred microseconds.
const TURN_SERIES: u64 = if cfg!(test) { 1 } else { 256 };
const TURN_BYTES: usize = 256 << 10;

/// What has been deleted, and what of it the head still holds.
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
    /// Those that have not dropped it.
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

impl Head {
    /// Drops what the head holds of a delete. The caller keeps commits out.
    ///
    /// Errors: something in memory cannot be read; it stays, the rest goes.
    pub(crate) fn delete(&self, tombstone: &Tombstone) -> Result<(), StoreError> {
        let mut scratch = Scratch::new();
        let mut result = Ok(());
        for slot in self.covered(&tombstone.selectors)? {
            let mut shard = self.shard(slot);
            let Some(series) = shard.series(slot) else { continue };
            let range = (tombstone.start_ms, tombstone.end_ms);
            result = self.drop_of(series, range, tombstone.epoch, &mut scratch).and(result);
        }
        result
    }

    /// The series that pass all matchers of one of the selectors. It takes a while where there are
    /// many values and regular expressions.
    pub(crate) fn covered(&self, selectors: &[Vec<Matcher>]) -> Result<RoaringBitmap, StoreError> {
        let mut all = RoaringBitmap::new();
        for matchers in selectors {
            let budget = model::Budget::unlimited();
            let slots = self.index_read().select(matchers, &mut Watch::new(&budget));
            all |= slots.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        }
        Ok(all)
    }

    /// Drops what a series holds of a range of time, of epochs up to one.
    fn drop_of(
        &self,
        series: &mut HeadSeries,
        range: (i64, i64),
        epoch: u32,
        scratch: &mut Scratch,
    ) -> Result<(), StoreError> {
        let before = series.bytes();
        let dropped = series.delete(range, epoch, scratch);
        // What is left is no growth, but what has not been dropped.
        scratch.grown_bytes = 0;
        self.note_shrunk(before.saturating_sub(series.bytes()));
        self.deactivate_if_empty(series);
        dropped.map_err(|error| StoreError::Corrupt {
            location: "the head".to_owned(),
            detail: error.to_string(),
        })
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

    /// Whether some series hold what has been deleted.
    pub(crate) fn is_dropping(&self) -> bool {
        !self.dropping.is_empty()
    }

    /// Drops what has been deleted of some series, if those of the first delete have been found.
    pub(crate) fn drop_some(&mut self, head: &Head) {
        let Some(dropping) = self.dropping.front_mut() else { return };
        let Covered::Found(slots) = &mut dropping.series else { return };
        let scratch = &mut self.scratch;
        let (mut count, mut bytes) = (0, 0);
        for slot in slots.iter() {
            if count == TURN_SERIES || bytes >= TURN_BYTES {
                break;
            }
            count += 1;
            let mut shard = head.shard(slot);
            let Some(series) = shard.series(slot) else { continue };
            bytes += series.bytes();
            let range = (dropping.start_ms, dropping.end_ms);
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
                let range = (dropping.start_ms, dropping.end_ms);
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
        (start_ms, end_ms): (i64, i64),
    ) -> Result<Tombstone, StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let epoch = self.epoch;
        let tombstone = Tombstone { epoch, start_ms, end_ms, selectors, is_cleaned: false };
        let key = keys::tombstone(epoch);
        let mut set = WriteSet::default();
        set.put(key.clone(), delete::encode(&key, &tombstone));
        self.epoch += 1;
        if let Err(error) = lsm.commit(set).await {
            self.failed = Some(error.clone());
            return Err(error);
        }
        Ok(tombstone)
    }
}

impl HeadSeries {
    /// Drops the samples in a range of time, of epochs up to one.
    fn delete(
        &mut self,
        (start_ms, end_ms): (i64, i64),
        epoch: u32,
        s: &mut Scratch,
    ) -> Result<(), SourceError> {
        let mut result = Ok(());
        let labels = self.labels.clone();
        self.windows.retain_mut(|open| {
            if open.epoch > epoch || open.min_ms > end_ms || open.max_ms < start_ms {
                return true;
            }
            match open.without(start_ms, end_ms, &labels, s) {
                Ok(Some(left)) => {
                    *open = left;
                    true
                }
                Ok(None) => false,
                Err(error) => {
                    result = Err(error);
                    true
                }
            }
        });
        self.note_dropped();
        if (start_ms..=end_ms).contains(&self.newest_ms) {
            self.find_newest()?;
        }
        result
    }

    /// Notes the newest sample of those that are open, if there is one: no other is known.
    fn find_newest(&mut self) -> Result<(), SourceError> {
        (self.newest_ms, self.newest_bits, self.newest_histogram) = (i64::MIN, 0, None);
        let Some(newest_ms) = self.windows.iter().map(|open| open.max_ms).max() else {
            return Ok(());
        };
        let (mut parts, mut room) = (Parts::new(), TailRoom::default());
        self.parts(newest_ms, newest_ms, false, (&mut parts, &mut room));
        room.settle(parts.iter_mut());
        let labels = self.labels.clone();
        let parts = SeriesParts::new(parts, newest_ms, newest_ms, &labels)?;
        let Kept { floats, histograms } = Kept::of(&parts, &[], &labels)?;
        if let Some((timestamp_ms, value)) = floats.samples.last() {
            self.note_newest(*timestamp_ms, *value);
        }
        if let Some(sample) = histograms.last() {
            self.note_newest_histogram(sample);
        }
        Ok(())
    }
}

impl OpenWindow {
    /// What is left without a range of time, if anything is.
    fn without(
        &self,
        start_ms: i64,
        end_ms: i64,
        labels: &Labels,
        s: &mut Scratch,
    ) -> Result<Option<OpenWindow>, SourceError> {
        if start_ms <= self.min_ms && end_ms >= self.max_ms {
            return Ok(None);
        }
        let (mut parts, mut room) = (Parts::new(), TailRoom::default());
        self.parts(i64::MIN, i64::MAX, false, (&mut parts, &mut room));
        room.settle(parts.iter_mut());
        let parts = SeriesParts::new(parts, i64::MIN, i64::MAX, labels)?;
        let Kept { floats, histograms } = Kept::of(&parts, &[(start_ms, end_ms)], labels)?;
        if floats.samples.is_empty() && histograms.is_empty() {
            return Ok(None);
        }
        let mut left = OpenWindow::new(self.window, self.epoch);
        left.append_all(&floats, histograms, s);
        Ok(Some(left))
    }

    /// Adds samples to a window without any, in the order of their times.
    fn append_all(&mut self, floats: &Floats, histograms: Vec<HistogramSample>, s: &mut Scratch) {
        let mut histograms = histograms.into_iter().peekable();
        let mut before: Option<HistogramBefore> = None;
        let mut append_histogram = |open: &mut OpenWindow, sample: HistogramSample| {
            let is_claim = sample.histogram.reset_hint == ResetHint::NotReset;
            let this = HistogramBefore::of(&sample);
            let before = before.replace(this).filter(|_| is_claim);
            open.append_histogram(&Decided { sample, before });
        };
        for (at, (timestamp_ms, value)) in floats.samples.iter().enumerate() {
            while let Some(sample) = histograms.next_if(|h| h.timestamp_ms < *timestamp_ms) {
                append_histogram(self, sample);
            }
            let start_ms = floats.starts.get(at).copied().unwrap_or(0);
            self.append(*timestamp_ms, *value, start_ms, s);
        }
        for sample in histograms {
            append_histogram(self, sample);
        }
    }
}
