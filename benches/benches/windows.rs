//! Cost of range functions by length of the range, and of subqueries compared with their inner
//! expression. See `benches/README.md`.

use std::process::ExitCode;
use std::sync::Arc;

use benches::data::{INTERVAL_MS, Kind, METRIC, Shape};
use benches::kernel::CountingAllocator;
use benches::measure::{measure, table};
use benches::options::{ReportOptions, count};
use benches::report;
use benches::source::{ChunkSource, decode_each};
use clap::Parser;
use engine::steps::Steps;
use engine::{Engine, EngineOptions, QueryOptions};
use futures::executor::block_on;
use model::{Budget, Selection, Source, TimeRange};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MINUTE_MS: i64 = 60_000;
/// Ranges of the tables, with their lengths.
const RANGES: [(&str, i64); 3] =
    [("5m", 5 * MINUTE_MS), ("1h", 60 * MINUTE_MS), ("4h", 240 * MINUTE_MS)];

/// Long enough for the longest range before the first of 4,096 steps.
const SHAPE: Shape = Shape { series: 500, samples: 5_120, groups: 32 };

/// Range functions; `X` is the range.
const FUNCTIONS: [&str; 19] = [
    "increase(X)",
    "increase(X anchored)",
    "increase(X smoothed)",
    "changes(X)",
    "changes(X anchored)",
    "count_over_time(X)",
    "sum_over_time(X)",
    "avg_over_time(X)",
    "min_over_time(X)",
    "max_over_time(X)",
    "ts_of_max_over_time(X)",
    "last_over_time(X)",
    "stddev_over_time(X)",
    "stdvar_over_time(X)",
    "quantile_over_time(0.9, X)",
    "mad_over_time(X)",
    "deriv(X)",
    "predict_linear(X, 3600)",
    "double_exponential_smoothing(X, 0.5, 0.1)",
];

/// Measures range functions and subqueries.
#[derive(Parser)]
#[command(name = "windows")]
struct Options {
    /// Runs of each query.
    #[arg(long = "runs", value_name = "N", default_value = "9", value_parser = count())]
    run_count: usize,
    #[command(flatten)]
    report: ReportOptions,
}

fn main() -> ExitCode {
    let Options { run_count, report } = Options::parse();
    report::run("Windowed functions", "windows", report.is_record, |report| {
        report.push(&ranges_section(run_count));
        report.push(&subquery_section(run_count));
        for (kind, name) in
            [(Kind::Counter, "counters"), (Kind::Noise, "noise"), (Kind::Constant, "constants")]
        {
            report.push(&functions_section(kind, name, run_count));
        }
        Ok(())
    })
}

/// Source and engine with one thread.
struct Rig {
    source: ChunkSource,
    engine: Engine,
}

impl Rig {
    fn new(kind: Kind) -> Rig {
        let options = EngineOptions { threads: 1, ..EngineOptions::default() };
        Rig { source: ChunkSource::generate(SHAPE, kind), engine: Engine::new(options) }
    }

    /// Returns the median CPU time of a query.
    fn query_ms(&self, query: &str, steps: Steps, run_count: usize) -> f64 {
        let run = || {
            let source = Arc::new(self.source.clone());
            let Steps { start_ms, step_ms, .. } = steps;
            let options = QueryOptions::default();
            let (end_ms, engine) = (steps.end_ms(), &self.engine);
            block_on(engine.range(source, query, start_ms, end_ms, step_ms, &options))
                .expect("the query is good")
        };
        measure(run_count, run).cpu_ms
    }

    /// Returns the median CPU time of decoding the samples that a range function reads, and their
    /// number.
    fn decode_ms(&self, steps: Steps, range_ms: i64, run_count: usize) -> (f64, usize) {
        let selection = Selection {
            only_newest: false,
            windows: None,
            matchers: Vec::new(),
            times: TimeRange::new(steps.start_ms - range_ms + 1, steps.end_ms()),
        };
        let budget = Budget::unlimited();
        let set = block_on(self.source.select(&selection, &budget)).expect("there is no limit");
        let decode = || {
            let mut count = 0;
            decode_each(&*set, |_, batch| count += batch.len);
            count
        };
        (measure(run_count, decode).cpu_ms, decode())
    }
}

/// Returns `count` steps at the interval of samples, the last one at the last sample.
fn steps(count: usize) -> Steps {
    let start_ms = SHAPE.end_ms() - (count as i64 - 1) * INTERVAL_MS;
    Steps { start_ms, step_ms: INTERVAL_MS, count }
}

/// Measures `increase` by range, with and without the decoding of samples.
fn ranges_section(run_count: usize) -> String {
    let rig = Rig::new(Kind::Counter);
    let mut rows = Vec::new();
    for step_count in [512, 4_096] {
        let steps = steps(step_count);
        let mut first = None;
        for (range, range_ms) in RANGES {
            let query_ms = rig.query_ms(&format!("increase({METRIC}[{range}])"), steps, run_count);
            let (decode_ms, sample_count) = rig.decode_ms(steps, range_ms, run_count);
            let net_ms = query_ms - decode_ms;
            let (first_ms, first_net_ms) = *first.get_or_insert((query_ms, net_ms));
            rows.push(vec![
                format!("[{range}], {step_count} steps"),
                (sample_count / SHAPE.series).to_string(),
                format!("{query_ms:.1}"),
                format!("{decode_ms:.1}"),
                format!("{net_ms:.1}"),
                format!("{:.2}", query_ms / first_ms),
                format!("{:.2}", net_ms / first_net_ms),
            ]);
        }
    }
    let head = ["range", "samples a series", "CPU ms", "decoding", "rest", "× [5m]", "rest × [5m]"];
    format!(
        "## `increase(x[…])`, {} series, a sample and a step every 15 s\n\n{}",
        SHAPE.series,
        table(&head, &rows)
    )
}

/// Measures subqueries, and their inner expression over all inner steps.
fn subquery_section(run_count: usize) -> String {
    let rig = Rig::new(Kind::Counter);
    let outer = steps(512);
    let mut rows = Vec::new();
    for (range, range_ms, step, step_ms) in [
        ("1h", 60 * MINUTE_MS, "1m", MINUTE_MS),
        ("1h", 60 * MINUTE_MS, "15s", INTERVAL_MS),
        ("4h", 240 * MINUTE_MS, "1m", MINUTE_MS),
    ] {
        let below_ms = outer.start_ms - range_ms;
        let start_ms = below_ms - below_ms.rem_euclid(step_ms) + step_ms;
        let inner = Steps::range(start_ms, outer.end_ms(), step_ms).expect("a range ends later");
        let inner_query = format!("rate({METRIC}[5m])");
        let inner_ms = rig.query_ms(&inner_query, inner, run_count);
        for name in ["max", "avg", "stddev"] {
            let query = format!("{name}_over_time({inner_query}[{range}:{step}])");
            let query_ms = rig.query_ms(&query, outer, run_count);
            rows.push(vec![
                format!("`{name}_over_time(rate(x[5m])[{range}:{step}])`"),
                format!("{query_ms:.1}"),
                inner.count.to_string(),
                format!("{inner_ms:.1}"),
                format!("{:.2}", query_ms / inner_ms),
            ]);
        }
    }
    let head = ["subquery", "CPU ms", "inner steps", "rate once, CPU ms", "×"];
    let series = SHAPE.series;
    format!("## Subqueries, {series} series, 512 steps of 15 s\n\n{}", table(&head, &rows))
}

/// Measures all range functions over values of one kind.
fn functions_section(kind: Kind, name: &str, run_count: usize) -> String {
    let rig = Rig::new(kind);
    let steps = steps(512);
    let mut rows = Vec::new();
    for function in FUNCTIONS {
        let times = RANGES.map(|(range, _)| {
            let query = function.replace('X', &format!("{METRIC}[{range}]"));
            rig.query_ms(&query, steps, run_count)
        });
        rows.push(vec![
            format!("`{}`", function.replace('X', "x[…]")),
            format!("{:.1}", times[0]),
            format!("{:.1}", times[1]),
            format!("{:.1}", times[2]),
            format!("{:.2}", times[1] / times[0]),
            format!("{:.2}", times[2] / times[0]),
        ]);
    }
    let head = ["function", "[5m], CPU ms", "[1h]", "[4h]", "[1h] × [5m]", "[4h] × [5m]"];
    format!(
        "## Functions over {name}, {} series, 512 steps of 15 s\n\n{}",
        SHAPE.series,
        table(&head, &rows)
    )
}
