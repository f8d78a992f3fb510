//! Metrics of the result cache.

use engine::result_cache::ResultCacheStats;
use prometheus::{IntCounter, IntGauge};

use super::Registrar;

/// Reads a figure of the statistics.
type Getter = fn(&ResultCacheStats) -> u64;

/// Name, help and getter of gauges.
const GAUGES: [(&str, &str, Getter); 3] = [
    ("tessella_result_cache_bytes", "Bytes of the result cache.", |s| s.bytes),
    ("tessella_result_cache_max_bytes", "Maximum bytes of the result cache.", |s| s.bytes_max),
    ("tessella_result_cache_entries", "Queries in the result cache.", |s| s.entries),
];

/// Name, help and getter of counters.
const COUNTERS: [(&str, &str, Getter); 5] = [
    ("tessella_result_cache_hits_total", "Range queries with all steps in the cache.", |s| s.hits),
    (
        "tessella_result_cache_partial_hits_total",
        "Range queries with some steps in the cache.",
        |s| s.partial_hits,
    ),
    ("tessella_result_cache_misses_total", "Range queries without steps in the cache.", |s| {
        s.misses
    }),
    (
        "tessella_result_cache_invalidations_total",
        "Invalidations of steps because their samples have changed.",
        |s| s.invalidations,
    ),
    ("tessella_result_cache_evictions_total", "Queries evicted from the result cache.", |s| {
        s.evictions
    }),
];

/// Metrics of the result cache, refreshed on each gathering.
pub(super) struct ResultsMetrics {
    gauges: Vec<(IntGauge, Getter)>,
    counters: Vec<(IntCounter, Getter)>,
}

impl ResultsMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> ResultsMetrics {
        let gauge = |(name, help, getter)| (registrar.int_gauge(name, help), getter);
        let counter = |(name, help, getter)| (registrar.int_counter(name, help), getter);
        ResultsMetrics {
            gauges: GAUGES.map(gauge).to_vec(),
            counters: COUNTERS.map(counter).to_vec(),
        }
    }

    pub(super) fn refresh(&self, stats: &ResultCacheStats) {
        for (gauge, getter) in &self.gauges {
            gauge.set(i64::try_from(getter(stats)).unwrap_or(i64::MAX));
        }
        for (counter, getter) in &self.counters {
            // The figures only grow.
            counter.inc_by(getter(stats).saturating_sub(counter.get()));
        }
    }
}
