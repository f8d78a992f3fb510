//! Sums over a moving range from which spread and trend follow.
//!
//! As in [`super::fold`], the range is kept in two parts, so that nothing is ever subtracted:
//! each sample is added twice in all. Values are taken relative to an origin inside the range,
//! chosen anew whenever the back becomes the front, so that little cancels.

use crate::exec::compensated::Sum;
use crate::exec::rollup::buffer::{Frame, Samples};

/// Prometheus' own rounding grows by this factor at most where sums over the range stand in for
/// its loop over the samples: results agree to about 1e-10 then. Beyond it the loop is taken.
const CONDITION_MAX: f64 = 1e5;

/// Where values, and times in ms, are counted from.
#[derive(Debug, Clone, Copy, Default)]
struct Origin {
    time_ms: i64,
    value: f64,
}

/// Sums over some samples.
trait Part: Copy + Default {
    /// With one sample more, seen from an origin.
    fn plus(self, origin: Origin, time_ms: i64, value: f64) -> Self;

    /// Those of two runs of samples.
    fn merged(self, other: Self) -> Self;
}

/// The sums over a range, and what its values are like.
#[derive(Debug, Default)]
struct Halves<P> {
    origin: Origin,
    back: P,
    front: Vec<P>,
    /// How many values are NaN.
    nan_count: usize,
    /// How many values are infinite.
    infinite_count: usize,
    /// How many neighbours differ.
    change_count: usize,
}

impl<P: Part> Halves<P> {
    #[inline]
    fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        let (time_ms, value) = (samples.times[at], samples.values[at]);
        if at == lo {
            self.origin = Origin { time_ms, value: if value.is_finite() { value } else { 0.0 } };
        } else {
            self.change_count += usize::from(samples.values[at - 1] != value);
        }
        self.nan_count += usize::from(value.is_nan());
        self.infinite_count += usize::from(value.is_infinite());
        self.back = self.back.plus(self.origin, time_ms, value);
    }

    #[inline]
    fn leave(&mut self, samples: Samples<'_>, at: usize, hi: usize) {
        let value = samples.values[at];
        self.nan_count -= usize::from(value.is_nan());
        self.infinite_count -= usize::from(value.is_infinite());
        if at + 1 < hi {
            self.change_count -= usize::from(value != samples.values[at + 1]);
        }
        if self.front.is_empty() {
            self.turn(&samples.times[at..hi], &samples.values[at..hi]);
        }
        self.front.pop();
    }

    /// Makes the whole range the front.
    fn turn(&mut self, times: &[i64], values: &[f64]) {
        let finite = || values.iter().filter(|value| value.is_finite());
        let mean = finite().sum::<f64>() / finite().count().max(1) as f64;
        let value = if mean.is_finite() { mean } else { 0.0 };
        self.origin = Origin { time_ms: times[times.len() / 2], value };
        let mut part = P::default();
        self.front.extend(times.iter().zip(values).rev().map(|(time_ms, value)| {
            part = part.plus(self.origin, *time_ms, *value);
            part
        }));
        self.back = P::default();
    }

    #[inline]
    fn total(&self) -> P {
        self.front.last().map_or(self.back, |front| front.merged(self.back))
    }

    fn bytes(&self) -> u64 {
        (self.front.capacity() * size_of::<P>()) as u64
    }
}

/// Sums of values and of their squares.
#[derive(Debug, Clone, Copy, Default)]
struct Squares {
    first: Sum,
    second: Sum,
}

impl Part for Squares {
    #[inline]
    fn plus(self, origin: Origin, _time_ms: i64, value: f64) -> Squares {
        let value = value - origin.value;
        Squares { first: self.first.plus(value), second: self.second.plus(value * value) }
    }

    #[inline]
    fn merged(self, other: Squares) -> Squares {
        Squares { first: self.first.merged(other.first), second: self.second.merged(other.second) }
    }
}

/// The variance of the values in a moving range.
#[derive(Debug, Default)]
pub(super) struct MovingVariance(Halves<Squares>);

impl MovingVariance {
    #[inline]
    pub(super) fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        self.0.enter(samples, lo, at);
    }

    #[inline]
    pub(super) fn leave(&mut self, samples: Samples<'_>, at: usize, hi: usize) {
        self.0.leave(samples, at, hi);
    }

    /// The variance; nothing where rounding would show.
    #[inline]
    pub(super) fn value(&self, frame: &Frame<'_>) -> Option<f64> {
        let sums = &self.0;
        if sums.nan_count + sums.infinite_count > 0 {
            return Some(f64::NAN);
        }
        if sums.change_count == 0 {
            return Some(0.0);
        }
        let count = (frame.hi - frame.lo) as f64;
        let total = sums.total();
        let (first, second) = (total.first.total(), total.second.total());
        let cancelled = first * first / count;
        let variance = (second - cancelled) / count;
        let mean = sums.origin.value + first / count;
        // Prometheus rounds to the size of the mean, the sums here to that of the squares.
        let is_exact = variance < f64::MAX
            && variance > f64::MIN_POSITIVE / f64::EPSILON
            && cancelled <= CONDITION_MAX * (variance * count)
            && mean.abs() <= CONDITION_MAX * variance.sqrt();
        is_exact.then_some(variance)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

/// Sums of times in seconds, of values, and of their products.
#[derive(Debug, Clone, Copy, Default)]
struct Products {
    x: Sum,
    y: Sum,
    xy: Sum,
    xx: Sum,
}

impl Part for Products {
    #[inline]
    fn plus(self, origin: Origin, time_ms: i64, value: f64) -> Products {
        let x = time_ms.wrapping_sub(origin.time_ms) as f64 / 1e3;
        let y = value - origin.value;
        Products {
            x: self.x.plus(x),
            y: self.y.plus(y),
            xy: self.xy.plus(x * y),
            xx: self.xx.plus(x * x),
        }
    }

    #[inline]
    fn merged(self, other: Products) -> Products {
        Products {
            x: self.x.merged(other.x),
            y: self.y.merged(other.y),
            xy: self.xy.merged(other.xy),
            xx: self.xx.merged(other.xx),
        }
    }
}

/// A straight line through the samples of a moving range.
#[derive(Debug, Default)]
pub(super) struct MovingLine(Halves<Products>);

/// A straight line: a value at a time, and a slope.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    /// A second.
    pub(super) slope: f64,
    /// At the time of the intercept.
    pub(super) intercept: f64,
    /// By how much rounding has grown.
    condition: f64,
    /// The largest of what the intercept is added up from.
    term_max: f64,
}

impl Line {
    /// The value so many seconds behind the intercept; nothing where rounding would show.
    pub(super) fn at(&self, seconds: f64) -> Option<f64> {
        let rise = self.slope * seconds;
        let value = rise + self.intercept;
        let term_max = self.term_max.max(rise.abs());
        (self.condition * term_max <= CONDITION_MAX * value.abs()).then_some(value)
    }
}

impl MovingLine {
    #[inline]
    pub(super) fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        self.0.enter(samples, lo, at);
    }

    #[inline]
    pub(super) fn leave(&mut self, samples: Samples<'_>, at: usize, hi: usize) {
        self.0.leave(samples, at, hi);
    }

    /// Whether all values are the same, or none can be said: then no sum is needed.
    #[inline]
    pub(super) fn is_flat(&self) -> bool {
        self.0.change_count == 0
    }

    /// Whether a value is NaN, so that slope and intercept are.
    #[inline]
    pub(super) fn has_nan(&self) -> bool {
        self.0.nan_count > 0
    }

    /// The line through samples that are not all the same; nothing where rounding would show.
    pub(super) fn line(&self, frame: &Frame<'_>, intercept_ms: i64) -> Option<Line> {
        let sums = &self.0;
        if sums.infinite_count > 0 {
            return None;
        }
        let Origin { time_ms, value } = sums.origin;
        let n = (frame.hi - frame.lo) as f64;
        let total = sums.total();
        let [x, y, xy, xx] = [total.x, total.y, total.xy, total.xx].map(Sum::total);
        let covariance = xy - x * y / n;
        let variance = xx - x * x / n;
        // What Prometheus' sums are, which count times from the intercept and values from 0.
        let theirs_x = x / n - intercept_ms.wrapping_sub(time_ms) as f64 / 1e3;
        let theirs_y = y / n + value;
        let lost = (x * y / n).abs().max((theirs_x * theirs_y * n).abs());
        let lost_of_x = (x * x / n).max(theirs_x * theirs_x * n);
        let condition = (lost / covariance.abs()).max(lost_of_x / variance).max(1.0);
        let slope = covariance / variance;
        let reach = slope * theirs_x;
        let is_exact = condition <= CONDITION_MAX && slope.is_normal() && reach.is_finite();
        is_exact.then(|| Line {
            slope,
            intercept: theirs_y - reach,
            condition,
            term_max: theirs_y.abs().max(reach.abs()),
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}
