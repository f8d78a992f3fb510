//! Cost of queries without caches: reads, bytes and time, on an object store in memory with delayed
//! reads. See `benches/README.md`.

use std::time::{Duration, Instant};

use benches::options::{FromCargo, count};
use benches::source::decode_each;
use clap::Parser;
use model::{Batch, Budget, Labels, MatchOp, Matcher, Selection, Source, TimeRange};
use storage::{SharedMemory, Store, StoreOptions};
use tokio::runtime::Runtime;

const HOUR_MS: i64 = 60 * 60 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;
const STEP_MS: i64 = 15_000;
const SERIES: usize = 1000;
const OTHERS: usize = 199;
const OTHERS_SERIES: usize = 5;
const OTHERS_STEP_MS: i64 = 20 * STEP_MS;
/// Timeout of compaction.
const COMPACTION_TIMEOUT: Duration = Duration::from_secs(600);

fn options() -> StoreOptions {
    StoreOptions {
        background: false,
        ahead_max_ms: None,
        full_compaction_after: Duration::ZERO,
        compaction_interval: Some(Duration::from_millis(200)),
        ..StoreOptions::default()
    }
}

fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 31
}

fn series(metric: &str, number: usize) -> Labels {
    let pod = format!("pod-{number:06}");
    let pairs =
        [("__name__", metric), ("job", "a job"), ("namespace", "production"), ("pod", &pod)];
    Labels::from_pairs(pairs)
}

/// Writes the counters of a metric in a time range, 250 per write.
async fn append(store: &Store, metric: &str, count: usize, times: (i64, i64), step_ms: i64) {
    for start in (0..count).step_by(250) {
        let mut batch = Batch::default();
        for number in start..count.min(start + 250) {
            let mut value = times.0 as u64 / 100 + number as u64;
            let samples: Vec<(i64, f64)> = (times.0..times.1)
                .step_by(step_ms as usize)
                .map(|time_ms| {
                    value += scramble(value ^ time_ms as u64) % 100;
                    (time_ms, value as f64)
                })
                .collect();
            batch.push(&series(metric, number), &samples);
        }
        store.append(batch).await.expect("the store takes samples");
    }
}

async fn fill(memory: &SharedMemory, days: i64) {
    let store = Store::open_in(memory, options()).await.expect("a store can be opened");
    for window in 0..days * 12 {
        let times = (window * 2 * HOUR_MS, (window + 1) * 2 * HOUR_MS);
        append(&store, "wanted_total", SERIES, times, STEP_MS).await;
        for other in 0..OTHERS {
            let metric = format!("other_{other:03}_total");
            append(&store, &metric, OTHERS_SERIES, times, OTHERS_STEP_MS).await;
        }
        store.seal_all().await.expect("a window can be sealed");
    }
    store.close().await.expect("a store can be closed");
    let store = Store::open_in(memory, options()).await.expect("the store can be opened");
    let started = Instant::now();
    while store.stats().unmerged_segments > 0 {
        assert!(started.elapsed() < COMPACTION_TIMEOUT, "the store is compacted");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    store.close().await.expect("a store can be closed");
}

/// Runs a query on a newly opened store, and prints its cost.
async fn query(memory: &SharedMemory, name: &str, selection: &Selection, candidates: u64) {
    let options = StoreOptions { compaction_interval: None, ..options() };
    let store = Store::open_in(memory, options).await.expect("the store can be opened");
    let budget = Budget::unlimited();
    let started = Instant::now();
    let set = store.select(selection, &budget).await.expect("it can be loaded");
    let loaded = started.elapsed().as_secs_f64();
    let mut samples = 0;
    decode_each(&*set, |_, batch| samples += batch.len);
    let total = started.elapsed().as_secs_f64();
    let cost = budget.object_store_cost();
    let million = 1e6;
    println!(
        "| {name} | {} | {:.2} | {:.2} | {loaded:.3} | {total:.3} | {:.1} | {:.1} |",
        cost.reads,
        cost.read_bytes as f64 / million,
        samples as f64 / million,
        candidates as f64 / million / loaded,
        candidates as f64 / million / total,
    );
    store.close().await.expect("the store can be closed");
}

/// Measures reads of queries from an object store.
#[derive(Parser)]
#[command(name = "reads")]
struct Options {
    /// Number of days in the store.
    #[arg(default_value = "30", value_parser = count())]
    days: usize,
    /// Delay of each read in milliseconds.
    #[arg(default_value_t = 50)]
    delay_ms: u64,
    #[command(flatten)]
    from_cargo: FromCargo,
}

fn main() {
    let options = Options::parse();
    let (days, delay) = (options.days as i64, Duration::from_millis(options.delay_ms));
    let memory = SharedMemory::default();
    let runtime = Runtime::new().expect("threads can be started");
    runtime.block_on(async {
        fill(&memory, days).await;
        let slow = memory.delayed(delay);
        let of_metric = || vec![Matcher::equal("__name__", "wanted_total")];
        let one = || {
            vec![Matcher::equal("__name__", "wanted_total"), Matcher::equal("pod", "pod-000500")]
        };
        let regex = Matcher::new(MatchOp::Regex, "pod", ".*000500").expect("it is well-formed");
        let absent = vec![Matcher::equal("trace", "nowhere")];
        let (day_samples, end_ms) = (SERIES as u64 * 5760, days * DAY_MS - 1);
        let of_others = (OTHERS * OTHERS_SERIES) as u64 * 288;
        let all = (day_samples + of_others) * days as u64;
        let hour = (9 * HOUR_MS, 10 * HOUR_MS - 1);
        let queries = [
            ("an hour", of_metric(), hour, day_samples / 24),
            ("a day", of_metric(), (0, DAY_MS - 1), day_samples),
            ("all days", of_metric(), (0, end_ms), day_samples * days as u64),
            ("one series, all days", one(), (0, end_ms), day_samples * days as u64),
            ("a regex, all days", vec![regex], (0, end_ms), all),
            ("an absent pair, all days", absent, (0, end_ms), all),
        ];
        println!("{days} days, {} ms a request\n", delay.as_millis());
        println!(
            "| query | reads | MB read | M samples | s to load | s to decode all, one core | \
             M candidates/s loading | … in all |\n|---|---|---|---|---|---|---|---|"
        );
        for (name, matchers, (start_ms, end_ms), candidates) in queries {
            let selection =
                Selection { matchers, times: TimeRange::new(start_ms, end_ms), only_newest: false };
            query(&slow, name, &selection, candidates).await;
        }
    });
}
