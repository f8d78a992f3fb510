//! Functions of samples over ranges.
//!
//! For each series, a reader holds the samples in the current range and the state of a kernel. For
//! each tile it reads the samples up to the tile's last step from a cursor, or from the inner
//! expression of a subquery, and moves the range over them: each sample enters and leaves once.
//! Kernels are chosen when a reader is opened; loops over samples are compiled for each kernel.

mod alike;
mod buffer;
mod counter;
mod extended;
mod extrapolated;
mod extreme;
mod facts;
mod feed;
mod fold;
mod halves;
mod kernels;
mod mixed;
mod moments;
mod ordered;
mod output_annotation;
mod raw;
mod reader;
mod spread;
mod trend;

use std::sync::{Arc, Mutex};

use model::{Reservation, SampleBatch, SeriesSet, WindowFacts, Windows};

use crate::annotations::Cause;
use crate::catalog::{self, Function, Histograms, Names, RangeModes};
use crate::error::QueryError;
use crate::exec::operator::{Context, DerivedOfSeries, SeriesMeta, TileReader, VectorOperator};
use crate::exec::selector::output_series::OutputSeries;
use crate::parse::ast::{RangeMode, Span};
use crate::plan::{Lookup, RangeInput, Rollup};
use crate::steps::{Reach, Steps};

use buffer::{Buffer, Ranges};
use kernels::RollupKernel;
use mixed::Mixing;
use output_annotation::OutputAnnotation;

pub(crate) use output_annotation::invalid_quantile;
pub use raw::{RawSamples, raw_series};

/// Source of the samples.
pub enum Origin {
    /// Loaded series.
    Set(Arc<dyn SeriesSet>),
    /// The inner expression of a subquery.
    Operator(Box<dyn VectorOperator>),
}

impl Origin {
    /// Returns the output series of a function over the samples.
    fn series(&self, ctx: &Context, drop_name: bool) -> OutputSeries {
        match self {
            Origin::Set(set) => OutputSeries::of_set(ctx, &**set, drop_name),
            Origin::Operator(operator) => {
                let output = |meta: &SeriesMeta| match drop_name {
                    true => meta.dropping_name(ctx),
                    false => meta.clone(),
                };
                let metas = operator.series().iter().map(output).collect();
                OutputSeries::unsorted(metas)
            }
        }
    }

    /// Returns the labels of the output series of a function.
    fn metas<'a>(&'a self, ctx: &Context, series: &'a OutputSeries) -> &'a [SeriesMeta] {
        match self {
            Origin::Set(set) => series.metas(ctx, &**set),
            Origin::Operator(_) => series.known_metas(),
        }
    }

    /// Returns the metric name of a series.
    fn metric_name(&self, series: u32) -> &str {
        match self {
            Origin::Set(set) => set.labels(series as usize).metric_name(),
            Origin::Operator(operator) => operator.series()[series as usize].labels.metric_name(),
        }
    }

    fn has_histograms(&self) -> bool {
        match self {
            Origin::Set(set) => set.has_any_histograms(),
            Origin::Operator(operator) => operator.has_histograms(),
        }
    }
}

/// Operator of a function of samples over ranges.
pub struct RollupOperator {
    ctx: Context,
    origin: Origin,
    series: OutputSeries,
    steps: Steps,
    ranges: Ranges,
    kernel: RollupKernel,
    note: OutputAnnotation,
    mixing: Mixing,
    /// True if the samples may contain histograms.
    takes_histograms: bool,
    /// True if samples with histograms may lead to a result with histograms.
    gives_histograms: bool,
    /// Windows outside of which no look time matters.
    seen: Option<Windows>,
    /// Buffers of finished readers for reuse: the operating system would have to zero new memory.
    spare: Mutex<Vec<Spare>>,
    _reservation: Reservation,
}

/// Buffers of a finished reader.
#[derive(Default)]
struct Spare {
    buffers: Vec<Buffer>,
    batch: Option<Box<SampleBatch>>,
    facts: Option<Box<WindowFacts>>,
    reservation: Option<Reservation>,
}

/// Ranges, and the kernel and annotation source of the function over them.
struct Method {
    kernel: RollupKernel,
    histograms: Histograms,
    note: OutputAnnotation,
    /// Source of the annotations.
    cause: Cause,
}

impl RollupOperator {
    /// Returns the operator of a planned call; `args` are its evaluated arguments except for the
    /// range.
    ///
    /// Errors: a function that does not support the range's mode, and the memory limit.
    pub fn new(
        ctx: &Context,
        steps: Steps,
        rollup: &Rollup,
        origin: Origin,
        args: Vec<Vec<f64>>,
    ) -> Result<RollupOperator, QueryError> {
        let function = rollup.call.function;
        check_mode(function, rollup.input.mode)?;
        let kernel = RollupKernel::new(function, rollup.input.mode, args)?;
        let note = OutputAnnotation::new(ctx, rollup, &kernel, &origin);
        let cause = output_annotation::cause(rollup, &kernel, &origin);
        let ranges = ranges(&rollup.input);
        let how = Method { kernel, histograms: function.histograms, note, cause };
        let drops_name = function.names != Names::Kept;
        let mut operator = RollupOperator::build(ctx, steps, origin, ranges, how, drops_name)?;
        operator.seen = rollup.input.seen.filter(|_| !operator.has_effects());
        Ok(operator)
    }

    /// Declares that all steps matter.
    pub fn see_all_steps(&mut self) {
        self.seen = None;
    }

    /// Returns the operator of a `smoothed` instant selector at `span`.
    pub fn smoothed_lookup(
        ctx: &Context,
        steps: Steps,
        lookup: &Lookup,
        span: Span,
        set: Arc<dyn SeriesSet>,
    ) -> Result<RollupOperator, QueryError> {
        let Lookup { times, reach, .. } = *lookup;
        let ranges = Ranges { times, range_ms: 0, margin: reach };
        let how = Method {
            kernel: RollupKernel::SmoothedLookup,
            histograms: Histograms::Kept,
            note: OutputAnnotation::None,
            cause: span.into(),
        };
        RollupOperator::build(ctx, steps, Origin::Set(set), ranges, how, false)
    }

    /// Returns an operator that counts the samples of each range, including samples that its mode
    /// needs outside the range. A histogram counts by its size.
    pub fn range_sizes(
        ctx: &Context,
        steps: Steps,
        input: &RangeInput,
        origin: Origin,
    ) -> Result<RollupOperator, QueryError> {
        let how = Method {
            kernel: RollupKernel::Size,
            histograms: Histograms::Compared,
            note: OutputAnnotation::None,
            cause: input.span.into(),
        };
        RollupOperator::build(ctx, steps, origin, ranges(input), how, false)
    }

    /// Returns whether `count` steps from a step on do not matter.
    fn is_unseen(&self, first_step: usize, count: usize) -> bool {
        self.seen.is_some_and(|seen| self.ranges.times.are_outside(&seen, first_step, count))
    }

    fn build(
        ctx: &Context,
        steps: Steps,
        origin: Origin,
        ranges: Ranges,
        how: Method,
        drop_name: bool,
    ) -> Result<RollupOperator, QueryError> {
        let Method { kernel, histograms, note, cause } = how;
        let count = match &origin {
            Origin::Set(set) => set.len(),
            Origin::Operator(operator) => operator.series().len(),
        };
        let reservation = Reservation::new(&ctx.budget, (count * size_of::<SeriesMeta>()) as u64)?;
        let series = origin.series(ctx, drop_name);
        let is_subquery = matches!(origin, Origin::Operator(_));
        Ok(RollupOperator {
            gives_histograms: histograms == Histograms::Kept,
            seen: None,
            mixing: Mixing::new(&kernel, histograms, ctx.uses_start_timestamps, is_subquery, cause),
            takes_histograms: origin.has_histograms(),
            ctx: ctx.clone(),
            origin,
            series,
            steps,
            ranges,
            kernel,
            note,
            spare: Mutex::default(),
            _reservation: reservation,
        })
    }
}

fn ranges(input: &RangeInput) -> Ranges {
    Ranges { times: input.times, range_ms: input.range_ms, margin: input.margin }
}

/// Checks that the function supports the mode of its range.
///
/// Source: `AnchoredSafeFunctions` and `SmoothedSafeFunctions` of Prometheus.
fn check_mode(function: &Function, mode: RangeMode) -> Result<(), QueryError> {
    let (word, least) = match mode {
        RangeMode::Plain => return Ok(()),
        RangeMode::Anchored => ("anchored", RangeModes::Anchored),
        RangeMode::Smoothed => ("smoothed", RangeModes::AnchoredOrSmoothed),
    };
    if function.modes >= least {
        return Ok(());
    }
    let takers = catalog::all().iter().filter(|function| function.modes >= least);
    Err(QueryError::Execution(format!(
        "{word} modifier can only be used with: {} - not with {}",
        takers.map(|function| function.name).collect::<Vec<_>>().join(", "),
        function.name
    )))
}

impl VectorOperator for RollupOperator {
    fn series(&self) -> &[SeriesMeta] {
        self.origin.metas(&self.ctx, &self.series)
    }

    fn steps(&self) -> Steps {
        self.steps
    }

    fn is_sorted(&self) -> bool {
        self.series.are_sorted
    }

    fn derived(&self) -> Option<DerivedOfSeries<'_>> {
        let Origin::Set(set) = &self.origin else { return None };
        self.series.derived(&self.ctx, &**set)
    }

    fn has_effects(&self) -> bool {
        let is_pure_origin = match &self.origin {
            Origin::Set(_) => true,
            Origin::Operator(operator) => !operator.has_effects(),
        };
        let is_pure = matches!(self.note, OutputAnnotation::None)
            && !matches!(self.kernel, RollupKernel::Smoothing { .. })
            && !self.mixing.has_effects(self.takes_histograms);
        !(is_pure && is_pure_origin)
    }

    fn has_histograms(&self) -> bool {
        self.takes_histograms && self.gives_histograms
    }

    fn row_work(&self) -> usize {
        let inner = match &self.origin {
            Origin::Set(_) => 0,
            Origin::Operator(operator) => operator.row_work(),
        };
        self.steps.count.saturating_add(inner)
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        self.open_reader(series)
    }
}

/// Returns the distances that a range reaches back and ahead, including its margin.
fn whole_reach(input: &RangeInput) -> Reach {
    let back_ms = input.range_ms.saturating_add(input.margin.back_ms);
    Reach { back_ms, ahead_ms: input.margin.ahead_ms }
}
