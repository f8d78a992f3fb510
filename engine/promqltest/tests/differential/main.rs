//! Compares random queries in the engine and in a real Prometheus with the same samples.
//!
//! `PROMETHEUS_BINARY` names the binary. `DIFFERENTIAL_SEED` and `DIFFERENTIAL_QUERIES` select
//! other or more queries; each runs as an instant query and as a range query.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod answer;
mod message;
mod prometheus;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use answer::Answer;
use engine::{Engine, EngineOptions, QueryOptions};
use futures::executor::block_on;
use model::{METRIC_NAME, Source};
use prometheus::Prometheus;
use promqltest::generate::{
    Category, Generator, Grammar, Operands, Query, Random, SPAN_MS, START_MS, parts, samples,
};
use testkit::percent_encode;

const QUERIES: u64 = 2000;
const SEED: u64 = 1;
/// Maximum differences that are printed in full.
const PRINTED: usize = 40;

/// Times of a query; a range query if there is a step.
#[derive(Debug, Clone, Copy)]
struct Times {
    start_ms: i64,
    end_ms: i64,
    step_ms: Option<i64>,
}

/// Number of comparisons and of differences.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    comparisons: u64,
    differences: u64,
}

impl Counts {
    fn add(&mut self, differs: bool) {
        self.comparisons += 1;
        self.differences += u64::from(differs);
    }
}

#[derive(Default)]
struct Tally {
    all: Counts,
    /// By part of the query.
    by_part: BTreeMap<(Category, &'static str), Counts>,
    by_category: BTreeMap<Category, Counts>,
    /// Results of Prometheus that are errors, empty, or have annotations.
    errors: Counts,
    empty: Counts,
    annotated: Counts,
    /// Results of Prometheus with histograms.
    native: Counts,
    differences: Vec<String>,
}

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn random_queries_are_answered_as_prometheus_does() {
    compare(Operands::Floats);
}

#[test]
fn random_queries_over_histograms_are_answered_as_prometheus_does() {
    compare(Operands::Histograms);
}

/// Only one Prometheus runs at a time: two that start together may get the same free port.
static TURN: Mutex<()> = Mutex::new(());

fn compare(operands: Operands) {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
        return;
    };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = number_from_env("DIFFERENTIAL_SEED", SEED);
    let samples = samples(seed);
    let prometheus = Prometheus::start(&binary);
    prometheus.write(&samples);
    let with_histograms = samples.histograms().filter(|(_, histograms)| !histograms.is_empty());
    let names: BTreeSet<String> =
        with_histograms.map(|(labels, _)| labels.get(METRIC_NAME).to_owned()).collect();
    let source: Arc<dyn Source> = Arc::new(samples);
    let engine = Engine::new(EngineOptions::default());
    check_samples(&prometheus, &engine, &source, names);
    let mut random = Random::new(seed);
    let mut generator = Generator::new(seed, true, operands);
    let mut grammar = Grammar::new(seed, operands);
    let mut tally = Tally::default();
    for index in 0..number_from_env("DIFFERENTIAL_QUERIES", QUERIES) {
        let query = if index % 2 == 0 { generator.query() } else { grammar.query() };
        for times in [instant(&mut random), range(&mut random)] {
            let expected = ask_prometheus(&prometheus, &query.text, times);
            let found = ask_engine(&engine, &source, &query.text, times);
            let is_ordered = query.is_ordered && times.step_ms.is_none();
            tally.add(&query, times, &expected, expected.check(&found, is_ordered));
        }
    }
    println!("{operands:?}");
    tally.print();
    assert!(tally.differences.is_empty(), "seed {seed}: {} differences", tally.differences.len());
}

/// Checks that both sides hold the same samples.
fn check_samples(
    prometheus: &Prometheus,
    engine: &Engine,
    source: &Arc<dyn Source>,
    names: BTreeSet<String>,
) {
    let end_ms = START_MS + 2 * SPAN_MS;
    let times = Times { start_ms: end_ms, end_ms, step_ms: None };
    for name in names {
        let query = format!("{{__name__={name:?}}}[6h]");
        let expected = ask_prometheus(prometheus, &query, times);
        let found = ask_engine(engine, source, &query, times);
        let outcome = expected.check(&found, true);
        assert_eq!(outcome, Ok(()), "{name} is not the same on both sides");
        assert!(expected.has_histograms(), "{name} is missing");
    }
}

/// Returns a time in or near the data, sometimes on a sample, rarely far away. Differences of times
/// fit Go's durations, which Prometheus uses.
fn time(random: &mut Random) -> i64 {
    if random.one_in(24) {
        const FAR_MS: [i64; 6] = [0, -1, -1_500, -3_000_000_000_123, 6_000_000_000_000, 999];
        return FAR_MS[random.below(6) as usize];
    }
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
    let seconds = |ms: i64| {
        let sign = if ms < 0 { "-" } else { "" };
        format!("{sign}{}.{:03}", ms.unsigned_abs() / 1000, ms.unsigned_abs() % 1000)
    };
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
        let differs = outcome.is_err();
        self.all.add(differs);
        for (applies, counts) in [
            (expected.is_error(), &mut self.errors),
            (expected.is_empty(), &mut self.empty),
            (expected.is_annotated(), &mut self.annotated),
            (expected.has_histograms(), &mut self.native),
        ] {
            if applies {
                counts.add(differs);
            }
        }
        let parts = parts(&query.text);
        let mut categories: Vec<Category> = parts.iter().map(|(category, _)| *category).collect();
        categories.dedup();
        for category in categories {
            self.by_category.entry(category).or_default().add(differs);
        }
        for part in parts {
            self.by_part.entry(part).or_default().add(differs);
        }
        if let Err(difference) = outcome {
            self.differences.push(format!("{}\n  {times:?}\n  {difference}", query.text));
        }
    }

    fn print(&self) {
        for difference in self.differences.iter().take(PRINTED) {
            println!("{difference}\n");
        }
        let row = |name: &str, counts: &Counts| {
            println!("{name:32} {:6} {:6}", counts.comparisons, counts.differences);
        };
        println!("{:32} {:>6} {:>6}", "", "asked", "differ");
        for (category, counts) in &self.by_category {
            row(&format!("{category:?}"), counts);
            for (part, counts) in self.by_part.iter().filter(|(part, _)| part.0 == *category) {
                row(&format!("  {}", part.1), counts);
            }
        }
        row("answered with an error", &self.errors);
        row("answered without a value", &self.empty);
        row("answered with annotations", &self.annotated);
        row("answered with histograms", &self.native);
        row("all", &self.all);
    }
}
