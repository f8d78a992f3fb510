//! Peak memory of a rate over many series, by an allocator that counts: at most its share of the
//! bound for 50,000 series, and at most the charged memory.
//!
//! The environment variable `MEMORY_SERIES` sets the number of series; 50,000 need a release build.

use std::sync::Arc;

use benches::data::{INTERVAL_MS, Kind, START_MS, labels, samples};
use benches::kernel::{CountingAllocator, account};
use engine::{Engine, EngineOptions, QueryOptions};
use model::{Batch, BudgetLimits, Source};
use storage::{Store, StoreOptions};
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const SERIES: usize = 4_000;
const SAMPLES: usize = 240;
const GROUPS: usize = 32;
const STEP_COUNT: i64 = 512;
/// Maximum memory of a rate over this number of series.
const BOUND_SERIES: usize = 50_000;
const BOUND_BYTES: usize = 64 << 20;
/// Memory that does not depend on the series: tiles and partials of two threads, result, plan.
const FIXED_BYTES: usize = 4 << 20;

fn series_count() -> usize {
    let set = std::env::var("MEMORY_SERIES").ok();
    set.map_or(SERIES, |text| text.parse().expect("MEMORY_SERIES is a number"))
}

fn fill(runtime: &Runtime, store: &Store, series_count: usize) {
    for first in (0..series_count).step_by(500) {
        let mut batch = Batch::default();
        for index in first..series_count.min(first + 500) {
            let (timestamps, values) = samples(index, SAMPLES, Kind::Counter);
            let samples: Vec<(i64, f64)> = timestamps.into_iter().zip(values).collect();
            batch.push(&labels(index, GROUPS), &samples);
        }
        let count = batch.sample_count();
        let outcome = runtime.block_on(store.append(batch)).expect("memory takes it");
        assert_eq!(outcome.accepted, count);
    }
}

/// Runs the query, and compares its peak memory with the bounds.
fn check(runtime: &Runtime, engine: &Engine, source: &Arc<dyn Source>, series: usize, what: &str) {
    let ask = || {
        let end_ms = START_MS + SAMPLES as i64 * INTERVAL_MS;
        let step_ms = (end_ms - START_MS) / (STEP_COUNT - 1);
        let (source, query) = (Arc::clone(source), "sum by (path) (rate(requests_total[5m]))");
        let options = QueryOptions { limits: BudgetLimits::default(), ..QueryOptions::default() };
        let start_ms = end_ms - (STEP_COUNT - 1) * step_ms;
        runtime.block_on(async {
            let answer = engine.range(source, query, start_ms, end_ms, step_ms, &options).await;
            answer.expect("the query is good").stats
        })
    };
    // Fills the caches, which have their own limits.
    ask();
    let (stats, account) = account(ask);
    assert_eq!(stats.series_count as usize, series);
    let (peak, charged) = (account.peak_of_work(), stats.memory_bytes_peak as usize);
    println!("{what}: {series} series, {peak} bytes peak, {charged} charged");
    assert!(peak <= BOUND_BYTES * series / BOUND_SERIES + FIXED_BYTES, "{what}: {peak} bytes");
    assert!(peak <= charged + charged / 4 + FIXED_BYTES, "{what}: {peak} bytes, {charged} charged");
}

#[test]
fn a_rate_over_many_series_has_bounded_and_charged_memory() {
    let runtime = Runtime::new().expect("threads can be started");
    let series = series_count();
    for (caches, bytes) in [("no caches", 0), ("caches", 256 << 20)] {
        let options = StoreOptions {
            cache_bytes_max: bytes,
            index_cache_bytes_max: bytes,
            columns_bytes_max: bytes,
            ahead_max_ms: None,
            background: false,
            ..StoreOptions::default()
        };
        let store = runtime.block_on(Store::open("memory:///", options));
        let store = Arc::new(store.expect("memory can be opened"));
        fill(&runtime, &store, series);
        let source: Arc<dyn Source> = Arc::clone(&store) as Arc<dyn Source>;
        let engine = Engine::new(EngineOptions { threads: 2, ..EngineOptions::default() });
        check(&runtime, &engine, &source, series, &format!("open, {caches}"));
        runtime.block_on(store.seal_all()).expect("memory takes it");
        check(&runtime, &engine, &source, series, &format!("sealed, {caches}"));
        runtime.block_on(store.close()).expect("memory takes it");
    }
}
