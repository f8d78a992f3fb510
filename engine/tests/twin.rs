//! Queries against a twin that evaluates each step from decoded samples, one value at a time.
//!
//! Data are random: gaps, resets, staleness markers, NaN, infinities, series that fill several
//! batches. Values are multiples of 1/64 below 2^20, so that sums are exact in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryOptions, QueryOutput, Value};
use futures::executor::block_on;
use model::memory::MemorySource;
use model::{Labels, is_stale, stale_nan};
use proptest::prelude::*;

const LOOKBACK_MS: i64 = 20_000;

struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next(100) < percent
    }
}

type Samples = Vec<(i64, f64)>;

/// Some series `m{g, i}` with their samples.
fn data(seed: u64, series_count: usize) -> Vec<(Labels, Samples)> {
    let mut random = Random(seed | 1);
    (0..series_count)
        .map(|index| {
            let group = random.next(3).to_string();
            let name = ["__name__", "g", "i"].into_iter();
            let values = ["m".to_owned(), group, format!("{index:02}")];
            (Labels::from_pairs(name.zip(values)), samples(&mut random))
        })
        .collect()
}

fn samples(random: &mut Random) -> Samples {
    let count = if random.chance(20) { random.next(1400) } else { random.next(120) };
    let is_counter = random.chance(50);
    let is_odd = random.chance(30);
    let mut time_ms = random.next(100_000) as i64 - 20_000;
    let mut value = random.next(1000) as f64;
    let mut samples = Vec::new();
    for _ in 0..count {
        let gap_ms = if random.chance(3) { 90_000 } else { 2_000 };
        time_ms += 1 + random.next(gap_ms) as i64;
        value = match () {
            () if is_counter && random.chance(5) => 0.0,
            () if is_counter => (value + random.next(400) as f64 / 64.0).min(1e6),
            () if random.chance(20) => value,
            () => random.next(1 << 20) as f64 / 64.0 - 8192.0,
        };
        let shown = match random.next(100) {
            0..3 => stale_nan(),
            3..5 if is_odd => f64::NAN,
            5..7 if is_odd => f64::INFINITY,
            7..8 if is_odd => f64::NEG_INFINITY,
            _ => value,
        };
        samples.push((time_ms, shown));
    }
    samples
}

fn source(data: &[(Labels, Samples)]) -> Arc<MemorySource> {
    let mut source = MemorySource::new();
    for (labels, samples) in data {
        for (time_ms, value) in samples {
            source.append(labels, *time_ms, *value);
        }
    }
    Arc::new(source)
}

#[derive(Debug, Clone)]
struct Case {
    seed: u64,
    series_count: usize,
    start_ms: i64,
    step_ms: i64,
    count: usize,
    range_ms: i64,
    shape: (usize, usize),
    threads: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let times = (-30_000i64..300_000, 1i64..9_000, 1usize..150, 1i64..60_000);
    let rest = (any::<u64>(), 0usize..14, (1usize..6, 1usize..140), 1usize..3);
    (times, rest).prop_map(|((start_ms, step_ms, count, range_ms), rest)| {
        let (seed, series_count, shape, threads) = rest;
        Case { seed, series_count, start_ms, step_ms, count, range_ms, shape, threads }
    })
}

impl Case {
    fn run(&self, data: &[(Labels, Samples)], query: &str) -> QueryOutput {
        let engine = Engine::new(EngineOptions {
            threads: self.threads,
            lookback_ms: LOOKBACK_MS,
            tile_shape: TileShape { series: self.shape.0, steps: self.shape.1 },
            ..EngineOptions::default()
        });
        let end_ms = self.time(self.count - 1);
        let options = QueryOptions::default();
        let (start_ms, step_ms) = (self.start_ms, self.step_ms);
        let answer = engine.range(source(data), query, start_ms, end_ms, step_ms, &options);
        block_on(answer).expect("a query that is valid and without limits")
    }

    fn time(&self, step: usize) -> i64 {
        self.start_ms + step as i64 * self.step_ms
    }

    /// One value a series and step.
    fn grid(
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

/// Series with their values at one step.
type Members<'a> = Vec<(&'a Labels, f64)>;

type Grid = BTreeMap<Labels, Vec<Option<f64>>>;

fn instant(samples: &Samples, time_ms: i64) -> Option<f64> {
    let (at, value) = samples.iter().rev().find(|(at, _)| *at <= time_ms)?;
    (*at > time_ms - LOOKBACK_MS && !is_stale(*value)).then_some(*value)
}

fn window(samples: &Samples, end_ms: i64, range_ms: i64) -> Samples {
    let is_inside = |at: i64| at > end_ms - range_ms && at <= end_ms;
    samples.iter().copied().filter(|(at, v)| is_inside(*at) && !is_stale(*v)).collect()
}

/// Compares an answer with what is expected of it, where `scale` bounds the intermediate sums.
#[track_caller]
fn check(output: QueryOutput, expected: &Grid, scale: f64, query: &str) {
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
                        || (a - b).abs() <= 1e-12 * scale.max(a.abs()).max(b.abs())
                }
                _ => false,
            };
            assert!(is_same, "{query}: {labels} step {step}: {found:?}, not {expected:?}");
        }
    }
}

fn finite_sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

fn nan_first(values: &mut [f64]) {
    values.sort_by(|a, b| {
        b.is_nan().cmp(&a.is_nan()).then(a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))
    });
}

fn quantile(phi: f64, mut values: Vec<f64>) -> f64 {
    nan_first(&mut values);
    let rank = phi * (values.len() - 1) as f64;
    let low = rank.floor();
    let high = (low + 1.0).min((values.len() - 1) as f64);
    let weight = rank - low;
    values[low as usize] * (1.0 - weight) + values[high as usize] * weight
}

/// `max` or `min`, and when, among equals the last.
fn extreme(samples: &Samples, is_max: bool) -> (f64, f64) {
    let mut best = samples[0];
    for sample in samples {
        let is_better = if is_max { sample.1 >= best.1 } else { sample.1 <= best.1 };
        if is_better || best.1.is_nan() {
            best = *sample;
        }
    }
    (best.1, best.0 as f64 / 1000.0)
}

fn extrapolated(
    s: &Samples,
    end_ms: i64,
    range_ms: i64,
    is_counter: bool,
    is_rate: bool,
) -> Option<f64> {
    let (first, last) = (s.first()?, s.last()?);
    if s.len() < 2 {
        return None;
    }
    let mut rise = last.1 - first.1;
    if is_counter {
        rise += finite_sum(s.windows(2).filter(|p| p[1].1 < p[0].1).map(|p| p[0].1));
    }
    let seconds = |ms: i64| ms as f64 / 1000.0;
    let sampled = seconds(last.0 - first.0);
    let average = sampled / (s.len() - 1) as f64;
    let mut before = seconds(first.0 - (end_ms - range_ms));
    let mut after = seconds(end_ms - last.0);
    if before >= average * 1.1 {
        before = average / 2.0;
    }
    if after >= average * 1.1 {
        after = average / 2.0;
    }
    if is_counter && rise > 0.0 && first.1 >= 0.0 {
        before = before.min(sampled * first.1 / rise);
    }
    let whole = rise * (sampled + before + after) / sampled;
    Some(if is_rate { whole / seconds(range_ms) } else { whole })
}

/// The value of a function over a window that ends at a time.
fn rolled(name: &str, s: &Samples, end_ms: i64, range_ms: i64) -> Option<f64> {
    let values = || s.iter().map(|(_, value)| *value);
    let pairs = || s.windows(2).map(|pair| (pair[0].1, pair[1].1));
    let count = s.len() as f64;
    let two = || s.len().checked_sub(2).map(|at| (s[at], s[at + 1]));
    if s.is_empty() {
        return None;
    }
    Some(match name {
        "rate" => return extrapolated(s, end_ms, range_ms, true, true),
        "increase" => return extrapolated(s, end_ms, range_ms, true, false),
        "delta" => return extrapolated(s, end_ms, range_ms, false, false),
        "irate" => {
            let (a, b) = two()?;
            let rise = if b.1 < a.1 { b.1 } else { b.1 - a.1 };
            rise / ((b.0 - a.0) as f64 / 1000.0)
        }
        "idelta" => two().map(|(a, b)| b.1 - a.1)?,
        "resets" => pairs().filter(|(a, b)| b < a).count() as f64,
        "changes" => pairs().filter(|(a, b)| a != b && !(a.is_nan() && b.is_nan())).count() as f64,
        "sum_over_time" => finite_sum(values()),
        "avg_over_time" => finite_sum(values()) / count,
        "count_over_time" => count,
        "present_over_time" => 1.0,
        "last_over_time" => s[s.len() - 1].1,
        "first_over_time" => s[0].1,
        "ts_of_last_over_time" => s[s.len() - 1].0 as f64 / 1000.0,
        "ts_of_first_over_time" => s[0].0 as f64 / 1000.0,
        "max_over_time" => extreme(s, true).0,
        "min_over_time" => extreme(s, false).0,
        "ts_of_max_over_time" => extreme(s, true).1,
        "ts_of_min_over_time" => extreme(s, false).1,
        "stdvar_over_time" => {
            let mean = finite_sum(values()) / count;
            finite_sum(values().map(|v| (v - mean) * (v - mean))) / count
        }
        "quantile_over_time" => quantile(0.4, values().collect()),
        "mad_over_time" if values().any(f64::is_nan) => f64::NAN,
        "mad_over_time" => {
            let median = quantile(0.5, values().collect());
            quantile(0.5, values().map(|v| (v - median).abs()).collect())
        }
        name => panic!("{name}"),
    })
}

const KEEPS_NAME: [&str; 2] = ["last_over_time", "first_over_time"];

/// Functions with the bound of what is added up on the way.
const FUNCTIONS: [(&str, f64); 22] = [
    ("rate", 1e7),
    ("increase", 1e7),
    ("delta", 1e6),
    ("irate", 0.0),
    ("idelta", 0.0),
    ("resets", 0.0),
    ("changes", 0.0),
    ("sum_over_time", 0.0),
    ("avg_over_time", 0.0),
    ("count_over_time", 0.0),
    ("present_over_time", 0.0),
    ("last_over_time", 0.0),
    ("first_over_time", 0.0),
    ("ts_of_last_over_time", 0.0),
    ("ts_of_first_over_time", 0.0),
    ("max_over_time", 0.0),
    ("min_over_time", 0.0),
    ("ts_of_max_over_time", 0.0),
    ("ts_of_min_over_time", 0.0),
    ("stdvar_over_time", 1e12),
    ("quantile_over_time", 1e6),
    ("mad_over_time", 1e6),
];

fn unnamed(grid: Grid) -> Grid {
    grid.into_iter().map(|(labels, row)| (labels.without_metric_name(), row)).collect()
}

/// The series of each group with a value at a step, in the order of their labels.
fn groups(grid: &Grid, step: usize) -> BTreeMap<String, Members<'_>> {
    let mut groups: BTreeMap<String, Members<'_>> = BTreeMap::new();
    for (labels, row) in grid {
        if let Some(value) = row[step] {
            groups.entry(labels.get("g").to_owned()).or_default().push((labels, value));
        }
    }
    groups
}

fn folded(name: &str, values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let samples: Samples = values.iter().map(|value| (0, *value)).collect();
    match name {
        "sum" => finite_sum(values.iter().copied()),
        "avg" => finite_sum(values.iter().copied()) / count,
        "count" => count,
        "group" => 1.0,
        "max" => extreme(&samples, true).0,
        "min" => extreme(&samples, false).0,
        "stdvar" => rolled("stdvar_over_time", &samples, 0, 1).unwrap_or(f64::NAN),
        "quantile" => quantile(0.4, values.to_vec()),
        name => panic!("{name}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn selectors_see_the_newest_sample(case in cases(), offset_ms in -5_000i64..5_000) {
        let data = data(case.seed, case.series_count);
        let query = format!("m offset {offset_ms}ms");
        let expected = case.grid(&data, |samples, time_ms| instant(samples, time_ms - offset_ms));
        check(case.run(&data, &query), &expected, 0.0, &query);
    }

    #[test]
    fn functions_of_ranges_see_their_window(case in cases()) {
        let data = data(case.seed, case.series_count);
        let range_ms = case.range_ms;
        for (name, scale) in FUNCTIONS {
            let param = if name == "quantile_over_time" { "0.4, " } else { "" };
            let query = format!("{name}({param}m[{range_ms}ms])");
            let expected = case.grid(&data, |samples, time_ms| {
                rolled(name, &window(samples, time_ms, range_ms), time_ms, range_ms)
            });
            let expected = if KEEPS_NAME.contains(&name) { expected } else { unnamed(expected) };
            check(case.run(&data, &query), &expected, scale, &query);
        }
    }

    #[test]
    fn subqueries_are_windows_over_an_aligned_grid(case in cases(), step_ms in 500i64..5_000) {
        let data = data(case.seed, case.series_count);
        let range_ms = case.range_ms;
        for name in ["sum_over_time", "max_over_time", "rate", "last_over_time"] {
            let query = format!("{name}(m[{range_ms}ms:{step_ms}ms])");
            let expected = case.grid(&data, |samples, time_ms| {
                let first = (time_ms - range_ms).div_euclid(step_ms) + 1;
                let inner: Samples = (first..=time_ms.div_euclid(step_ms))
                    .map(|index| index * step_ms)
                    .filter_map(|at| Some((at, instant(samples, at)?)))
                    .collect();
                rolled(name, &inner, time_ms, range_ms)
            });
            let expected = if KEEPS_NAME.contains(&name) { expected } else { unnamed(expected) };
            check(case.run(&data, &query), &expected, 1e7, &query);
        }
    }

    #[test]
    fn aggregations_fold_the_values_of_a_step(case in cases()) {
        let data = data(case.seed, case.series_count);
        let grid = case.grid(&data, instant);
        for name in ["sum", "avg", "count", "group", "max", "min", "stdvar", "quantile"] {
            let param = if name == "quantile" { "0.4, " } else { "" };
            let query = format!("{name} by (g) ({param}m)");
            let mut expected = Grid::new();
            for step in 0..case.count {
                for (group, members) in groups(&grid, step) {
                    let values: Vec<f64> = members.iter().map(|(_, value)| *value).collect();
                    let labels = Labels::from_pairs([("g", group)]);
                    let row = expected.entry(labels).or_insert_with(|| vec![None; case.count]);
                    row[step] = Some(folded(name, &values));
                }
            }
            let scale = if name == "stdvar" { 1e13 } else { 0.0 };
            check(case.run(&data, &query), &expected, scale, &query);
        }
    }

    #[test]
    fn picks_take_series_of_a_step(case in cases(), k in 1usize..4) {
        let data = data(case.seed, case.series_count);
        let grid = case.grid(&data, instant);
        let picked = |pick: &dyn Fn(Members<'_>) -> Vec<Labels>| {
            let mut expected = Grid::new();
            for step in 0..case.count {
                for (_, members) in groups(&grid, step) {
                    let values: BTreeMap<Labels, f64> =
                        members.iter().map(|(labels, value)| ((*labels).clone(), *value)).collect();
                    for labels in pick(members) {
                        let value = values[&labels];
                        expected.entry(labels).or_insert_with(|| vec![None; case.count])[step] =
                            Some(value);
                    }
                }
            }
            expected
        };
        let query = format!("limitk by (g) ({k}, m)");
        let expected = picked(&|members| {
            members.iter().take(k).map(|(labels, _)| (*labels).clone()).collect()
        });
        check(case.run(&data, &query), &expected, 0.0, &query);
        // Which of several equal values is taken is not defined: compare the values alone.
        for (name, sign) in [("topk", -1.0), ("bottomk", 1.0)] {
            let query = format!("{name} by (g) ({k}, m)");
            let Value::Grid { rows, .. } = case.run(&data, &query).value else { panic!("no grid") };
            for step in 0..case.count {
                for (group, members) in groups(&grid, step) {
                    let mut values: Vec<f64> = members.iter().map(|(_, v)| *v * sign).collect();
                    nan_first(&mut values);
                    let nan_count = values.iter().filter(|value| value.is_nan()).count();
                    values.rotate_left(nan_count);
                    values.truncate(k);
                    let mut found: Vec<f64> = rows
                        .iter()
                        .filter(|row| row.labels.get("g") == group && row.is_present(step))
                        .map(|row| row.values[step] * sign)
                        .collect();
                    nan_first(&mut found);
                    let nan_count = found.iter().filter(|value| value.is_nan()).count();
                    found.rotate_left(nan_count);
                    prop_assert_eq!(format!("{found:?}"), format!("{values:?}"), "{} {}", query, step);
                }
            }
        }
    }

    #[test]
    fn counted_values_add_up(case in cases()) {
        let data = data(case.seed, case.series_count);
        let grid = case.grid(&data, instant);
        let mut expected = Grid::new();
        for step in 0..case.count {
            for (group, members) in groups(&grid, step) {
                for (_, value) in members {
                    let text = match value {
                        f64::INFINITY => "+Inf".to_owned(),
                        f64::NEG_INFINITY => "-Inf".to_owned(),
                        value => value.to_string(),
                    };
                    let labels = Labels::from_pairs([("g", group.as_str()), ("v", &text)]);
                    let row = expected.entry(labels).or_insert_with(|| vec![None; case.count]);
                    *row[step].get_or_insert(0.0) += 1.0;
                }
            }
        }
        let query = "count_values by (g) ('v', m)";
        check(case.run(&data, query), &expected, 0.0, query);
    }
}
