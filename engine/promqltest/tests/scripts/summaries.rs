//! Summaries change no answer: random queries over long ranges, with summaries and without, on a
//! store that takes writes, late samples and deletes meanwhile.
//!
//! Answers over integers are equal to the last bit. Sums of other values are regrouped, and agree
//! to 1e-12. The same holds once the retention has replaced samples, for queries of whole hours; all
//! others fail. `SUMMARIES_SEED` and `SUMMARIES_SEEDS` choose other and more histories.

use std::sync::Arc;
use std::time::Duration;

use super::shown::show;
use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryOptions};
use model::{
    Batch, BoxFuture, Budget, Histogram, HistogramSample, Labels, Matcher, MetadataQuery,
    Selection, SeriesSet, SmolStr, Source, SourceError,
};
use promqltest::generate::Random;
use storage::{ManualClock, Retention, Store, StoreOptions};

const HOUR_MS: i64 = 3_600_000;
/// Start of the samples: a day's start.
const START_MS: i64 = 20_000 * 24 * HOUR_MS;
const SCRAPE_MS: i64 = 15_000;
const ROUNDS: i64 = 5;
/// Hours that are written in a round.
const ROUND_HOURS: i64 = 7;
const QUERIES: usize = 40;
const KINDS: usize = 12;
/// A kind with native histograms between its floats.
const MIXED: usize = 11;

/// The store without summaries: every selection needs samples.
struct OfSamples(Arc<Store>);

impl Source for OfSamples {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        let selection = Selection { windows: None, ..selection.clone() };
        Box::pin(async move { self.0.select(&selection, budget).await })
    }

    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        self.0.series(query, budget)
    }

    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        self.0.label_names(query, budget)
    }

    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        self.0.label_values(name, query, budget)
    }
}

/// Returns the metric of a kind of series: integers, other values, series that end often, and series
/// that are not only finite floats.
fn metric(kind: usize) -> &'static str {
    match kind {
        0..4 => "whole_total",
        4..8 => "rough_total",
        8 => "ending_total",
        9 | 10 => "odd_total",
        _ => "mixed_total",
    }
}

fn labels(kind: usize) -> Labels {
    let text = kind.to_string();
    Labels::from_pairs([("__name__", metric(kind)), ("kind", &text)])
}

fn histogram(timestamp_ms: i64, count: f64) -> HistogramSample {
    let histogram = Histogram { count, zero_count: count, sum: count, ..Histogram::default() };
    HistogramSample { timestamp_ms, start_ms: 0, histogram: Arc::new(histogram) }
}

/// A store that takes writes as time passes.
struct History {
    store: Arc<Store>,
    random: Random,
    values: [f64; KINDS],
    /// Offset of each series' scrapes.
    offsets: [i64; KINDS],
    now_ms: i64,
}

impl History {
    async fn begin(seed: u64) -> History {
        let options = StoreOptions {
            ahead_max_ms: None,
            background: false,
            columns_bytes_max: if seed.is_multiple_of(2) { 0 } else { 64 << 20 },
            retention_confirmation: Duration::ZERO,
            clock: Arc::new(ManualClock::new(START_MS + ROUNDS * ROUND_HOURS * HOUR_MS)),
            ..StoreOptions::default()
        };
        let store = Arc::new(Store::open("memory:///", options).await.unwrap());
        let mut random = Random::new(seed);
        let offsets = std::array::from_fn(|kind| match kind % 3 {
            0 => 0,
            _ => random.below(SCRAPE_MS as u64) as i64,
        });
        History { store, random, values: [100.0; KINDS], offsets, now_ms: START_MS }
    }

    /// Returns the next value of a series.
    fn value(&mut self, kind: usize) -> f64 {
        let random = &mut self.random;
        let before = self.values[kind];
        let grown = random.below(50) as f64;
        let value = match kind {
            // Counters with resets, of integers and of others.
            0 | 1 if random.one_in(900) => 0.0,
            0 | 1 => before + grown,
            4 if random.one_in(400) => 0.25,
            4 => before + grown / 7.0,
            // Gauges.
            2 => random.below(1000) as f64 - 500.0,
            3 => before,
            5 => random.below(100_000) as f64 / 100.0,
            6 => (random.below(1 << 20) as f64).sqrt(),
            7 => random.below(10_000) as f64 / 10.0 - 500.0,
            8 if random.one_in(15) => model::stale_nan(),
            9 if random.one_in(700) => f64::NAN,
            9 if random.one_in(900) => f64::INFINITY,
            10 if random.one_in(600) => model::stale_nan(),
            _ => random.below(100) as f64,
        };
        if kind == 3 && random.one_in(500) {
            self.values[kind] = grown;
        } else if value.is_finite() {
            self.values[kind] = value;
        }
        value
    }

    /// Writes the samples of the next hours; some series have gaps.
    async fn advance(&mut self) {
        let end_ms = self.now_ms + ROUND_HOURS * HOUR_MS;
        let mut batch = Batch::default();
        for kind in 0..KINDS {
            if self.random.one_in(6) {
                continue;
            }
            let (mut samples, mut histograms) = (Vec::new(), Vec::new());
            let mut time_ms = self.now_ms + self.offsets[kind];
            while time_ms < end_ms {
                let jitter_ms = if kind % 4 == 1 { self.random.below(40) as i64 } else { 0 };
                if kind == MIXED && self.random.one_in(900) {
                    histograms.push(histogram(time_ms, self.random.below(50) as f64));
                } else if !self.random.one_in(300) {
                    samples.push((time_ms + jitter_ms, self.value(kind)));
                }
                time_ms += SCRAPE_MS;
            }
            batch.push(&labels(kind), &samples);
            if !histograms.is_empty() {
                batch.push_histograms(&histograms);
            }
        }
        self.store.append(batch).await.unwrap();
        self.now_ms = end_ms;
    }

    /// Writes a few samples of earlier hours.
    async fn write_late(&mut self) {
        let passed = (self.now_ms - START_MS) as u64;
        let mut batch = Batch::default();
        for _ in 0..4 {
            let kind = self.random.below(KINDS as u64) as usize;
            let time_ms = START_MS + self.random.below(passed) as i64;
            batch.push(&labels(kind), &[(time_ms, self.random.below(50) as f64)]);
        }
        self.store.append(batch).await.unwrap();
    }

    async fn delete(&mut self) {
        let passed = (self.now_ms - START_MS) as u64;
        let kind = self.random.below(KINDS as u64).to_string();
        let start_ms = START_MS + self.random.below(passed) as i64;
        let end_ms = start_ms + self.random.below(3 * HOUR_MS as u64) as i64;
        let selector = vec![Matcher::equal("kind", &*kind)];
        self.store.delete(vec![selector], start_ms, end_ms).await.unwrap();
        if self.random.one_in(2) {
            self.store.clean_tombstones().await.unwrap();
        }
    }

    /// Returns a random query and its metric.
    fn query(&mut self) -> (String, String) {
        let random = &mut self.random;
        let mut pick = |texts: &[&str]| texts[random.below(texts.len() as u64) as usize].to_owned();
        let function = pick(&[
            "rate",
            "increase",
            "delta",
            "sum_over_time",
            "avg_over_time",
            "min_over_time",
            "max_over_time",
            "count_over_time",
            "present_over_time",
            "last_over_time",
            "first_over_time",
            "ts_of_last_over_time",
            "stddev_over_time",
        ]);
        let ranges =
            ["1h", "2h", "3h", "3615s", "7215s", "10815s", "6h", "90m", "70m", "30m", "5m", "5m"];
        let range = pick(&ranges);
        let names = ["whole_total", "whole_total", "rough_total", "odd_total", "ending_total"];
        let name = pick(&[&names[..], &["ending_total", "mixed_total"]].concat());
        let offset = pick(&["", "", "", " offset 1h", " offset 7m", " @ end()"]);
        let outer = pick(&["", "sum", "max by (kind)"]);
        let form = pick(&["range", "range", "range", "newest", "timestamp"]);
        let query = match &*form {
            "range" => format!("{outer}({function}({name}[{range}]{offset}))"),
            "newest" => format!("{outer}({name}{offset})"),
            _ => format!("{outer}(timestamp({name}{offset}))"),
        };
        (query, name)
    }

    /// Compares the answers of random queries.
    async fn compare(&mut self, seed: u64) {
        for _ in 0..QUERIES {
            let (query, name) = self.query();
            let random = &mut self.random;
            let steps_ms = [HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS, 5 * HOUR_MS, 7 * HOUR_MS];
            let others_ms = [HOUR_MS / 2, 5_400_000, 3_607_000];
            let step_ms = match random.below(3) {
                0 => others_ms[random.below(3) as usize],
                _ => steps_ms[random.below(5) as usize],
            };
            let shift_ms = if random.one_in(5) { random.below(HOUR_MS as u64) as i64 } else { 0 };
            let start_ms = START_MS + random.below(6) as i64 * HOUR_MS + shift_ms;
            let end_ms = self.now_ms + random.below(3) as i64 * HOUR_MS;
            let ask = async |source: Arc<dyn Source>, threads: usize| {
                let tile_shape = TileShape { series: 3, steps: 7 };
                let options = EngineOptions { threads, tile_shape, ..EngineOptions::default() };
                let options_of_query = QueryOptions::default();
                let engine = Engine::new(options);
                let answer = if end_ms.div_euclid(HOUR_MS) % 4 == 0 {
                    engine.instant(source, &query, end_ms, &options_of_query).await
                } else {
                    engine.range(source, &query, start_ms, end_ms, step_ms, &options_of_query).await
                };
                show(&query, answer)
            };
            let found = ask(Arc::clone(&self.store) as Arc<dyn Source>, 2).await;
            let expected = ask(Arc::new(OfSamples(Arc::clone(&self.store))), 1).await;
            let difference = difference(&found, &expected, name == "whole_total");
            assert!(
                difference.is_none(),
                "seed {seed}: {query} from {start_ms} to {end_ms} every {step_ms}: {difference:?}"
            );
        }
    }
}

/// Returns the first words of two answers that differ.
fn difference(found: &str, expected: &str, is_exact: bool) -> Option<(String, String)> {
    let words =
        |text: &str| -> Vec<String> { text.split([' ', ',', '\n']).map(str::to_owned).collect() };
    let (found, expected) = (words(found), words(expected));
    if found.len() != expected.len() {
        return Some((format!("{} words", found.len()), format!("{} words", expected.len())));
    }
    let differs = |at: usize| {
        let (a, b) = (&found[at], &expected[at]);
        if a == b {
            return false;
        }
        // The bits follow the value.
        let is_bits = at > 0 && found[at - 1].parse::<f64>().is_ok() && a.parse::<f64>().is_err();
        let values = a.parse::<f64>().ok().zip(b.parse::<f64>().ok());
        let is_close = values.is_some_and(|(a, b)| (a - b).abs() <= 1e-12 * a.abs().max(b.abs()));
        is_exact || !(is_close || is_bits || a.len() == 16 || b.len() == 16)
    };
    let at = (0..found.len()).find(|at| differs(*at))?;
    Some((found[at].clone(), expected[at].clone()))
}

/// Returns the answer to a query of whole hours, or its error.
async fn ask_hours(store: &Arc<Store>, query: &str, step_ms: i64) -> String {
    let engine = Engine::new(EngineOptions::default());
    let (start_ms, end_ms) = (START_MS + 3 * HOUR_MS, START_MS + 23 * HOUR_MS);
    let source = Arc::clone(store) as Arc<dyn Source>;
    let options = QueryOptions::default();
    show(query, engine.range(source, query, start_ms, end_ms, step_ms, &options).await)
}

/// Replaces the samples of the first day, and compares the answers before and after it.
async fn forget_samples(history: &mut History, seed: u64) {
    let store = Arc::clone(&history.store);
    let mut before = Vec::new();
    for kind in 0..40 {
        let (query, name) = history.query();
        let step_ms = [HOUR_MS, 2 * HOUR_MS, 6 * HOUR_MS][kind % 3];
        before.push((ask_hours(&store, &query, step_ms).await, query, name, step_ms));
    }
    let samples_ms = Some(10 * HOUR_MS);
    store.set_retention(Retention { samples_ms, ..Retention::default() });
    store.maintain().await.unwrap();
    assert_eq!(store.stats().partitions_summarized, 1, "seed {seed}");
    let (mut answered, mut refused) = (0, 0);
    for (expected, query, name, step_ms) in before {
        let found = ask_hours(&store, &query, step_ms).await;
        if found.contains("only summaries of hours are kept") {
            refused += 1;
            let is_of_hours = ["[1h]", "[2h]", "[3h]", "[6h]"].iter().any(|r| query.contains(r));
            let needs_samples = ["stddev", "offset 7m", "mixed", "odd"];
            let is_exact = !needs_samples.iter().any(|text| query.contains(text));
            assert!(!(is_of_hours && is_exact), "seed {seed}: {query}: {found}");
            continue;
        }
        answered += 1;
        let difference = difference(&found, &expected, name == "whole_total");
        assert!(difference.is_none(), "seed {seed}: {query}: {difference:?}");
    }
    assert!(answered >= 10 && refused > 0, "seed {seed}: {answered} answered, {refused} refused");
}

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

async fn follow(seed: u64) -> u64 {
    let mut history = History::begin(seed).await;
    for round in 0..ROUNDS {
        history.advance().await;
        if round < ROUNDS - 1 || seed.is_multiple_of(3) {
            history.store.seal_all().await.unwrap();
        }
        history.compare(seed).await;
        if round % 2 == 1 {
            history.write_late().await;
            history.compare(seed).await;
            history.store.seal_all().await.unwrap();
        }
        if round == 3 {
            history.delete().await;
        }
        history.compare(seed).await;
    }
    let summarized = history.store.stats().summarized_blocks;
    history.store.seal_all().await.unwrap();
    forget_samples(&mut history, seed).await;
    history.store.close().await.unwrap();
    summarized
}

#[test]
fn summaries_change_no_answer() {
    let first = number_from_env("SUMMARIES_SEED", 2);
    let seeds = first..first + number_from_env("SUMMARIES_SEEDS", 2);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for seed in seeds {
        let summarized = runtime.block_on(follow(seed));
        // With cached columns, summaries are read only before the first query of a block.
        let least = if seed.is_multiple_of(2) { 200 } else { 1 };
        assert!(summarized >= least, "seed {seed}: {summarized} blocks");
    }
}
