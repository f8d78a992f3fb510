//! Checks with random queries that results are bit-identical regardless of the size of tiles, the
//! number of threads, the cuts into chunks, blocks and partitions, and the content of caches.
//!
//! `INDEPENDENCE_SEED` and `INDEPENDENCE_QUERIES` select other or more queries.

use std::sync::Arc;

use super::shown::show;
use super::stored::{Caches, Cut, Stores};
use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryOptions};
use futures::executor::block_on;
use model::Source;
use promqltest::generate::{
    Generator, Grammar, Operands, Query, Random, SPAN_MS, START_MS, samples,
};

const SEED: u64 = 1;
const QUERIES: u64 = 250;

/// Rows and columns of tiles, and number of threads.
const ENGINES: [(usize, usize, usize); 4] = [(1, 1, 2), (3, 7, 4), (512, 64, 2), (5, 130, 1)];

/// Long runs that stay in the head; short ones that are often sealed; single samples out of order.
/// Some caches are disabled or small.
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

/// Times of a query; a range query if there is more than one step.
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

/// Returns a range of at most 151 steps, a few more than the widest tile has.
fn range(random: &mut Random) -> Times {
    let start_ms = START_MS - 600_000 + random.below(SPAN_MS as u64 / 2) as i64;
    let step_ms = [1_000, 15_000, 17_000, 60_001, 720_000][random.below(5) as usize];
    Times { start_ms, step_ms, count: 2 + random.below(150) as i64 }
}

/// Returns the result as text, sorted if no order is defined.
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

/// Returns the first line in which two results differ.
fn difference(expected: &str, found: &str) -> Option<String> {
    // If a parameter is invalid at several steps, any of its values may be reported.
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
    // Large scans of a store prefetch in separate tasks.
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
