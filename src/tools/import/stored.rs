//! Samples of a batch that are stored already.

use model::{
    Advance, Batch, BatchExemplar, Budget, HistogramSample, Labels, MatchOp, Matcher, SampleBatch,
    Selection, Source, TimeRange,
};
use storage::{DayStats, Store};

use crate::tools::ToolError;

/// Days with samples before an import, in order. Other days need no lookup.
#[derive(Debug)]
pub(super) struct StoredDays(Vec<DayStats>);

impl StoredDays {
    /// Returns the days of a store whose head is empty.
    pub(super) fn of(store: &Store) -> StoredDays {
        StoredDays(store.days())
    }

    fn has(&self, time_ms: i64) -> bool {
        let index = self.0.partition_point(|day| day.end_ms <= time_ms);
        self.0.get(index).is_some_and(|day| day.start_ms <= time_ms)
    }

    /// Returns whether a store may hold a sample of a batch.
    pub(super) fn may_have(&self, batch: &Batch) -> bool {
        batch.timestamps.iter().any(|time_ms| self.has(*time_ms))
            || batch.histograms.iter().any(|sample| self.has(sample.timestamp_ms))
    }
}

/// Rest of a batch.
#[derive(Debug)]
pub(super) struct Remaining {
    pub(super) batch: Batch,
    /// Omitted samples.
    pub(super) stored_count: usize,
}

/// Stored samples of a series in a time range, sorted by time.
#[derive(Debug, Default)]
struct StoredSamples {
    /// Time, start, bits of the value.
    floats: Vec<(i64, i64, u64)>,
    histograms: Vec<HistogramSample>,
}

/// Removes samples of a batch that are stored with the same time, start timestamp and value, and
/// series without other samples.
pub(super) async fn without_stored(
    store: &Store,
    stored_days: &StoredDays,
    batch: &Batch,
) -> Result<Remaining, ToolError> {
    let mut remaining = Batch { metadata: batch.metadata.clone(), ..Batch::default() };
    let mut stored_count = 0;
    for index in 0..batch.series.len() {
        let labels = batch.labels(index);
        let stored = find(store, stored_days, batch, index, &labels).await?;
        let floats = batch.samples(index).filter(|at| !stored.has_float(batch, *at));
        let floats: Vec<usize> = floats.collect();
        let histograms = &batch.histograms[batch.histograms(index)];
        let absent: Vec<HistogramSample> =
            histograms.iter().filter(|sample| !stored.has_histogram(sample)).cloned().collect();
        stored_count += batch.samples(index).len() - floats.len();
        stored_count += histograms.len() - absent.len();
        if floats.is_empty() && absent.is_empty() {
            continue;
        }
        let series_index = remaining.series.len() as u32;
        push_floats(&mut remaining, &labels, batch, &floats);
        remaining.push_histograms(&absent);
        // Exemplars are sorted by series.
        let first = batch.exemplars.partition_point(|e| (e.series_index as usize) < index);
        let exemplars = batch.exemplars[first..].iter();
        let exemplars = exemplars.take_while(|e| e.series_index as usize == index);
        let exemplars = exemplars.map(|e| BatchExemplar { series_index, ..e.clone() });
        remaining.exemplars.extend(exemplars);
    }
    Ok(Remaining { batch: remaining, stored_count })
}

fn push_floats(remaining: &mut Batch, labels: &Labels, batch: &Batch, floats: &[usize]) {
    let first = remaining.timestamps.len();
    let samples: Vec<(i64, f64)> =
        floats.iter().map(|at| (batch.timestamps[*at], batch.values[*at])).collect();
    remaining.push(labels, &samples);
    if floats.iter().any(|at| batch.start(*at) != 0) {
        remaining.starts.resize(first, 0);
        remaining.starts.extend(floats.iter().map(|at| batch.start(*at)));
    }
}

/// Reads the stored samples of a series, within the times of its samples in the batch.
async fn find(
    store: &Store,
    stored_days: &StoredDays,
    batch: &Batch,
    index: usize,
    labels: &Labels,
) -> Result<StoredSamples, ToolError> {
    let floats = batch.samples(index).map(|at| batch.timestamps[at]);
    let histograms = &batch.histograms[batch.histograms(index)];
    let times = floats.chain(histograms.iter().map(|s| s.timestamp_ms));
    let times: Vec<i64> = times.filter(|time_ms| stored_days.has(*time_ms)).collect();
    let (Some(start_ms), Some(end_ms)) = (times.iter().min(), times.iter().max()) else {
        return Ok(StoredSamples::default());
    };
    if labels.is_empty() {
        return Ok(StoredSamples::default());
    }
    let matchers = labels.iter().map(|(name, value)| Matcher::new(MatchOp::Equal, name, value));
    let matchers = matchers.collect::<Result<Vec<_>, _>>();
    let matchers = matchers.map_err(|error| ToolError::Incomplete(error.to_string()))?;
    let (start_ms, end_ms) = (*start_ms, *end_ms);
    let selection = Selection {
        matchers,
        times: TimeRange::new(start_ms, end_ms),
        only_newest: false,
        windows: None,
    };
    let set = store.select(&selection, &Budget::unlimited()).await?;
    // Series with more labels match as well.
    let Some(found) = (0..set.len()).find(|at| *set.labels(*at) == *labels) else {
        return Ok(StoredSamples::default());
    };
    let (mut cursor, mut samples) = (set.cursor(found), SampleBatch::new());
    let mut stored = StoredSamples::default();
    loop {
        let advance = cursor.next_batch(end_ms, &mut samples)?;
        let (times, values) = samples.samples();
        stored.floats.extend(
            (0..times.len()).map(|at| (times[at], samples.start(at), values[at].to_bits())),
        );
        stored.histograms.append(&mut samples.histograms);
        samples.clear();
        if advance == Advance::End {
            return Ok(stored);
        }
    }
}

impl StoredSamples {
    fn has_float(&self, batch: &Batch, at: usize) -> bool {
        let sample = (batch.timestamps[at], batch.start(at), batch.values[at].to_bits());
        let index = self.floats.partition_point(|(time_ms, ..)| *time_ms < sample.0);
        self.floats.get(index) == Some(&sample)
    }

    fn has_histogram(&self, sample: &HistogramSample) -> bool {
        let index = self.histograms.partition_point(|held| held.timestamp_ms < sample.timestamp_ms);
        self.histograms.get(index).is_some_and(|held| {
            // The stored reset hint depends on neighboring samples.
            let reset_hint = sample.histogram.reset_hint;
            held.timestamp_ms == sample.timestamp_ms
                && held.start_ms == sample.start_ms
                && model::Histogram { reset_hint, ..(*held.histogram).clone() } == *sample.histogram
        })
    }
}
