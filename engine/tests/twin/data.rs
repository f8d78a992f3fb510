//! Random series and random queries' times, and how an answer is compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryOptions, QueryOutput, Value};
use futures::executor::block_on;
use model::memory::MemorySource;
use model::{Labels, is_stale, stale_nan};
use proptest::prelude::*;

pub const LOOKBACK_MS: i64 = 20_000;

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    pub fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.next(100) < percent
    }
}

pub type Samples = Vec<(i64, f64)>;

/// Some series `m{g, i}` with their samples.
pub fn data(seed: u64, series_count: usize) -> Vec<(Labels, Samples)> {
    let mut random = Random::new(seed);
    (0..series_count)
        .map(|index| {
            let group = random.next(3).to_string();
            let name = ["__name__", "g", "i"].into_iter();
            let values = ["m".to_owned(), group, format!("{index:02}")];
            (Labels::from_pairs(name.zip(values)), samples(&mut random))
        })
        .collect()
}

pub fn samples(random: &mut Random) -> Samples {
    let count = if random.chance(20) { random.next(1400) } else { random.next(120) };
    let is_counter = random.chance(50);
    let is_odd = random.chance(30);
    // Scrapes that are never late, in series that are rarely interrupted.
    let even_ms = random.chance(40).then(|| [500, 1_000, 1_500, 3_000][random.next(4) as usize]);
    let mut time_ms = random.next(100_000) as i64 - 20_000;
    let mut value = random.next(1000) as f64;
    let mut samples = Vec::new();
    for _ in 0..count {
        let gap_ms = if random.chance(3) { 90_000 } else { 2_000 };
        time_ms += match even_ms {
            Some(even_ms) if !random.chance(1) => even_ms,
            _ => 1 + random.next(gap_ms) as i64,
        };
        value = match () {
            () if is_counter && random.chance(if even_ms.is_some() { 1 } else { 5 }) => 0.0,
            () if is_counter => (value + random.next(400) as f64 / 64.0).min(1e6),
            () if random.chance(20) => value,
            () => random.next(1 << 20) as f64 / 64.0 - 8192.0,
        };
        let shown = match random.next(100) {
            0..3 if even_ms.is_none() || random.chance(20) => stale_nan(),
            3..5 if is_odd => f64::NAN,
            5..7 if is_odd => f64::INFINITY,
            7..8 if is_odd => f64::NEG_INFINITY,
            _ => value,
        };
        samples.push((time_ms, shown));
    }
    samples
}

/// Series of which half lie so far from 0 that their squares do not.
pub fn data_far_away(seed: u64, series_count: usize) -> Vec<(Labels, Samples)> {
    let mut data = data(seed, series_count);
    for (_, samples) in data.iter_mut().step_by(2) {
        samples
            .iter_mut()
            .filter(|(_, value)| value.is_finite())
            .for_each(|s| s.1 += 2f64.powi(30));
    }
    data
}

/// The samples in a range that ends at a time.
pub fn window(samples: &Samples, end_ms: i64, range_ms: i64) -> Samples {
    let is_inside = |at: i64| at > end_ms - range_ms && at <= end_ms;
    samples.iter().copied().filter(|(at, v)| is_inside(*at) && !is_stale(*v)).collect()
}

pub fn source(data: &[(Labels, Samples)]) -> Arc<MemorySource> {
    let mut source = MemorySource::new();
    for (labels, samples) in data {
        for (time_ms, value) in samples {
            source.append(labels, *time_ms, *value);
        }
    }
    Arc::new(source)
}

#[derive(Debug, Clone)]
pub struct Case {
    pub seed: u64,
    pub series_count: usize,
    pub start_ms: i64,
    pub step_ms: i64,
    pub count: usize,
    pub range_ms: i64,
    pub shape: (usize, usize),
    pub threads: usize,
}

pub fn cases() -> impl Strategy<Value = Case> {
    let steps = prop_oneof![
        2 => 1i64..9_000,
        2 => (1i64..18).prop_map(|halves| halves * 500),
        // So far apart that ranges and lookbacks leave something out.
        1 => (18i64..120).prop_map(|halves| halves * 500),
    ];
    let times = (-30_000i64..300_000, steps, 1usize..150, range_lengths());
    let rest = (any::<u64>(), 0usize..14, (1usize..6, 1usize..140), 1usize..3);
    (times, rest).prop_map(|((start_ms, step_ms, count, range_ms), rest)| {
        let (seed, series_count, shape, threads) = rest;
        Case { seed, series_count, start_ms, step_ms, count, range_ms, shape, threads }
    })
}

/// Up to some samples, and up to some hundred.
fn range_lengths() -> impl Strategy<Value = i64> {
    prop_oneof![3 => 1i64..60_000, 1 => 60_000i64..600_000]
}

impl Case {
    /// Returns a case for subqueries with many steps in each step of the query: few ranges, of
    /// which some overlap.
    pub fn with_few_ranges(self) -> Case {
        let (range_ms, step_ms) = (self.range_ms.min(30_000), self.step_ms.max(10_000));
        Case { range_ms, step_ms, count: self.count.min(12), ..self }
    }

    pub fn run(&self, data: &[(Labels, Samples)], query: &str) -> QueryOutput {
        self.run_on(&source(data), query)
    }

    pub fn run_on(&self, source: &Arc<MemorySource>, query: &str) -> QueryOutput {
        let engine = Engine::new(EngineOptions {
            threads: self.threads,
            tile_shape: TileShape { series: self.shape.0, steps: self.shape.1 },
            ..EngineOptions::default()
        });
        let end_ms = self.time(self.count - 1);
        let options = QueryOptions { lookback_ms: LOOKBACK_MS, ..QueryOptions::default() };
        let (start_ms, step_ms) = (self.start_ms, self.step_ms);
        let answer = engine.range(source.clone(), query, start_ms, end_ms, step_ms, &options);
        block_on(answer).expect("a query that is valid and without limits")
    }

    pub fn time(&self, step: usize) -> i64 {
        self.start_ms + step as i64 * self.step_ms
    }

    /// One value a series and step.
    pub fn grid(
        &self,
        data: &[(Labels, Samples)],
        value: impl Fn(&Samples, i64) -> Option<f64>,
    ) -> Grid {
        data.iter()
            .map(|(labels, samples)| {
                let row = (0..self.count).map(|step| value(samples, self.time(step))).collect();
                (labels.clone(), row)
            })
            .collect()
    }
}

pub type Grid = BTreeMap<Labels, Vec<Option<f64>>>;

pub fn instant(samples: &Samples, time_ms: i64) -> Option<f64> {
    let (at, value) = samples.iter().rev().find(|(at, _)| *at <= time_ms)?;
    (*at > time_ms - LOOKBACK_MS && !is_stale(*value)).then_some(*value)
}

/// Compares an answer with what is expected of it, where `scale` bounds the intermediate sums.
#[track_caller]
pub fn check(output: QueryOutput, expected: &Grid, scale: f64, query: &str) {
    check_within(output, expected, 1e-12, scale, query);
}

/// Compares an answer with what is expected of it, up to a share of the values or of `scale`.
#[track_caller]
pub fn check_within(output: QueryOutput, expected: &Grid, share: f64, scale: f64, query: &str) {
    let Value::Grid { rows, .. } = output.value else { panic!("not a grid") };
    let found: Grid = rows
        .iter()
        .map(|row| {
            let values = (0..row.values.len())
                .map(|step| row.is_present(step).then_some(row.values[step]))
                .collect();
            (row.labels.clone(), values)
        })
        .collect();
    let expected: BTreeMap<&Labels, &Vec<Option<f64>>> =
        expected.iter().filter(|(_, row)| row.iter().any(Option::is_some)).collect();
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        expected.keys().copied().collect::<Vec<_>>(),
        "{query}"
    );
    for (labels, row) in &found {
        for (step, (found, expected)) in row.iter().zip(expected[labels]).enumerate() {
            let is_same = match (found, expected) {
                (None, None) => true,
                (Some(a), Some(b)) => {
                    a == b
                        || (a.is_nan() && b.is_nan())
                        || (a - b).abs() <= share * scale.max(a.abs()).max(b.abs())
                }
                _ => false,
            };
            assert!(is_same, "{query}: {labels} step {step}: {found:?}, not {expected:?}");
        }
    }
}

pub fn unnamed(grid: Grid) -> Grid {
    grid.into_iter().map(|(labels, row)| (labels.without_metric_name(), row)).collect()
}
