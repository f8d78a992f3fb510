//! Counts of a histogram as integers, which encodings of Prometheus write shorter than floats.

use super::Histogram;

/// The largest integer up to which all are exact as floats.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Counts of a histogram whose buckets are all integers.
#[derive(Debug, Clone, Copy)]
pub struct IntegerCounts {
    /// Number of observations.
    pub count: u64,
    /// Number of observations in the zero bucket.
    pub zero_count: u64,
}

impl IntegerCounts {
    /// Returns the counts; `None` if one of them is not an integer, or too large to be exact.
    pub fn of(histogram: &Histogram) -> Option<IntegerCounts> {
        let integer = |value: f64| {
            ((0.0..=INTEGER_MAX).contains(&value) && value.trunc() == value).then_some(value as u64)
        };
        let buckets = histogram.positive_counts.iter().chain(&histogram.negative_counts);
        for count in buckets {
            integer(*count)?;
        }
        Some(IntegerCounts {
            count: integer(histogram.count)?,
            zero_count: integer(histogram.zero_count)?,
        })
    }
}

/// Returns the difference of each integer count to the count before it.
pub fn bucket_deltas(counts: &[f64]) -> impl Iterator<Item = i64> + Clone + '_ {
    let before = std::iter::once(0.0).chain(counts.iter().copied());
    counts.iter().zip(before).map(|(count, before)| *count as i64 - before as i64)
}
