//! Source of decoded samples in memory, for tests and scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use smol_str::SmolStr;

use crate::budget::Budget;
use crate::cursor::{Advance, Cursor, SampleBatch, SliceCursor};
use crate::error::SourceError;
use crate::histogram::Histogram;
use crate::histogram::HistogramSample;
use crate::labels::Labels;
use crate::matcher::Matcher;
use crate::source::{BoxFuture, MetadataQuery, Selection, SeriesSet, Source};

/// Decoded series in memory.
#[derive(Debug, Default, Clone)]
pub struct MemorySource {
    series: BTreeMap<Labels, Arc<Samples>>,
}

#[derive(Debug, Default, Clone)]
struct Samples {
    timestamps: Vec<i64>,
    values: Vec<f64>,
    /// Start timestamps: empty, or one for each float.
    starts: Vec<i64>,
    histograms: Vec<HistogramSample>,
}

impl MemorySource {
    /// Returns an empty source.
    pub fn new() -> MemorySource {
        MemorySource::default()
    }

    /// Adds one float, in any order; the last write at a time wins.
    pub fn append(&mut self, labels: &Labels, timestamp_ms: i64, value: f64) {
        self.append_with_start(labels, timestamp_ms, value, 0);
    }

    /// Adds one float with a start timestamp, 0 if unknown.
    pub fn append_with_start(
        &mut self,
        labels: &Labels,
        timestamp_ms: i64,
        value: f64,
        start_ms: i64,
    ) {
        let samples = self.samples_mut(labels);
        samples.histograms.retain(|sample| sample.timestamp_ms != timestamp_ms);
        if start_ms != 0 {
            samples.starts.resize(samples.timestamps.len(), 0);
        }
        let has_starts = start_ms != 0 || !samples.starts.is_empty();
        match samples.timestamps.binary_search(&timestamp_ms) {
            Ok(at) => {
                samples.values[at] = value;
                if has_starts {
                    samples.starts[at] = start_ms;
                }
            }
            Err(at) => {
                samples.timestamps.insert(at, timestamp_ms);
                samples.values.insert(at, value);
                if has_starts {
                    samples.starts.insert(at, start_ms);
                }
            }
        }
    }

    /// Adds one native histogram, in any order; the last write at a time wins. Its reset hint is
    /// kept.
    pub fn append_histogram(
        &mut self,
        labels: &Labels,
        timestamp_ms: i64,
        histogram: Arc<Histogram>,
        start_ms: i64,
    ) {
        let samples = self.samples_mut(labels);
        if let Ok(at) = samples.timestamps.binary_search(&timestamp_ms) {
            samples.timestamps.remove(at);
            samples.values.remove(at);
            if !samples.starts.is_empty() {
                samples.starts.remove(at);
            }
        }
        let sample = HistogramSample { timestamp_ms, start_ms, histogram };
        match samples.histograms.binary_search_by_key(&timestamp_ms, |s| s.timestamp_ms) {
            Ok(at) => samples.histograms[at] = sample,
            Err(at) => samples.histograms.insert(at, sample),
        }
    }

    /// Removes the samples of matching series from one time to another.
    pub fn delete(&mut self, matchers: &[Matcher], start_ms: i64, end_ms: i64) {
        let is_left = |time_ms: i64| !(start_ms..=end_ms).contains(&time_ms);
        for (labels, samples) in &mut self.series {
            if !matchers.iter().all(|m| m.matches(labels.get(m.name()))) {
                continue;
            }
            let samples = Arc::make_mut(samples);
            let kept: Vec<bool> = samples.timestamps.iter().map(|t| is_left(*t)).collect();
            let mut places = kept.iter();
            samples.values.retain(|_| places.next() == Some(&true));
            let mut places = kept.iter();
            samples.starts.retain(|_| places.next() == Some(&true));
            samples.timestamps.retain(|t| is_left(*t));
            samples.histograms.retain(|sample| is_left(sample.timestamp_ms));
        }
        self.series.retain(|_, s| !s.timestamps.is_empty() || !s.histograms.is_empty());
    }

    /// Returns the latest histogram of a series.
    pub fn last_histogram(&self, labels: &Labels) -> Option<&HistogramSample> {
        self.series.get(labels)?.histograms.last()
    }

    fn samples_mut(&mut self, labels: &Labels) -> &mut Samples {
        Arc::make_mut(self.series.entry(labels.clone()).or_default())
    }

    /// Removes all series.
    pub fn clear(&mut self) {
        self.series.clear();
    }

    /// Iterates over series with the times and values of their floats, sorted by labels.
    pub fn iter(&self) -> impl Iterator<Item = (&Labels, &[i64], &[f64])> {
        self.series.iter().map(|(labels, s)| (labels, &s.timestamps[..], &s.values[..]))
    }

    /// Iterates over series with their histograms, sorted by labels.
    pub fn histograms(&self) -> impl Iterator<Item = (&Labels, &[HistogramSample])> {
        self.series.iter().map(|(labels, s)| (labels, &s.histograms[..]))
    }

    /// Iterates over series with the start timestamps of their floats, sorted by labels: none, or
    /// one for each float.
    pub fn starts(&self) -> impl Iterator<Item = (&Labels, &[i64])> {
        self.series.iter().map(|(labels, s)| (labels, &s.starts[..]))
    }

    fn matching<'a>(
        &'a self,
        matchers: &'a [Matcher],
    ) -> impl Iterator<Item = (&'a Labels, &'a Arc<Samples>)> {
        self.series
            .iter()
            .filter(|(labels, _)| matchers.iter().all(|m| m.matches(labels.get(m.name()))))
    }

    fn matching_any(&self, query: &MetadataQuery) -> BTreeSet<&Labels> {
        let passes = |labels: &Labels, matchers: &[Matcher]| {
            matchers.iter().all(|m| m.matches(labels.get(m.name())))
        };
        self.series
            .iter()
            .filter(|(_, samples)| {
                samples.range(query.times.start_ms, query.times.end_ms).len() > 0
            })
            .map(|(labels, _)| labels)
            .filter(|labels| {
                query.selectors.is_empty() || query.selectors.iter().any(|s| passes(labels, s))
            })
            .collect()
    }
}

/// Indices of the floats and histograms of a series in a range of time.
#[derive(Debug, Clone)]
struct Ranges {
    floats: Range<usize>,
    histograms: Range<usize>,
}

impl Ranges {
    fn len(&self) -> usize {
        self.floats.len() + self.histograms.len()
    }
}

impl Samples {
    fn range(&self, start_ms: i64, end_ms: i64) -> Ranges {
        let start = self.timestamps.partition_point(|t| *t < start_ms);
        let end = self.timestamps.partition_point(|t| *t <= end_ms);
        let first = self.histograms.partition_point(|s| s.timestamp_ms < start_ms);
        let last = self.histograms.partition_point(|s| s.timestamp_ms <= end_ms);
        Ranges { floats: start..end.max(start), histograms: first..last.max(first) }
    }
}

struct MemorySet {
    series: Vec<(Labels, Arc<Samples>, Ranges)>,
}

impl SeriesSet for MemorySet {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        &self.series[series_index].0
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        let (_, samples, ranges) = &self.series[series_index];
        if ranges.histograms.is_empty() && samples.starts.is_empty() {
            return Box::new(SliceCursor::new(
                &samples.timestamps[ranges.floats.clone()],
                &samples.values[ranges.floats.clone()],
            ));
        }
        Box::new(MixedCursor { samples, rest: ranges.clone() })
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.series[series_index].2.len()
    }

    fn has_histograms(&self, series_index: usize) -> bool {
        !self.series[series_index].2.histograms.is_empty()
    }

    fn encoded_bytes(&self) -> usize {
        let bytes = |(_, samples, ranges): &(Labels, Arc<Samples>, Ranges)| {
            let histograms = &samples.histograms[ranges.histograms.clone()];
            let of_histograms: usize = histograms.iter().map(|s| s.histogram.heap_bytes()).sum();
            ranges.len() * 16 + of_histograms
        };
        self.series.iter().map(bytes).sum()
    }
}

/// Cursor over floats and histograms, by time.
struct MixedCursor<'a> {
    samples: &'a Samples,
    rest: Ranges,
}

impl Cursor for MixedCursor<'_> {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        let Ranges { floats, histograms } = &mut self.rest;
        loop {
            let float_ms = floats.clone().next().map(|at| self.samples.timestamps[at]);
            let histogram_ms =
                histograms.clone().next().map(|at| self.samples.histograms[at].timestamp_ms);
            let next_ms = match (float_ms, histogram_ms) {
                (None, None) => return Ok(Advance::End),
                (Some(time_ms), None) | (None, Some(time_ms)) => time_ms,
                (Some(a), Some(b)) => a.min(b),
            };
            if next_ms > until_ms {
                return Ok(Advance::Reached);
            }
            if batch.is_full() {
                return Ok(Advance::Full);
            }
            if float_ms == Some(next_ms) {
                let start_ms = self.samples.starts.get(floats.start).copied().unwrap_or(0);
                batch.push_with_start(next_ms, self.samples.values[floats.start], start_ms);
                floats.start += 1;
            } else {
                batch.histograms.push(self.samples.histograms[histograms.start].clone());
                histograms.start += 1;
            }
        }
    }
}

impl Source for MemorySource {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        Box::pin(async move {
            let series: Vec<_> = self
                .matching(&selection.matchers)
                .map(|(labels, samples)| {
                    let range = samples.range(selection.times.start_ms, selection.times.end_ms);
                    (labels.clone(), Arc::clone(samples), range)
                })
                .filter(|(_, _, range)| range.len() > 0)
                .collect();
            budget.charge_series(series.len() as u64)?;
            Ok(Arc::new(MemorySet { series }) as Arc<dyn SeriesSet>)
        })
    }

    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        Box::pin(
            async move { Ok(limited(self.matching_any(query).into_iter().cloned(), query.limit)) },
        )
    }

    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        Box::pin(async move {
            let labels = self.matching_any(query);
            let names: BTreeSet<&str> =
                labels.iter().flat_map(|l| l.iter().map(|(name, _)| name)).collect();
            Ok(limited(names.into_iter().map(SmolStr::new), query.limit))
        })
    }

    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        Box::pin(async move {
            let labels = self.matching_any(query);
            let values: BTreeSet<&str> =
                labels.iter().map(|l| l.get(name)).filter(|v| !v.is_empty()).collect();
            Ok(limited(values.into_iter().map(SmolStr::new), query.limit))
        })
    }
}

fn limited<T>(items: impl Iterator<Item = T>, limit: usize) -> Vec<T> {
    items.take(if limit == 0 { usize::MAX } else { limit }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::HISTOGRAM_BATCH_LEN;

    #[test]
    fn cursor_yields_floats_and_histograms_in_order() {
        let labels = Labels::from_pairs([("__name__", "m")]);
        let mut source = MemorySource::new();
        for time_ms in 0..1000 {
            if time_ms % 3 == 0 {
                source.append_histogram(&labels, time_ms, Arc::default(), time_ms);
            } else {
                source.append_with_start(&labels, time_ms, time_ms as f64, time_ms % 2);
            }
        }
        let (_, samples) = source.series.iter().next().unwrap();
        let mut cursor = MixedCursor { samples, rest: samples.range(10, 900) };
        let mut batch = SampleBatch::new();
        let mut next_ms = 10;
        loop {
            batch.clear();
            let advance = cursor.next_batch(950, &mut batch).unwrap();
            let floats = batch.samples().0.iter().enumerate().map(|(i, t)| (*t, batch.start(i)));
            let histograms = batch.histograms.iter().map(|s| (s.timestamp_ms, s.start_ms));
            let mut all: Vec<(i64, i64)> = floats.chain(histograms).collect();
            all.sort_unstable();
            assert!(batch.histograms.len() <= HISTOGRAM_BATCH_LEN);
            for (time_ms, start_ms) in all {
                assert_eq!(time_ms, next_ms);
                assert_eq!(start_ms, if time_ms % 3 == 0 { time_ms } else { time_ms % 2 });
                next_ms += 1;
            }
            if advance == Advance::End {
                break;
            }
        }
        assert_eq!(next_ms, 901);
    }

    #[test]
    fn last_write_at_a_time_wins_whatever_its_kind() {
        let labels = Labels::from_pairs([("__name__", "m")]);
        let mut source = MemorySource::new();
        source.append_with_start(&labels, 5, 1.0, 2);
        source.append_histogram(&labels, 5, Arc::default(), 0);
        assert!(source.iter().all(|(_, times, _)| times.is_empty()));
        source.append(&labels, 5, 3.0);
        assert!(source.histograms().all(|(_, samples)| samples.is_empty()));
        assert!(source.iter().all(|(_, times, values)| times == [5] && values == [3.0]));
    }
}
