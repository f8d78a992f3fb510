//! Batches of samples, grouped by series.

use std::collections::HashMap;

use model::{Batch, BatchExemplar, BatchMetadata, Exemplar, Histogram, HistogramSample, Labels};

/// Number of samples of a full batch; each commit costs a sync.
const SAMPLES_MAX: usize = 128 << 10;
/// Bytes of a full batch, for histograms and labels.
const BYTES_MAX: usize = 16 << 20;

/// Batch under construction.
#[derive(Debug, Default)]
pub(super) struct Batcher {
    series: Vec<OfSeries>,
    by_labels: HashMap<Labels, usize>,
    metadata: Vec<BatchMetadata>,
    samples: usize,
    bytes: usize,
}

/// Samples of a series in a batch.
#[derive(Debug)]
struct OfSeries {
    labels: Labels,
    floats: Vec<(i64, f64)>,
    /// Start timestamps; shorter than the floats if some are unknown.
    starts: Vec<i64>,
    histograms: Vec<HistogramSample>,
    exemplars: Vec<Exemplar>,
}

impl Batcher {
    /// Adds a float; `start_ms` is 0 if it is unknown.
    pub(super) fn float(&mut self, labels: &Labels, timestamp_ms: i64, start_ms: i64, value: f64) {
        let series = self.of(labels);
        if start_ms != 0 {
            series.starts.resize(series.floats.len(), 0);
            series.starts.push(start_ms);
        }
        series.floats.push((timestamp_ms, value));
        self.samples += 1;
        self.bytes += 16;
    }

    /// Adds a histogram.
    pub(super) fn histogram(&mut self, labels: &Labels, sample: HistogramSample) {
        self.bytes += size_of::<Histogram>() + sample.histogram.heap_bytes();
        self.samples += 1;
        self.of(labels).histograms.push(sample);
    }

    /// Adds an exemplar to a series with a sample in the batch.
    pub(super) fn exemplar(&mut self, labels: &Labels, exemplar: Exemplar) {
        self.bytes += size_of::<Exemplar>() + exemplar.labels.as_bytes().len();
        self.of(labels).exemplars.push(exemplar);
    }

    /// Adds metadata of a metric.
    pub(super) fn metadata(&mut self, metadata: BatchMetadata) {
        let BatchMetadata { metric, help, unit, .. } = &metadata;
        self.bytes += size_of::<BatchMetadata>() + metric.len() + help.len() + unit.len();
        self.metadata.push(metadata);
    }

    /// Returns whether the batch is full.
    pub(super) fn is_full(&self) -> bool {
        self.samples >= SAMPLES_MAX || self.bytes >= BYTES_MAX
    }

    /// Returns the batch, and starts an empty one.
    pub(super) fn take(&mut self) -> Batch {
        let Batcher { series, metadata, .. } = std::mem::take(self);
        let mut batch = Batch { metadata, ..Batch::default() };
        for of in series {
            let (index, first) = (batch.series.len() as u32, batch.timestamps.len());
            batch.push(&of.labels, &of.floats);
            if !of.starts.is_empty() {
                batch.starts.resize(first, 0);
                batch.starts.extend(of.starts);
            }
            batch.push_histograms(&of.histograms);
            batch.exemplars.extend(of.exemplars.into_iter().map(|exemplar| BatchExemplar {
                series_index: index,
                labels: exemplar.labels,
                timestamp_ms: exemplar.timestamp_ms,
                value: exemplar.value,
            }));
        }
        batch
    }

    fn of(&mut self, labels: &Labels) -> &mut OfSeries {
        // Files are mostly sorted by series.
        let index = match self.series.last() {
            Some(last) if last.labels == *labels => self.series.len() - 1,
            _ => self.index_of(labels),
        };
        &mut self.series[index]
    }

    fn index_of(&mut self, labels: &Labels) -> usize {
        if let Some(index) = self.by_labels.get(labels) {
            return *index;
        }
        self.bytes += 2 * labels.as_bytes().len() + size_of::<OfSeries>();
        self.by_labels.insert(labels.clone(), self.series.len());
        self.series.push(OfSeries {
            labels: labels.clone(),
            floats: Vec::new(),
            starts: Vec::new(),
            histograms: Vec::new(),
            exemplars: Vec::new(),
        });
        self.series.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_series_come_together_with_their_starts() {
        let [a, b] = ["a", "b"].map(|name| Labels::from_pairs([("__name__", name)]));
        let mut batcher = Batcher::default();
        batcher.float(&a, 1, 0, 10.0);
        batcher.float(&b, 1, 0, 20.0);
        batcher.float(&a, 2, 1, 11.0);
        batcher.float(&b, 2, 0, 21.0);
        let exemplar = Exemplar { labels: Labels::empty(), timestamp_ms: 2, value: 0.5 };
        batcher.exemplar(&b, exemplar);
        let batch = batcher.take();
        assert_eq!((batch.labels(0), batch.labels(1)), (a, b));
        assert_eq!(batch.values, [10.0, 11.0, 20.0, 21.0]);
        assert_eq!([0, 1, 2, 3].map(|index| batch.start(index)), [0, 1, 0, 0]);
        assert_eq!(batch.exemplars[0].series_index, 1);
        assert!(batcher.take().is_empty());
    }

    #[test]
    fn a_batch_is_full_before_it_is_large() {
        let mut batcher = Batcher::default();
        let mut count = 0;
        while !batcher.is_full() {
            let labels = Labels::from_pairs([("__name__", format!("{count:01000}"))]);
            batcher.float(&labels, 1, 0, 1.0);
            count += 1;
        }
        assert!(count < 10_000, "{count}");
    }
}
