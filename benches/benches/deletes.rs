//! Latency of writes while many series are deleted. See `benches/README.md`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::kernel::cpu_time;
use benches::machine;
use benches::measure::table;
use model::{Batch, Labels, Matcher};
use storage::{ManualClock, Store, StoreOptions};

/// Deleted series, series in a write of the initial load, and samples of each series.
const SERIES: usize = 100_000;
const SERIES_AT_ONCE: usize = 1_000;
const SAMPLES: i64 = 40;
const STEP_MS: i64 = 15_000;
/// Pause between a response and the next write.
const PAUSE: Duration = Duration::from_millis(1);
/// Duration of writes without a delete.
const ALONE: Duration = Duration::from_secs(2);
const RUNS: usize = 5;

/// Deletes: first and last time.
const CASES: [(&str, Option<(i64, i64)>); 3] = [
    ("nothing", None),
    ("samples in the middle", Some((10 * STEP_MS, 20 * STEP_MS))),
    ("all samples", Some((0, SAMPLES * STEP_MS))),
];

/// Duration of a delete, and latencies of concurrent writes.
struct Taken {
    delete: Duration,
    cpu: Duration,
    writes: Vec<Duration>,
}

fn options() -> StoreOptions {
    let clock = Arc::new(ManualClock::new(2 * SAMPLES * STEP_MS));
    let write_timeout = Duration::from_secs(600);
    StoreOptions { background: false, clock, write_timeout, ..StoreOptions::default() }
}

/// Returns a store with all series in its head.
async fn filled() -> Arc<Store> {
    let store = Store::open("memory:///", options()).await.expect("a store in memory opens");
    for first in (0..SERIES).step_by(SERIES_AT_ONCE) {
        let mut batch = Batch::default();
        for number in first..first + SERIES_AT_ONCE {
            let text = number.to_string();
            let pairs = [("__name__", "deleted"), ("instance", text.as_str()), ("job", "x")];
            let value = |n: i64| (n * STEP_MS, (number as i64 * n) as f64);
            batch.push(&Labels::from_pairs(pairs), &(0..SAMPLES).map(value).collect::<Vec<_>>());
        }
        store.append(batch).await.expect("the store takes it");
    }
    Arc::new(store)
}

/// Deletes, and writes to another series concurrently.
async fn delete(store: &Arc<Store>, range: Option<(i64, i64)>) -> Taken {
    let (started, cpu) = (Instant::now(), cpu_time());
    let deleting = {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            match range {
                Some((start_ms, end_ms)) => {
                    let selector = vec![Matcher::equal("__name__", "deleted")];
                    let deleted = store.delete(vec![selector], start_ms, end_ms).await;
                    deleted.expect("the store deletes them");
                }
                None => tokio::time::sleep(ALONE).await,
            }
            started.elapsed()
        })
    };
    let other = Labels::from_pairs([("__name__", "other")]);
    let mut writes = Vec::new();
    while !deleting.is_finished() {
        let mut batch = Batch::default();
        batch.push(&other, &[(writes.len() as i64, 1.0)]);
        let began = Instant::now();
        store.append(batch).await.expect("the store takes it");
        writes.push(began.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    let delete = deleting.await.expect("it does not panic");
    Taken { delete, cpu: cpu_time() - cpu, writes }
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}

fn ms(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64() * 1e3)
}

async fn measure() -> String {
    let mut rows = Vec::new();
    for (name, range) in CASES {
        let mut all = Vec::new();
        for _ in 0..RUNS {
            // Each delete needs a new store.
            all.push(delete(&filled().await, range).await);
        }
        let of = |figure: &dyn Fn(&Taken) -> Duration| ms(median(all.iter().map(figure).collect()));
        let longest = |taken: &Taken| taken.writes.iter().copied().max().unwrap_or_default();
        rows.push(vec![
            name.to_owned(),
            of(&|taken| taken.delete),
            of(&|taken| taken.cpu),
            of(&|taken| median(taken.writes.clone())),
            of(&longest),
            ms(all.iter().map(longest).max().unwrap_or_default()),
        ]);
    }
    let head = ["deleted", "delete, ms", "CPU ms", "write, ms", "longest", "longest of all runs"];
    table(&head, &rows)
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    println!("{}\n{}", machine::description(), runtime.block_on(measure()));
}
