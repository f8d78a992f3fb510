//! Dropping deleted samples from the head. No sample is appended to an ended epoch, so its windows
//! are rebuilt from the remaining samples.

use model::{Checkpoint, HistogramSample, Labels, Matcher, ResetHint, SourceError, TimeRange};

use roaring::RoaringBitmap;

use super::Head;
use super::series::HeadSeries;
use super::window::OpenWindow;
use crate::chunk::HistogramBefore;
use crate::delete::{KeptSamples, Tombstone};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::samples::decided::DecidedHistogram;
use crate::samples::part::{Floats, Part, Parts, TailRoom};
use crate::samples::scratch::Scratch;
use crate::samples::series_parts::SeriesParts;

impl Head {
    /// Drops the samples that a tombstone covers. The caller blocks commits.
    ///
    /// Errors: damaged samples in memory; they are kept, all others are dropped.
    pub(crate) fn delete(&self, tombstone: &Tombstone) -> Result<(), StoreError> {
        let mut scratch = Scratch::new();
        let mut result = Ok(());
        for slot in self.covered(&tombstone.selectors)? {
            let mut shard = self.shard(slot);
            let Some(series) = shard.series(slot) else { continue };
            let range = TimeRange::new(tombstone.start_ms, tombstone.end_ms);
            result = self.drop_of(series, range, tombstone.epoch, &mut scratch).and(result);
        }
        result
    }

    /// Returns the slots of the series that pass all matchers of one of the selectors. Slow for
    /// regular expressions on many values.
    pub(crate) fn covered(&self, selectors: &[Vec<Matcher>]) -> Result<RoaringBitmap, StoreError> {
        let mut all = RoaringBitmap::new();
        for matchers in selectors {
            let budget = model::Budget::unlimited();
            let slots = self.index_read().select(matchers, &mut Checkpoint::new(&budget));
            all |= slots.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        }
        Ok(all)
    }

    /// Drops the samples of a series in a time range, of epochs up to `epoch`.
    pub(crate) fn drop_of(
        &self,
        series: &mut HeadSeries,
        range: TimeRange,
        epoch: Epoch,
        scratch: &mut Scratch,
    ) -> Result<(), StoreError> {
        let before = series.bytes();
        let dropped = series.delete(range, epoch, scratch);
        // The remaining samples were appended again, but are not new.
        scratch.grown_bytes = 0;
        self.note_shrunk(before.saturating_sub(series.bytes()));
        self.deactivate_if_empty(series);
        dropped.map_err(|error| StoreError::Corrupt {
            location: "the head".to_owned(),
            detail: error.to_string(),
        })
    }
}

impl HeadSeries {
    /// Drops the samples in a time range, of epochs up to `epoch`.
    fn delete(
        &mut self,
        TimeRange { start_ms, end_ms }: TimeRange,
        epoch: Epoch,
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

    /// Sets the newest sample to the newest open one, or to none.
    fn find_newest(&mut self) -> Result<(), SourceError> {
        (self.newest_ms, self.newest_bits, self.newest_histogram) = (i64::MIN, 0, None);
        let Some(newest_ms) = self.windows.iter().map(|open| open.max_ms).max() else {
            return Ok(());
        };
        let (mut parts, mut room) = (Parts::new(), TailRoom::default());
        self.parts(newest_ms, newest_ms, false, &mut parts, &mut room);
        room.settle(parts.iter_mut().filter_map(Part::tail_mut));
        let labels = self.labels.clone();
        let parts = SeriesParts::new(parts, newest_ms, newest_ms, &labels)?;
        let KeptSamples { floats, histograms } = KeptSamples::of(&parts, &[], &labels)?;
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
    /// Returns a window with the samples outside a time range, if there are any.
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
        self.parts(i64::MIN, i64::MAX, false, &mut parts, &mut room);
        room.settle(parts.iter_mut().filter_map(Part::tail_mut));
        let parts = SeriesParts::new(parts, i64::MIN, i64::MAX, labels)?;
        let KeptSamples { floats, histograms } =
            KeptSamples::of(&parts, &[TimeRange { start_ms, end_ms }], labels)?;
        if floats.samples.is_empty() && histograms.is_empty() {
            return Ok(None);
        }
        let mut left = OpenWindow::new(self.window, self.epoch);
        left.append_all(&floats, histograms, s);
        Ok(Some(left))
    }

    /// Adds samples to an empty window, in the order of their times.
    fn append_all(&mut self, floats: &Floats, histograms: Vec<HistogramSample>, s: &mut Scratch) {
        let mut histograms = histograms.into_iter().peekable();
        let mut before: Option<HistogramBefore> = None;
        let mut append_histogram = |open: &mut OpenWindow, sample: HistogramSample| {
            let is_claim = sample.histogram.reset_hint == ResetHint::NotReset;
            let this = HistogramBefore::of(&sample);
            let before = before.replace(this).filter(|_| is_claim);
            open.append_histogram(&DecidedHistogram { sample, before });
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
