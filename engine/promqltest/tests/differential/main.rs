//! Random queries, asked of the engine and of a real Prometheus that holds the same samples.
//!
//! `PROMETHEUS_BINARY` names the binary. `DIFFERENTIAL_SEED` and `DIFFERENTIAL_QUERIES` choose
//! other queries and more of them; each is asked as an instant and as a range query.

#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod answer;
mod generator;
#[path = "../../../../tests/support/process.rs"]
#[allow(dead_code, missing_docs, reason = "each test binary uses a part, and the names say it")]
mod process;
mod prometheus;
#[path = "../support/random.rs"]
#[allow(dead_code, missing_docs, reason = "each test binary uses a part, and the names say it")]
mod random;
mod samples;
#[path = "../support/stored.rs"]
#[allow(dead_code, missing_docs, reason = "each test binary uses a part, and the names say it")]
mod stored;

use std::collections::BTreeMap;
use std::sync::Arc;

use answer::Answer;
use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryOptions};
use futures::executor::block_on;
use generator::{Generator, Query};
use model::Source;
use process::percent_encode;
use prometheus::Prometheus;
use random::Random;
use samples::{SPAN_MS, START_MS};
use stored::Stores;

const QUERIES: u64 = 1000;
const SEED: u64 = 1;
/// So many differences are printed whole.
const PRINTED: usize = 40;

/// When a query is asked: a range where there is a step.
#[derive(Debug, Clone, Copy)]
struct Times {
    start_ms: i64,
    end_ms: i64,
    step_ms: Option<i64>,
}

#[derive(Default)]
struct Tally {
    /// Comparisons and differences by what the query is made of.
    by_part: BTreeMap<&'static str, (u64, u64)>,
    comparisons: u64,
    errors: u64,
    empty: u64,
    differences: Vec<String>,
}

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn random_queries_are_answered_as_prometheus_does() {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
        return;
    };
    let seed = number_from_env("DIFFERENTIAL_SEED", SEED);
    let samples = samples::samples(seed);
    let prometheus = Prometheus::start(&binary);
    prometheus.write(&samples);
    let source: Arc<dyn Source> = Arc::new(samples);
    let engine = Engine::new(EngineOptions::default());
    let mut generator = Generator::new(seed, true);
    let mut tally = Tally::default();
    for _ in 0..number_from_env("DIFFERENTIAL_QUERIES", QUERIES) {
        let query = generator.query();
        for times in [instant(generator.random()), range(generator.random())] {
            let expected = ask_prometheus(&prometheus, &query.text, times);
            let found = ask_engine(&engine, &source, &query.text, times);
            let is_ordered = query.is_ordered && times.step_ms.is_none();
            tally.add(&query, times, &expected, expected.check(&query.text, &found, is_ordered));
        }
    }
    tally.print();
    assert!(tally.differences.is_empty(), "seed {seed}: {} differences", tally.differences.len());
}

/// The store cuts samples into chunks, blocks and partitions, and tiles cut series and steps:
/// no answer depends on where.
#[test]
fn random_queries_are_answered_alike_wherever_samples_and_tiles_are_cut() {
    let samples = samples::samples(SEED);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut stores = Stores::new(SEED);
    let store = runtime.block_on(stores.store(&samples));
    let memory: Arc<dyn Source> = Arc::new(samples);
    let engine = Engine::new(EngineOptions::default());
    let tile_shape = TileShape { series: 3, steps: 7 };
    let cutting = Engine::new(EngineOptions { tile_shape, threads: 2, ..Default::default() });
    let mut generator = Generator::new(SEED + 1, true);
    let mut tally = Tally::default();
    for _ in 0..number_from_env("DIFFERENTIAL_QUERIES", QUERIES) {
        let query = generator.query();
        for times in [instant(generator.random()), range(generator.random())] {
            let expected = ask_engine(&engine, &memory, &query.text, times);
            let found = ask_engine(&cutting, &store, &query.text, times);
            let is_ordered = times.step_ms.is_none();
            tally.add(&query, times, &expected, expected.check(&query.text, &found, is_ordered));
        }
    }
    runtime.block_on(stores.close());
    tally.print();
    assert!(tally.differences.is_empty(), "{} differences", tally.differences.len());
}

/// A time in or near the data, now and then on a sample.
fn time(random: &mut Random) -> i64 {
    let time_ms = START_MS - 600_000 + random.below(SPAN_MS as u64 + 1_200_000) as i64;
    if random.one_in(2) { (time_ms - START_MS) / 15_000 * 15_000 + START_MS } else { time_ms }
}

fn instant(random: &mut Random) -> Times {
    let time_ms = time(random);
    Times { start_ms: time_ms, end_ms: time_ms, step_ms: None }
}

fn range(random: &mut Random) -> Times {
    let start_ms = time(random);
    let step_ms = [1_000, 15_000, 17_000, 60_000, 60_001, 300_000][random.below(6) as usize];
    let end_ms = start_ms + step_ms * random.below(90) as i64 + random.below(1000) as i64;
    Times { start_ms, end_ms, step_ms: Some(step_ms) }
}

fn ask_prometheus(prometheus: &Prometheus, query: &str, times: Times) -> Answer {
    let seconds = |ms: i64| format!("{}.{:03}", ms / 1000, ms % 1000);
    let query = percent_encode(query);
    let json = match times.step_ms {
        None => prometheus
            .ask("/api/v1/query", &format!("query={query}&time={}", seconds(times.start_ms))),
        Some(step_ms) => prometheus.ask(
            "/api/v1/query_range",
            &format!(
                "query={query}&start={}&end={}&step={}",
                seconds(times.start_ms),
                seconds(times.end_ms),
                seconds(step_ms)
            ),
        ),
    };
    Answer::of_prometheus(&json)
}

fn ask_engine(engine: &Engine, source: &Arc<dyn Source>, query: &str, times: Times) -> Answer {
    let options = QueryOptions::default();
    let source = Arc::clone(source);
    let Times { start_ms, end_ms, step_ms } = times;
    let answer = block_on(async {
        match step_ms {
            None => engine.instant(source, query, start_ms, &options).await,
            Some(step_ms) => engine.range(source, query, start_ms, end_ms, step_ms, &options).await,
        }
    });
    Answer::of_engine(query, answer)
}

impl Tally {
    fn add(&mut self, query: &Query, times: Times, expected: &Answer, outcome: Result<(), String>) {
        self.comparisons += 1;
        self.errors += u64::from(expected.is_error());
        self.empty += u64::from(expected.is_empty());
        for part in &query.parts {
            let counts = self.by_part.entry(part).or_default();
            counts.0 += 1;
            counts.1 += u64::from(outcome.is_err());
        }
        if let Err(difference) = outcome {
            self.differences.push(format!("{}\n  {times:?}\n  {difference}", query.text));
        }
    }

    fn print(&self) {
        for difference in self.differences.iter().take(PRINTED) {
            println!("{difference}\n");
        }
        for (part, (comparisons, differences)) in &self.by_part {
            println!("{part:32} {comparisons:6} {differences:6}");
        }
        println!(
            "{} comparisons ({} of errors, {} without a value), {} differences",
            self.comparisons,
            self.errors,
            self.empty,
            self.differences.len()
        );
    }
}
