//! Counter resets: detection between two histograms, and hints of appended ones.

use super::accumulator::{common_bounds, schema_shift};
use super::bounds::exponential_bound;
use super::cell::Summed;
use super::layer::pour_into;
use super::spans::coarser_index;
use super::{Histogram, ResetHint, same_bounds};

impl Histogram {
    /// Returns whether the counter was reset after a previous histogram of the same series.
    ///
    /// The hint of this histogram decides, unless it is unknown. Otherwise a reset is: fewer
    /// observations, in total or in any bucket; a finer schema; a smaller zero bucket, or a larger
    /// one that cuts through a populated bucket; custom buckets in only one of the two. A previous
    /// histogram with a finer schema or smaller zero bucket is converted before buckets are compared;
    /// custom buckets are compared by their common bounds.
    ///
    /// Source: `DetectReset` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn detect_reset(&self, previous: &Histogram) -> bool {
        match self.reset_hint {
            ResetHint::Reset => return true,
            ResetHint::NotReset => return false,
            ResetHint::Unknown | ResetHint::Gauge => {}
        }
        if self.count < previous.count {
            return true;
        }
        if self.has_custom_buckets() {
            if !previous.has_custom_buckets() {
                return true;
            }
            if !same_bounds(&self.custom_bounds, &previous.custom_bounds) {
                return self.drops_in_common_bounds(previous);
            }
        }
        if self.schema > previous.schema || self.zero_threshold < previous.zero_threshold {
            return true;
        }
        let (zero, threshold) = previous.zero_count_within(self.zero_threshold);
        // A NaN threshold equals none, and counts as a reset.
        if threshold != self.zero_threshold || self.zero_count < zero.value {
            return true;
        }
        [true, false].into_iter().any(|positive| {
            let now = self.buckets_outside_zero(positive, self);
            let before = previous.buckets_outside_zero(positive, self);
            query_sees_drop(now, before)
        })
    }

    /// Iterates over the buckets of a side in the schema of another histogram, which is not finer,
    /// without those that end inside of its zero bucket.
    fn buckets_outside_zero(
        &self,
        positive: bool,
        target: &Histogram,
    ) -> impl Iterator<Item = (i64, f64)> {
        let shift = schema_shift(self.schema, target.schema);
        let coarser = move |(index, count)| (coarser_index(index, shift), count);
        let mut buckets = self.counts(positive).map(coarser).peekable();
        let (schema, threshold) = (target.schema, target.zero_threshold);
        let skips = threshold != 0.0 && !target.has_custom_buckets();
        let merged = std::iter::from_fn(move || {
            let (index, mut count) = buckets.next()?;
            while let Some((_, more)) = buckets.next_if(|(next, _)| *next == index) {
                count += more;
            }
            Some((index, count))
        });
        merged.skip_while(move |(index, _)| skips && exponential_bound(*index, schema) <= threshold)
    }

    /// Returns whether any count by common bounds decreased.
    ///
    /// Source: `detectResetWithMismatchedCustomBounds` in `model/histogram/float_histogram.go` of
    /// Prometheus.
    fn drops_in_common_bounds(&self, previous: &Histogram) -> bool {
        let bounds = common_bounds(&self.custom_bounds, &previous.custom_bounds);
        let [now, before] = [self, previous].map(|histogram| {
            let mut sums = vec![Summed { value: 0.0, lost: 0.0 }; bounds.len() + 1];
            pour_into(histogram.counts(true), &histogram.custom_bounds, &bounds, &mut sums);
            sums
        });
        now.iter().zip(&before).any(|(now, before)| now.value < before.value)
    }
}

/// Returns whether a bucket has fewer observations than before, or is missing, by the rule of PromQL.
///
/// Of the previous buckets above all current ones, only the lowest matters. Prometheus does so,
/// contrary to its comments, and a query has to return the same.
///
/// Source: `detectReset` in `model/histogram/float_histogram.go` of Prometheus.
fn query_sees_drop(
    now: impl Iterator<Item = (i64, f64)>,
    before: impl Iterator<Item = (i64, f64)>,
) -> bool {
    let mut now = now.peekable();
    for (index, count) in before {
        while now.next_if(|(next, _)| *next < index).is_some() {}
        let Some(&(next, now)) = now.peek() else { return count != 0.0 };
        let dropped = if next == index { now < count } else { count != 0.0 };
        if dropped {
            return true;
        }
    }
    false
}

/// Returns whether a bucket has fewer observations than before, or is missing, by the rule of chunks.
///
/// Source: `expandFloatSpansAndBuckets` in `tsdb/chunkenc/float_histogram.go` of Prometheus.
fn chunk_sees_drop(
    now: impl Iterator<Item = (i64, f64)>,
    mut before: impl Iterator<Item = (i64, f64)>,
) -> bool {
    let mut now = now.peekable();
    before.any(|(index, count)| {
        while now.next_if(|(next, _)| *next < index).is_some() {}
        match now.peek() {
            Some((next, now)) if *next == index => *now < count,
            _ => count != 0.0,
        }
    })
}

/// Returns the hint of a histogram for queries, given the previous sample: `None` if there is none
/// or it is a float.
///
/// Gauges stay gauges. Of counters only the absence of a reset is kept, as when a sample is appended
/// to the chunk of the previous one: a query sees `Unknown` where Prometheus would start a new chunk,
/// and compares the counts. So a reset in the sender's hint that counts do not show is ignored.
///
/// Source: `appendable` in `tsdb/chunkenc/float_histogram.go` and `histogram.go` of Prometheus,
/// and `counterResetHint` in `histogram_meta.go`.
pub fn decide_hint(previous: Option<&Histogram>, next: &Histogram) -> ResetHint {
    match (next.reset_hint, previous) {
        _ if next.is_stale() => ResetHint::Unknown,
        (ResetHint::Gauge, _) => ResetHint::Gauge,
        (ResetHint::Unknown | ResetHint::NotReset, Some(previous)) if continues(previous, next) => {
            ResetHint::NotReset
        }
        _ => ResetHint::Unknown,
    }
}

/// Returns whether a counter continues in the chunk of the previous sample.
fn continues(previous: &Histogram, next: &Histogram) -> bool {
    let falls = |now: f64, before: f64| now < before;
    previous.reset_hint != ResetHint::Gauge
        && !previous.is_stale()
        && !falls(next.count, previous.count)
        && next.schema == previous.schema
        && next.zero_threshold == previous.zero_threshold
        && (!next.has_custom_buckets() || same_bounds(&next.custom_bounds, &previous.custom_bounds))
        && !falls(next.zero_count, previous.zero_count)
        && !chunk_sees_drop(next.counts(true), previous.counts(true))
        && !chunk_sees_drop(next.counts(false), previous.counts(false))
}
