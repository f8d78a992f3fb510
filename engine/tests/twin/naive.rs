//! Functions of windows as one would write them down: each window from scratch.

use crate::data::{LOOKBACK_MS, Samples, window};

pub fn finite_sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

pub fn nan_first(values: &mut [f64]) {
    values.sort_by(|a, b| {
        b.is_nan().cmp(&a.is_nan()).then(a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))
    });
}

pub fn quantile(phi: f64, mut values: Vec<f64>) -> f64 {
    nan_first(&mut values);
    let rank = phi * (values.len() - 1) as f64;
    let low = rank.floor();
    let high = (low + 1.0).min((values.len() - 1) as f64);
    let weight = rank - low;
    values[low as usize] * (1.0 - weight) + values[high as usize] * weight
}

/// `max` or `min`, and when, among equals the last.
pub fn extreme(samples: &Samples, is_max: bool) -> (f64, f64) {
    let mut best = samples[0];
    for sample in samples {
        let is_better = if is_max { sample.1 >= best.1 } else { sample.1 <= best.1 };
        if is_better || best.1.is_nan() {
            best = *sample;
        }
    }
    (best.1, best.0 as f64 / 1000.0)
}

/// The mean square distance from the mean, for values whose sums are exact.
pub fn variance(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = finite_sum(values.iter().copied()) / count;
    finite_sum(values.iter().map(|v| (v - mean) * (v - mean))) / count
}

/// A sum with what rounding takes from it, which is added where the sum is used.
#[derive(Clone, Copy, Default)]
struct Compensated(f64, f64);

impl Compensated {
    fn add(&mut self, value: f64) {
        let total = self.0 + value;
        self.1 += match () {
            () if total.is_infinite() => -self.1,
            () if self.0.abs() >= value.abs() => (self.0 - total) + value,
            () => (value - total) + self.0,
        };
        self.0 = total;
    }

    fn total(self) -> f64 {
        self.0 + self.1
    }
}

/// The variance by Welford's method, as Prometheus rounds it.
fn welford(s: &Samples) -> f64 {
    let (mut mean, mut squares) = (Compensated::default(), Compensated::default());
    for (index, (_, value)) in s.iter().enumerate() {
        let delta = value - mean.total();
        mean.add(delta / (index + 1) as f64);
        squares.add(delta * (value - mean.total()));
    }
    squares.total() / s.len() as f64
}

/// Slope and intercept of the straight line through some samples.
fn regression(s: &Samples, intercept_ms: i64) -> (f64, f64) {
    let first = s[0].1;
    if s.iter().all(|(_, value)| *value == first) {
        return if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) };
    }
    let mut sums = [Compensated::default(); 4];
    for (at, y) in s {
        let x = (at - intercept_ms) as f64 / 1e3;
        for (sum, value) in sums.iter_mut().zip([x, *y, x * y, x * x]) {
            sum.add(value);
        }
    }
    let [x, y, xy, xx] = sums.map(Compensated::total);
    let n = s.len() as f64;
    let slope = (xy - x * y / n) / (xx - x * x / n);
    (slope, y / n - slope * x / n)
}

pub const SMOOTHING_FACTOR: f64 = 0.3;
pub const TREND_FACTOR: f64 = 0.6;
pub const PHI: f64 = 0.4;
pub const SECONDS_AHEAD: f64 = 90.0;

fn smoothing(s: &Samples) -> Option<f64> {
    let mut level = s[0].1;
    let mut trend = s.get(1)?.1 - level;
    for (index, (_, value)) in s.iter().enumerate().skip(1) {
        let next = SMOOTHING_FACTOR * value + (1.0 - SMOOTHING_FACTOR) * (level + trend);
        if index + 1 < s.len() {
            trend = TREND_FACTOR * (next - level) + (1.0 - TREND_FACTOR) * trend;
        }
        level = next;
    }
    Some(level)
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

/// Parameters of a function over a range.
#[derive(Clone, Copy)]
pub struct Look {
    /// The end of the window.
    pub end_ms: i64,
    pub range_ms: i64,
    /// Time of evaluation.
    pub now_ms: i64,
}

/// The value of a function over the samples of a window.
pub fn rolled(name: &str, s: &Samples, look: Look) -> Option<f64> {
    let values = || s.iter().map(|(_, value)| *value);
    let pairs = || s.windows(2).map(|pair| (pair[0].1, pair[1].1));
    let count = s.len() as f64;
    let two = || s.len().checked_sub(2).map(|at| (s[at], s[at + 1]));
    let rate =
        |is_counter, is_rate| extrapolated(s, look.end_ms, look.range_ms, is_counter, is_rate);
    if s.is_empty() {
        return None;
    }
    Some(match name {
        "rate" => return rate(true, true),
        "increase" => return rate(true, false),
        "delta" => return rate(false, false),
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
        "stdvar_over_time" => welford(s),
        "stddev_over_time" => welford(s).sqrt(),
        "quantile_over_time" => quantile(PHI, values().collect()),
        "mad_over_time" if values().any(f64::is_nan) => f64::NAN,
        "mad_over_time" => {
            let median = quantile(0.5, values().collect());
            quantile(0.5, values().map(|v| (v - median).abs()).collect())
        }
        "deriv" if s.len() < 2 => return None,
        "deriv" => regression(s, s[0].0).0,
        "predict_linear" if s.len() < 2 => return None,
        "predict_linear" => {
            let (slope, intercept) = regression(s, look.now_ms);
            slope * SECONDS_AHEAD + intercept
        }
        "double_exponential_smoothing" => return smoothing(s),
        name => panic!("{name}"),
    })
}

/// The value of a function over an `anchored` range that ends at a time.
pub fn anchored(name: &str, samples: &Samples, end_ms: i64, range_ms: i64) -> Option<f64> {
    let start_ms = end_ms - range_ms;
    let s = window(samples, end_ms, range_ms + LOOKBACK_MS);
    let inside: Samples = s.iter().copied().filter(|(at, _)| *at > start_ms).collect();
    let first = inside.first()?;
    let anchor = s.iter().rfind(|(at, _)| *at <= start_ms).unwrap_or(first);
    let chain: Vec<f64> = std::iter::once(anchor).chain(&inside).map(|(_, v)| *v).collect();
    Some(match name {
        "resets" => chain.windows(2).filter(|p| p[1] < p[0]).count() as f64,
        "changes" => {
            let is_change = |p: &&[f64]| p[0] != p[1] && !(p[0].is_nan() && p[1].is_nan());
            chain.windows(2).filter(is_change).count() as f64
        }
        name => risen(name, &chain, range_ms),
    })
}

/// The value of a function over a `smoothed` range that ends at a time.
pub fn smoothed(name: &str, samples: &Samples, end_ms: i64, range_ms: i64) -> Option<f64> {
    let start_ms = end_ms - range_ms;
    let s = window(samples, end_ms + LOOKBACK_MS, range_ms + 2 * LOOKBACK_MS);
    let is_counter = name != "delta";
    let (oldest, newest) = (s.first()?, s.last()?);
    if newest.0 <= start_ms || oldest.0 > end_ms {
        return None;
    }
    let mut chain = vec![value_at(&s, start_ms, is_counter)];
    chain.extend(s.iter().filter(|(at, _)| *at > start_ms && *at < end_ms).map(|(_, v)| *v));
    chain.push(value_at(&s, end_ms, is_counter));
    Some(risen(name, &chain, range_ms))
}

/// The value at a time: between its neighbours, or that of the nearest sample.
pub fn value_at(s: &Samples, time_ms: i64, is_counter: bool) -> f64 {
    let before = s.iter().rfind(|(at, _)| *at <= time_ms);
    let after = s.iter().find(|(at, _)| *at >= time_ms);
    match (before, after) {
        (Some(a), Some(b)) if a.0 < b.0 => {
            let low = if is_counter && b.1 < a.1 { 0.0 } else { a.1 };
            low + (b.1 - low) * (time_ms - a.0) as f64 / (b.0 - a.0) as f64
        }
        (Some(one), _) | (None, Some(one)) => one.1,
        (None, None) => f64::NAN,
    }
}

/// Returns the rise of a chain of values, where a counter's fall is a reset.
fn risen(name: &str, chain: &[f64], range_ms: i64) -> f64 {
    let mut rise = chain[chain.len() - 1] - chain[0];
    if name != "delta" {
        rise += finite_sum(chain.windows(2).filter(|p| p[1] < p[0]).map(|p| p[0]));
    }
    if name == "rate" { rise / (range_ms as f64 / 1000.0) } else { rise }
}
