//! The figures of a reader, which follows the store of another process.

use prometheus::{Gauge, IntCounter};
use storage::FollowStats;

use super::Own;

/// The metrics of a reader, refreshed on each gathering.
pub(super) struct ReaderMetrics {
    lag_seconds: Gauge,
    steps: IntCounter,
    gaps: IntCounter,
    failures: IntCounter,
}

impl ReaderMetrics {
    pub(super) fn new(own: &Own<'_>) -> ReaderMetrics {
        ReaderMetrics {
            lag_seconds: own.gauge(
                "tessella_reader_lag_seconds",
                "How long ago the reader last had all that the writer had acknowledged.",
            ),
            steps: own.int_counter(
                "tessella_reader_steps_total",
                "How often something that the writer has committed was taken in.",
            ),
            gaps: own.int_counter(
                "tessella_reader_gaps_total",
                "How often the log to be read was gone, and all was read anew.",
            ),
            failures: own.int_counter(
                "tessella_reader_failures_total",
                "How often the store could not be followed.",
            ),
        }
    }

    pub(super) fn refresh(&self, stats: &FollowStats) {
        self.lag_seconds.set(stats.behind_ms as f64 / 1000.0);
        for (counter, figure) in
            [(&self.steps, stats.steps), (&self.gaps, stats.gaps), (&self.failures, stats.failures)]
        {
            // The figures only grow.
            counter.inc_by(figure.saturating_sub(counter.get()));
        }
    }
}
