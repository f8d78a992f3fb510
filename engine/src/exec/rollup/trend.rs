//! Functions of the trend of the values in a range.

use std::sync::Arc;

use crate::exec::numeric::compensated::Sum;
use crate::exec::rollup::buffer::{Frame, Kernel, Samples};
use crate::exec::rollup::moments::MovingLine;
use crate::steps::Steps;

/// Returns slope and intercept for samples of equal values that are not NaN.
///
/// Source: `linearRegression` of Prometheus.
fn flat(value: f64) -> (f64, f64) {
    if value.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, value) }
}

/// Fits a line to samples; returns the slope per second and the value at the time of the intercept.
///
/// Shape: `times` and `values` have the same length, at least 1.
/// Source: `linearRegression` of Prometheus.
fn regression(times: &[i64], values: &[f64], intercept_ms: i64) -> (f64, f64) {
    let first = values[0];
    if values[1..].iter().all(|value| *value == first) {
        return flat(first);
    }
    let mut sums = [Sum::default(); 4];
    for (time_ms, y) in times.iter().zip(values) {
        let x = time_ms.wrapping_sub(intercept_ms) as f64 / 1e3;
        for (sum, value) in sums.iter_mut().zip([x, *y, x * y, x * x]) {
            *sum = sum.plus(value);
        }
    }
    let n = values.len() as f64;
    let [x, y, xy, xx] = sums.map(|sum| sum.sum + sum.compensation);
    let covariance = xy - x * y / n;
    let variance = xx - x * x / n;
    let slope = covariance / variance;
    (slope, y / n - slope * x / n)
}

/// `deriv`.
#[derive(Debug, Default)]
pub(super) struct Slope {
    moving: MovingLine,
}

impl Kernel for Slope {
    const LOOKS_AT_ALL: bool = true;

    #[inline]
    fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        self.moving.enter(samples, lo, at);
    }

    #[inline]
    fn leave(&mut self, samples: Samples<'_>, at: usize, hi: usize) {
        self.moving.leave(samples, at, hi);
    }

    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let (times, values) = (frame.times(), frame.values());
        if times.len() < 2 {
            return None;
        }
        if self.moving.has_nan() {
            return Some(f64::NAN);
        }
        if self.moving.is_flat() {
            return Some(flat(values[0]).0);
        }
        let line = self.moving.line(frame, times[0]);
        Some(line.map_or_else(|| regression(times, values, times[0]).0, |line| line.slope))
    }

    fn bytes(&self) -> u64 {
        self.moving.bytes()
    }
}

/// `predict_linear`.
#[derive(Debug)]
pub(super) struct Prediction {
    /// Seconds from the step to the predicted time, by step.
    seconds: Arc<[f64]>,
    /// Times of the steps, which differ from the range's ends if the range is pinned by `@`.
    steps: Steps,
    moving: MovingLine,
}

impl Prediction {
    pub(super) fn new(seconds: Arc<[f64]>, steps: Steps) -> Prediction {
        Prediction { seconds, steps, moving: MovingLine::default() }
    }
}

impl Kernel for Prediction {
    const LOOKS_AT_ALL: bool = true;

    #[inline]
    fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        self.moving.enter(samples, lo, at);
    }

    #[inline]
    fn leave(&mut self, samples: Samples<'_>, at: usize, hi: usize) {
        self.moving.leave(samples, at, hi);
    }

    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let (times, values) = (frame.times(), frame.values());
        if times.len() < 2 {
            return None;
        }
        if self.moving.has_nan() {
            return Some(f64::NAN);
        }
        let now_ms = self.steps.time(frame.step);
        let seconds = self.seconds[frame.step];
        let in_order = |(slope, intercept): (f64, f64)| slope * seconds + intercept;
        if self.moving.is_flat() {
            return Some(in_order(flat(values[0])));
        }
        let value = self.moving.line(frame, now_ms).and_then(|line| line.at(seconds));
        Some(value.unwrap_or_else(|| in_order(regression(times, values, now_ms))))
    }

    fn bytes(&self) -> u64 {
        self.moving.bytes()
    }
}

/// `double_exponential_smoothing`.
#[derive(Debug)]
pub(super) struct Smoothing {
    /// Smoothing factor by step.
    pub(super) smoothing: Arc<[f64]>,
    /// Trend factor by step.
    pub(super) trend: Arc<[f64]>,
    pub(super) error: Option<String>,
}

impl Kernel for Smoothing {
    const LOOKS_AT_ALL: bool = true;

    /// Source: `funcDoubleExponentialSmoothing` of Prometheus.
    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        self.check_parameters(frame.step);
        if self.error.is_some() {
            return None;
        }
        let factor = self.smoothing[frame.step];
        let trend_factor = self.trend[frame.step];
        let [first, second, ..] = frame.values() else { return None };
        let mut before = 0.0;
        let mut smoothed = *first;
        let mut trend = second - first;
        for (index, value) in frame.values().iter().enumerate().skip(1) {
            if index > 1 {
                trend = trend_factor * (smoothed - before) + (1.0 - trend_factor) * trend;
            }
            let next = factor * value + (1.0 - factor) * (smoothed + trend);
            (before, smoothed) = (smoothed, next);
        }
        Some(smoothed)
    }

    fn check_parameters(&mut self, step: usize) {
        let (factor, trend_factor) = (self.smoothing[step], self.trend[step]);
        let refused = |what: &str, letter: &str, found: f64| {
            Some(format!("invalid {what} factor. Expected: 0 < {letter} < 1, got: {found:.6}"))
        };
        if factor <= 0.0 || factor >= 1.0 {
            self.error = refused("smoothing", "sf", factor);
        } else if trend_factor <= 0.0 || trend_factor >= 1.0 {
            self.error = refused("trend", "tf", trend_factor);
        }
    }

    fn error(&mut self) -> Option<String> {
        self.error.take()
    }
}
