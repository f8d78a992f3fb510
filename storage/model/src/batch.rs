//! One decoded write: flat arrays that are filled without an allocation per series.

use std::ops::Range;

use crate::labels::Labels;

/// A write on its way from a decoder to the store.
///
/// Shape: series `i` owns `labels(i)`, a range of one byte arena in packed form, and
/// `samples(i)`, a range of two parallel arrays.
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
        });
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

    /// How many samples there are in all.
    pub fn sample_count(&self) -> usize {
        self.timestamps.len()
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.labels_arena.clear();
        self.series.clear();
        self.timestamps.clear();
        self.values.clear();
    }
}
