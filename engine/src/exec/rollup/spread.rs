//! Functions of how the values in a range spread: they look at the whole range at each step.

use std::sync::Arc;

use crate::exec::compensated::Sum;
use crate::exec::quantile::quantile;
use crate::exec::rollup::buffer::{Frame, Kernel};

/// `stddev_over_time`, `stdvar_over_time`.
///
/// Source: `varianceOverTime` of Prometheus (Welford's method with compensated sums).
#[derive(Debug)]
pub(super) struct Variance {
    /// Whether the answer is the square root.
    pub(super) is_stddev: bool,
}

impl Kernel for Variance {
    const LOOKS_AT_ALL: bool = true;

    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        let mut count = 0.0;
        let mut mean = Sum::default();
        let mut squares = Sum::default();
        for value in frame.values() {
            count += 1.0;
            let delta = value - (mean.sum + mean.compensation);
            mean = mean.plus(delta / count);
            squares = squares.plus(delta * (value - (mean.sum + mean.compensation)));
        }
        let variance = (squares.sum + squares.compensation) / count;
        Some(if self.is_stddev { variance.sqrt() } else { variance })
    }
}

/// `quantile_over_time`.
#[derive(Debug)]
pub(super) struct Quantile {
    /// One φ a step.
    pub(super) phi: Arc<[f64]>,
    pub(super) scratch: Vec<f64>,
}

impl Kernel for Quantile {
    const LOOKS_AT_ALL: bool = true;

    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        self.scratch.clear();
        self.scratch.extend_from_slice(frame.values());
        Some(quantile(self.phi[frame.step], &mut self.scratch))
    }
}

/// `mad_over_time`: the median distance from the median.
#[derive(Debug, Default)]
pub(super) struct Mad {
    scratch: Vec<f64>,
}

impl Kernel for Mad {
    const LOOKS_AT_ALL: bool = true;

    fn value(&mut self, frame: &Frame<'_>) -> Option<f64> {
        if frame.values().iter().any(|value| value.is_nan()) {
            return Some(f64::NAN);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(frame.values());
        let median = quantile(0.5, &mut self.scratch);
        self.scratch.iter_mut().for_each(|value| *value = (*value - median).abs());
        Some(quantile(0.5, &mut self.scratch))
    }
}
