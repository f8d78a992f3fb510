//! One decoded write: flat arrays that are filled without an allocation per series.

use std::ops::Range;

use crate::histogram::HistogramSample;
use crate::labels::Labels;
use crate::metadata::MetricKind;

/// A write on its way from a decoder to the store.
///
/// Shape: series `i` owns `labels(i)`, a range of one byte arena in packed form, and
/// `samples(i)`, a range of two parallel arrays, and `histograms(i)`.
/// Units: timestamps in ms since the epoch.
/// Invariant: labels are canonical (checked by the decoder that fills the batch);
/// one label set may occur more than once; times may be in any order.
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
    /// Since when the counters of the first samples count, 0 where that is not known. It may
    /// be shorter than the times, and mostly is empty: what is missing is 0.
    pub starts: Vec<i64>,
    /// Native histograms, checked by the decoder.
    pub histograms: Vec<HistogramSample>,
    /// Exemplars, in the order of the request.
    pub exemplars: Vec<BatchExemplar>,
    /// What metrics are, in the order of the request.
    pub metadata: Vec<BatchMetadata>,
}

/// An exemplar of a series of the same batch.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchExemplar {
    /// Which series.
    pub series_index: u32,
    /// Its own labels, such as a trace id.
    pub labels: Labels,
    /// Its time, ms since the epoch.
    pub timestamp_ms: i64,
    /// The value that was observed.
    pub value: f64,
}

/// What a metric is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchMetadata {
    /// Its name.
    pub metric: String,
    /// Its type.
    pub kind: MetricKind,
    /// What it counts or measures.
    pub help: String,
    /// The unit of its values.
    pub unit: String,
}

/// Where the parts of one series stand in a [`Batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSeries {
    /// Start in the arena.
    pub labels_start: u32,
    /// End in the arena.
    pub labels_end: u32,
    /// First sample.
    pub samples_start: u32,
    /// One past the last sample.
    pub samples_end: u32,
    /// First histogram.
    pub histograms_start: u32,
    /// One past the last histogram.
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

    /// The packed labels of a series.
    #[inline]
    pub fn labels_bytes(&self, series_index: usize) -> &[u8] {
        let series = &self.series[series_index];
        &self.labels_arena[series.labels_start as usize..series.labels_end as usize]
    }

    /// The labels of a series.
    pub fn labels(&self, series_index: usize) -> Labels {
        Labels::from_checked_bytes(self.labels_bytes(series_index))
    }

    /// Where the samples of a series stand in the two arrays.
    #[inline]
    pub fn samples(&self, series_index: usize) -> Range<usize> {
        let series = &self.series[series_index];
        series.samples_start as usize..series.samples_end as usize
    }

    /// Where the histograms of a series stand.
    #[inline]
    pub fn histograms(&self, series_index: usize) -> Range<usize> {
        let series = &self.series[series_index];
        series.histograms_start as usize..series.histograms_end as usize
    }

    /// Since when the counter of a float sample counts; 0 where that is not known.
    #[inline]
    pub fn start(&self, sample_index: usize) -> i64 {
        self.starts.get(sample_index).copied().unwrap_or(0)
    }

    /// How many samples there are in all, floats and histograms.
    pub fn sample_count(&self) -> usize {
        self.timestamps.len() + self.histograms.len()
    }

    /// Whether there is nothing in it to store.
    pub fn is_empty(&self) -> bool {
        self.sample_count() == 0 && self.exemplars.is_empty() && self.metadata.is_empty()
    }

    /// Empties the batch and keeps its memory.
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
