//! The result cache changes no answer by a bit: random queries over moving ranges, on a store that
//! takes writes meanwhile.
//!
//! Samples arrive in order, late, twice, or in series that start in the past; the store seals now
//! and then. `RESULT_CACHE_SEED` and `RESULT_CACHE_ROUNDS` choose other and longer histories.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::shown::show;
use engine::result_cache::ResultCacheStats;
use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryOptions};
use model::{Batch, HistogramSample, Labels, Matcher, Source};
use promqltest::generate::{Generator, Grammar, Operands, Random, SPAN_MS, START_MS, samples};
use storage::{ManualClock, RetentionRule, Store, StoreOptions};

const SEED: u64 = 3;
const ROUNDS: u64 = 60;
const DAY_MS: i64 = 24 * 3_600_000;

/// Queries as on dashboards.
const PANELS: [&str; 18] = [
    "sum by (job) (rate(requests_total[5m]))",
    "sum(rate(requests_total[1m])) / sum(load)",
    "histogram_quantile(0.9, sum by (le) (rate(latency_bucket[5m])))",
    "topk(2, avg_over_time(temperature[10m]))",
    "sum without (instance) (requests_total) or vector(0)",
    "quantile_over_time(0.5, unique[7m])",
    "stddev by (parity) (unique)",
    "max_over_time(sum(rate(requests_total[2m]))[10m:30s])",
    "label_replace(load, 'x', '$1', 'instance', '(.*)') * 1.5",
    "temperature offset 3m - temperature offset -1m",
    "deriv(unique[5m] offset 1m)",
    "flappy == 3 or flappy * 0.1",
    "absent(flappy{job='a'})",
    "rate(requests_total[3m] smoothed)",
    "increase(requests_total[4m] anchored) > 0",
    "count_values('v', flappy)",
    // Ranges that do not touch.
    "sum by (job) (sum_over_time(requests_total[9s]))",
    "max_over_time(sum(load)[10s:2s])",
];

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Samples of one series that are not written yet, in order.
#[derive(Default)]
struct Waiting {
    floats: Vec<(i64, f64)>,
    histograms: Vec<HistogramSample>,
    /// Time before which none of them is written.
    held_until_ms: i64,
}

impl Waiting {
    /// Takes the samples up to a time.
    fn take(&mut self, until_ms: i64) -> Waiting {
        let floats = self.floats.partition_point(|(time_ms, _)| *time_ms <= until_ms);
        let histograms = self.histograms.partition_point(|s| s.timestamp_ms <= until_ms);
        Waiting {
            floats: self.floats.drain(..floats).collect(),
            histograms: self.histograms.drain(..histograms).collect(),
            held_until_ms: 0,
        }
    }
}

/// A store that takes writes as time passes.
struct History {
    store: Arc<Store>,
    waiting: BTreeMap<Labels, Waiting>,
    written: Vec<(Labels, i64)>,
    now_ms: i64,
}

impl History {
    async fn begin(seed: u64, random: &mut Random) -> History {
        let options = StoreOptions { ahead_max_ms: None, background: false, ..Default::default() };
        let store = Arc::new(Store::open("memory:///", options).await.unwrap());
        let all = samples(seed);
        let mut waiting: BTreeMap<Labels, Waiting> = BTreeMap::new();
        for (labels, times, values) in all.iter() {
            // Sums of these are rounded.
            let rough = |value: &f64| if value.is_finite() { value / 3.0 } else { *value };
            let floats = times.iter().copied().zip(values.iter().map(rough)).collect();
            waiting.entry(labels.clone()).or_default().floats = floats;
        }
        for (labels, samples) in all.histograms() {
            waiting.entry(labels.clone()).or_default().histograms = samples.to_vec();
        }
        for series in waiting.values_mut() {
            if random.one_in(6) {
                series.held_until_ms = START_MS + random.below(SPAN_MS as u64) as i64;
            }
        }
        let mut history =
            History { store, waiting, written: Vec::new(), now_ms: START_MS + SPAN_MS / 4 };
        history.write(random).await;
        history
    }

    /// Moves the time on, and writes the samples up to it.
    async fn advance(&mut self, random: &mut Random) {
        self.now_ms += [1_000, 15_000, 16_000, 61_000, 200_000][random.below(5) as usize];
        self.write(random).await;
        if random.one_in(4) {
            self.write_again(random).await;
        }
        if random.one_in(6) {
            self.store.seal_all().await.unwrap();
        }
    }

    async fn write(&mut self, random: &mut Random) {
        let mut batch = Batch::default();
        let now_ms = self.now_ms;
        for (labels, waiting) in &mut self.waiting {
            if waiting.held_until_ms > now_ms {
                continue;
            }
            if random.one_in(30) {
                // Late samples.
                waiting.held_until_ms = now_ms + random.below(300_000) as i64;
                continue;
            }
            let taken = waiting.take(now_ms);
            if taken.floats.is_empty() && taken.histograms.is_empty() {
                continue;
            }
            self.written.extend(taken.floats.last().map(|(time_ms, _)| (labels.clone(), *time_ms)));
            batch.push(labels, &taken.floats);
            batch.push_histograms(&taken.histograms);
            if random.one_in(20) {
                self.store.append(std::mem::take(&mut batch)).await.unwrap();
            }
        }
        self.store.append(batch).await.unwrap();
    }

    /// Writes another value at a written time, which is accepted once the first is sealed; or a
    /// value at a time in between.
    async fn write_again(&mut self, random: &mut Random) {
        let (labels, time_ms) = &self.written[random.below(self.written.len() as u64) as usize];
        let time_ms = time_ms - random.below(3) as i64;
        let mut batch = Batch::default();
        batch.push(labels, &[(time_ms, random.below(100) as f64 / 7.0)]);
        self.store.append(batch).await.unwrap();
    }
}

fn engine(result_cache_bytes_max: u64, threads: usize) -> Engine {
    let tile_shape = TileShape { series: 5, steps: 30 };
    Engine::new(EngineOptions { result_cache_bytes_max, threads, tile_shape, ..Default::default() })
}

/// A query, and the range that it is asked over.
struct Panel {
    query: String,
    step_ms: i64,
    span_ms: i64,
}

impl Panel {
    fn new(query: String, random: &mut Random) -> Panel {
        let step_ms = [15_000, 15_000, 30_000, 61_000][random.below(4) as usize];
        let span_ms = [300_000, 1_200_000, 3_600_000][random.below(3) as usize];
        Panel { query, step_ms, span_ms }
    }

    /// Returns most often the latest range, now and then another one.
    fn window(&self, now_ms: i64, random: &mut Random) -> (i64, i64) {
        let mut end_ms = now_ms.div_euclid(self.step_ms) * self.step_ms;
        let mut span_ms = self.span_ms;
        match random.below(12) {
            0 => end_ms -= self.step_ms * random.below(60) as i64,
            1 => span_ms = self.step_ms * random.below(200) as i64,
            2 => end_ms += 1_000,
            _ => {}
        }
        (end_ms - span_ms / self.step_ms * self.step_ms, end_ms)
    }
}

async fn ask(
    engine: &Engine,
    source: Arc<dyn Source>,
    panel: &Panel,
    window: (i64, i64),
) -> String {
    let options = QueryOptions { use_result_cache: true, ..QueryOptions::default() };
    let Panel { query, step_ms, .. } = panel;
    let answer = engine.range(source, query, window.0, window.1, *step_ms, &options).await;
    show(query, answer)
}

fn panels(seed: u64, random: &mut Random) -> Vec<Panel> {
    let mut queries: Vec<String> = PANELS.iter().map(|query| (*query).to_owned()).collect();
    for operands in [Operands::Floats, Operands::Histograms] {
        let mut generator = Generator::new(seed, true, operands);
        let mut grammar = Grammar::new(seed, operands);
        let count = if matches!(operands, Operands::Floats) { 40 } else { 8 };
        for _ in 0..count {
            queries.push(generator.query().text);
            queries.push(grammar.query().text);
        }
    }
    queries.into_iter().map(|query| Panel::new(query, random)).collect()
}

/// Compares every answer over a history; returns the statistics of the cache.
async fn follow(seed: u64, rounds: u64, bytes_max: u64) -> ResultCacheStats {
    let mut random = Random::new(seed);
    let mut history = History::begin(seed, &mut random).await;
    let (cached, plain) = (engine(bytes_max, 2), engine(0, 1));
    let panels = panels(seed, &mut random);
    for round in 0..rounds {
        history.advance(&mut random).await;
        for _ in 0..24 {
            // Half of the queries are those of dashboards.
            let among = if random.one_in(2) { PANELS.len() } else { panels.len() };
            let panel = &panels[random.below(among as u64) as usize];
            let window = panel.window(history.now_ms, &mut random);
            let source = || Arc::clone(&history.store) as Arc<dyn Source>;
            let found = ask(&cached, source(), panel, window).await;
            let expected = ask(&plain, source(), panel, window).await;
            let difference = found.lines().zip(expected.lines()).find(|(a, b)| a != b);
            assert!(
                found == expected,
                "seed {seed} round {round}: {} every {} over {window:?}: {difference:?}",
                panel.query,
                panel.step_ms,
            );
        }
    }
    history.store.close().await.unwrap();
    cached.result_cache().unwrap().stats()
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test)
}

#[test]
fn the_cache_changes_no_answer() {
    let seed = number_from_env("RESULT_CACHE_SEED", SEED);
    let rounds = number_from_env("RESULT_CACHE_ROUNDS", ROUNDS);
    let stats = run(follow(seed, rounds, 64 << 20));
    let asked = rounds * 24;
    assert!(stats.partial_hits > asked / 8 && stats.hits > 0, "{stats:?}");
    assert!(stats.misses > 0 && stats.invalidations > asked / 8, "{stats:?}");
    assert_eq!(stats.evictions, 0, "{stats:?}");
}

#[test]
fn the_cache_stays_within_its_size() {
    let stats = run(follow(number_from_env("RESULT_CACHE_SEED", SEED) + 1, 20, 60 << 10));
    assert!(stats.evictions > 20 && stats.partial_hits > 20, "{stats:?}");
    assert!(stats.bytes <= stats.bytes_max && stats.bytes > stats.bytes_max / 4, "{stats:?}");
}

/// A store with an hourly series for each name, which expires as its clock moves on.
struct ExpiringStore {
    store: Arc<Store>,
    clock: Arc<ManualClock>,
    cached: Engine,
    plain: Engine,
}

impl ExpiringStore {
    async fn open(
        retention: StoreOptions,
        names: &[&'static str],
        days: std::ops::Range<i64>,
    ) -> ExpiringStore {
        let clock = Arc::new(ManualClock::new(10 * DAY_MS));
        let options = StoreOptions {
            retention_confirmation: Duration::ZERO,
            ahead_max_ms: None,
            clock: Arc::clone(&clock) as Arc<_>,
            background: false,
            ..retention
        };
        let store = Arc::new(Store::open("memory:///", options).await.unwrap());
        let mut batch = Batch::default();
        for name in names {
            let hours = days.start * 24..days.end * 24;
            let samples = hours.map(|hour| (hour * 3_600_000, hour as f64 / 3.0));
            let labels = Labels::from_pairs([("__name__", *name)]);
            batch.push(&labels, &samples.collect::<Vec<_>>());
        }
        // A newer sample, so that only the clock decides what is expired.
        batch.push(&Labels::from_pairs([("__name__", "late")]), &[(20 * DAY_MS, 1.0)]);
        store.append(batch).await.unwrap();
        ExpiringStore { store, clock, cached: engine(1 << 20, 1), plain: engine(0, 1) }
    }

    /// Returns the answer, which both engines agree on.
    async fn ask(&self, panel: &Panel, window: (i64, i64)) -> String {
        let source = || Arc::clone(&self.store) as Arc<dyn Source>;
        let found = ask(&self.cached, source(), panel, window).await;
        assert_eq!(found, ask(&self.plain, source(), panel, window).await);
        found
    }

    async fn close(self) -> ResultCacheStats {
        self.store.close().await.unwrap();
        self.cached.result_cache().unwrap().stats()
    }
}

#[test]
fn steps_over_samples_expired_by_rules_are_invalidated() {
    run(async {
        let matchers = vec![Matcher::equal("__name__", "m")];
        let retention_rules = vec![RetentionRule { matchers, time_ms: DAY_MS }];
        let retention = StoreOptions { retention_rules, ..Default::default() };
        let expiring = ExpiringStore::open(retention, &["m", "n"], 9..10).await;
        let panel = Panel {
            query: "sum(sum_over_time({__name__=~\"m|n\"}[3h]))".to_owned(),
            step_ms: 3_600_000,
            span_ms: DAY_MS,
        };
        for hours in 0..30 {
            expiring.clock.set(10 * DAY_MS + hours * 3_600_000);
            expiring.store.maintain().await.unwrap();
            for _ in 0..2 {
                expiring.ask(&panel, (9 * DAY_MS, 10 * DAY_MS)).await;
            }
        }
        let stats = expiring.close().await;
        let again = stats.partial_hits + stats.misses;
        assert!(stats.hits >= 30 && again >= 12, "{stats:?}");
    });
}

#[test]
fn steps_that_look_beyond_the_retention_are_invalidated() {
    run(async {
        let retention = StoreOptions { retention_ms: Some(2 * DAY_MS), ..Default::default() };
        let expiring = ExpiringStore::open(retention, &["m"], 8..10).await;
        let panel = Panel {
            query: "sum_over_time(m[6h])".to_owned(),
            step_ms: 3_600_000,
            span_ms: 2 * DAY_MS,
        };
        let mut seen = Vec::new();
        for (day, is_maintained) in
            [(10, false), (10, false), (11, false), (11, true), (12, false), (10, false)]
        {
            expiring.clock.set(day * DAY_MS);
            if is_maintained {
                expiring.store.maintain().await.unwrap();
            }
            seen.push(expiring.ask(&panel, (8 * DAY_MS, 10 * DAY_MS)).await);
        }
        assert!(
            seen[0] == seen[1] && seen[0] != seen[2] && seen[3] == seen[2] && seen[4] != seen[3]
        );
        let stats = expiring.close().await;
        // The first steps look beyond the retention at any time of the clock.
        assert!(stats.partial_hits >= 3 && stats.hits == 0, "{stats:?}");
    });
}
