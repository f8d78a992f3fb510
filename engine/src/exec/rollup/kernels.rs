//! Selection of the kernels of each range function: one for floats, one for mixed series.
//!
//! The kernels themselves are in the other files of this folder.

use std::sync::Arc;

use crate::catalog::{Function, FunctionId, RollupFunction};
use crate::error::QueryError;
use crate::exec::operator::TileReader;
use crate::parse::ast::RangeMode;

use super::RollupOperator;
use super::buffer::Ranges;
use super::counter::{LastTwo, Neighbours, Resets};
use super::extended::{AnchoredNeighbours, ExtendedRate, SmoothedLookup};
use super::extrapolated::Extrapolated;
use super::extreme::Extreme;
use super::fold::{Boundary, Fold};
use super::mixed;
use super::spread::{Mad, Quantile, Variance};
use super::trend::{Prediction, Slope, Smoothing};

/// Kernels of a function, with its parameters by step.
#[derive(Debug, Clone)]
pub(super) enum RollupKernel {
    Rate {
        is_counter: bool,
        is_rate: bool,
    },
    ExtendedRate {
        is_counter: bool,
        is_rate: bool,
        is_smoothed: bool,
    },
    LastTwo {
        is_rate: bool,
    },
    Neighbours {
        only_falls: bool,
    },
    AnchoredNeighbours {
        only_falls: bool,
    },
    Fold {
        is_mean: bool,
    },
    Extreme {
        is_max: bool,
        is_time: bool,
    },
    Boundary(Boundary),
    /// Number of samples; a histogram counts by its size.
    Size,
    Variance {
        is_stddev: bool,
    },
    Quantile {
        phi: Arc<[f64]>,
    },
    Mad,
    Slope,
    Prediction {
        seconds: Arc<[f64]>,
    },
    Smoothing {
        smoothing: Arc<[f64]>,
        trend: Arc<[f64]>,
    },
    SmoothedLookup,
}

impl RollupKernel {
    /// Returns the kernels of a function; `args` are its evaluated arguments except for the range.
    ///
    /// Errors: a function without a range argument, and missing arguments.
    pub(super) fn new(
        function: &Function,
        mode: RangeMode,
        args: Vec<Vec<f64>>,
    ) -> Result<RollupKernel, QueryError> {
        let name = function.name;
        let FunctionId::Rollup(id) = function.id else {
            let text = format!("function {name} does not take a range vector");
            return Err(QueryError::Execution(text));
        };

        let mut args = args.into_iter();
        let mut param = || -> Result<Arc<[f64]>, QueryError> {
            let missing = || QueryError::Execution(format!("missing argument of {name}"));
            Ok(Arc::from(args.next().ok_or_else(missing)?))
        };
        let is_plain = mode == RangeMode::Plain;
        let rate = |is_counter, is_rate| match mode {
            RangeMode::Plain => RollupKernel::Rate { is_counter, is_rate },
            RangeMode::Anchored => {
                RollupKernel::ExtendedRate { is_counter, is_rate, is_smoothed: false }
            }
            RangeMode::Smoothed => {
                RollupKernel::ExtendedRate { is_counter, is_rate, is_smoothed: true }
            }
        };
        let neighbours = |only_falls| match is_plain {
            true => RollupKernel::Neighbours { only_falls },
            false => RollupKernel::AnchoredNeighbours { only_falls },
        };
        Ok(match id {
            RollupFunction::Rate => rate(true, true),
            RollupFunction::Increase => rate(true, false),
            RollupFunction::Delta => rate(false, false),
            RollupFunction::Irate => RollupKernel::LastTwo { is_rate: true },
            RollupFunction::Idelta => RollupKernel::LastTwo { is_rate: false },
            RollupFunction::Resets => neighbours(true),
            RollupFunction::Changes => neighbours(false),
            RollupFunction::Sum => RollupKernel::Fold { is_mean: false },
            RollupFunction::Avg => RollupKernel::Fold { is_mean: true },
            RollupFunction::Min => RollupKernel::Extreme { is_max: false, is_time: false },
            RollupFunction::Max => RollupKernel::Extreme { is_max: true, is_time: false },
            RollupFunction::TimeOfMin => RollupKernel::Extreme { is_max: false, is_time: true },
            RollupFunction::TimeOfMax => RollupKernel::Extreme { is_max: true, is_time: true },
            RollupFunction::Count => RollupKernel::Boundary(Boundary::Count),
            RollupFunction::Present | RollupFunction::Absent => {
                RollupKernel::Boundary(Boundary::Present)
            }
            RollupFunction::Last => RollupKernel::Boundary(Boundary::Last),
            RollupFunction::First => RollupKernel::Boundary(Boundary::First),
            RollupFunction::TimeOfLast => RollupKernel::Boundary(Boundary::LastTime),
            RollupFunction::TimeOfFirst => RollupKernel::Boundary(Boundary::FirstTime),
            RollupFunction::Stddev => RollupKernel::Variance { is_stddev: true },
            RollupFunction::Stdvar => RollupKernel::Variance { is_stddev: false },
            RollupFunction::Quantile => RollupKernel::Quantile { phi: param()? },
            RollupFunction::Mad => RollupKernel::Mad,
            RollupFunction::Deriv => RollupKernel::Slope,
            RollupFunction::PredictLinear => RollupKernel::Prediction { seconds: param()? },
            RollupFunction::DoubleExponentialSmoothing => {
                RollupKernel::Smoothing { smoothing: param()?, trend: param()? }
            }
        })
    }

    /// Returns whether counter resets matter: a decrease or a new start timestamp.
    pub(super) fn is_of_counters(&self) -> bool {
        match self {
            RollupKernel::Rate { is_counter, .. }
            | RollupKernel::ExtendedRate { is_counter, .. } => *is_counter,
            RollupKernel::LastTwo { is_rate } => *is_rate,
            RollupKernel::Neighbours { only_falls }
            | RollupKernel::AnchoredNeighbours { only_falls } => *only_falls,
            _ => false,
        }
    }

    /// Returns the kernel for floats and histograms.
    pub(super) fn mixed_kernel(&self, ranges: &Ranges) -> Box<dyn mixed::MixedKernel> {
        let range_seconds = ranges.range_ms as f64 / 1000.0;
        match *self {
            RollupKernel::Rate { is_counter, is_rate } => {
                Box::new(mixed::counter::Rate::new(is_counter, is_rate, range_seconds))
            }
            RollupKernel::ExtendedRate { is_counter, is_rate, is_smoothed } => {
                Box::new(mixed::extended::Rate { is_counter, is_rate, is_smoothed, range_seconds })
            }
            RollupKernel::LastTwo { is_rate } => Box::new(mixed::neighbours::LastTwo { is_rate }),
            RollupKernel::Neighbours { only_falls } => {
                Box::new(mixed::neighbours::Neighbours::new(only_falls, RangeMode::Plain))
            }
            RollupKernel::AnchoredNeighbours { only_falls } => {
                Box::new(mixed::neighbours::Neighbours::new(only_falls, RangeMode::Anchored))
            }
            RollupKernel::Fold { is_mean } => Box::new(mixed::fold::Fold { is_mean }),
            RollupKernel::Boundary(boundary) => Box::new(boundary),
            RollupKernel::Size => Box::new(mixed::fold::Size),
            RollupKernel::SmoothedLookup => Box::new(mixed::extended::SmoothedLookup),
            RollupKernel::Extreme { .. }
            | RollupKernel::Variance { .. }
            | RollupKernel::Quantile { .. }
            | RollupKernel::Mad
            | RollupKernel::Slope
            | RollupKernel::Prediction { .. }
            | RollupKernel::Smoothing { .. } => Box::new(mixed::fold::FloatsAlone),
        }
    }
}

impl RollupOperator {
    /// Opens a reader with the kernel for floats.
    pub(super) fn open_reader<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        match self.kernel.clone() {
            RollupKernel::Rate { is_counter, is_rate } => self.reader(series, || Extrapolated {
                is_counter,
                is_rate,
                range_seconds: self.ranges.range_ms as f64 / 1000.0,
                ..Extrapolated::default()
            }),
            RollupKernel::ExtendedRate { is_counter, is_rate, is_smoothed } => {
                self.reader(series, || ExtendedRate {
                    is_counter,
                    is_rate,
                    is_smoothed,
                    resets: Resets::default(),
                })
            }
            RollupKernel::LastTwo { is_rate } => self.reader(series, || LastTwo { is_rate }),
            RollupKernel::Neighbours { only_falls } => {
                self.reader(series, || Neighbours::new(only_falls))
            }
            RollupKernel::AnchoredNeighbours { only_falls } => {
                self.reader(series, || AnchoredNeighbours::new(only_falls))
            }
            RollupKernel::Fold { is_mean } => self.reader(series, || Fold::new(is_mean)),
            RollupKernel::Extreme { is_max, is_time: false } => {
                self.reader(series, || Extreme::<false>::new(is_max))
            }
            RollupKernel::Extreme { is_max, is_time: true } => {
                self.reader(series, || Extreme::<true>::new(is_max))
            }
            RollupKernel::Boundary(boundary) => self.reader(series, || boundary),
            RollupKernel::Size => self.reader(series, || Boundary::Count),
            RollupKernel::Variance { is_stddev } => {
                self.reader(series, || Variance::new(is_stddev))
            }
            RollupKernel::Quantile { phi } => {
                self.reader(series, || Quantile::new(Arc::clone(&phi)))
            }
            RollupKernel::Mad => self.reader(series, Mad::default),
            RollupKernel::Slope => self.reader(series, Slope::default),
            RollupKernel::Prediction { seconds } => {
                self.reader(series, || Prediction::new(Arc::clone(&seconds), self.steps))
            }
            RollupKernel::Smoothing { smoothing, trend } => self.reader(series, || Smoothing {
                smoothing: Arc::clone(&smoothing),
                trend: Arc::clone(&trend),
                error: None,
            }),
            RollupKernel::SmoothedLookup => self.reader(series, || SmoothedLookup),
        }
    }
}
