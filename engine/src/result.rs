//! What a query answers.

use model::Labels;

use crate::annotations::Annotations;
use crate::plan::Explained;
use crate::window::Steps;

/// A value, its annotations and what it cost.
#[derive(Debug, Clone)]
pub struct QueryOutput {
    /// The value.
    pub value: Value,
    /// Warnings and infos.
    pub annotations: Annotations,
    /// What it cost.
    pub stats: QueryStats,
    /// How it was done, where that was asked for.
    pub explained: Option<Explained>,
    /// How many samples each step saw, where that was asked for.
    pub seen: Option<SeenSamples>,
}

/// How many samples each step of a query saw.
///
/// Shape: one count of each kind a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenSamples {
    /// The steps.
    pub steps: Steps,
    /// How many samples each step saw.
    pub counts: Vec<u64>,
    /// How many samples each step was the first to see.
    pub read_counts: Vec<u64>,
}

/// What a query cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueryStats {
    /// Samples decoded.
    pub sample_count: u64,
    /// Series selected.
    pub series_count: u64,
    /// The most bytes held at once.
    pub memory_bytes_peak: u64,
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
    /// One value a series, all at one time, in the order that the query asked for.
    Vector {
        /// ms since the epoch.
        time_ms: i64,
        /// Labels and value.
        samples: Vec<(Labels, f64)>,
    },
    /// The answer of a range query: series on a common grid of steps, sorted by labels.
    Grid {
        /// The grid.
        steps: Steps,
        /// The series; each has at least one value.
        rows: Vec<Row>,
    },
    /// The answer of an instant query that is a range selector: raw samples, sorted by labels.
    Samples(Vec<RawSeries>),
}

/// One series on a grid.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its labels.
    pub labels: Labels,
    /// One value a step; an absent one is never read.
    pub values: Vec<f64>,
    /// One bit a step, lowest first, 64 steps a word: whether there is a value.
    pub presence: Vec<u64>,
}

impl Row {
    /// Whether there is a value at a step.
    #[inline]
    pub fn is_present(&self, step_index: usize) -> bool {
        self.presence[step_index / 64] >> (step_index % 64) & 1 == 1
    }

    /// The steps that have a value, with it.
    pub fn iter(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        (0..self.values.len()).filter(|i| self.is_present(*i)).map(|i| (i, self.values[i]))
    }
}

/// One series with times of its own.
#[derive(Debug, Clone)]
pub struct RawSeries {
    /// Its labels.
    pub labels: Labels,
    /// Times, ascending.
    pub timestamps: Vec<i64>,
    /// Values, as many as times.
    pub values: Vec<f64>,
}
