//! One decoded write: flat arrays that are filled without an allocation per series.

use std::ops::Range;

use crate::histogram::HistogramSample;
use crate::labels::Labels;
use crate::metadata::MetricKind;

/// Decoded write request, for the store.
///
/// Shape: series `i` owns `labels(i)`, a packed range of one byte arena; `samples(i)`, a range of
/// two parallel arrays; and `histograms(i)`.
/// Units: timestamps in ms since the epoch.
/// Invariant: labels are canonical (checked by the decoder); a label set may occur more than once;
/// times may be in any order.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    /// Packed labels of all series, end to end.
    pub labels_arena: Vec<u8>,
    /// The series in the order of the request.
    pub series: Vec<BatchSeries>,
    /// Sample times.
    pub timestamps: Vec<i64>,
    /// Sample values, as many as times.
    pub values: Vec<f64>,
    /// Start timestamps of the first samples, 0 if unknown. May be shorter than the times, and is
    /// mostly empty: missing ones are 0.
    pub starts: Vec<i64>,
    /// Native histograms, checked by the decoder.
    pub histograms: Vec<HistogramSample>,
    /// Exemplars, in the order of the request.
    pub exemplars: Vec<BatchExemplar>,
    /// Metadata of metrics, in the order of the request.
    pub metadata: Vec<BatchMetadata>,
}

/// An exemplar of a series of the same batch.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchExemplar {
    /// Index of the series in the batch.
    pub series_index: u32,
    /// Labels of the exemplar, such as a trace id.
    pub labels: Labels,
    /// Time in ms since the epoch.
    pub timestamp_ms: i64,
    /// Observed value.
    pub value: f64,
}

/// Metadata of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchMetadata {
    /// Name of the metric.
    pub metric: String,
    /// Type.
    pub kind: MetricKind,
    /// Description.
    pub help: String,
    /// Unit of the values.
    pub unit: String,
}

impl BatchExemplar {
    /// Returns the bytes that the exemplar takes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<BatchExemplar>() + self.labels.as_bytes().len()
    }
}

impl BatchMetadata {
    /// Returns the bytes that the entry takes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<BatchMetadata>() + self.metric.len() + self.help.len() + self.unit.len()
    }
}

/// Ranges of one series in the arrays of a [`Batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSeries {
    /// Start of the labels in the arena.
    pub labels_start: u32,
    /// End of the labels in the arena.
    pub labels_end: u32,
    /// Index of the first sample.
    pub samples_start: u32,
    /// Index after the last sample.
    pub samples_end: u32,
    /// Index of the first histogram.
    pub histograms_start: u32,
    /// Index after the last histogram.
    pub histograms_end: u32,
}

impl Batch {
    /// Adds a series with its samples.
    pub fn push(&mut self, labels: &Labels, samples: &[(i64, f64)]) {
        let labels_start = self.labels_arena.len() as u32;
        let samples_start = self.timestamps.len() as u32;
        self.labels_arena.extend_from_slice(labels.as_bytes());
        for (timestamp, value) in samples {
            self.timestamps.push(*timestamp);
            self.values.push(*value);
        }
        self.series.push(BatchSeries {
            labels_start,
            labels_end: self.labels_arena.len() as u32,
            samples_start,
            samples_end: self.timestamps.len() as u32,
            histograms_start: self.histograms.len() as u32,
            histograms_end: self.histograms.len() as u32,
        });
    }

    /// Adds histograms to the series that was added last.
    ///
    /// Panics: there is none.
    pub fn push_histograms(&mut self, samples: &[HistogramSample]) {
        self.histograms.extend_from_slice(samples);
        let series = self.series.last_mut().expect("histograms follow their series");
        series.histograms_end = self.histograms.len() as u32;
    }

    /// Returns the packed labels of a series.
    #[inline]
    pub fn labels_bytes(&self, series_index: usize) -> &[u8] {
        let series = &self.series[series_index];
        &self.labels_arena[series.labels_start as usize..series.labels_end as usize]
    }

    /// Returns the labels of a series.
    pub fn labels(&self, series_index: usize) -> Labels {
        Labels::from_checked_bytes(self.labels_bytes(series_index))
    }

    /// Returns the range of a series' samples in the two arrays.
    #[inline]
    pub fn samples(&self, series_index: usize) -> Range<usize> {
        let series = &self.series[series_index];
        series.samples_start as usize..series.samples_end as usize
    }

    /// Returns the range of a series' histograms.
    #[inline]
    pub fn histograms(&self, series_index: usize) -> Range<usize> {
        let series = &self.series[series_index];
        series.histograms_start as usize..series.histograms_end as usize
    }

    /// Returns the start timestamp of a float sample, 0 if unknown.
    #[inline]
    pub fn start(&self, sample_index: usize) -> i64 {
        self.starts.get(sample_index).copied().unwrap_or(0)
    }

    /// Returns the number of samples, floats and histograms.
    pub fn sample_count(&self) -> usize {
        self.timestamps.len() + self.histograms.len()
    }

    /// Returns whether the batch has nothing to store.
    pub fn is_empty(&self) -> bool {
        self.sample_count() == 0 && self.exemplars.is_empty() && self.metadata.is_empty()
    }

    /// Returns the bytes that the batch takes in memory, unused capacity included.
    pub fn memory_bytes(&self) -> usize {
        fn spare<T>(items: &Vec<T>) -> usize {
            (items.capacity() - items.len()) * size_of::<T>()
        }
        self.labels_arena.capacity()
            + self.series.capacity() * size_of::<BatchSeries>()
            + self.timestamps.capacity() * size_of::<i64>()
            + self.values.capacity() * size_of::<f64>()
            + self.starts.capacity() * size_of::<i64>()
            + spare(&self.histograms)
            + self.histograms.iter().map(HistogramSample::memory_bytes).sum::<usize>()
            + spare(&self.exemplars)
            + self.exemplars.iter().map(BatchExemplar::memory_bytes).sum::<usize>()
            + spare(&self.metadata)
            + self.metadata.iter().map(BatchMetadata::memory_bytes).sum::<usize>()
    }

    /// Removes everything and keeps the allocations.
    pub fn clear(&mut self) {
        self.labels_arena.clear();
        self.series.clear();
        self.timestamps.clear();
        self.values.clear();
        self.starts.clear();
        self.histograms.clear();
        self.exemplars.clear();
        self.metadata.clear();
    }
}
