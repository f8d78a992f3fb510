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
mod fold;
mod moments;
mod note;
mod ordered;
mod raw;
mod spread;
mod trend;

use std::sync::Arc;

use model::{Advance, Cursor, SampleBatch, SeriesSet};

use crate::error::QueryError;
use crate::exec::charge::Charge;
use crate::exec::operator::{Context, SeriesMeta, TileReader, VectorOperator};
use crate::exec::select::series_of;
use crate::exec::watch::{Intake, Watch};
use crate::parse::ast::RangeMode;
use crate::plan::{Instant, RangeInput, Rollup};
use crate::tile::{Tile, TileShape};
use crate::window::{Reach, Steps};

use buffer::{Buffer, Kernel, Ranges};
use counter::{Extrapolated, LastTwo, Neighbours, Resets};
use extended::{AnchoredNeighbours, ExtendedRate, SmoothedInstant};
use fold::{Border, Extreme, Fold};
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
    _charge: Charge,
}

/// A function with its parameters, one a step.
#[derive(Debug, Clone)]
enum Function {
    Rate { is_counter: bool, is_rate: bool },
    ExtendedRate { is_counter: bool, is_rate: bool, is_smoothed: bool },
    LastTwo { is_rate: bool },
    Neighbours { only_falls: bool },
    AnchoredNeighbours { only_falls: bool },
    Fold { is_mean: bool },
    Extreme { is_max: bool, is_time: bool },
    Border(Border),
    Variance { is_stddev: bool },
    Quantile { phi: Arc<[f64]> },
    Mad,
    Slope,
    Prediction { seconds: Arc<[f64]> },
    Smoothing { smoothing: Arc<[f64]>, trend: Arc<[f64]> },
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
        let ranges = ranges(&rollup.input);
        RollupOperator::build(ctx, steps, origin, ranges, function, note, !keeps_name)
    }

    /// An operator for an instant selector that is `smoothed`.
    pub fn smoothed_instant(
        ctx: &Context,
        steps: Steps,
        instant: &Instant,
        set: Arc<dyn SeriesSet>,
    ) -> Result<RollupOperator, QueryError> {
        let Instant { times, reach, .. } = *instant;
        let ranges = Ranges { times, range_ms: 0, margin: reach };
        let function = Function::SmoothedInstant;
        RollupOperator::build(ctx, steps, Origin::Set(set), ranges, function, Note::None, false)
    }

    /// An operator that gives how many samples are in each range, with what the mode of the
    /// range looks at beyond it.
    pub fn range_sizes(
        ctx: &Context,
        steps: Steps,
        input: &RangeInput,
        origin: Origin,
    ) -> Result<RollupOperator, QueryError> {
        let function = Function::Border(Border::Count);
        RollupOperator::build(ctx, steps, origin, ranges(input), function, Note::None, false)
    }

    fn build(
        ctx: &Context,
        steps: Steps,
        origin: Origin,
        ranges: Ranges,
        function: Function,
        note: Note,
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
        let ctx = ctx.clone();
        Ok(RollupOperator { ctx, origin, series, steps, ranges, function, note, _charge: charge })
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
        let is_pure =
            matches!(self.note, Note::None) && !matches!(self.function, Function::Smoothing { .. });
        !(is_pure && is_pure_origin)
    }

    fn has_histograms(&self) -> bool {
        false
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

impl RollupOperator {
    fn reader<'a, K: Kernel + 'a>(
        &'a self,
        series: &[u32],
        kernel: impl Fn() -> K,
    ) -> Box<dyn TileReader + 'a> {
        let rows = series
            .iter()
            .map(|series| Row { series: *series, buffer: Buffer::default(), kernel: kernel() })
            .collect();
        Box::new(RollupReader {
            operator: self,
            rows,
            feed: Feed::new(&self.ctx, &self.origin, series),
            step: 0,
            charged_bytes: 0,
            charge: None,
        })
    }
}

struct RollupReader<'a, K> {
    operator: &'a RollupOperator,
    rows: Vec<Row<K>>,
    feed: Feed<'a>,
    step: usize,
    charged_bytes: u64,
    charge: Option<Charge>,
}

/// One series of a reader.
struct Row<K> {
    series: u32,
    buffer: Buffer,
    kernel: K,
}

impl<K: Kernel> TileReader for RollupReader<'_, K> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        let operator = self.operator;
        operator.ctx.budget.check()?;
        tile.reset(self.rows.len(), step_count);
        let until_ms = operator.ranges.until_ms(self.step + step_count - 1);
        let are_decoded = matches!(self.feed, Feed::Cursors { .. });
        let mut intake = Intake::new(&operator.ctx.budget, are_decoded)?;
        let mut watch = Watch::new(&operator.ctx.budget);
        if let Feed::Grid(grid) = &mut self.feed {
            grid.pull(until_ms, &mut intake, |row, time_ms, value| {
                self.rows[row].buffer.push(time_ms, value);
            })?;
        }
        let mut bytes = 0;
        for (index, row) in self.rows.iter_mut().enumerate() {
            if let Feed::Cursors { cursors, batch } = &mut self.feed {
                take(&mut cursors[index], until_ms, batch, &mut intake, &mut row.buffer)?;
            }
            watch.work(step_count)?;
            let (values, presence) = tile.row_mut(index);
            let ranges = &operator.ranges;
            row.buffer.roll(&mut row.kernel, ranges, self.step, values, presence, &mut watch)?;
            if let Some(message) = row.kernel.error() {
                return Err(QueryError::Execution(message));
            }
            operator.note.take(&operator.ctx, row.series, self.step, presence);
            row.buffer.compact();
            bytes += row.buffer.bytes() + row.kernel.bytes();
        }
        intake.finish()?;
        self.charge_to(bytes)?;
        self.step += step_count;
        Ok(())
    }
}

impl<K> RollupReader<'_, K> {
    /// Charges what the buffers hold beyond what they held before.
    fn charge_to(&mut self, bytes: u64) -> Result<(), QueryError> {
        let more = bytes.saturating_sub(self.charged_bytes);
        self.charged_bytes += more;
        match &mut self.charge {
            Some(charge) => charge.grow(more),
            None => {
                self.charge = Some(Charge::new(&self.operator.ctx.budget, more)?);
                Ok(())
            }
        }
    }
}

/// Moves samples up to a bound from a cursor to a buffer.
fn take(
    cursor: &mut Option<Box<dyn Cursor + '_>>,
    until_ms: i64,
    batch: &mut SampleBatch,
    intake: &mut Intake,
    buffer: &mut Buffer,
) -> Result<(), QueryError> {
    while let Some(open) = cursor {
        batch.clear();
        let advance = open.next_batch(until_ms, batch)?;
        let (times, values) = batch.samples();
        intake.add(times.len())?;
        buffer.extend(times, values);
        match advance {
            Advance::Full => {}
            Advance::Reached => break,
            Advance::End => *cursor = None,
        }
    }
    Ok(())
}

/// Where the rows of a reader take their samples from.
enum Feed<'a> {
    /// One cursor a row; none where it has ended.
    Cursors { cursors: Vec<Option<Box<dyn Cursor + 'a>>>, batch: Box<SampleBatch> },
    /// Tiles of a subquery.
    Grid(GridFeed<'a>),
}

/// Tiles of a subquery's inner expression.
struct GridFeed<'a> {
    ctx: &'a Context,
    reader: Box<dyn TileReader + 'a>,
    steps: Steps,
    width: usize,
    row_count: usize,
    next_step: usize,
    tile: Option<(Tile, Charge)>,
}

impl<'a> Feed<'a> {
    fn new(ctx: &'a Context, origin: &'a Origin, series: &[u32]) -> Feed<'a> {
        match origin {
            Origin::Set(set) => Feed::Cursors {
                cursors: series.iter().map(|index| Some(set.cursor(*index as usize))).collect(),
                batch: SampleBatch::new(),
            },
            Origin::Operator(operator) => Feed::Grid(GridFeed {
                ctx,
                reader: operator.open(series),
                steps: operator.steps(),
                width: ctx.tile_shape_for(operator.steps()).steps,
                row_count: series.len(),
                next_step: 0,
                tile: None,
            }),
        }
    }
}

impl GridFeed<'_> {
    /// Hands over all values up to a bound, row by row in the order of time. Some beyond the
    /// bound may be among them.
    fn pull(
        &mut self,
        until_ms: i64,
        intake: &mut Intake,
        mut push: impl FnMut(usize, i64, f64),
    ) -> Result<(), QueryError> {
        while self.next_step < self.steps.count && self.steps.time(self.next_step) <= until_ms {
            let (tile, _charge) = match &mut self.tile {
                Some(tile) => tile,
                None => {
                    let shape = TileShape { series: self.row_count, steps: self.width };
                    let charge = Charge::new(&self.ctx.budget, Tile::bytes(shape))?;
                    self.tile.insert((Tile::new(shape), charge))
                }
            };
            let width = self.width.min(self.steps.count - self.next_step);
            self.reader.next_tile(width, tile)?;
            for row in 0..self.row_count {
                let (values, presence) = tile.row(row);
                intake.add(presence.iter().map(|word| word.count_ones() as usize).sum())?;
                for (word_index, word) in presence.iter().enumerate() {
                    let mut bits = *word;
                    while bits != 0 {
                        let index = word_index * 64 + bits.trailing_zeros() as usize;
                        push(row, self.steps.time(self.next_step + index), values[index]);
                        bits &= bits - 1;
                    }
                }
            }
            self.next_step += width;
        }
        Ok(())
    }
}

/// How far a range reaches in all.
fn whole_reach(input: &RangeInput) -> Reach {
    let back_ms = input.range_ms.saturating_add(input.margin.back_ms);
    Reach { back_ms, ahead_ms: input.margin.ahead_ms }
}
