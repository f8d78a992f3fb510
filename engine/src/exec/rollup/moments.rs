//! Sums over a moving range that determine variance and regression.
//!
//! The range is kept in two parts ([`super::halves`]), so that nothing is subtracted. In each part,
//! times and values are relative to the sample next to the boundary, which limits cancellation. The
//! two parts are merged using the difference of their means.

use crate::exec::numeric::compensated::Sum;
use crate::exec::rollup::buffer::{Frame, Samples};
use crate::exec::rollup::halves::{Both, Halves};

/// Maximum growth of rounding errors for which sums replace Prometheus' loop over samples: results
/// then agree to about 1e-10.
const CONDITION_MAX: f64 = 1e5;

/// Counts of NaN, infinite and changed values in a moving range.
#[derive(Debug, Default)]
struct Kinds {
    /// Number of NaN values.
    nan_count: usize,
    /// Number of infinite values.
    infinite_count: usize,
    /// Number of values that differ from the previous value.
    change_count: usize,
}

impl Kinds {
    #[inline]
    fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        let value = samples.values[at];
        if at > lo {
            self.change_count += usize::from(samples.values[at - 1] != value);
        }
        self.nan_count += usize::from(value.is_nan());
        self.infinite_count += usize::from(value.is_infinite());
    }

    #[inline]
    fn leave(&mut self, samples: Samples<'_>, at: usize, hi: usize) {
        let value = samples.values[at];
        self.nan_count -= usize::from(value.is_nan());
        self.infinite_count -= usize::from(value.is_infinite());
        if at + 1 < hi {
            self.change_count -= usize::from(value != samples.values[at + 1]);
        }
    }
}

/// Sums of values and of their squares.
#[derive(Debug, Clone, Copy, Default)]
struct Squares {
    count: f64,
    /// Value that the sums are relative to: the first value.
    origin: f64,
    first: Sum,
    second: Sum,
}

impl Squares {
    #[inline]
    fn plus(self, value: f64) -> Squares {
        let origin = if self.count == 0.0 { value } else { self.origin };
        let value = value - origin;
        Squares {
            count: self.count + 1.0,
            origin,
            first: self.first.plus(value),
            second: self.second.plus(value * value),
        }
    }

    #[inline]
    fn spread(self) -> Spread {
        let (first, second) = (self.first.total(), self.second.total());
        let mean = first / self.count;
        let cancelled = first * mean;
        Spread {
            count: self.count,
            origin: self.origin,
            mean,
            squares: second - cancelled,
            cancelled,
        }
    }
}

/// Count, mean and squared distances of a set of values.
struct Spread {
    count: f64,
    origin: f64,
    /// Relative to the origin.
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
    /// Amount that cancelled in subtractions.
    cancelled: f64,
}

impl Spread {
    /// Merges two sets of values.
    #[inline]
    fn merged(self, other: &Spread) -> Spread {
        let count = self.count + other.count;
        let share = other.count / count;
        let apart = (other.origin - self.origin) + (other.mean - self.mean);
        Spread {
            count,
            origin: self.origin,
            mean: self.mean + apart * share,
            squares: self.squares + other.squares + apart * apart * (self.count * share),
            cancelled: self.cancelled + other.cancelled,
        }
    }
}

/// Variance of the values in a moving range.
#[derive(Debug, Default)]
pub(super) struct MovingVariance {
    kinds: Kinds,
    halves: Halves<Squares>,
}

impl MovingVariance {
    #[inline]
    pub(super) fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        self.kinds.enter(samples, lo, at);
    }

    #[inline]
    pub(super) fn leave(&mut self, samples: Samples<'_>, at: usize, hi: usize) {
        self.kinds.leave(samples, at, hi);
    }

    /// Returns the variance, or `None` if rounding errors would be visible.
    #[inline]
    pub(super) fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        if self.kinds.nan_count + self.kinds.infinite_count > 0 {
            return Some(f64::NAN);
        }
        if self.kinds.change_count == 0 {
            return Some(0.0);
        }
        let both = self.halves.of_samples(frame, |part, _, value| part.plus(value));
        let total = match both {
            Both { front: Some(front), back: Some(back) } => front.spread().merged(&back.spread()),
            Both { front, back } => front.or(back)?.spread(),
        };
        let variance = total.squares / total.count;
        let mean = total.origin + total.mean;
        // Prometheus rounds relative to the mean, these sums relative to the squares.
        let is_exact = variance < f64::MAX
            && variance > f64::MIN_POSITIVE / f64::EPSILON
            && total.cancelled <= CONDITION_MAX * total.squares
            && mean.abs() <= CONDITION_MAX * variance.sqrt();
        is_exact.then_some(variance)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.halves.bytes()
    }
}

/// Sample that the times and values in sums are relative to.
#[derive(Debug, Clone, Copy, Default)]
struct Origin {
    time_ms: i64,
    value: f64,
}

/// Sums of times in seconds, of values, and of their products.
#[derive(Debug, Clone, Copy, Default)]
struct Products {
    count: f64,
    /// Origin of times and values: the first sample.
    origin: Origin,
    x: Sum,
    y: Sum,
    xy: Sum,
    xx: Sum,
}

impl Products {
    #[inline]
    fn plus(self, time_ms: i64, value: f64) -> Products {
        let origin = if self.count == 0.0 { Origin { time_ms, value } } else { self.origin };
        let x = time_ms.wrapping_sub(origin.time_ms) as f64 / 1e3;
        let y = value - origin.value;
        Products {
            count: self.count + 1.0,
            origin,
            x: self.x.plus(x),
            y: self.y.plus(y),
            xy: self.xy.plus(x * y),
            xx: self.xx.plus(x * x),
        }
    }

    fn scatter(self) -> Scatter {
        let n = self.count;
        let [x, y, xy, xx] = [self.x, self.y, self.xy, self.xx].map(Sum::total);
        let (x_mean, y_mean) = (x / n, y / n);
        let (lost, lost_of_x) = (x * y_mean, x * x_mean);
        Scatter {
            count: n,
            origin: self.origin,
            x: x_mean,
            y: y_mean,
            covariance: xy - lost,
            variance: xx - lost_of_x,
            lost: lost.abs(),
            lost_of_x,
        }
    }
}

/// Means and covariance of a set of samples.
struct Scatter {
    count: f64,
    origin: Origin,
    /// Means of times and values, relative to the origin.
    x: f64,
    y: f64,
    /// Sums, not divided by the count.
    covariance: f64,
    variance: f64,
    /// Amounts that cancelled in the covariance and in the variance.
    lost: f64,
    lost_of_x: f64,
}

impl Scatter {
    /// Merges two sets of samples.
    fn merged(self, other: &Scatter) -> Scatter {
        let count = self.count + other.count;
        let share = other.count / count;
        let x_apart = other.origin.time_ms.wrapping_sub(self.origin.time_ms) as f64 / 1e3
            + (other.x - self.x);
        let y_apart = (other.origin.value - self.origin.value) + (other.y - self.y);
        let weight = self.count * share;
        let between = x_apart * y_apart * weight;
        Scatter {
            count,
            origin: self.origin,
            x: self.x + x_apart * share,
            y: self.y + y_apart * share,
            covariance: self.covariance + other.covariance + between,
            variance: self.variance + other.variance + x_apart * x_apart * weight,
            lost: self.lost + other.lost + between.abs(),
            lost_of_x: self.lost_of_x + other.lost_of_x,
        }
    }
}

/// Regression line through the samples of a moving range.
#[derive(Debug, Default)]
pub(super) struct MovingLine {
    kinds: Kinds,
    halves: Halves<Products>,
}

/// Line defined by slope and intercept.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegressionLine {
    /// Per second.
    pub(super) slope: f64,
    /// Value at the time of the intercept.
    pub(super) intercept: f64,
    /// Factor by which rounding errors grew.
    condition: f64,
    /// Largest term of the intercept.
    term_max: f64,
}

impl RegressionLine {
    /// Returns the value `seconds` after the intercept; `None` if rounding errors would be visible.
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
        self.kinds.enter(samples, lo, at);
    }

    #[inline]
    pub(super) fn leave(&mut self, samples: Samples<'_>, at: usize, hi: usize) {
        self.kinds.leave(samples, at, hi);
    }

    /// Returns whether all values are equal, so that no sum is needed.
    #[inline]
    pub(super) fn is_flat(&self) -> bool {
        self.kinds.change_count == 0
    }

    /// Returns whether a value is NaN, so that slope and intercept are NaN.
    #[inline]
    pub(super) fn has_nan(&self) -> bool {
        self.kinds.nan_count > 0
    }

    /// Returns the line through samples that are not all equal; `None` if rounding errors would be
    /// visible.
    pub(super) fn line(&mut self, frame: &Frame<'_>, intercept_ms: i64) -> Option<RegressionLine> {
        if self.kinds.infinite_count > 0 {
            return None;
        }
        let both = self.halves.of_samples(frame, Products::plus);
        let Scatter { count: n, origin, x, y, covariance, variance, lost, lost_of_x } = match both {
            Both { front: Some(front), back: Some(back) } => {
                front.scatter().merged(&back.scatter())
            }
            Both { front, back } => front.or(back)?.scatter(),
        };
        // Means relative to the intercept's time and to the value 0, as in Prometheus.
        let theirs_x = x - intercept_ms.wrapping_sub(origin.time_ms) as f64 / 1e3;
        let theirs_y = y + origin.value;
        let lost = lost.max((theirs_x * theirs_y * n).abs());
        let lost_of_x = lost_of_x.max(theirs_x * theirs_x * n);
        let condition = (lost / covariance.abs()).max(lost_of_x / variance).max(1.0);
        let slope = covariance / variance;
        let reach = slope * theirs_x;
        let is_exact = condition <= CONDITION_MAX && slope.is_normal() && reach.is_finite();
        is_exact.then(|| RegressionLine {
            slope,
            intercept: theirs_y - reach,
            condition,
            term_max: theirs_y.abs().max(reach.abs()),
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.halves.bytes()
    }
}
