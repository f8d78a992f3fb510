//! Results of queries.

use std::sync::Arc;

use model::{Histogram, Labels, ObjectStoreCost};

use crate::annotations::Annotations;
use crate::plan::Explained;
use crate::steps::Steps;
use crate::tile::{HistogramCell, histogram_bytes};

/// Value of a query, its annotations and its cost.
#[derive(Debug, Clone)]
pub struct QueryOutput {
    /// The value.
    pub value: Value,
    /// Warnings and infos.
    pub annotations: Annotations,
    /// Cost.
    pub stats: QueryStats,
    /// Explained plan, if requested.
    pub explained: Option<Explained>,
    /// Samples per step, if requested.
    pub step_stats: Option<StepStats>,
}

/// Number of samples that each step of a query saw.
///
/// Shape: one count of each kind per step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepStats {
    /// The steps.
    pub steps: Steps,
    /// Number of samples seen by each step.
    pub counts: Vec<u64>,
    /// Number of samples that each step saw and no earlier step saw.
    pub read_counts: Vec<u64>,
}

/// Cost of a query.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueryStats {
    /// Samples decoded.
    pub sample_count: u64,
    /// Series selected.
    pub series_count: u64,
    /// Maximum bytes held at once.
    pub memory_bytes_peak: u64,
    /// Reads of the object store.
    pub object_store: ObjectStoreCost,
    /// Seconds spent parsing and planning.
    pub prepare_seconds: f64,
    /// Seconds spent waiting for and loading series.
    pub load_seconds: f64,
    /// Seconds spent computing.
    pub execute_seconds: f64,
}

/// The value of a query.
#[derive(Debug, Clone)]
pub enum Value {
    /// A number at a time.
    Scalar {
        /// ms since the epoch.
        time_ms: i64,
        /// The number.
        value: f64,
    },
    /// A text at a time.
    String {
        /// ms since the epoch.
        time_ms: i64,
        /// The text.
        value: String,
    },
    /// One value per series, all at one time, in the order that the query requests.
    Vector {
        /// ms since the epoch.
        time_ms: i64,
        /// Labels and value.
        samples: Vec<(Labels, SampleValue)>,
    },
    /// Result of a range query: series on a common grid of steps, sorted by labels.
    Grid {
        /// The grid.
        steps: Steps,
        /// The series; each has at least one value.
        rows: Vec<Row>,
    },
    /// Result of an instant query that is a range selector: raw samples, sorted by labels.
    Samples(Vec<RawSeries>),
}

impl Value {
    /// Returns the number of bytes held, except labels, which are shared.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Value::Scalar { .. } => 0,
            Value::String { value, .. } => value.len(),
            Value::Vector { samples, .. } => size_of_val(&samples[..]),
            Value::Grid { rows, .. } => {
                let words = |row: &Row| row.values.len() + row.presence.len();
                size_of_val(&rows[..]) + rows.iter().map(|row| words(row) * 8).sum::<usize>()
            }
            Value::Samples(series) => {
                let held = |raw: &RawSeries| 16 * raw.values.len();
                size_of_val(&series[..]) + series.iter().map(held).sum::<usize>()
            }
        };
        bytes as u64 + self.histogram_bytes()
    }

    fn histogram_bytes(&self) -> u64 {
        let one = |h: &Arc<Histogram>| (size_of::<Histogram>() + h.heap_bytes()) as u64;
        match self {
            Value::Scalar { .. } | Value::String { .. } => 0,
            Value::Vector { samples, .. } => {
                let of = |(_, value): &(Labels, SampleValue)| match value {
                    SampleValue::Float(_) => 0,
                    SampleValue::Histogram(histogram) => one(histogram),
                };
                samples.iter().map(of).sum()
            }
            Value::Grid { rows, .. } => {
                let of = |row: &Row| size_of_val(&row.histograms[..]) as u64;
                rows.iter().map(|row| of(row) + histogram_bytes(&row.histograms)).sum()
            }
            Value::Samples(series) => {
                let all = series.iter().flat_map(|raw| &raw.histograms);
                all.map(|(_, histogram)| 16 + one(histogram)).sum()
            }
        }
    }
}

/// Value of a series at one time.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleValue {
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<Histogram>),
}

impl From<Arc<Histogram>> for SampleValue {
    fn from(histogram: Arc<Histogram>) -> SampleValue {
        SampleValue::Histogram(histogram)
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> SampleValue {
        SampleValue::Float(value)
    }
}

/// One series on a grid.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its labels.
    pub labels: Labels,
    /// One value per step; an absent value is never read.
    pub values: Vec<f64>,
    /// One bit per step, lowest first, 64 steps per word: whether there is a value.
    pub presence: Vec<u64>,
    /// One cell per step, or empty if there are no histograms. A step has a value or a histogram,
    /// or both if a series of floats and one of histograms have the same labels after their names
    /// are dropped.
    pub histograms: Vec<HistogramCell>,
}

impl Row {
    /// Returns whether there is a value at a step.
    #[inline]
    pub fn is_present(&self, step_index: usize) -> bool {
        self.presence[step_index / 64] >> (step_index % 64) & 1 == 1
    }

    /// Returns the steps that have a value, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        (0..self.values.len()).filter(|i| self.is_present(*i)).map(|i| (i, self.values[i]))
    }

    /// Returns the steps that have a histogram, with their histograms.
    pub fn iter_histograms(&self) -> impl Iterator<Item = (usize, &Arc<Histogram>)> + '_ {
        self.histograms.iter().enumerate().filter_map(|(i, cell)| Some((i, cell.as_ref()?)))
    }

    /// Returns the value at a step; if there is a float and a histogram, the histogram, as in an
    /// instant query.
    pub fn at(&self, step_index: usize) -> Option<SampleValue> {
        if let Some(Some(histogram)) = self.histograms.get(step_index) {
            return Some(SampleValue::Histogram(Arc::clone(histogram)));
        }
        self.is_present(step_index).then(|| SampleValue::Float(self.values[step_index]))
    }
}

/// Series with its own timestamps.
#[derive(Debug, Clone)]
pub struct RawSeries {
    /// Its labels.
    pub labels: Labels,
    /// Times of the floats, ascending.
    pub timestamps: Vec<i64>,
    /// Values, one per timestamp.
    pub values: Vec<f64>,
    /// Native histograms with their times, ascending.
    pub histograms: Vec<(i64, Arc<Histogram>)>,
}
