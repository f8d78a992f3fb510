//! The figures of the cache of answers.

use engine::result_cache::ResultCacheStats;
use prometheus::{IntCounter, IntGauge};

use super::Own;

/// Takes one figure out of all.
type Figure = fn(&ResultCacheStats) -> u64;

/// Name, help and figure of what goes up and down.
const GAUGES: [(&str, &str, Figure); 3] = [
    ("tessella_result_cache_bytes", "Bytes of answers that are kept.", |s| s.bytes),
    ("tessella_result_cache_max_bytes", "Bytes of answers that may be kept.", |s| s.bytes_max),
    ("tessella_result_cache_entries", "Queries of which answers are kept.", |s| s.entries),
];

/// Name, help and figure of what only grows.
const COUNTERS: [(&str, &str, Figure); 5] = [
    ("tessella_result_cache_hits_total", "Range queries of which every step was kept.", |s| s.hits),
    (
        "tessella_result_cache_partial_hits_total",
        "Range queries of which some steps were kept.",
        |s| s.partial_hits,
    ),
    (
        "tessella_result_cache_misses_total",
        "Range queries of which no step was kept, and now is.",
        |s| s.misses,
    ),
    (
        "tessella_result_cache_invalidations_total",
        "Times that kept steps were dropped because samples they see have changed.",
        |s| s.invalidations,
    ),
    ("tessella_result_cache_evictions_total", "Queries whose answers have made room.", |s| {
        s.evictions
    }),
];

/// The metrics of the cache, refreshed on each gathering.
pub(super) struct ResultsMetrics {
    gauges: Vec<(IntGauge, Figure)>,
    counters: Vec<(IntCounter, Figure)>,
}

impl ResultsMetrics {
    pub(super) fn new(own: &Own<'_>) -> ResultsMetrics {
        let gauge = |(name, help, figure)| (own.int_gauge(name, help), figure);
        let counter = |(name, help, figure)| (own.int_counter(name, help), figure);
        ResultsMetrics {
            gauges: GAUGES.map(gauge).to_vec(),
            counters: COUNTERS.map(counter).to_vec(),
        }
    }

    pub(super) fn refresh(&self, stats: &ResultCacheStats) {
        for (gauge, figure) in &self.gauges {
            gauge.set(i64::try_from(figure(stats)).unwrap_or(i64::MAX));
        }
        for (counter, figure) in &self.counters {
            // The figures only grow.
            counter.inc_by(figure(stats).saturating_sub(counter.get()));
        }
    }
}
