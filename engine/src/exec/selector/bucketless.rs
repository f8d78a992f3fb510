//! Native histograms without buckets, for queries that need only counts and sums.
//!
//! Without buckets, operators cannot detect counter resets. So each histogram gets a hint: whether
//! the counter was reset since the previous histogram. The hint is visible, because operators warn
//! of conflicting hints. Where Prometheus skips samples that no step reads, the hint is "unknown".
//!
//! Source: `promql/histogram_stats_iterator.go` of Prometheus.

use std::sync::Arc;

use model::{
    Advance, Cursor, DerivedValues, Histogram, Labels, ResetHint, SampleBatch, SeriesSet,
    SourceError,
};

use crate::steps::BucketlessLook;

/// Series set that removes the buckets of histograms.
pub struct BucketlessSet {
    set: Arc<dyn SeriesSet>,
    look: BucketlessLook,
}

impl BucketlessSet {
    /// Wraps a set; `look` contains the times and the lookback of its selector.
    pub fn new(set: Arc<dyn SeriesSet>, look: BucketlessLook) -> BucketlessSet {
        BucketlessSet { set, look }
    }
}

impl SeriesSet for BucketlessSet {
    fn len(&self) -> usize {
        self.set.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        self.set.labels(series_index)
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        let cursor = self.set.cursor(series_index);
        if !self.set.has_histograms(series_index) {
            return cursor;
        }
        Box::new(BucketlessCursor { cursor, look: self.look, latest_ms: None, latest: None })
    }

    fn prefetch(&self, series_index: usize, ahead: usize) {
        self.set.prefetch(series_index, ahead);
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.set.sample_count_estimate(series_index)
    }

    fn has_histograms(&self, series_index: usize) -> bool {
        self.set.has_histograms(series_index)
    }

    fn has_any_histograms(&self) -> bool {
        self.set.has_any_histograms()
    }

    fn derived(&self) -> Option<&DerivedValues> {
        self.set.derived()
    }

    fn encoded_bytes(&self) -> usize {
        self.set.encoded_bytes()
    }
}

struct BucketlessCursor<'a> {
    cursor: Box<dyn Cursor + 'a>,
    look: BucketlessLook,
    /// Timestamp of the latest sample, float or histogram.
    latest_ms: Option<i64>,
    /// The latest histogram, unless it was skipped.
    latest: Option<Arc<Histogram>>,
}

impl Cursor for BucketlessCursor<'_> {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        let (mut float, histogram) = (batch.len, batch.histograms.len());
        let advance = self.cursor.next_batch(until_ms, batch)?;
        let floats = &batch.timestamps[..batch.len];
        for sample in &mut batch.histograms[histogram..] {
            while float < floats.len() && floats[float] < sample.timestamp_ms {
                self.pass(floats[float]);
                float += 1;
            }
            self.pass(sample.timestamp_ms);
            sample.histogram = self.reduced(&sample.histogram);
        }
        floats[float..].iter().for_each(|time_ms| self.pass(*time_ms));
        Ok(advance)
    }
}

impl BucketlessCursor<'_> {
    /// Advances to the sample at `time_ms`; forgets the latest histogram if Prometheus would skip
    /// it.
    fn pass(&mut self, time_ms: i64) {
        if self.latest.is_some()
            && self.latest_ms.is_some_and(|latest_ms| self.look.leaps_after(latest_ms))
        {
            self.latest = None;
        }
        self.latest_ms = Some(time_ms);
    }

    fn reduced(&mut self, histogram: &Arc<Histogram>) -> Arc<Histogram> {
        let mut reset_hint = histogram.reset_hint;
        if !histogram.is_stale() {
            if let (ResetHint::Unknown, Some(latest)) = (reset_hint, &self.latest) {
                let is_reset = histogram.detect_reset(latest);
                reset_hint = if is_reset { ResetHint::Reset } else { ResetHint::NotReset };
            }
            self.latest = Some(Arc::clone(histogram));
        }
        Arc::new(Histogram {
            reset_hint,
            schema: histogram.schema,
            count: histogram.count,
            sum: histogram.sum,
            ..Histogram::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::LookTimes;

    #[test]
    fn a_leap_is_where_no_step_looks() {
        let look = |step_ms, count, back_ms| BucketlessLook {
            times: LookTimes { first_ms: 1_000, step_ms, count },
            back_ms,
        };
        let cases = [
            // Before the first step: outside its lookback, or just within.
            (look(100, 5, 50), 949, true),
            (look(100, 5, 50), 950, false),
            // Between steps.
            (look(100, 5, 50), 1_049, true),
            (look(100, 5, 50), 1_050, false),
            (look(100, 5, 100), 1_000, false),
            (look(100, 5, 99), 1_000, true),
            // At the last step or later, and with a fixed time.
            (look(100, 5, 1_000), 1_400, true),
            (look(0, 5, 300), 999, false),
            (look(0, 5, 300), 1_000, true),
        ];
        for (look, sample_ms, expected) in cases {
            assert_eq!(look.leaps_after(sample_ms), expected, "{look:?} {sample_ms}");
        }
    }
}
