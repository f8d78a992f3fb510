//! Functions of the distribution of values in a range.

use std::sync::Arc;

use crate::exec::numeric::compensated::Sum;
use crate::exec::rollup::buffer::{Frame, Kernel, Samples};
use crate::exec::rollup::moments::MovingVariance;
use crate::exec::rollup::ordered::Ordered;

/// `stddev_over_time`, `stdvar_over_time`.
///
/// Source: `varianceOverTime` of Prometheus.
#[derive(Debug)]
pub(super) struct Variance {
    /// True if the result is the square root.
    is_stddev: bool,
    moving: MovingVariance,
}

impl Variance {
    pub(super) fn new(is_stddev: bool) -> Variance {
        Variance { is_stddev, moving: MovingVariance::default() }
    }
}

impl Kernel for Variance {
    const LOOKS_AT_ALL: bool = true;

    #[inline]
    fn enter(&mut self, samples: Samples<'_>, lo: usize, at: usize) {
        self.moving.enter(samples, lo, at);
    }

    #[inline]
    fn leave(&mut self, samples: Samples<'_>, at: usize, hi: usize) {
        self.moving.leave(samples, at, hi);
    }

    #[inline]
    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let variance = self.moving.value(frame).unwrap_or_else(|| variance(frame.values()));
        Some(if self.is_stddev { variance.sqrt() } else { variance })
    }

    fn bytes(&self) -> u64 {
        self.moving.bytes()
    }
}

/// Returns the variance as Prometheus rounds it: Welford's method with compensated sums.
fn variance(values: &[f64]) -> f64 {
    let mut count = 0.0;
    let mut mean = Sum::default();
    let mut squares = Sum::default();
    for value in values {
        count += 1.0;
        let delta = value - (mean.sum + mean.compensation);
        mean = mean.plus(delta / count);
        squares = squares.plus(delta * (value - (mean.sum + mean.compensation)));
    }
    (squares.sum + squares.compensation) / count
}

/// `quantile_over_time`.
#[derive(Debug)]
pub(super) struct Quantile {
    /// φ by step.
    phi: Arc<[f64]>,
    values: Ordered,
}

impl Quantile {
    pub(super) fn new(phi: Arc<[f64]>) -> Quantile {
        Quantile { phi, values: Ordered::default() }
    }
}

impl Kernel for Quantile {
    const LOOKS_AT_ALL: bool = true;
    const SAMPLE_BYTES: u64 = Ordered::SAMPLE_BYTES;

    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        self.values.take(frame);
        Some(self.values.quantile(self.phi[frame.step]))
    }

    fn bytes(&self) -> u64 {
        self.values.bytes()
    }
}

/// `mad_over_time`: median distance from the median.
#[derive(Debug, Default)]
pub(super) struct Mad {
    values: Ordered,
}

impl Kernel for Mad {
    const LOOKS_AT_ALL: bool = true;
    // Memory holds the distances from the median in addition to the values.
    const SAMPLE_BYTES: u64 = 2 * Ordered::SAMPLE_BYTES;

    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        self.values.take(frame);
        Some(self.values.median_deviation())
    }

    fn bytes(&self) -> u64 {
        self.values.bytes()
    }
}
