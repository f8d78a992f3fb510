//! A batch while it is filled: what a series has added so far, and what becomes of it.

use std::sync::Arc;

use model::histogram::{HISTOGRAM_BUCKETS_MAX, Histogram, HistogramError};
use model::labels::LABEL_BYTES_MAX;
use model::{
    Batch, BatchExemplar, BatchMetadata, BatchSeries, HistogramSample, Labels, MetricKind,
    RejectReason,
};

use crate::decode_budget::DecodeBudget;
use crate::fast_path;
use crate::histogram::{HistogramFields, HistogramFieldsError};
use crate::limits::{Limits, SAMPLES_FLAG, SERIES_FLAG};
use crate::protobuf::Reader;
use crate::rejects::{Counts, Rejects, series_text};
use crate::slow_path::UncheckedLabels;
use crate::{DecodeError, Decoded, malformed, too_large};

/// The batch and what is left out of it.
pub(super) struct BatchBuilder<'a> {
    pub(super) limits: &'a Limits,
    pub(super) batch: &'a mut Batch,
    pub(super) decoded: Decoded,
    pub(super) budget: DecodeBudget<'a>,
    series_count: usize,
    metadata_count: usize,
    /// Samples of the series at hand that are left out, until its labels are known.
    pending: PendingRejects,
}

/// Where the batch stood before a series.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeriesMark {
    pub(super) series_index: usize,
    labels: usize,
    samples: usize,
    histograms: usize,
    exemplars: usize,
}

/// What is wrong with samples of one series; few are spelled out.
#[derive(Debug, Default)]
struct PendingRejects {
    named: Vec<PendingReject>,
    unnamed: Vec<(RejectReason, Counts)>,
}

/// One sample that is left out.
#[derive(Debug)]
struct PendingReject {
    reason: RejectReason,
    counts: Counts,
    /// The words before the labels of the series, and those behind them.
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

    /// Begins a series of the request.
    pub(super) fn open_series(&mut self) -> Result<SeriesMark, DecodeError> {
        let mark = self.mark();
        self.count_series("series")?;
        Ok(mark)
    }

    /// Counts one of what the limit of series is for, in the plural.
    pub(super) fn count_series(&mut self, what: &'static str) -> Result<(), DecodeError> {
        self.series_count += 1;
        if self.series_count > self.limits.series_max {
            return Err(too_large(what, SERIES_FLAG, self.limits.series_max));
        }
        Ok(())
    }

    /// Where the batch stands.
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

    /// Notes since when the counter of the sample pushed last counts.
    #[inline]
    pub(super) fn set_start_timestamp(&mut self, start_ms: i64) {
        if start_ms != 0 {
            self.batch.starts.resize(self.batch.timestamps.len() - 1, 0);
            self.batch.starts.push(start_ms);
        }
    }

    /// Whether a series of so many bytes keeps to the limit of samples, if each of them takes
    /// no fewer bytes than the fast path asks for: then nothing has to be asked for each.
    #[inline]
    pub(super) fn fits_sample_limit(&self, message_bytes: usize) -> bool {
        let room = self.limits.samples_max.saturating_sub(self.batch.sample_count());
        message_bytes / fast_path::SAMPLE_BYTES_MIN <= room
    }

    /// Two bytes can stand for a sample: asked before memory outgrows the limit.
    #[inline]
    pub(super) fn check_samples(&self) -> Result<(), DecodeError> {
        if self.batch.sample_count() > self.limits.samples_max {
            return Err(too_large("samples", SAMPLES_FLAG, self.limits.samples_max));
        }
        Ok(())
    }

    /// Takes one histogram message.
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

    /// Takes a histogram with its time, or names what is wrong with it.
    pub(super) fn take_histogram(
        &mut self,
        made: Result<Histogram, HistogramError>,
        sample: impl FnOnce(Arc<Histogram>) -> HistogramSample,
    ) -> Result<(), DecodeError> {
        match made {
            Ok(histogram) => {
                let bytes = size_of::<HistogramSample>() + HistogramFields::OWN_BYTES;
                self.budget.spend(bytes + histogram.heap_bytes())?;
                self.batch.histograms.push(sample(Arc::new(histogram)));
            }
            Err(error) => self.refuse_histogram(error.to_string()),
        }
        self.check_samples()
    }

    /// Leaves out a histogram, and names it.
    #[cold]
    fn refuse_histogram(&mut self, fault: String) {
        let counts = Counts { histograms: 1, ..Counts::default() };
        self.pending.add(RejectReason::Histogram, counts, || (fault, String::new()));
    }

    /// Takes one exemplar with its own labels; one that cannot be kept is passed over.
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

    /// Takes one exemplar, whose labels have so many bytes; one without is passed over.
    pub(super) fn take_exemplar(
        &mut self,
        labels: Option<Labels>,
        labels_bytes: usize,
        timestamp_ms: i64,
        value: f64,
    ) -> Result<(), DecodeError> {
        // With the head of the allocation of its labels.
        self.budget.spend(size_of::<BatchExemplar>() + 2 * size_of::<usize>() + labels_bytes)?;
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

    /// Leaves out an exemplar, and names it.
    #[cold]
    pub(super) fn refuse_exemplar(&mut self, reason: RejectReason, fault: &str) {
        let counts = Counts { exemplars: 1, ..Counts::default() };
        let text = || ("parsing exemplar".to_owned(), format!(": {fault}"));
        self.pending.add(reason, counts, text);
    }

    /// Takes what is said about a metric. Texts that are not UTF-8 are passed over.
    pub(super) fn push_metadata(
        &mut self,
        metric: &[u8],
        kind: MetricKind,
        help: &[u8],
        unit: &[u8],
    ) -> Result<(), DecodeError> {
        self.metadata_count += 1;
        if self.metadata_count > self.limits.series_max {
            return Err(too_large("metadata entries", SERIES_FLAG, self.limits.series_max));
        }
        let text_bytes = metric.len() + help.len() + unit.len();
        self.budget.spend(size_of::<BatchMetadata>() + text_bytes)?;
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned);
        match (text(metric), text(help), text(unit)) {
            (Ok(metric), Ok(help), Ok(unit)) if !metric.is_empty() => {
                self.batch.metadata.push(BatchMetadata { metric, kind, help, unit });
            }
            _ => self.decoded.metadata_dropped += 1,
        }
        Ok(())
    }

    /// What the series at hand has brought so far, with what is left out of it.
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

    /// Leaves the series at hand out of the batch.
    #[cold]
    pub(super) fn refuse_series(&mut self, mark: SeriesMark, reason: RejectReason, text: String) {
        let counts = self.counts(mark);
        self.pending.clear();
        self.truncate(mark);
        self.decoded.rejects.add(reason, counts, || text);
    }

    /// Files what the series at hand has brought under the labels that end the arena. One that
    /// has brought nothing is left out.
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
        // Bytes of labels are below the budget, which is below 2^32, as is all else.
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

    /// The labels at the end of the arena in words.
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
        // The first of each reason is spelled out in any case: it is the example of a log line.
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
        for PendingReject { reason, counts, text: (before, behind) } in self.named.drain(..) {
            rejects.add(reason, counts, || format!("{before} for series {series}{behind}"));
        }
        for (reason, counts) in self.unnamed.drain(..) {
            rejects.add_unnamed(reason, counts);
        }
    }
}

/// The type of a metric by its number, which is the same in both messages.
pub(super) fn metric_kind(number: u64) -> MetricKind {
    // An enumeration has 32 bits; what stands above them is cut off.
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

/// The longest text that both the limits and the packed form allow.
pub(super) fn text_bytes_max(limit: usize) -> usize {
    limit.min(LABEL_BYTES_MAX)
}
