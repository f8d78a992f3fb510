//! Functions of samples over ranges.
//!
//! A reader holds, for each series, the samples that the current range can see and a kernel's
//! state. For each tile it takes the samples up to the tile's last step from a cursor, or from
//! the inner expression of a subquery, and moves the range over them: a sample enters once and
//! leaves once. Kernels are chosen when a reader is opened; loops over samples are compiled for
//! each of them.

mod buffer;
mod counter;
mod extended;
mod feed;
mod fold;
mod halves;
mod mixed;
mod moments;
mod note;
mod ordered;
mod raw;
mod reader;
mod spread;
mod trend;

use std::sync::{Arc, Mutex};

use model::{SampleBatch, SeriesSet};

use crate::annotations::Cause;
use crate::error::QueryError;
use crate::exec::charge::Charge;
use crate::exec::operator::{Context, SeriesMeta, TileReader, VectorOperator};
use crate::exec::select::series_of;
use crate::parse::ast::{RangeMode, Span};
use crate::plan::{Instant, RangeInput, Rollup};
use crate::window::{Reach, Steps};

use buffer::{Buffer, Ranges};
use counter::{Extrapolated, LastTwo, Neighbours, Resets};
use extended::{AnchoredNeighbours, ExtendedRate, SmoothedInstant};
use fold::{Border, Extreme, Fold};
use mixed::Mixing;
use note::Note;
use spread::{Mad, Quantile, Variance};
use trend::{Prediction, Slope, Smoothing};

pub(crate) use note::invalid_quantile;
pub use raw::{RawSamples, raw_series};

/// Where the samples come from.
pub enum Origin {
    /// Loaded series.
    Set(Arc<dyn SeriesSet>),
    /// The inner expression of a subquery.
    Operator(Box<dyn VectorOperator>),
}

impl Origin {
    fn series(&self, ctx: &Context) -> Vec<SeriesMeta> {
        match self {
            Origin::Set(set) => series_of(ctx, &**set, false),
            Origin::Operator(operator) => operator.series().to_vec(),
        }
    }

    /// The metric's name as the samples' series bears it.
    fn metric_name(&self, series: u32) -> &str {
        match self {
            Origin::Set(set) => set.labels(series as usize).metric_name(),
            Origin::Operator(operator) => operator.series()[series as usize].labels.metric_name(),
        }
    }

    fn has_histograms(&self) -> bool {
        match self {
            Origin::Set(set) => (0..set.len()).any(|index| set.has_histograms(index)),
            Origin::Operator(operator) => operator.has_histograms(),
        }
    }
}

/// The output of a function of samples over ranges.
pub struct RollupOperator {
    ctx: Context,
    origin: Origin,
    series: Vec<SeriesMeta>,
    steps: Steps,
    ranges: Ranges,
    function: Function,
    note: Note,
    mixing: Mixing,
    /// Whether there may be histograms among the samples.
    takes_histograms: bool,
    /// Room that readers have left, for those to come: new room would have to be zeroed by the
    /// system over and over.
    spare: Mutex<Vec<Spare>>,
    _charge: Charge,
}

/// The room of a reader that is done.
#[derive(Default)]
struct Spare {
    buffers: Vec<Buffer>,
    batch: Option<Box<SampleBatch>>,
    charge: Option<Charge>,
}

/// A function with its parameters, one a step.
#[derive(Debug, Clone)]
enum Function {
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
    Border(Border),
    /// How many samples there are, histograms counted by their size.
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
    SmoothedInstant,
}

impl RollupOperator {
    /// An operator for a planned call; `args` are its evaluated other arguments.
    ///
    /// Errors: a function that does not take the range's mode, and the memory limit.
    pub fn new(
        ctx: &Context,
        steps: Steps,
        rollup: &Rollup,
        origin: Origin,
        args: Vec<Vec<f64>>,
    ) -> Result<RollupOperator, QueryError> {
        let name = rollup.call.function.name;
        check_mode(name, rollup.input.mode)?;
        let function = function(name, rollup.input.mode, args)?;
        let keeps_name = matches!(name, "last_over_time" | "first_over_time");
        let note = Note::new(rollup, &function, &origin);
        let cause = note::cause(rollup, &function, &origin);
        let ranges = ranges(&rollup.input);
        let said = (note, cause);
        RollupOperator::build(ctx, steps, origin, ranges, function, said, !keeps_name)
    }

    /// An operator for an instant selector that is `smoothed`; `span` is where it stands.
    pub fn smoothed_instant(
        ctx: &Context,
        steps: Steps,
        instant: &Instant,
        span: Span,
        set: Arc<dyn SeriesSet>,
    ) -> Result<RollupOperator, QueryError> {
        let Instant { times, reach, .. } = *instant;
        let ranges = Ranges { times, range_ms: 0, margin: reach };
        let function = Function::SmoothedInstant;
        let said = (Note::None, span.into());
        RollupOperator::build(ctx, steps, Origin::Set(set), ranges, function, said, false)
    }

    /// An operator that gives how many samples are in each range, with what the mode of the
    /// range looks at beyond it; a histogram counts by its size.
    pub fn range_sizes(
        ctx: &Context,
        steps: Steps,
        input: &RangeInput,
        origin: Origin,
    ) -> Result<RollupOperator, QueryError> {
        let function = Function::Size;
        let said = (Note::None, input.span.into());
        RollupOperator::build(ctx, steps, origin, ranges(input), function, said, false)
    }

    fn build(
        ctx: &Context,
        steps: Steps,
        origin: Origin,
        ranges: Ranges,
        function: Function,
        (note, cause): (Note, Cause),
        drop_name: bool,
    ) -> Result<RollupOperator, QueryError> {
        let count = match &origin {
            Origin::Set(set) => set.len(),
            Origin::Operator(operator) => operator.series().len(),
        };
        let charge = Charge::new(&ctx.budget, (count * size_of::<SeriesMeta>()) as u64)?;
        let mut series = origin.series(ctx);
        if drop_name {
            for meta in &mut series {
                *meta = meta.dropping_name(ctx);
            }
        }
        let is_subquery = matches!(origin, Origin::Operator(_));
        Ok(RollupOperator {
            mixing: Mixing::new(&function, ctx.uses_start_timestamps, is_subquery, cause),
            takes_histograms: origin.has_histograms(),
            ctx: ctx.clone(),
            origin,
            series,
            steps,
            ranges,
            function,
            note,
            spare: Mutex::default(),
            _charge: charge,
        })
    }
}

fn ranges(input: &RangeInput) -> Ranges {
    Ranges { times: input.times, range_ms: input.range_ms, margin: input.margin }
}

/// Source: `AnchoredSafeFunctions` and `SmoothedSafeFunctions` of Prometheus.
fn check_mode(name: &str, mode: RangeMode) -> Result<(), QueryError> {
    let (word, functions): (&str, &[&str]) = match mode {
        RangeMode::Plain => return Ok(()),
        RangeMode::Anchored => ("anchored", &["changes", "delta", "increase", "rate", "resets"]),
        RangeMode::Smoothed => ("smoothed", &["delta", "increase", "rate"]),
    };
    if functions.contains(&name) {
        return Ok(());
    }
    Err(QueryError::Execution(format!(
        "{word} modifier can only be used with: {} - not with {name}",
        functions.join(", ")
    )))
}

fn function(name: &str, mode: RangeMode, args: Vec<Vec<f64>>) -> Result<Function, QueryError> {
    let mut args = args.into_iter();
    let mut param = || -> Result<Arc<[f64]>, QueryError> {
        let missing = || QueryError::Execution(format!("missing argument of {name}"));
        Ok(Arc::from(args.next().ok_or_else(missing)?))
    };
    let is_plain = mode == RangeMode::Plain;
    let rate = |is_counter, is_rate| match mode {
        RangeMode::Plain => Function::Rate { is_counter, is_rate },
        RangeMode::Anchored => Function::ExtendedRate { is_counter, is_rate, is_smoothed: false },
        RangeMode::Smoothed => Function::ExtendedRate { is_counter, is_rate, is_smoothed: true },
    };
    let neighbours = |only_falls| match is_plain {
        true => Function::Neighbours { only_falls },
        false => Function::AnchoredNeighbours { only_falls },
    };
    Ok(match name {
        "rate" => rate(true, true),
        "increase" => rate(true, false),
        "delta" => rate(false, false),
        "irate" => Function::LastTwo { is_rate: true },
        "idelta" => Function::LastTwo { is_rate: false },
        "resets" => neighbours(true),
        "changes" => neighbours(false),
        "sum_over_time" => Function::Fold { is_mean: false },
        "avg_over_time" => Function::Fold { is_mean: true },
        "min_over_time" => Function::Extreme { is_max: false, is_time: false },
        "max_over_time" => Function::Extreme { is_max: true, is_time: false },
        "ts_of_min_over_time" => Function::Extreme { is_max: false, is_time: true },
        "ts_of_max_over_time" => Function::Extreme { is_max: true, is_time: true },
        "count_over_time" => Function::Border(Border::Count),
        "present_over_time" | "absent_over_time" => Function::Border(Border::Present),
        "last_over_time" => Function::Border(Border::Last),
        "first_over_time" => Function::Border(Border::First),
        "ts_of_last_over_time" => Function::Border(Border::LastTime),
        "ts_of_first_over_time" => Function::Border(Border::FirstTime),
        "stddev_over_time" => Function::Variance { is_stddev: true },
        "stdvar_over_time" => Function::Variance { is_stddev: false },
        "quantile_over_time" => Function::Quantile { phi: param()? },
        "mad_over_time" => Function::Mad,
        "deriv" => Function::Slope,
        "predict_linear" => Function::Prediction { seconds: param()? },
        "double_exponential_smoothing" => {
            Function::Smoothing { smoothing: param()?, trend: param()? }
        }
        _ => {
            let text = format!("function {name} does not take a range vector");
            return Err(QueryError::Execution(text));
        }
    })
}

impl VectorOperator for RollupOperator {
    fn series(&self) -> &[SeriesMeta] {
        &self.series
    }

    fn steps(&self) -> Steps {
        self.steps
    }

    fn has_effects(&self) -> bool {
        let is_pure_origin = match &self.origin {
            Origin::Set(_) => true,
            Origin::Operator(operator) => !operator.has_effects(),
        };
        let is_pure = matches!(self.note, Note::None)
            && !matches!(self.function, Function::Smoothing { .. })
            && !self.mixing.has_effects(self.takes_histograms);
        !(is_pure && is_pure_origin)
    }

    fn has_histograms(&self) -> bool {
        self.takes_histograms && self.function.gives_histograms()
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        match self.function.clone() {
            Function::Rate { is_counter, is_rate } => self.reader(series, || Extrapolated {
                is_counter,
                is_rate,
                range_seconds: self.ranges.range_ms as f64 / 1000.0,
                ..Extrapolated::default()
            }),
            Function::ExtendedRate { is_counter, is_rate, is_smoothed } => {
                self.reader(series, || ExtendedRate {
                    is_counter,
                    is_rate,
                    is_smoothed,
                    resets: Resets::default(),
                })
            }
            Function::LastTwo { is_rate } => self.reader(series, || LastTwo { is_rate }),
            Function::Neighbours { only_falls } => {
                self.reader(series, || Neighbours::new(only_falls))
            }
            Function::AnchoredNeighbours { only_falls } => {
                self.reader(series, || AnchoredNeighbours::new(only_falls))
            }
            Function::Fold { is_mean } => self.reader(series, || Fold::new(is_mean)),
            Function::Extreme { is_max, is_time } => {
                self.reader(series, || Extreme::new(is_max, is_time))
            }
            Function::Border(border) => self.reader(series, || border),
            Function::Size => self.reader(series, || Border::Count),
            Function::Variance { is_stddev } => self.reader(series, || Variance::new(is_stddev)),
            Function::Quantile { phi } => self.reader(series, || Quantile::new(Arc::clone(&phi))),
            Function::Mad => self.reader(series, Mad::default),
            Function::Slope => self.reader(series, Slope::default),
            Function::Prediction { seconds } => {
                self.reader(series, || Prediction::new(Arc::clone(&seconds), self.steps))
            }
            Function::Smoothing { smoothing, trend } => self.reader(series, || Smoothing {
                smoothing: Arc::clone(&smoothing),
                trend: Arc::clone(&trend),
                error: None,
            }),
            Function::SmoothedInstant => self.reader(series, || SmoothedInstant),
        }
    }
}

/// How far a range reaches in all.
fn whole_reach(input: &RangeInput) -> Reach {
    let back_ms = input.range_ms.saturating_add(input.margin.back_ms);
    Reach { back_ms, ahead_ms: input.margin.ahead_ms }
}
