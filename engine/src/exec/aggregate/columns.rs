//! Aggregations that need all values of a group at once and therefore read columns.
//!
//! Small groups: threads read and reduce runs of whole groups, as many steps at a time as fit.
//! Besides the output, memory holds the tiles of one run per thread. Large groups: threads read the
//! stripes of all series for one tile's steps, then reduce the groups. Memory holds one tile per
//! stripe.

use std::ops::Range;

use model::hash::xxh64;
use model::{Checkpoint, Labels, Reservation};

use crate::error::QueryError;
use crate::exec::aggregate::block::{Block, COLUMNS, Stripe};
use crate::exec::aggregate::group::Groups;
use crate::exec::aggregate::outputs::{Output, assemble};
use crate::exec::aggregate::sieve::{Bounds, Sieve, around_best, around_quantile};
use crate::exec::aggregate::topk::{Cell, Heap};
use crate::exec::matrix::Matrix;
use crate::exec::numeric::quantile::quantile;
use crate::exec::operator::{Context, VectorOperator};
use crate::steps::Steps;
use crate::tile::{TILE_SERIES, Tile, TileShape, set_present, stripe_rows};

/// Values to take from each column; parameters are by step.
#[derive(Debug)]
pub(super) enum Pick {
    Quantile(Vec<f64>),
    Topk {
        k: Vec<f64>,
        is_top: bool,
    },
    Limitk(Vec<f64>),
    LimitRatio(Vec<f64>),
    CountValues {
        label: String,
        /// True if groups exclude that label, so that all values have the same result labels.
        is_dropped: bool,
    },
}

/// Maximum rows of a group that one thread reads and reduces: its tiles stay in L2.
const APART_ROWS_MAX: usize = 4 * TILE_SERIES;
/// Minimum rows of small groups that are read and reduced together: a quarter of a tile's, so that
/// more steps are read at once.
const RUN_ROWS_MIN: usize = TILE_SERIES / 4;
/// Maximum runs of groups that threads share.
const GROUP_RUNS: usize = 64;
/// Maximum rows of a group whose columns are not charged to the query's budget.
const SMALL_GROUP: usize = 1 << 10;
/// Minimum rows of a group to use bounds; in smaller groups, most values would be within them.
const SIEVED_MIN: usize = 24;
/// Work of reducing a cell, in units of adding it.
pub(super) const WORK_A_CELL: usize = 8;
/// Evaluates an aggregation over columns, in tiles of `shape`.
pub(super) fn reduce(
    ctx: &Context,
    steps: Steps,
    shape: TileShape,
    input: &dyn VectorOperator,
    groups: &Groups,
    pick: &Pick,
) -> Result<Matrix, QueryError> {
    let reducer = Reducer { ctx, steps, input, groups, pick };
    let _reservation = Reservation::new(&ctx.budget, (groups.len() * size_of::<Output>()) as u64)?;
    let is_apart = (0..groups.len()).all(|group| groups.rows(group).len() <= APART_ROWS_MAX);
    let outputs = if is_apart { reducer.apart(shape)? } else { reducer.together(shape)? };
    assemble(ctx, steps, input, groups, pick, outputs)
}

impl Reducer<'_> {
    /// Reduces runs of whole groups in parallel. The thread that reads a run also reduces it, while
    /// its tiles are in the CPU cache.
    fn apart(&self, shape: TileShape) -> Result<Vec<Output>, QueryError> {
        let ctx = self.ctx;
        let outputs = ctx.map(runs(self.groups).into_iter(), |run, thread| {
            let rows = self.groups.rows(run.start).start..self.groups.rows(run.end - 1).end;
            let shape = shape.of_rows(rows.len(), self.steps.count);
            let mut stripes = self.open(shape, rows.clone())?;
            let mut outputs = self.outputs(run.clone())?;
            let mut scratch = Scratch::new(ctx)?;
            let mut step = 0;
            while step < self.steps.count {
                let width = shape.steps.min(self.steps.count - step);
                for stripe in &mut stripes {
                    thread.yield_if_due()?;
                    stripe.reader.next_tile(width, &mut stripe.tile)?;
                }
                let block = Block::new(&stripes, shape, rows.start, step, width);
                for (group, output) in run.clone().zip(&mut outputs) {
                    thread.yield_if_due()?;
                    self.reduce(group, &block, output, &mut scratch)?;
                }
                step += width;
            }
            Ok(outputs)
        })?;
        Ok(outputs.into_iter().flatten().collect())
    }

    /// Reads all series for a tile's steps in parallel, then reduces all groups in parallel.
    fn together(&self, shape: TileShape) -> Result<Vec<Output>, QueryError> {
        let ctx = self.ctx;
        let mut stripes = self.open(shape, 0..self.groups.order.len())?;
        let mut outputs = self.outputs(0..self.groups.len())?;
        let run = outputs.len().div_ceil(GROUP_RUNS).max(1);
        let mut step = 0;
        while step < self.steps.count {
            ctx.budget.check()?;
            let width = shape.steps.min(self.steps.count - step);
            ctx.for_each(stripes.iter_mut(), |stripe, thread| {
                thread.yield_if_due()?;
                stripe.reader.next_tile(width, &mut stripe.tile)
            })?;
            let block = Block::new(&stripes, shape, 0, step, width);
            ctx.for_each(outputs.chunks_mut(run).enumerate(), |(index, outputs), thread| {
                let mut scratch = Scratch::new(ctx)?;
                let groups = index * run..;
                groups.zip(outputs).try_for_each(|(group, output)| {
                    thread.yield_if_due()?;
                    self.reduce(group, &block, output, &mut scratch)
                })
            })?;
            step += width;
        }
        Ok(outputs)
    }

    /// Opens readers of `rows` at the first step.
    fn open(&self, shape: TileShape, rows: Range<usize>) -> Result<Vec<Stripe<'_>>, QueryError> {
        let open = |series: &[u32]| {
            let shape = TileShape { series: series.len(), ..shape };
            let reservation = Reservation::new(&self.ctx.budget, Tile::bytes(shape))?;
            Ok(Stripe {
                reader: self.input.open(series),
                tile: Tile::new(shape),
                _reservation: reservation,
            })
        };
        self.groups.order[rows].chunks(shape.series).map(open).collect()
    }

    /// Returns an empty output for each of `groups`.
    fn outputs(&self, groups: Range<usize>) -> Result<Vec<Output>, QueryError> {
        let output = |group| Output::new(self.ctx, self.steps, self.pick, self.groups.rows(group));
        groups.map(output).collect()
    }
}

/// Divides the groups into the smallest runs allowed: with fewer rows, a tile covers more steps.
fn runs(groups: &Groups) -> Vec<Range<usize>> {
    let rows_min = stripe_rows(groups.order.len()).min(RUN_ROWS_MIN);
    let mut runs = Vec::new();
    let mut first = 0;
    for group in 0..groups.len() {
        let rows = groups.rows(group).end - groups.rows(first).start;
        if rows >= rows_min || group + 1 == groups.len() {
            runs.push(first..group + 1);
            first = group + 1;
        }
    }
    runs
}

/// Buffers that a thread reuses for each group.
struct Scratch {
    columns: [Vec<Cell>; COLUMNS],
    sieve: Sieve,
    column: Vec<Cell>,
    values: Vec<f64>,
    checkpoint: Checkpoint,
    reservation: Reservation,
    charged_rows: usize,
}

impl Scratch {
    fn new(ctx: &Context) -> Result<Scratch, QueryError> {
        Ok(Scratch {
            columns: Default::default(),
            sieve: Sieve::default(),
            column: Vec::new(),
            values: Vec::new(),
            checkpoint: Checkpoint::new(&ctx.budget),
            reservation: Reservation::new(&ctx.budget, 0)?,
            charged_rows: 0,
        })
    }

    /// Charges the budget for columns of `rows` rows.
    fn hold(&mut self, rows: usize) -> Result<(), QueryError> {
        // Growing vectors may have twice the needed capacity.
        const ROW_BYTES: usize = 2 * ((COLUMNS + 1) * size_of::<Cell>() + size_of::<f64>());
        if rows > SMALL_GROUP.max(self.charged_rows) {
            self.reservation.grow(((rows - self.charged_rows) * ROW_BYTES) as u64)?;
            self.charged_rows = rows;
        }
        Ok(())
    }
}

struct Reducer<'a> {
    ctx: &'a Context,
    steps: Steps,
    input: &'a dyn VectorOperator,
    groups: &'a Groups,
    pick: &'a Pick,
}

impl Reducer<'_> {
    fn reduce(
        &self,
        group: usize,
        block: &Block<'_>,
        output: &mut Output,
        scratch: &mut Scratch,
    ) -> Result<(), QueryError> {
        let rows = self.groups.rows(group);
        scratch.hold(rows.len())?;
        let is_sieved = rows.len() >= SIEVED_MIN;
        for first in (0..block.width).step_by(COLUMNS) {
            self.ctx.budget.check()?;
            let here = Here { block, rows: rows.clone(), first };
            match self.pick {
                Pick::Quantile(phi) if is_sieved => {
                    self.quantiles(&here, phi, output, scratch)?;
                }
                Pick::Topk { k, is_top } if is_sieved && self.steps.count > 1 => {
                    self.best(&here, k, *is_top, output, scratch)?;
                }
                _ => self.reduce_columns(&here, output, scratch)?,
            }
        }
        Ok(())
    }

    /// Gathers eight columns and reduces them one by one.
    fn reduce_columns(
        &self,
        here: &Here<'_>,
        output: &mut Output,
        scratch: &mut Scratch,
    ) -> Result<(), QueryError> {
        let mut columns = std::mem::take(&mut scratch.columns);
        here.block.gather(here.rows.clone(), here.first, &mut columns, &mut scratch.checkpoint)?;
        for (column, cells) in columns.iter().enumerate() {
            if !cells.is_empty() {
                self.reduce_column(here.step(column), cells, output, scratch)?;
            }
        }
        scratch.columns = columns;
        Ok(())
    }

    /// Computes the quantiles of eight columns; see [`sieve`](super::sieve).
    fn quantiles(
        &self,
        here: &Here<'_>,
        phi: &[f64],
        output: &mut Output,
        scratch: &mut Scratch,
    ) -> Result<(), QueryError> {
        let bounds = match output.bounds {
            Some(bounds) => bounds,
            None => {
                here.column(0, scratch)?;
                around_quantile(phi[here.step(0)], &mut scratch.values)
            }
        };
        output.bounds = Some(bounds);
        here.sift(bounds, scratch)?;
        for column in 0..here.width() {
            let step = here.step(column);
            if scratch.sieve.counts[column] == 0 {
                continue;
            }
            let found = scratch.sieve.quantile(column, phi[step], &mut scratch.values);
            let value = match found {
                Some(value) => value,
                None => {
                    output.bounds = None;
                    here.column(column, scratch)?;
                    scratch.checkpoint.work(scratch.values.len().saturating_mul(WORK_A_CELL))?;
                    quantile(phi[step], &mut scratch.values)
                }
            };
            output.set(0, self.steps, step, value)?;
        }
        if output.bounds.is_some() {
            let last = here.width() - 1;
            let phi = phi[here.step(last)];
            output.bounds = scratch.sieve.centred(last, phi, bounds, &mut scratch.values);
        }
        Ok(())
    }

    /// Selects the k best values of each of eight columns; see [`sieve`](super::sieve).
    fn best(
        &self,
        here: &Here<'_>,
        k: &[f64],
        is_top: bool,
        output: &mut Output,
        scratch: &mut Scratch,
    ) -> Result<(), QueryError> {
        let k_of = |column: usize| at_most(k[here.step(column)], self.groups);
        let bounds = match output.bounds {
            Some(bounds) => bounds,
            None => {
                here.column(0, scratch)?;
                around_best(k_of(0), is_top, &mut scratch.values)
            }
        };
        output.bounds = Some(bounds);
        here.sift(bounds, scratch)?;
        for column in 0..here.width() {
            let k = k_of(column);
            let count = scratch.sieve.counts[column];
            if k == 0 || count == 0 {
                continue;
            }
            let is_found = scratch.sieve.best(column, k, is_top);
            if !is_found || scratch.sieve.is_loose(column, k) {
                output.bounds = None;
            }
            let mut cells = std::mem::take(&mut scratch.sieve.between[column]);
            if !is_found {
                here.column(column, scratch)?;
                let checkpoint = &mut scratch.checkpoint;
                cells = best_of(&scratch.column, k, is_top, checkpoint)?.into_cells();
            }
            for cell in &cells {
                scratch.checkpoint.work(WORK_A_CELL)?;
                output.set(u64::from(cell.row), self.steps, here.step(column), cell.value)?;
            }
            scratch.sieve.between[column] = cells;
        }
        Ok(())
    }

    fn reduce_column(
        &self,
        step: usize,
        column: &[Cell],
        output: &mut Output,
        scratch: &mut Scratch,
    ) -> Result<(), QueryError> {
        let steps = self.steps;
        let checkpoint = &mut scratch.checkpoint;
        checkpoint.work(column.len().saturating_mul(WORK_A_CELL))?;
        match self.pick {
            Pick::Quantile(phi) => {
                scratch.values.clear();
                scratch.values.extend(column.iter().map(|entry| entry.value));
                output.set(0, steps, step, quantile(phi[step], &mut scratch.values))
            }
            Pick::Topk { k, is_top } => {
                let k = at_most(k[step], self.groups);
                if k == 0 {
                    return Ok(());
                }
                let heap = best_of(column, k, *is_top, checkpoint)?;
                for entry in heap.into_sorted(checkpoint)? {
                    checkpoint.work(WORK_A_CELL)?;
                    output.set(u64::from(entry.row), steps, step, entry.value)?;
                }
                Ok(())
            }
            Pick::Limitk(k) => {
                for entry in column.iter().take(at_most(k[step], self.groups)) {
                    checkpoint.work(WORK_A_CELL)?;
                    output.set(u64::from(entry.row), steps, step, entry.value)?;
                }
                Ok(())
            }
            Pick::LimitRatio(ratio) => {
                let ratio = ratio[step].clamp(-1.0, 1.0);
                for entry in column {
                    checkpoint.work(WORK_A_CELL)?;
                    let series = self.groups.order[entry.row as usize] as usize;
                    if is_sampled(ratio, &self.input.series()[series].labels) {
                        output.set(u64::from(entry.row), steps, step, entry.value)?;
                    }
                }
                Ok(())
            }
            Pick::CountValues { is_dropped, .. } => {
                for entry in column {
                    checkpoint.work(WORK_A_CELL)?;
                    let value = if entry.value.is_nan() { f64::NAN } else { entry.value };
                    let key = if *is_dropped { 0 } else { value.to_bits() };
                    let row = output.row(key, steps)?;
                    let is_first = row.presence[step / 64] >> (step % 64) & 1 == 0;
                    row.values[step] = if is_first { 1.0 } else { row.values[step] + 1.0 };
                    set_present(&mut row.presence, step);
                }
                Ok(())
            }
        }
    }
}

/// Rows of a block to reduce at up to eight steps from `first` on.
struct Here<'a> {
    block: &'a Block<'a>,
    rows: Range<usize>,
    first: usize,
}

impl Here<'_> {
    /// Returns the number of steps that are reduced together.
    fn width(&self) -> usize {
        COLUMNS.min(self.block.width - self.first)
    }

    /// Returns the index of a column's step in the whole query.
    fn step(&self, column: usize) -> usize {
        self.block.step + self.first + column
    }

    /// Collects all values of a column into `scratch.column`.
    fn column(&self, column: usize, scratch: &mut Scratch) -> Result<(), QueryError> {
        let Scratch { column: cells, values, checkpoint, .. } = scratch;
        self.block.column(self.rows.clone(), self.first + column, cells, checkpoint)?;
        values.clear();
        values.extend(cells.iter().map(|cell| cell.value));
        Ok(())
    }

    /// Collects the values between `bounds` into the sieve.
    fn sift(&self, bounds: Bounds, scratch: &mut Scratch) -> Result<(), QueryError> {
        let Scratch { sieve, checkpoint, .. } = scratch;
        sieve.sift(self.block, self.rows.clone(), self.first, bounds, checkpoint)
    }
}

/// Returns the `k` best values of a column; `k` is at least 1.
fn best_of(
    column: &[Cell],
    k: usize,
    is_top: bool,
    checkpoint: &mut Checkpoint,
) -> Result<Heap, QueryError> {
    let mut heap = Heap::new(is_top);
    for entry in column {
        checkpoint.work(1)?;
        heap.offer(*entry, k);
    }
    Ok(heap)
}

/// Converts a parameter to a count: truncates it and limits it to the number of series.
pub(super) fn at_most(k: f64, groups: &Groups) -> usize {
    (k.max(0.0) as usize).min(groups.order.len())
}

/// Returns whether a ratio keeps the series.
///
/// Source: `AddRatioSampleWithOffset` of Prometheus.
pub(super) fn is_sampled(ratio: f64, labels: &Labels) -> bool {
    let offset = xxh64(labels.as_bytes()) as f64 / u64::MAX as f64;
    (ratio >= 0.0 && offset < ratio) || (ratio < 0.0 && offset >= 1.0 + ratio)
}
