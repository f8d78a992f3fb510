//! Functions of ranges over series with floats, native histograms and starts of counters, each
//! window evaluated from scratch.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::result::SampleValue;
use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryOptions, Value};
use futures::executor::block_on;
use model::histogram::{CUSTOM_BUCKETS_SCHEMA, HistogramMean, HistogramSum};
use model::memory::MemorySource;
use model::{Histogram, Labels, ResetHint, Span, is_stale, stale_nan};
use proptest::prelude::*;

use crate::data::{Case, LOOKBACK_MS, Random, cases};
use crate::naive::{extreme, finite_sum};

/// A sample with the start of its counter.
#[derive(Debug, Clone)]
struct Point {
    at: i64,
    start: i64,
    value: SampleValue,
}

impl Point {
    fn float(&self) -> Option<f64> {
        match &self.value {
            SampleValue::Float(value) => Some(*value),
            SampleValue::Histogram(_) => None,
        }
    }

    fn histogram(&self) -> Option<&Arc<Histogram>> {
        match &self.value {
            SampleValue::Histogram(histogram) => Some(histogram),
            SampleValue::Float(_) => None,
        }
    }

    fn is_stale(&self) -> bool {
        match &self.value {
            SampleValue::Float(value) => is_stale(*value),
            SampleValue::Histogram(histogram) => histogram.is_stale(),
        }
    }
}

/// The next histogram of a series: mostly one that has counted on.
fn histogram(random: &mut Random, before: Option<&Histogram>) -> Histogram {
    let mut next = match before {
        Some(before) if !random.chance(10) => before.clone(),
        _ => fresh(random),
    };
    for index in 0..next.positive_counts.len() {
        if random.chance(50) {
            let more = random.next(9) as f64;
            next.positive_counts[index] += more;
            next.count += more;
            next.sum += more * index as f64 / 4.0;
        }
    }
    next.reset_hint = match random.next(20) {
        0 => ResetHint::Reset,
        1..3 => ResetHint::Gauge,
        3..8 => ResetHint::NotReset,
        _ => ResetHint::Unknown,
    };
    next
}

fn fresh(random: &mut Random) -> Histogram {
    let len = 1 + random.next(6) as usize;
    let is_custom = random.chance(20);
    let bounds: &[f64] =
        if random.chance(50) { &[1.0, 2.0, 4.0, 5.0, 8.0] } else { &[1.0, 3.0, 4.0, 8.0, 9.0] };
    let offset = if is_custom { 0 } else { random.next(5) as i32 - 2 };
    Histogram {
        schema: if is_custom { CUSTOM_BUCKETS_SCHEMA } else { random.next(3) as i8 - 1 },
        zero_threshold: if is_custom || random.chance(70) { 0.0 } else { 0.5 },
        custom_bounds: if is_custom { bounds.into() } else { Arc::default() },
        positive_spans: vec![Span { offset, length: len as u32 }],
        positive_counts: vec![0.0; len],
        ..Histogram::default()
    }
}

/// Some series `m{i}` that hold floats, histograms or both.
fn mixed_data(seed: u64, series_count: usize) -> Vec<(Labels, Vec<Point>)> {
    let mut random = Random::new(seed);
    (0..series_count)
        .map(|index| {
            let labels =
                Labels::from_pairs([("__name__", "m".to_owned()), ("i", format!("{index:02}"))]);
            (labels, points(&mut random))
        })
        .collect()
}

fn points(random: &mut Random) -> Vec<Point> {
    let count = if random.chance(20) { random.next(400) } else { random.next(100) };
    let histogram_share = [0, 50, 95, 100][random.next(4) as usize];
    let start_share = [0, 0, 60][random.next(3) as usize];
    let (mut at, mut start, mut number) = (random.next(60_000) as i64, 1, 0.0);
    let mut last: Option<Histogram> = None;
    let mut points: Vec<Point> = Vec::new();
    for _ in 0..count {
        let before = at;
        let gap_ms = if random.chance(3) { 60_000 } else { 3_000 };
        at += 1 + random.next(gap_ms) as i64;
        if random.chance(10) {
            start = before + random.next(4) as i64 - 1;
        }
        let is_stale = random.chance(4);
        let value = if random.chance(histogram_share) {
            let next = histogram(random, last.as_ref());
            last = Some(next.clone());
            SampleValue::from(Arc::new(if is_stale { Histogram::stale() } else { next }))
        } else {
            number = if random.chance(10) { 0.0 } else { number + random.next(64) as f64 / 8.0 };
            SampleValue::from(if is_stale { stale_nan() } else { number })
        };
        let start = if random.chance(start_share) { start } else { 0 };
        points.push(Point { at, start, value });
    }
    points
}

fn source(data: &[(Labels, Vec<Point>)]) -> Arc<MemorySource> {
    let mut source = MemorySource::new();
    for (labels, points) in data {
        for point in points {
            match &point.value {
                SampleValue::Float(value) => {
                    source.append_with_start(labels, point.at, *value, point.start);
                }
                SampleValue::Histogram(histogram) => {
                    source.append_histogram(labels, point.at, Arc::clone(histogram), point.start);
                }
            }
        }
    }
    Arc::new(source)
}

/// The samples after one time and up to another.
fn between(points: &[Point], after: i64, until: i64) -> Vec<Point> {
    points.iter().filter(|p| p.at > after && p.at <= until && !p.is_stale()).cloned().collect()
}

/// Source: `isStartTimestampReset` of Prometheus.
fn is_reset(before: &Point, after: &Point) -> bool {
    if after.start == 0 || after.start >= after.at || after.start < before.at {
        return false;
    }
    after.start > before.at || before.start != 0 && before.start < before.at
}

/// The values of a window: floats, or histograms, or neither where they are mixed.
fn floats(window: &[Point]) -> Option<Vec<f64>> {
    window.iter().map(Point::float).collect()
}

fn histograms(window: &[Point]) -> Option<Vec<&Arc<Histogram>>> {
    window.iter().map(Point::histogram).collect()
}

/// Source: `histogramRate` of Prometheus.
fn risen(window: &[Point], is_counter: bool) -> Option<Histogram> {
    let all = histograms(window)?;
    let is_custom = |histogram: &Histogram| histogram.has_custom_buckets();
    let is_reset = |at: usize, before: &Histogram| {
        is_reset(&window[at - 1], &window[at]) || all[at].detect_reset(before)
    };
    let mut before = (**all[0]).clone();
    if is_counter && is_reset(1, &before) {
        before = Histogram {
            schema: all[1].schema,
            custom_bounds: all[1].custom_bounds.clone(),
            ..Histogram::default()
        };
    }
    let last = all[all.len() - 1];
    let between = if is_counter { &all[1..] } else { &all[all.len() - 1..] };
    if between.iter().any(|histogram| is_custom(histogram) != is_custom(&before)) {
        return None;
    }
    let schema = between.iter().map(|histogram| histogram.schema).min()?.min(before.schema);
    let mut rise = (**last).clone();
    if schema < rise.schema {
        rise.reduce_resolution(schema).ok()?;
    }
    rise.sub(&before).ok()?;
    for (at, next) in all.iter().enumerate().skip(1) {
        if is_counter && is_reset(at, &before) {
            rise.add(&before).ok()?;
        }
        before = (***next).clone();
    }
    rise.reset_hint = ResetHint::Gauge;
    rise.compact(0);
    Some(rise)
}

/// Source: `extrapolatedRate` of Prometheus.
fn rate(name: &str, window: &[Point], start_ms: i64, end_ms: i64) -> Option<SampleValue> {
    let is_counter = name != "delta";
    let (first, last) = (window.first()?, window.last()?);
    let seconds = |ms: i64| ms as f64 / 1000.0;
    let mut sampled = seconds(last.at - first.at);
    let average = if window.len() > 1 { sampled / (window.len() - 1) as f64 } else { 0.0 };
    let mut rise: Option<SampleValue> = match floats(window) {
        Some(values) => {
            let mut rise = values[values.len() - 1] - values[0];
            for (pair, points) in values.windows(2).zip(window.windows(2)) {
                if is_counter && (pair[1] < pair[0] || is_reset(&points[0], &points[1])) {
                    rise += pair[0];
                }
            }
            Some(rise.into())
        }
        None if histograms(window).is_none() => return None,
        None if window.len() == 1 => None,
        None => Some(Arc::new(risen(window, is_counter)?).into()),
    };
    let count = |value: &SampleValue| match value {
        SampleValue::Float(value) => *value,
        SampleValue::Histogram(histogram) => histogram.count,
    };
    let mut before = seconds(first.at - start_ms);
    let mut after = seconds(end_ms - last.at);
    if is_counter && first.start != 0 && first.start > start_ms && first.start < first.at {
        before = 0.0;
        sampled = seconds(last.at - first.start);
        rise = Some(match (rise, &first.value) {
            (Some(SampleValue::Float(rise)), SampleValue::Float(first)) => (rise + first).into(),
            (Some(SampleValue::Histogram(mut rise)), SampleValue::Histogram(first)) => {
                Arc::make_mut(&mut rise).add(first).ok()?;
                rise.into()
            }
            (_, first) => first.clone(),
        });
    } else if window.len() == 1 {
        return None;
    } else {
        if before >= average * 1.1 {
            before = average / 2.0;
        }
        let rise = count(rise.as_ref()?);
        if is_counter && rise > 0.0 && count(&first.value) >= 0.0 {
            before = before.min(sampled * (count(&first.value) / rise));
        }
    }
    if after >= average * 1.1 {
        after = average / 2.0;
    }
    let mut factor = if sampled == 0.0 { 1.0 } else { (sampled + before + after) / sampled };
    if name == "rate" {
        factor /= seconds(end_ms - start_ms);
    }
    Some(match rise? {
        SampleValue::Float(rise) => (rise * factor).into(),
        SampleValue::Histogram(mut rise) => {
            Arc::make_mut(&mut rise).mul(factor);
            rise.into()
        }
    })
}

/// Source: `instantValue` of Prometheus.
fn last_two(name: &str, window: &[Point]) -> Option<SampleValue> {
    let is_rate = name == "irate";
    let [.., a, b] = window else { return None };
    let seconds = (b.at - a.at) as f64 / 1000.0;
    let is_reset = is_reset(a, b);
    match (&a.value, &b.value) {
        (SampleValue::Float(x), SampleValue::Float(y)) => {
            let rise = if is_rate && (y < x || is_reset) { *y } else { y - x };
            Some(if is_rate { rise / seconds } else { rise }.into())
        }
        (SampleValue::Histogram(x), SampleValue::Histogram(y)) => {
            let mut rise = (**y).clone();
            if !is_rate || !(is_reset || y.detect_reset(x)) {
                rise.sub(x).ok()?;
            }
            rise.reset_hint = ResetHint::Gauge;
            rise.compact(0);
            if is_rate {
                rise.div(seconds);
            }
            Some(Arc::new(rise).into())
        }
        _ => None,
    }
}

fn neighbours(name: &str, window: &[Point]) -> f64 {
    let differ = |pair: &&[Point]| match (&pair[0].value, &pair[1].value) {
        (SampleValue::Float(a), SampleValue::Float(b)) if name == "changes" => a != b,
        (SampleValue::Float(a), SampleValue::Float(b)) => b < a || is_reset(&pair[0], &pair[1]),
        (SampleValue::Histogram(a), SampleValue::Histogram(b)) if name == "changes" => !b.equals(a),
        (SampleValue::Histogram(a), SampleValue::Histogram(b)) => {
            is_reset(&pair[0], &pair[1]) || b.detect_reset(a)
        }
        _ => true,
    };
    window.windows(2).filter(differ).count() as f64
}

/// The value of a function over the samples of a window.
fn rolled(name: &str, window: &[Point], start_ms: i64, end_ms: i64) -> Option<SampleValue> {
    let (first, last) = (window.first()?, window.last()?);
    let alone: Vec<(i64, f64)> =
        window.iter().filter_map(|point| Some((point.at, point.float()?))).collect();
    Some(match name {
        "rate" | "increase" | "delta" => return rate(name, window, start_ms, end_ms),
        "irate" | "idelta" => return last_two(name, window),
        "resets" | "changes" => neighbours(name, window).into(),
        "count_over_time" => (window.len() as f64).into(),
        "present_over_time" => 1.0.into(),
        "first_over_time" => first.value.clone(),
        "last_over_time" => last.value.clone(),
        "ts_of_first_over_time" => (first.at as f64 / 1000.0).into(),
        "ts_of_last_over_time" => (last.at as f64 / 1000.0).into(),
        "max_over_time" if alone.is_empty() => return None,
        "max_over_time" => extreme(&alone, true).0.into(),
        _ if alone.len() == window.len() => {
            let sum = finite_sum(alone.iter().map(|(_, value)| *value));
            if name == "sum_over_time" { sum } else { sum / alone.len() as f64 }.into()
        }
        "sum_over_time" => {
            let all = histograms(window)?;
            let mut sum = HistogramSum::new((**all[0]).clone());
            all[1..].iter().try_for_each(|next| sum.add(next).map(|_| ())).ok()?;
            Arc::new(sum.finish()).into()
        }
        "avg_over_time" => {
            let all = histograms(window)?;
            let mut mean = HistogramMean::new((**all[0]).clone());
            all[1..].iter().try_for_each(|next| mean.add(next).map(|_| ())).ok()?;
            Arc::new(mean.finish()).into()
        }
        name => panic!("{name}"),
    })
}

const FUNCTIONS: [&str; 16] = [
    "rate",
    "increase",
    "delta",
    "irate",
    "idelta",
    "resets",
    "changes",
    "count_over_time",
    "present_over_time",
    "first_over_time",
    "last_over_time",
    "ts_of_first_over_time",
    "ts_of_last_over_time",
    "max_over_time",
    "sum_over_time",
    "avg_over_time",
];

/// Source: `interpolateHistograms` of Prometheus.
fn interpolated(pair: &[Point], time_ms: i64, is_counter: bool) -> Option<Histogram> {
    let all = histograms(pair)?;
    let (before, after) = (all[0], all[1]);
    let mut value = (**after).clone();
    if time_ms == pair[0].at || time_ms == pair[1].at {
        return Some((**all[usize::from(time_ms == pair[1].at)]).clone());
    }
    let fraction = (time_ms - pair[0].at) as f64 / (pair[1].at - pair[0].at) as f64;
    if is_counter && after.detect_reset(before) {
        value.mul(fraction);
        return Some(value);
    }
    value.sub(before).ok()?;
    value.mul(fraction);
    value.add(before).ok()?;
    Some(value)
}

/// The rise over an extended range that holds histograms alone.
///
/// Source: `extendedHistogramRate` of Prometheus.
fn extended(name: &str, mode: &str, window: &[Point], range: (i64, i64)) -> Option<Histogram> {
    let (start_ms, end_ms) = range;
    let (is_counter, is_smoothed) = (name != "delta", mode == "smoothed");
    let all = histograms(window)?;
    let first = window.iter().rposition(|point| point.at <= start_ms).unwrap_or(0);
    let newest = window.len() - 1;
    let first = first.min(newest.saturating_sub(1));
    let ends = window.iter().position(|point| is_smoothed && point.at >= end_ms);
    let last = ends.unwrap_or(newest);
    if window[last].at <= start_ms || is_smoothed && window[first].at > end_ms {
        return None;
    }
    let is_custom = all[first].has_custom_buckets();
    if all[first..=last].iter().any(|histogram| histogram.has_custom_buckets() != is_custom) {
        return None;
    }
    let is_between = is_smoothed && window[first].at < start_ms;
    let left = match is_between {
        true => interpolated(&window[first..first + 2], start_ms, is_counter)?,
        false => (**all[first]).clone(),
    };
    let right = match is_smoothed && last > 0 && window[last].at > end_ms {
        true => interpolated(&window[last - 1..=last], end_ms, is_counter)?,
        false => (**all[last]).clone(),
    };
    let mut rise = right.clone();
    rise.sub(&left).ok()?;
    let mut lost: Option<Histogram> = None;
    let (mut before, mut from) = (left, first + 1);
    if is_between && all[first + 1].detect_reset(all[first]) {
        (before, from) = ((**all[first + 1]).clone(), first + 2);
    }
    if is_counter && from <= last {
        for next in all[from..last].iter().map(|histogram| &***histogram).chain([&right]) {
            if next.detect_reset(&before) {
                match &mut lost {
                    None => lost = Some(before),
                    Some(lost) => lost.add(&before).map(|_| ()).ok()?,
                }
            }
            before = next.clone();
        }
    }
    if let Some(lost) = lost {
        rise.add(&lost).ok()?;
    }
    if name == "rate" {
        rise.div((end_ms - start_ms) as f64 / 1000.0);
    }
    rise.reset_hint = ResetHint::Gauge;
    rise.compact(0);
    Some(rise)
}

type Answers = BTreeMap<String, Vec<Option<SampleValue>>>;

/// The rows of an answer by series, and how many samples each step saw.
fn answers(case: &Case, source: &Arc<MemorySource>, query: &str) -> (Answers, Vec<u64>) {
    let engine = Engine::new(EngineOptions {
        threads: case.threads,
        tile_shape: TileShape { series: case.shape.0, steps: case.shape.1 },
        use_start_timestamps: true,
        ..EngineOptions::default()
    });
    let (end_ms, options) = (
        case.time(case.count - 1),
        QueryOptions { lookback_ms: LOOKBACK_MS, per_step_stats: true, ..QueryOptions::default() },
    );
    let answer = engine.range(source.clone(), query, case.start_ms, end_ms, case.step_ms, &options);
    let output = block_on(answer).expect("a query that is valid and without limits");
    let Value::Grid { rows, .. } = output.value else { panic!("not a grid") };
    let rows = rows
        .iter()
        .map(|row| {
            let mut values = vec![None; case.count];
            row.iter().for_each(|(step, value)| values[step] = Some(SampleValue::from(value)));
            for (step, histogram) in row.iter_histograms() {
                assert!(values[step].is_none(), "{query}: two values");
                values[step] = Some(SampleValue::from(Arc::clone(histogram)));
            }
            (row.labels.get("i").to_owned(), values)
        })
        .collect();
    (rows, output.step_stats.map(|stats| stats.counts).unwrap_or_default())
}

/// Compares the answers of a query with what is expected for each series and step.
#[track_caller]
fn check(
    case: &Case,
    data: &[(Labels, Vec<Point>)],
    query: &str,
    expected: impl Fn(&[Point], i64) -> Option<SampleValue>,
) {
    let (found, _) = answers(case, &source(data), query);
    for (labels, points) in data {
        for step in 0..case.count {
            let expected = expected(points, case.time(step));
            let found = found.get(labels.get("i")).and_then(|row| row[step].as_ref());
            let is_same = match (found, &expected) {
                (None, None) => true,
                (Some(SampleValue::Float(a)), Some(SampleValue::Float(b))) => {
                    a == b || (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
                }
                (Some(SampleValue::Histogram(a)), Some(SampleValue::Histogram(b))) => a == b,
                _ => false,
            };
            assert!(is_same, "{query}: {labels} step {step}: {found:?}, not {expected:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn functions_of_mixed_ranges_see_their_window(case in cases(), offset_ms in -5_000i64..5_000) {
        let data = mixed_data(case.seed, case.series_count);
        for name in FUNCTIONS {
            let query = format!("{name}(m[{}ms] offset {offset_ms}ms)", case.range_ms);
            check(&case, &data, &query, |points, time_ms| {
                let end_ms = time_ms - offset_ms;
                let start_ms = end_ms - case.range_ms;
                rolled(name, &between(points, start_ms, end_ms), start_ms, end_ms)
            });
        }
    }

    #[test]
    fn histograms_in_ranges_count_by_their_size(case in cases()) {
        let data = mixed_data(case.seed, case.series_count);
        let query = format!("count_over_time(m[{}ms])", case.range_ms);
        let (_, seen) = answers(&case, &source(&data), &query);
        let size = |point: &Point| match point.histogram() {
            None => 1,
            Some(h) => {
                let words = h.positive_spans.len() + h.positive_counts.len() + h.custom_bounds.len();
                (8 + 168 + 8 * words as u64) / 16
            }
        };
        for (step, seen) in seen.iter().enumerate() {
            let end_ms = case.time(step);
            let sizes = data.iter().map(|(_, points)| {
                between(points, end_ms - case.range_ms, end_ms).iter().map(size).sum::<u64>()
            });
            prop_assert_eq!(*seen, sizes.sum::<u64>(), "{}", step);
        }
        prop_assert_eq!(seen.len(), case.count);
    }

    #[test]
    fn neighbours_are_counted_from_the_anchor(case in cases()) {
        let data = mixed_data(case.seed, case.series_count);
        for name in ["resets", "changes"] {
            let query = format!("{name}(m[{}ms] anchored)", case.range_ms);
            check(&case, &data, &query, |points, end_ms| {
                let start_ms = end_ms - case.range_ms;
                let window = between(points, start_ms - LOOKBACK_MS, end_ms);
                let first = window.iter().position(|point| point.at > start_ms)?;
                Some(neighbours(name, &window[first.saturating_sub(1)..]).into())
            });
        }
    }

    #[test]
    fn extended_ranges_of_histograms_reach_for_their_neighbours(case in cases()) {
        let data: Vec<_> = mixed_data(case.seed, case.series_count)
            .into_iter()
            .filter(|(_, points)| points.iter().all(|point| point.histogram().is_some()))
            .collect();
        for mode in ["anchored", "smoothed"] {
            let ahead_ms = if mode == "smoothed" { LOOKBACK_MS } else { 0 };
            for name in ["rate", "increase", "delta"] {
                let query = format!("{name}(m[{}ms] {mode})", case.range_ms);
                check(&case, &data, &query, |points, end_ms| {
                    let start_ms = end_ms - case.range_ms;
                    let window = between(points, start_ms - LOOKBACK_MS, end_ms + ahead_ms);
                    if window.is_empty() {
                        return None;
                    }
                    let rise = extended(name, mode, &window, (start_ms, end_ms))?;
                    Some(Arc::new(rise).into())
                });
            }
        }
        check(&case, &data, "m smoothed", |points, end_ms| {
            let window = between(points, end_ms - LOOKBACK_MS, end_ms + LOOKBACK_MS);
            let at = window.iter().rposition(|point| point.at <= end_ms)?;
            let before = window[at].histogram()?;
            if window[at].at == end_ms {
                return Some(window[at].value.clone());
            }
            let Some(after) = window.get(at + 1) else {
                let reset_hint = ResetHint::Unknown;
                let carried = Histogram { reset_hint, ..(**before).clone() };
                return Some(Arc::new(carried).into());
            };
            let hints = [before.reset_hint, after.histogram()?.reset_hint];
            let is_counter = hints != [ResetHint::Gauge; 2];
            if before.has_custom_buckets() != after.histogram()?.has_custom_buckets() {
                return None;
            }
            Some(Arc::new(interpolated(&window[at..at + 2], end_ms, is_counter)?).into())
        });
    }

    #[test]
    fn histograms_of_subqueries_know_of_no_resets(
        case in cases(),
        step_ms in prop_oneof![2 => 500i64..5_000, 1 => 20i64..100],
        function in 0usize..FUNCTIONS.len(),
    ) {
        let case = if step_ms < 500 { case.with_few_ranges() } else { case };
        let data = mixed_data(case.seed, case.series_count);
        let newest = |points: &[Point], time_ms: i64| -> Option<Point> {
            let point = points.iter().rev().find(|point| point.at <= time_ms)?;
            let mut value = point.value.clone();
            if let SampleValue::Histogram(histogram) = &mut value
                && histogram.reset_hint != ResetHint::Gauge
            {
                Arc::make_mut(histogram).reset_hint = ResetHint::Unknown;
            }
            let is_seen = point.at > time_ms - LOOKBACK_MS && !point.is_stale();
            is_seen.then_some(Point { at: time_ms, start: 0, value })
        };
        let name = FUNCTIONS[function];
        let query = format!("{name}(m[{}ms:{step_ms}ms])", case.range_ms);
        check(&case, &data, &query, |points, end_ms| {
            let start_ms = end_ms - case.range_ms;
            let steps = start_ms.div_euclid(step_ms) + 1..=end_ms.div_euclid(step_ms);
            let window: Vec<Point> =
                steps.filter_map(|step| newest(points, step * step_ms)).collect();
            rolled(name, &window, start_ms, end_ms)
        });
    }
}
