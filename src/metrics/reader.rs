//! Metrics of a reader, which follows the store of another process.

use prometheus::{Gauge, IntCounter};
use storage::FollowStats;

use super::Registrar;

/// Metrics of a reader, refreshed on each gathering.
pub(super) struct ReaderMetrics {
    lag_seconds: Gauge,
    steps: IntCounter,
    gaps: IntCounter,
    failures: IntCounter,
}

impl ReaderMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> ReaderMetrics {
        ReaderMetrics {
            lag_seconds: registrar.gauge(
                "tessella_reader_lag_seconds",
                "Time since the reader last had all acknowledged writes.",
            ),
            steps: registrar.int_counter(
                "tessella_reader_steps_total",
                "Commits of the writer that the reader has applied.",
            ),
            gaps: registrar.int_counter(
                "tessella_reader_gaps_total",
                "Full reloads because the next part of the log was deleted.",
            ),
            failures: registrar.int_counter(
                "tessella_reader_failures_total",
                "Failed attempts to follow the store.",
            ),
        }
    }

    /// A standby that has become the writer has no lag.
    pub(super) fn note_promoted(&self) {
        self.lag_seconds.set(0.0);
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
