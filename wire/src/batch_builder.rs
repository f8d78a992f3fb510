//! Building of a batch: adds series within the limits, and rejects or drops the others.

use std::sync::Arc;

use model::histogram::{HISTOGRAM_BUCKETS_MAX, Histogram, HistogramError};
use model::{
    Batch, BatchExemplar, BatchMetadata, BatchSeries, HistogramSample, Labels, MetricKind,
    RejectReason,
};

use crate::decode_budget::DecodeBudget;
use crate::fast_path;
use crate::histogram::{HistogramFields, HistogramFieldsError};
use crate::limits::Limits;
use crate::protobuf::Reader;
use crate::rejects::{Counts, Rejects, series_text};
use crate::slow_path::UncheckedLabels;
use crate::{DecodeError, Decoded, malformed, too_large};

/// Builds the batch of one request.
pub(super) struct BatchBuilder<'a> {
    pub(super) limits: &'a Limits,
    pub(super) batch: &'a mut Batch,
    pub(super) decoded: Decoded,
    pub(super) budget: DecodeBudget<'a>,
    series_count: usize,
    metadata_count: usize,
    /// Rejected samples of the current series, until its labels are known.
    pending: PendingRejects,
}

/// Lengths of the batch before a series.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeriesMark {
    pub(super) series_index: usize,
    labels: usize,
    samples: usize,
    histograms: usize,
    exemplars: usize,
}

/// Rejected samples of one series; only the first of them have texts.
#[derive(Debug, Default)]
struct PendingRejects {
    named: Vec<PendingReject>,
    unnamed: Vec<(RejectReason, Counts)>,
}

/// One rejected sample.
#[derive(Debug)]
struct PendingReject {
    reason: RejectReason,
    counts: Counts,
    /// The text before and after the labels of the series.
    text: (String, String),
}

impl<'a> BatchBuilder<'a> {
    pub(super) fn new(
        limits: &'a Limits,
        batch: &'a mut Batch,
        budget: DecodeBudget<'a>,
    ) -> BatchBuilder<'a> {
        BatchBuilder {
            limits,
            batch,
            decoded: Decoded::default(),
            budget,
            series_count: 0,
            metadata_count: 0,
            pending: PendingRejects::default(),
        }
    }

    /// Starts a series.
    pub(super) fn open_series(&mut self) -> Result<SeriesMark, DecodeError> {
        let mark = self.mark();
        self.count_series("series")?;
        Ok(mark)
    }

    /// Counts an item against the limit of series; `what` names the items, in the plural.
    pub(super) fn count_series(&mut self, what: &'static str) -> Result<(), DecodeError> {
        self.series_count += 1;
        if self.series_count > self.limits.series_max {
            return Err(too_large(what, self.limits.names.series_max, self.limits.series_max));
        }
        Ok(())
    }

    /// Returns the lengths of the batch.
    pub(super) fn mark(&self) -> SeriesMark {
        SeriesMark {
            series_index: self.series_count,
            labels: self.batch.labels_arena.len(),
            samples: self.batch.timestamps.len(),
            histograms: self.batch.histograms.len(),
            exemplars: self.batch.exemplars.len(),
        }
    }

    #[inline]
    pub(super) fn push_sample(&mut self, timestamp_ms: i64, value: f64) {
        self.batch.timestamps.push(timestamp_ms);
        self.batch.values.push(value);
    }

    /// Sets the start timestamp of the last sample.
    #[inline]
    pub(super) fn set_start_timestamp(&mut self, start_ms: i64) {
        if start_ms != 0 {
            self.batch.starts.resize(self.batch.timestamps.len() - 1, 0);
            self.batch.starts.push(start_ms);
        }
    }

    /// Returns whether a series of `message_bytes` stays within the limit of samples if the fast
    /// path reads them all. Then no sample needs a check.
    #[inline]
    pub(super) fn fits_sample_limit(&self, message_bytes: usize) -> bool {
        let room = self.limits.samples_max.saturating_sub(self.batch.sample_count());
        message_bytes / fast_path::SAMPLE_BYTES_MIN <= room
    }

    /// Checks the sample limit. The slow path does so per sample, as each may be only two bytes.
    #[inline]
    pub(super) fn check_samples(&self) -> Result<(), DecodeError> {
        if self.batch.sample_count() > self.limits.samples_max {
            return Err(too_large(
                "samples",
                self.limits.names.samples_max,
                self.limits.samples_max,
            ));
        }
        Ok(())
    }

    /// Adds one histogram message.
    pub(super) fn push_histogram(
        &mut self,
        parts: &mut HistogramFields,
        message: Reader<'_>,
        has_start: bool,
        mark: SeriesMark,
    ) -> Result<(), DecodeError> {
        let position = message.position();
        match parts.read(message, has_start) {
            Ok(()) => {}
            Err(HistogramFieldsError::TooMany(what)) => {
                self.refuse_histogram(format!(
                    "histogram has more than {HISTOGRAM_BUCKETS_MAX} {what}"
                ));
                return Ok(());
            }
            Err(HistogramFieldsError::Wire(error)) => {
                return Err(malformed(position, Some(mark.series_index), "histograms", error));
            }
        }
        let (timestamp_ms, start_ms) = (parts.timestamp_ms, parts.start_ms);
        self.take_histogram(parts.make_histogram(), |histogram| HistogramSample {
            timestamp_ms,
            start_ms,
            histogram,
        })
    }

    /// Adds a histogram, or rejects it.
    pub(super) fn take_histogram(
        &mut self,
        made: Result<Histogram, HistogramError>,
        sample: impl FnOnce(Arc<Histogram>) -> HistogramSample,
    ) -> Result<(), DecodeError> {
        match made {
            Ok(histogram) => {
                let bytes = size_of::<HistogramSample>() + HistogramFields::OWN_BYTES;
                self.budget.charge(bytes + histogram.heap_bytes())?;
                self.batch.histograms.push(sample(Arc::new(histogram)));
            }
            Err(error) => self.refuse_histogram(error.to_string()),
        }
        self.check_samples()
    }

    /// Rejects a histogram.
    #[cold]
    fn refuse_histogram(&mut self, fault: String) {
        let counts = Counts { histograms: 1, ..Counts::default() };
        self.pending.add(RejectReason::Histogram, counts, || (fault, String::new()));
    }

    /// Adds an exemplar, or drops it if its labels are invalid.
    pub(super) fn push_exemplar(
        &mut self,
        labels: &UncheckedLabels,
        buffer: &[u8],
        timestamp_ms: i64,
        value: f64,
    ) -> Result<(), DecodeError> {
        let bytes = labels.text_bytes();
        let labels = labels.pack_exemplar(buffer, self.limits);
        self.take_exemplar(labels, bytes, timestamp_ms, value)
    }

    /// Adds an exemplar whose labels have `labels_bytes`, or drops it if there are none.
    pub(super) fn take_exemplar(
        &mut self,
        labels: Option<Labels>,
        labels_bytes: usize,
        timestamp_ms: i64,
        value: f64,
    ) -> Result<(), DecodeError> {
        // Includes the header of the allocation of its labels.
        self.budget.charge(size_of::<BatchExemplar>() + 2 * size_of::<usize>() + labels_bytes)?;
        match labels {
            Some(labels) => self.batch.exemplars.push(BatchExemplar {
                series_index: self.batch.series.len() as u32,
                labels,
                timestamp_ms,
                value,
            }),
            None => self.decoded.exemplars_dropped += 1,
        }
        Ok(())
    }

    /// Rejects an exemplar.
    #[cold]
    pub(super) fn refuse_exemplar(&mut self, reason: RejectReason, fault: &str) {
        let counts = Counts { exemplars: 1, ..Counts::default() };
        let text = || ("parsing exemplar".to_owned(), format!(": {fault}"));
        self.pending.add(reason, counts, text);
    }

    /// Adds the metadata of a metric, or drops them if a text is not UTF-8.
    pub(super) fn push_metadata(
        &mut self,
        metric: &[u8],
        kind: MetricKind,
        help: &[u8],
        unit: &[u8],
    ) -> Result<(), DecodeError> {
        self.metadata_count += 1;
        if self.metadata_count > self.limits.series_max {
            return Err(too_large(
                "metadata entries",
                self.limits.names.series_max,
                self.limits.series_max,
            ));
        }
        let text_bytes = metric.len() + help.len() + unit.len();
        self.budget.charge(size_of::<BatchMetadata>() + text_bytes)?;
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned);
        match (text(metric), text(help), text(unit)) {
            (Ok(metric), Ok(help), Ok(unit)) if !metric.is_empty() => {
                self.batch.metadata.push(BatchMetadata { metric, kind, help, unit });
            }
            _ => self.decoded.metadata_dropped += 1,
        }
        Ok(())
    }

    /// Counts the samples and exemplars of the current series, including rejected ones.
    pub(super) fn counts(&self, mark: SeriesMark) -> Counts {
        self.counts_since(mark) + self.pending.counts()
    }

    fn counts_since(&self, mark: SeriesMark) -> Counts {
        Counts {
            floats: (self.batch.timestamps.len() - mark.samples) as u64,
            histograms: (self.batch.histograms.len() - mark.histograms) as u64,
            exemplars: (self.batch.exemplars.len() - mark.exemplars) as u64,
        }
    }

    /// Rejects the current series.
    #[cold]
    pub(super) fn refuse_series(&mut self, mark: SeriesMark, reason: RejectReason, text: String) {
        let counts = self.counts(mark);
        self.pending.clear();
        self.truncate(mark);
        self.decoded.rejects.add(reason, counts, || text);
    }

    /// Finishes the current series, whose labels are the end of the arena. A series without samples
    /// and exemplars is dropped.
    #[inline]
    pub(super) fn close_series(&mut self, mark: SeriesMark) {
        if !self.pending.is_empty() {
            self.report_faults(mark);
        }
        let counts = self.counts_since(mark);
        if counts == Counts::default() {
            self.truncate(mark);
            return;
        }
        // The budget, which is below 2^32, bounds all lengths.
        self.batch.series.push(BatchSeries {
            labels_start: mark.labels as u32,
            labels_end: self.batch.labels_arena.len() as u32,
            samples_start: mark.samples as u32,
            samples_end: self.batch.timestamps.len() as u32,
            histograms_start: mark.histograms as u32,
            histograms_end: self.batch.histograms.len() as u32,
        });
    }

    #[cold]
    fn report_faults(&mut self, mark: SeriesMark) {
        let series = self.series_text(mark);
        self.pending.report(&series, &mut self.decoded.rejects);
    }

    /// Formats the labels at the end of the arena.
    pub(super) fn series_text(&self, mark: SeriesMark) -> String {
        let labels = Labels::from_checked_bytes(&self.batch.labels_arena[mark.labels..]);
        series_text(labels.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    }

    fn truncate(&mut self, mark: SeriesMark) {
        self.batch.labels_arena.truncate(mark.labels);
        self.batch.timestamps.truncate(mark.samples);
        self.batch.values.truncate(mark.samples);
        self.batch.starts.truncate(mark.samples);
        self.batch.histograms.truncate(mark.histograms);
        self.batch.exemplars.truncate(mark.exemplars);
    }
}

impl PendingRejects {
    fn add(
        &mut self,
        reason: RejectReason,
        counts: Counts,
        text: impl FnOnce() -> (String, String),
    ) {
        // The first of each reason always has a text, which is the example in the log.
        let is_first = !self.named.iter().any(|fault| fault.reason == reason);
        if is_first || self.named.len() < Rejects::NAMED_MAX {
            self.named.push(PendingReject { reason, counts, text: text() });
            return;
        }
        match self.unnamed.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, known)) => *known = *known + counts,
            None => self.unnamed.push((reason, counts)),
        }
    }

    fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    fn counts(&self) -> Counts {
        let named = self.named.iter().map(|fault| fault.counts);
        let all = named.chain(self.unnamed.iter().map(|(_, counts)| *counts));
        all.fold(Counts::default(), |sum, counts| sum + counts)
    }

    fn clear(&mut self) {
        self.named.clear();
        self.unnamed.clear();
    }

    fn report(&mut self, series: &str, rejects: &mut Rejects) {
        for PendingReject { reason, counts, text: (before, after) } in self.named.drain(..) {
            rejects.add(reason, counts, || format!("{before} for series {series}{after}"));
        }
        for (reason, counts) in self.unnamed.drain(..) {
            rejects.add_unnamed(reason, counts);
        }
    }
}

/// Returns the type of a metric by its number, which is the same in both messages.
pub(super) fn metric_kind(number: u64) -> MetricKind {
    // Enumerations have 32 bits; higher bits are ignored.
    match number as u32 {
        1 => MetricKind::Counter,
        2 => MetricKind::Gauge,
        3 => MetricKind::Histogram,
        4 => MetricKind::GaugeHistogram,
        5 => MetricKind::Summary,
        6 => MetricKind::Info,
        7 => MetricKind::StateSet,
        _ => MetricKind::Unknown,
    }
}
