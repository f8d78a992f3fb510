//! A source that holds decoded samples: for tests, scripts and benches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::budget::Budget;
use crate::cursor::{Cursor, SliceCursor};
use crate::labels::Labels;
use crate::matcher::Matcher;
use crate::source::{BoxFuture, MetadataQuery, Selection, SeriesSet, Source, SourceError};

/// Series in memory, decoded.
#[derive(Debug, Default, Clone)]
pub struct MemorySource {
    series: BTreeMap<Labels, Arc<Samples>>,
}

#[derive(Debug, Default, Clone)]
struct Samples {
    timestamps: Vec<i64>,
    values: Vec<f64>,
}

impl MemorySource {
    /// An empty source.
    pub fn new() -> MemorySource {
        MemorySource::default()
    }

    /// Adds one sample, in any order; the later write of one time wins.
    pub fn append(&mut self, labels: &Labels, timestamp_ms: i64, value: f64) {
        let samples = Arc::make_mut(self.series.entry(labels.clone()).or_default());
        match samples.timestamps.binary_search(&timestamp_ms) {
            Ok(at) => samples.values[at] = value,
            Err(at) => {
                samples.timestamps.insert(at, timestamp_ms);
                samples.values.insert(at, value);
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.series.clear();
    }

    /// Every series with its times and values, sorted by labels.
    pub fn iter(&self) -> impl Iterator<Item = (&Labels, &[i64], &[f64])> {
        self.series.iter().map(|(labels, s)| (labels, &s.timestamps[..], &s.values[..]))
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
            .filter(|(_, samples)| !samples.range(query.start_ms, query.end_ms).is_empty())
            .map(|(labels, _)| labels)
            .filter(|labels| {
                query.selectors.is_empty() || query.selectors.iter().any(|s| passes(labels, s))
            })
            .collect()
    }
}

impl Samples {
    fn range(&self, start_ms: i64, end_ms: i64) -> std::ops::Range<usize> {
        let start = self.timestamps.partition_point(|t| *t < start_ms);
        let end = self.timestamps.partition_point(|t| *t <= end_ms);
        start..end.max(start)
    }
}

struct MemorySet {
    series: Vec<(Labels, Arc<Samples>, std::ops::Range<usize>)>,
}

impl SeriesSet for MemorySet {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        &self.series[series_index].0
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        let (_, samples, range) = &self.series[series_index];
        Box::new(SliceCursor::new(
            &samples.timestamps[range.clone()],
            &samples.values[range.clone()],
        ))
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.series[series_index].2.len()
    }

    fn encoded_bytes(&self) -> usize {
        self.series.iter().map(|(_, _, range)| range.len() * 16).sum()
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
                    let range = samples.range(selection.start_ms, selection.end_ms);
                    (labels.clone(), Arc::clone(samples), range)
                })
                .filter(|(_, _, range)| !range.is_empty())
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
    ) -> BoxFuture<'a, Result<Vec<String>, SourceError>> {
        Box::pin(async move {
            let labels = self.matching_any(query);
            let names: BTreeSet<&str> =
                labels.iter().flat_map(|l| l.iter().map(|(name, _)| name)).collect();
            Ok(limited(names.into_iter().map(str::to_owned), query.limit))
        })
    }

    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<String>, SourceError>> {
        Box::pin(async move {
            let labels = self.matching_any(query);
            let values: BTreeSet<&str> =
                labels.iter().map(|l| l.get(name)).filter(|v| !v.is_empty()).collect();
            Ok(limited(values.into_iter().map(str::to_owned), query.limit))
        })
    }
}

fn limited<T>(items: impl Iterator<Item = T>, limit: usize) -> Vec<T> {
    items.take(if limit == 0 { usize::MAX } else { limit }).collect()
}
