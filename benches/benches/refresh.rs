//! Cost of refreshing a panel after its range moved by a step and a scrape arrived. See
//! `benches/README.md`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use benches::data::{GROUP_LABEL, INTERVAL_MS, Kind, METRIC, START_MS, Shape, labels, samples};
use benches::kernel::cpu_time;
use benches::measure::{median, table};
use benches::options::ReportOptions;
use benches::report;
use clap::Parser;
use engine::{Engine, EngineOptions, QueryOptions, QueryOutput, Value};
use model::{Batch, Source};
use storage::{Store, StoreOptions};

/// Steps of six hours, and scrapes before the first one for lookback.
const STEPS: usize = 1_441;
const BEFORE: usize = 40;
const SHAPE: Shape = Shape { series: 2_000, samples: STEPS + BEFORE + 64, groups: 32 };
/// Scrapes in a write of the initial load.
const SCRAPES_AT_ONCE: usize = 60;
const RUNS: usize = 9;

/// Measures refreshes of panels.
#[derive(Parser)]
#[command(name = "refresh")]
struct Options {
    #[command(flatten)]
    report: ReportOptions,
}

/// `X` is the metric.
const QUERIES: [&str; 5] = [
    "sum by (path) (rate(X[5m]))",
    "sum by (path) (X)",
    "avg_over_time(X{path=\"/v1/resource/00003\"}[10m])",
    "quantile by (path) (0.9, X)",
    "max_over_time(sum(rate(X[1m]))[5m:30s])",
];

struct Rig {
    store: Arc<Store>,
    /// Samples of each series.
    all: Vec<(Vec<i64>, Vec<f64>)>,
    engine: Engine,
}

/// CPU time and wall time in ms.
#[derive(Clone, Copy)]
struct Taken {
    cpu_ms: f64,
    wall_ms: f64,
}

impl Rig {
    async fn new() -> Rig {
        let options = StoreOptions { ahead_max_ms: None, background: false, ..Default::default() };
        let store = Store::open("memory:///", options).await.expect("a store in memory opens");
        let all = (0..SHAPE.series).map(|i| samples(i, SHAPE.samples, Kind::Counter)).collect();
        let options = EngineOptions { result_cache_bytes_max: 64 << 20, ..Default::default() };
        let rig = Rig { store: Arc::new(store), all, engine: Engine::new(options) };
        for first in (0..STEPS + BEFORE).step_by(SCRAPES_AT_ONCE) {
            rig.scrape(first..(first + SCRAPES_AT_ONCE).min(STEPS + BEFORE)).await;
        }
        rig
    }

    /// Writes scrapes of all series.
    async fn scrape(&self, numbers: std::ops::Range<usize>) {
        let mut batch = Batch::default();
        for (index, (times, values)) in self.all.iter().enumerate() {
            let values = values[numbers.clone()].iter().copied();
            let run: Vec<_> = times[numbers.clone()].iter().copied().zip(values).collect();
            batch.push(&labels(index, SHAPE.groups), &run);
        }
        self.store.append(batch).await.expect("the store takes it");
    }

    /// Queries the panel after a number of scrapes.
    async fn ask(
        &self,
        query: &str,
        scrapes: usize,
        use_result_cache: bool,
    ) -> (QueryOutput, Taken) {
        let options = QueryOptions { use_result_cache, ..QueryOptions::default() };
        let source = Arc::clone(&self.store) as Arc<dyn Source>;
        let end_ms = START_MS + scrapes as i64 * INTERVAL_MS;
        let start_ms = end_ms - (STEPS as i64 - 1) * INTERVAL_MS;
        let (cpu, wall) = (cpu_time(), Instant::now());
        let answer = self.engine.range(source, query, start_ms, end_ms, INTERVAL_MS, &options);
        let output = answer.await.expect("the query is good");
        let cpu_ms = (cpu_time() - cpu).as_secs_f64() * 1e3;
        (output, Taken { cpu_ms, wall_ms: wall.elapsed().as_secs_f64() * 1e3 })
    }
}

/// Formats a result with all bits.
fn text(output: &QueryOutput) -> String {
    let Value::Grid { rows, .. } = &output.value else { panic!("no grid") };
    let cells = |row: &engine::result::Row| -> Vec<(usize, u64)> {
        row.iter().map(|(step, value)| (step, value.to_bits())).collect()
    };
    rows.iter().map(|row| format!("{} {:?}\n", row.labels, cells(row))).collect()
}

async fn measure() -> String {
    let rig = Rig::new().await;
    let mut rows = Vec::new();
    let mut scrapes = STEPS + BEFORE;
    for query in QUERIES {
        let query = query.replace('X', METRIC);
        // The first query fills the caches.
        rig.ask(&query, scrapes, true).await;
        let (mut whole, mut refreshed) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            rig.scrape(scrapes..scrapes + 1).await;
            scrapes += 1;
            let (found, taken) = rig.ask(&query, scrapes, true).await;
            refreshed.push(taken);
            let (expected, taken) = rig.ask(&query, scrapes, false).await;
            whole.push(taken);
            assert_eq!(text(&found), text(&expected), "{query}");
        }
        let [cpu, wall] = [|t: &Taken| t.cpu_ms, |t: &Taken| t.wall_ms].map(|figure| {
            let of = |taken: &[Taken]| median(&taken.iter().map(figure).collect::<Vec<_>>());
            (of(&whole), of(&refreshed))
        });
        rows.push(vec![
            query,
            format!("{:.2}", cpu.0),
            format!("{:.2}", cpu.1),
            format!("{:.0}×", cpu.0 / cpu.1),
            format!("{:.2}", wall.0),
            format!("{:.2}", wall.1),
            format!("{:.0}×", wall.0 / wall.1),
        ]);
    }
    let stats = rig.engine.result_cache().map(|results| results.stats());
    assert!(stats.is_some_and(|s| s.partial_hits == (RUNS * QUERIES.len()) as u64), "{stats:?}");
    let head = ["query", "whole, CPU ms", "refreshed", "", "whole, wall ms", "refreshed", ""];
    table(&head, &rows)
}

fn main() -> ExitCode {
    let is_record = Options::parse().report.is_record;
    report::run("A panel that is refreshed", "refresh", is_record, |report| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        report.push(&format!(
            "{} counters in {} groups by `{GROUP_LABEL}`, {STEPS} steps of 15 s, medians of \
             {RUNS}.\n\n{}",
            SHAPE.series,
            SHAPE.groups,
            runtime.block_on(measure()),
        ));
        Ok(())
    })
}
