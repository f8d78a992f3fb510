//! No answer depends on the size of tiles, the number of threads, where the store cuts samples
//! into chunks, blocks and partitions, or what its caches keep: random queries, answered alike to
//! the last bit.
//!
//! `INDEPENDENCE_SEED` and `INDEPENDENCE_QUERIES` choose other queries, and more of them.

#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

#[path = "support/stored.rs"]
#[allow(dead_code, missing_docs, reason = "each test binary uses a part, and the names say it")]
mod stored;

use std::sync::Arc;

use engine::result::SampleValue;
use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryError, QueryOptions, QueryOutput, Value};
use futures::executor::block_on;
use model::{Histogram, Labels, ResetHint, Source};
use promqltest::generate::{
    Generator, Grammar, Operands, Query, Random, SPAN_MS, START_MS, samples,
};
use stored::{Caches, Cut, Stores};

const SEED: u64 = 1;
const QUERIES: u64 = 400;

/// Rows and columns of tiles, and threads.
const ENGINES: [(usize, usize, usize); 4] = [(1, 1, 2), (3, 7, 4), (512, 64, 2), (5, 130, 1)];

/// Long runs that stay open; short ones that are often sealed; single samples out of order. The
/// caches of some keep nothing, or little.
const CUTS: [Cut; 5] = [
    Cut { run_max: 1_000, sealed_one_in: u64::MAX, caches: Caches::On },
    Cut { run_max: 100, sealed_one_in: 4, caches: Caches::On },
    Cut { run_max: 100, sealed_one_in: 4, caches: Caches::Off },
    Cut { run_max: 100, sealed_one_in: 4, caches: Caches::Tight },
    Cut { run_max: 3, sealed_one_in: 100, caches: Caches::Tight },
];

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn engine(series: usize, steps: usize, threads: usize) -> Engine {
    let tile_shape = TileShape { series, steps };
    let use_start_timestamps = true;
    Engine::new(EngineOptions {
        tile_shape,
        threads,
        use_start_timestamps,
        ..EngineOptions::default()
    })
}

/// When a query is asked: a range where there is more than one step.
#[derive(Debug, Clone, Copy)]
struct Times {
    start_ms: i64,
    step_ms: i64,
    count: i64,
}

fn instant(random: &mut Random) -> Times {
    let start_ms = START_MS + random.below(SPAN_MS as u64 + 300_000) as i64;
    Times { start_ms, step_ms: 1, count: 1 }
}

/// Up to some more steps than the widest tile has.
fn range(random: &mut Random) -> Times {
    let start_ms = START_MS - 600_000 + random.below(SPAN_MS as u64 / 2) as i64;
    let step_ms = [1_000, 15_000, 17_000, 60_001][random.below(4) as usize];
    Times { start_ms, step_ms, count: 2 + random.below(150) as i64 }
}

/// The answer as text; without its order where none is promised.
fn ask(engine: &Engine, source: &Arc<dyn Source>, query: &Query, times: Times) -> String {
    let is_ordered = query.is_ordered || times.count > 1;
    let query = &query.text;
    let (source, options) = (Arc::clone(source), QueryOptions::default());
    let Times { start_ms, step_ms, count } = times;
    let end_ms = start_ms + (count - 1) * step_ms;
    let answer = block_on(async {
        if count == 1 {
            return engine.instant(source, query, start_ms, &options).await;
        }
        engine.range(source, query, start_ms, end_ms, step_ms, &options).await
    });
    let text = show(query, answer);
    if is_ordered {
        return text;
    }
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// All of an answer: labels in their order, values by their bits, warnings and infos.
fn show(query: &str, answer: Result<QueryOutput, QueryError>) -> String {
    let output = match answer {
        Ok(output) => output,
        Err(error) => return format!("error: {error}"),
    };
    let mut lines = Vec::new();
    let mut line = |labels: &Labels, samples: &mut dyn Iterator<Item = (i64, SampleValue)>| {
        let samples: Vec<String> = samples
            .map(|(time_ms, value)| match value {
                SampleValue::Float(value) => format!("{time_ms} {value:?} {:x}", bits(value)),
                SampleValue::Histogram(histogram) => {
                    format!("{time_ms} {:?}", promised(&histogram))
                }
            })
            .collect();
        lines.push(format!("{labels}: {}", samples.join(", ")));
    };
    match &output.value {
        Value::String { time_ms, value } => return format!("{time_ms} {value}"),
        Value::Scalar { time_ms, value } => {
            line(&Labels::default(), &mut std::iter::once((*time_ms, SampleValue::Float(*value))));
        }
        Value::Vector { time_ms, samples } => {
            for (labels, value) in samples {
                line(labels, &mut std::iter::once((*time_ms, value.clone())));
            }
        }
        Value::Samples(series) => {
            for series in series {
                let floats = series.values.iter().copied().map(SampleValue::Float);
                let histograms = series
                    .histograms
                    .iter()
                    .map(|(time_ms, h)| (*time_ms, SampleValue::Histogram(Arc::clone(h))));
                let floats = series.timestamps.iter().copied().zip(floats);
                line(&series.labels, &mut floats.chain(histograms));
            }
        }
        Value::Grid { rows, .. } => {
            for row in rows {
                let mut cells = (0..row.values.len()).filter_map(|i| Some((i as i64, row.at(i)?)));
                line(&row.labels, &mut cells);
            }
        }
    }
    let (warnings, infos) = output.annotations.to_strings(query, 0);
    lines.into_iter().chain(warnings).chain(infos).collect::<Vec<_>>().join("\n")
}

/// What is promised of a histogram: all but whether it is known that a counter went on. Where it
/// is not, a query compares the counts for itself, and finds the same.
fn promised(histogram: &Histogram) -> Histogram {
    let reset_hint = match histogram.reset_hint {
        ResetHint::NotReset => ResetHint::Unknown,
        hint => hint,
    };
    Histogram { reset_hint, ..histogram.clone() }
}

/// The bits of a number; NaN is NaN.
fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

/// The first line in which two answers differ.
fn difference(expected: &str, found: &str) -> Option<String> {
    // Of a parameter that is bad at several steps, any of its values is named.
    let is_same_error = expected.starts_with("error: ")
        && expected.split(", got").next() == found.split(", got").next();
    if expected == found || is_same_error {
        return None;
    }
    let pair = expected.lines().zip(found.lines()).find(|(a, b)| a != b);
    let (a, b) = pair.unwrap_or((expected, found));
    Some(format!("  expected {a}\n  found    {b}"))
}

#[test]
fn answers_do_not_depend_on_how_samples_and_work_are_cut() {
    let seed = number_from_env("INDEPENDENCE_SEED", SEED);
    let samples = samples(seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // Large scans of a store read ahead in tasks of their own.
    let _inside = runtime.enter();
    let mut stores = CUTS.map(|cut| Stores::new(seed, cut));
    let mut sources: Vec<Arc<dyn Source>> = Vec::new();
    for stores in &mut stores {
        sources.push(runtime.block_on(stores.store(&samples)));
    }
    sources.push(Arc::new(samples));
    let memory = Arc::clone(&sources[CUTS.len()]);
    let plain = engine(TileShape::default().series, TileShape::default().steps, 1);
    let engines = ENGINES.map(|(series, steps, threads)| engine(series, steps, threads));
    let mut random = Random::new(seed);
    let mut generators = [Operands::Floats, Operands::Histograms]
        .map(|operands| (Generator::new(seed, true, operands), Grammar::new(seed, operands)));
    let mut differences = Vec::new();
    for index in 0..number_from_env("INDEPENDENCE_QUERIES", QUERIES) as usize {
        let (generator, grammar) = &mut generators[index / 2 % 2];
        let query = if index % 2 == 0 { generator.query() } else { grammar.query() };
        for times in [instant(&mut random), range(&mut random)] {
            let expected = ask(&plain, &memory, &query, times);
            for (number, engine) in engines.iter().enumerate() {
                let place = (index + number) % sources.len();
                let found = ask(engine, &sources[place], &query, times);
                if let Some(text) = difference(&expected, &found) {
                    let (how, cut) = (ENGINES[number], CUTS.get(place));
                    differences
                        .push(format!("{}\n  {times:?} {how:?} {cut:?}\n{text}", query.text));
                }
            }
        }
    }
    for stores in &mut stores {
        runtime.block_on(stores.close());
    }
    drop(sources);
    let shown = differences.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "seed {seed}: {} differences\n{shown}", differences.len());
}
