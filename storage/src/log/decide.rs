//! Decisions on samples: each sample is judged once, on the state after all earlier samples.
//! Accepted samples are appended to the columns of the record.
//!
//! Floats and histograms of a series are judged in the order of their times, in runs of one
//! kind. For each histogram, the reset hint is decided as well. Its spans are merged to the
//! fewest, and a staleness marker keeps only its sum.

use std::ops::Range;
use std::sync::Arc;

use model::histogram::decide_hint;
use model::{Batch, Histogram, HistogramSample, Labels, RejectReason, ResetHint};

use super::commit::Log;
use super::queue::PendingWrite;
use super::record::RecordRun;
use crate::chunk::HistogramBefore;
use crate::chunk::histogram::{canonical_spans, is_storable};
use crate::head::series::HeadSeries;
use crate::head::{Fetch, Head, SlotVisit};
use crate::keys;
use crate::outcome::{AppendOutcome, Rejection, SampleKind};
use crate::retention::RetentionFloors;
use crate::samples::decided::DecidedHistogram;
use crate::window::TimeBounds;

/// Maximum age of an in-order sample in Prometheus' head, relative to its newest one.
/// Source: half of the chunk range, `appendableMinValidTime` in `tsdb/head_append.go`.
const IN_ORDER_SPAN_MS: i64 = 60 * 60 * 1000;

impl Log {
    /// Begins a record.
    pub(super) fn begin(&mut self) {
        self.record.clear();
        self.record.first_ref = self.epochs.get(&self.epoch).map_or(0, |info| info.ref_count);
        self.slots.clear();
        self.created.clear();
        self.staged_exemplars.begin();
        self.staged_metadata.begin();
    }

    /// Decides on every sample of a write, and appends the accepted samples to the record.
    pub(super) fn decide(
        &mut self,
        head: &Head,
        bounds: TimeBounds,
        floors: &RetentionFloors<'_>,
        pending: &mut PendingWrite,
        out_of_order: &mut usize,
    ) -> AppendOutcome {
        let mut outcome = AppendOutcome::default();
        // Taken out of the batch, so that most histograms are changed in place, not copied.
        let mut histograms = std::mem::take(&mut pending.batch.histograms);
        let are_slots_valid = pending.generation == head.generation();
        let mut visit = head.visit_slots(Fetch::Series);
        for index in 0..pending.batch.series.len() {
            let histograms = &mut histograms[pending.batch.histograms(index)];
            let bounds = floors.bounds_of(bounds, &pending.batch, index, histograms);
            let mut write = SeriesWrite { batch: &pending.batch, index, bounds, histograms };
            let decided = pending.slots[index].and_then(|slot| {
                self.decide_at(head, &mut visit, slot, are_slots_valid, &mut write, &mut outcome)
            });
            let decided = decided.or_else(|| {
                visit.release();
                let slot = head.find(pending.batch.labels_bytes(index))?;
                self.decide_at(head, &mut visit, slot, true, &mut write, &mut outcome)
            });
            match decided {
                Some(count) => *out_of_order += count,
                None => {
                    // The new series may get a slot of this shard.
                    visit.release();
                    self.decide_new(head, &mut write, &mut outcome);
                }
            }
        }
        for rejection in &mut outcome.rejections {
            if rejection.reason == RejectReason::OutOfBounds {
                let Rejection { labels, timestamp_ms, .. } = rejection;
                rejection.floor = floors.floor_of(labels, *timestamp_ms, bounds.min_ms);
            }
        }
        outcome
    }

    /// Decides on the samples of the series in a slot, as [`Log::decide_run`]. Returns `None` if
    /// the slot has another series or none. If the slot is known to be valid, its labels are not
    /// compared.
    fn decide_at(
        &mut self,
        head: &Head,
        visit: &mut SlotVisit<'_>,
        slot: u32,
        is_valid: bool,
        write: &mut SeriesWrite<'_>,
        outcome: &mut AppendOutcome,
    ) -> Option<usize> {
        let labels = write.batch.labels_bytes(write.index);
        let samples = write.batch.samples(write.index).len() + write.histograms.len();
        let series = visit
            .series(slot, samples)
            .filter(|series| is_valid || series.labels.as_bytes() == labels)?;
        if self.is_dropping() {
            self.drop_before_write(head, slot, series);
        }
        if !series.is_active
            && let Err(reason) = head.admit(&series.labels)
        {
            refuse_series(head, &series.labels, reason, write, outcome);
            return Some(0);
        }
        let accepted = outcome.accepted;
        let out_of_order = self.decide_run(slot, series, write, outcome);
        if outcome.accepted > accepted {
            head.activate(series);
        }
        Some(out_of_order)
    }

    /// Decides on a series that is not in the head, and creates it if a sample is accepted.
    fn decide_new(
        &mut self,
        head: &Head,
        write: &mut SeriesWrite<'_>,
        outcome: &mut AppendOutcome,
    ) {
        let batch = write.batch;
        let labels = batch.labels(write.index);
        let is_too_long = |(name, value): (&str, &str)| {
            name.len() > keys::NAME_BYTES_MAX || value.len() > keys::VALUE_BYTES_MAX
        };
        if labels.iter().any(is_too_long) {
            for (timestamp_ms, kind) in write.samples() {
                let reason = RejectReason::LabelLimit;
                outcome.reject(|| labels.clone(), timestamp_ms, kind, reason);
            }
            return;
        }
        if let Err(reason) = head.admit(&labels) {
            return refuse_series(head, &labels, reason, write, outcome);
        }
        let mut series = HeadSeries::new(labels);
        let first_run = self.slots.len();
        self.decide_run(0, &mut series, write, outcome);
        if self.slots.len() > first_run {
            head.activate(&mut series);
            let labels = series.labels.clone();
            let slot = head.create(series);
            self.slots[first_run..].fill(slot);
            self.created.push((slot, labels));
        }
    }

    /// Decides on the samples of one series. Returns the number of accepted out-of-order samples.
    fn decide_run(
        &mut self,
        slot: u32,
        series: &mut HeadSeries,
        write: &mut SeriesWrite<'_>,
        outcome: &mut AppendOutcome,
    ) -> usize {
        let floats = write.batch.samples(write.index);
        if write.histograms.is_empty() {
            return self.decide_floats(slot, series, write, floats, outcome);
        }
        let mut out_of_order = 0;
        let mut next = (floats.start, 0);
        while next.0 < floats.end || next.1 < write.histograms.len() {
            let histogram_ms = write.histograms.get(next.1).map_or(i64::MAX, |s| s.timestamp_ms);
            let timestamps = &write.batch.timestamps[next.0..floats.end];
            let count = timestamps.iter().take_while(|t| **t <= histogram_ms).count();
            let end = next.0 + count;
            out_of_order += self.decide_floats(slot, series, write, next.0..end, outcome);
            let float_ms = timestamps.get(count).copied().unwrap_or(i64::MAX);
            let histograms = &write.histograms[next.1..];
            let is_last = end == floats.end;
            let until =
                histograms.iter().take_while(|s| is_last || s.timestamp_ms < float_ms).count();
            let histograms = next.1..next.1 + until;
            next = (end, histograms.end);
            out_of_order += self.decide_histograms(slot, series, write, histograms, outcome);
        }
        out_of_order
    }

    /// Decides on a run of the series' floats.
    fn decide_floats(
        &mut self,
        slot: u32,
        series: &mut HeadSeries,
        write: &SeriesWrite<'_>,
        range: Range<usize>,
        outcome: &mut AppendOutcome,
    ) -> usize {
        let mut count = 0;
        let mut out_of_order = 0;
        let has_starts = !write.batch.starts.is_empty();
        for at in range {
            let (timestamp_ms, value) = (write.batch.timestamps[at], write.batch.values[at]);
            let bits = value.to_bits();
            let holds = |series: &HeadSeries| series.holds(timestamp_ms, bits);
            let decision = decide_sample(series, timestamp_ms, holds, self.newest_ms, write.bounds);
            if !decision.note(series, timestamp_ms, SampleKind::Float, outcome) {
                continue;
            }
            if timestamp_ms > series.newest_ms {
                series.newest_ms = timestamp_ms;
                series.newest_bits = bits;
            } else {
                out_of_order += 1;
            }
            if has_starts && write.batch.start(at) != 0 {
                self.record.starts.resize(self.record.timestamps.len(), 0);
                self.record.starts.push(write.batch.start(at));
            }
            self.record.timestamps.push(timestamp_ms);
            self.record.values.push(value);
            count += 1;
        }
        self.push_run(slot, series, count, false, outcome);
        out_of_order
    }

    /// Decides on a run of the series' histograms.
    fn decide_histograms(
        &mut self,
        slot: u32,
        series: &mut HeadSeries,
        write: &mut SeriesWrite<'_>,
        range: Range<usize>,
        outcome: &mut AppendOutcome,
    ) -> usize {
        let mut count = 0;
        let mut out_of_order = 0;
        for sample in &mut write.histograms[range] {
            let timestamp_ms = sample.timestamp_ms;
            let decision = if is_storable(&sample.histogram) {
                make_canonical(&mut sample.histogram);
                let holds =
                    |series: &HeadSeries| series.holds_histogram(timestamp_ms, &sample.histogram);
                decide_sample(series, timestamp_ms, holds, self.newest_ms, write.bounds)
            } else {
                Decision::Reject(RejectReason::Histogram)
            };
            if !decision.note(series, timestamp_ms, SampleKind::Histogram, outcome) {
                continue;
            }
            let newest = series.newest_if_histogram();
            let is_in_order = timestamp_ms > series.newest_ms;
            out_of_order += usize::from(!is_in_order);
            let before = decide_reset(sample, newest.filter(|_| is_in_order));
            series.note_newest_histogram(sample);
            self.record.histograms.push(DecidedHistogram { sample: sample.clone(), before });
            count += 1;
        }
        self.push_run(slot, series, count, true, outcome);
        out_of_order
    }

    /// Adds a run to the record, whose samples are in the columns already.
    fn push_run(
        &mut self,
        slot: u32,
        series: &mut HeadSeries,
        count: u32,
        is_histograms: bool,
        outcome: &mut AppendOutcome,
    ) {
        if count == 0 {
            return;
        }
        if series.log_epoch != self.epoch {
            series.log_epoch = self.epoch;
            series.log_ref = self.record.first_ref + self.record.definitions.len() as u32;
            series.log_bits = 0;
            self.record.definitions.push(series.labels.clone());
        }
        let (reference, bits_before) = (series.log_ref, series.log_bits);
        if !is_histograms && let Some(last) = self.record.values.last() {
            series.log_bits = last.to_bits();
        }
        self.record.runs.push(RecordRun { reference, count, is_histograms, bits_before });
        self.slots.push(slot);
        outcome.accepted += count as usize;
    }
}

/// Rejects all samples of a series that exceeds a limit of the head.
fn refuse_series(
    head: &Head,
    labels: &Labels,
    reason: RejectReason,
    write: &SeriesWrite<'_>,
    outcome: &mut AppendOutcome,
) {
    let count = write.batch.samples(write.index).len() + write.histograms.len();
    let overflow = head.refuse(labels, reason, count as u64);
    for (timestamp_ms, kind) in write.samples() {
        outcome.reject_series(labels, timestamp_ms, kind, reason, &overflow);
    }
}

/// Changes a histogram to its stored form.
fn make_canonical(histogram: &mut Arc<Histogram>) {
    if histogram.is_stale() {
        if **histogram != Histogram::stale() {
            *histogram = Arc::new(Histogram::stale());
        }
        return;
    }
    let is_fewest = |spans: &[model::Span]| canonical_spans(spans).len() == spans.len();
    if !is_fewest(&histogram.positive_spans) || !is_fewest(&histogram.negative_spans) {
        let histogram = Arc::make_mut(histogram);
        histogram.positive_spans = canonical_spans(&histogram.positive_spans).into_owned();
        histogram.negative_spans = canonical_spans(&histogram.negative_spans).into_owned();
    }
}

/// Sets the reset hint of a histogram from its predecessor in order. Returns the predecessor if
/// the hint is `NotReset`.
fn decide_reset(
    sample: &mut HistogramSample,
    before: Option<&HistogramSample>,
) -> Option<HistogramBefore> {
    let hint = decide_hint(before.map(|before| &*before.histogram), &sample.histogram);
    if hint != sample.histogram.reset_hint {
        Arc::make_mut(&mut sample.histogram).reset_hint = hint;
    }
    before.filter(|_| hint == ResetHint::NotReset).map(HistogramBefore::of)
}

/// One series of a write.
struct SeriesWrite<'a> {
    batch: &'a Batch,
    index: usize,
    bounds: TimeBounds,
    /// Histograms of the series.
    histograms: &'a mut [HistogramSample],
}

impl SeriesWrite<'_> {
    /// Returns the times and kinds of the samples.
    fn samples(&self) -> impl Iterator<Item = (i64, SampleKind)> {
        let floats = self.batch.timestamps[self.batch.samples(self.index)].iter();
        let histograms = self.histograms.iter().map(|sample| sample.timestamp_ms);
        let floats = floats.map(|timestamp_ms| (*timestamp_ms, SampleKind::Float));
        floats.chain(histograms.map(|timestamp_ms| (timestamp_ms, SampleKind::Histogram)))
    }
}

enum Decision {
    Accept,
    Duplicate,
    Reject(RejectReason),
}

impl Decision {
    /// Returns whether the sample is accepted, and counts it in the outcome if not.
    #[inline]
    fn note(
        self,
        series: &HeadSeries,
        timestamp_ms: i64,
        kind: SampleKind,
        outcome: &mut AppendOutcome,
    ) -> bool {
        match self {
            Decision::Accept => return true,
            Decision::Duplicate => outcome.duplicates += 1,
            Decision::Reject(reason) => {
                outcome.reject(|| series.labels.clone(), timestamp_ms, kind, reason);
            }
        }
        false
    }
}

/// Decides on one sample.
///
/// With an out-of-order window, source: `appendable` in `tsdb/head_append.go` of Prometheus.
/// Without one, samples of any age are accepted. A sample with the time of another one and a
/// different value is rejected if `holds` finds the other one among the raw samples of the head.
#[inline]
fn decide_sample(
    series: &HeadSeries,
    timestamp_ms: i64,
    holds: impl FnOnce(&HeadSeries) -> Option<bool>,
    head_newest_ms: i64,
    bounds: TimeBounds,
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
        return match holds(series) {
            Some(true) => Decision::Duplicate,
            Some(false) => Decision::Reject(RejectReason::DuplicateTimestamp),
            None => Decision::Accept,
        };
    }
    Decision::Reject(match bounds.out_of_order_window_ms {
        Some(window_ms) if window_ms > 0 => RejectReason::TooOld,
        _ if timestamp_ms < in_order_min_ms => RejectReason::OutOfBounds,
        _ => RejectReason::OutOfOrder,
    })
}
