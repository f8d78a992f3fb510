//! Whether a histogram counts in whole numbers, which both kinds of answers write shorter.

use model::Histogram;

/// Whole numbers up to here are exact as floats.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// The counts of a histogram as whole numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct WholeCounts {
    pub(super) count: u64,
    pub(super) zero_count: u64,
}

impl WholeCounts {
    /// Nothing where one of the counts is no whole number, or too large to be exact.
    pub(super) fn of(histogram: &Histogram) -> Option<WholeCounts> {
        let whole = |value: f64| {
            ((0.0..=INTEGER_MAX).contains(&value) && value.trunc() == value).then_some(value as u64)
        };
        let buckets = histogram.positive_counts.iter().chain(&histogram.negative_counts);
        for count in buckets {
            whole(*count)?;
        }
        Some(WholeCounts {
            count: whole(histogram.count)?,
            zero_count: whole(histogram.zero_count)?,
        })
    }
}

/// Whole counts as differences to the count before.
pub(super) fn deltas(counts: &[f64]) -> impl Iterator<Item = i64> + Clone + '_ {
    let before = std::iter::once(0.0).chain(counts.iter().copied());
    counts.iter().zip(before).map(|(count, before)| *count as i64 - before as i64)
}
