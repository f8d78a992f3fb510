//! Aggregations that need all values of a group at once: they look at columns.
//!
//! All series are read for some steps at a time, stripe by stripe in parallel; then each group,
//! in parallel again, gathers its columns and reduces them. Beside the output only one tile a
//! stripe is held.

use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use model::Labels;
use model::hash::xxh64;
use model::watch::sort_by;

use crate::error::QueryError;
use crate::exec::aggregate::group::Groups;
use crate::exec::aggregate::topk::{Cell, Heap};
use crate::exec::charge::Charge;
use crate::exec::matrix::Matrix;
use crate::exec::operator::{Context, SeriesMeta, TileReader, VectorOperator};
use crate::exec::quantile::quantile;
use crate::exec::watch::Watch;
use crate::tile::{Tile, TileShape, set_present};
use crate::window::Steps;

/// What is taken from each column; parameters are one a step.
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
        /// The groups are without that label, so that all values fall into one.
        is_dropped: bool,
    },
}

/// So many columns are gathered in one pass over the rows: a cache line of each row.
const COLUMNS: usize = 8;
/// So many rows are gathered between two looks at the watch.
const ROWS_AT_ONCE: usize = 1 << 12;
/// At most so many runs of groups are shared among threads.
const GROUP_RUNS: usize = 64;
/// Columns of groups that have more rows are charged for.
const SMALL_GROUP: usize = 1 << 10;
/// Reducing a cell is so much more work than adding it.
const WORK_A_CELL: usize = 8;
/// What an output row takes beside its cells: its entry in a table that may be half full.
const ROW_BYTES: usize = 2 * size_of::<(u64, OutputRow)>();

/// Evaluates an aggregation over columns, out of tiles of a shape.
pub(super) fn reduce(
    ctx: &Context,
    steps: Steps,
    shape: TileShape,
    input: &dyn VectorOperator,
    groups: &Groups,
    pick: &Pick,
) -> Result<Matrix, QueryError> {
    let mut stripes = open(ctx, shape, input, groups)?;
    let reducer = Reducer { ctx, steps, input, groups, pick };
    let _charge = Charge::new(&ctx.budget, (groups.len() * size_of::<Output>()) as u64)?;
    let mut outputs: Vec<Output> = (0..groups.len())
        .map(|_| {
            Ok(Output {
                rows: HashMap::default(),
                ranked: Vec::new(),
                charge: Charge::new(&ctx.budget, 0)?,
            })
        })
        .collect::<Result<_, QueryError>>()?;
    let run = outputs.len().div_ceil(GROUP_RUNS).max(1);
    let mut step = 0;
    while step < steps.count {
        ctx.budget.check()?;
        let width = shape.steps.min(steps.count - step);
        ctx.for_each(stripes.iter_mut(), |stripe, pace| {
            pace.pause()?;
            stripe.reader.next_tile(width, &mut stripe.tile)
        })?;
        let tiles: Vec<&Tile> = stripes.iter().map(|stripe| &stripe.tile).collect();
        let block = Block { tiles: &tiles, height: shape.series, step, width };
        ctx.for_each(outputs.chunks_mut(run).enumerate(), |(index, outputs), pace| {
            let groups = index * run..;
            groups.zip(outputs).try_for_each(|(group, output)| {
                pace.pause()?;
                reducer.reduce(group, &block, output)
            })
        })?;
        step += width;
    }
    drop(stripes);
    assemble(ctx, steps, input, groups, pick, outputs)
}

/// Some rows with their reader and their current tile.
struct Stripe<'a> {
    reader: Box<dyn TileReader + 'a>,
    tile: Tile,
    _charge: Charge,
}

fn open<'a>(
    ctx: &Context,
    shape: TileShape,
    input: &'a dyn VectorOperator,
    groups: &Groups,
) -> Result<Vec<Stripe<'a>>, QueryError> {
    groups
        .order
        .chunks(shape.series)
        .map(|series| {
            let shape = TileShape { series: series.len(), ..shape };
            let charge = Charge::new(&ctx.budget, Tile::bytes(shape))?;
            Ok(Stripe { reader: input.open(series), tile: Tile::new(shape), _charge: charge })
        })
        .collect()
}

/// The tiles of all series for some steps.
struct Block<'a> {
    tiles: &'a [&'a Tile],
    /// Rows of each tile but the last.
    height: usize,
    /// The first step.
    step: usize,
    width: usize,
}

impl<'a> Block<'a> {
    fn row(&self, row: usize) -> (&'a [f64], &'a [u64]) {
        self.tiles[row / self.height].row(row % self.height)
    }

    /// The present values of some rows at up to [`COLUMNS`] steps from `first` on, a column each.
    ///
    /// Errors: those of the watch.
    fn gather(
        &self,
        rows: Range<usize>,
        first: usize,
        columns: &mut [Vec<Cell>; COLUMNS],
        watch: &mut Watch,
    ) -> Result<(), QueryError> {
        let width = COLUMNS.min(self.width - first);
        columns.iter_mut().for_each(Vec::clear);
        let mut next = rows.start;
        while next < rows.end {
            let run = next..rows.end.min(next + ROWS_AT_ONCE);
            watch.work(run.len() * COLUMNS)?;
            next = run.end;
            for row in run {
                let (values, presence) = self.row(row);
                let bits = presence[first / 64] >> (first % 64);
                let mut bits = (bits & 0xff) as usize;
                // A block of eight steps never crosses a presence word.
                while bits != 0 {
                    let column = bits.trailing_zeros() as usize;
                    if column < width {
                        let value = values[first + column];
                        columns[column].push(Cell { value, row: row as u32 });
                    }
                    bits &= bits - 1;
                }
            }
        }
        Ok(())
    }
}

/// What columns are reduced with, one after the other.
struct Scratch {
    values: Vec<f64>,
    watch: Watch,
}

/// The output rows of one group, by what tells them apart: the input row, or the value's bits.
struct Output {
    rows: HashMap<u64, OutputRow, RandomState>,
    /// Input rows best first, where there is only one step.
    ranked: Vec<u32>,
    charge: Charge,
}

struct OutputRow {
    values: Vec<f64>,
    presence: Vec<u64>,
}

impl Output {
    /// The row of a key, made where there is none yet.
    fn row(&mut self, key: u64, steps: Steps) -> Result<&mut OutputRow, QueryError> {
        match self.rows.entry(key) {
            Entry::Occupied(row) => Ok(row.into_mut()),
            Entry::Vacant(place) => {
                let words = steps.count.div_ceil(64);
                self.charge.grow(((steps.count + words) * 8 + ROW_BYTES) as u64)?;
                let row = OutputRow { values: vec![0.0; steps.count], presence: vec![0; words] };
                Ok(place.insert(row))
            }
        }
    }

    fn set(&mut self, key: u64, steps: Steps, step: usize, value: f64) -> Result<(), QueryError> {
        let row = self.row(key, steps)?;
        row.values[step] = value;
        set_present(&mut row.presence, step);
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
    ) -> Result<(), QueryError> {
        let mut columns: [Vec<Cell>; COLUMNS] = Default::default();
        let mut scratch = Scratch { values: Vec::new(), watch: Watch::new(&self.ctx.budget) };
        let rows = self.groups.rows(group);
        // Vectors that grow may have twice the room that they need.
        let row_bytes = 2 * (COLUMNS * size_of::<Cell>() + size_of::<f64>());
        let is_small = rows.len() <= SMALL_GROUP;
        let bytes = if is_small { 0 } else { rows.len() * row_bytes };
        let _charge = Charge::new(&self.ctx.budget, bytes as u64)?;
        for first in (0..block.width).step_by(COLUMNS) {
            self.ctx.budget.check()?;
            block.gather(rows.clone(), first, &mut columns, &mut scratch.watch)?;
            for (index, column) in columns.iter().enumerate() {
                if !column.is_empty() {
                    self.reduce_column(block.step + first + index, column, output, &mut scratch)?;
                }
            }
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
        let watch = &mut scratch.watch;
        watch.work(column.len().saturating_mul(WORK_A_CELL))?;
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
                let mut heap = Heap::new(*is_top);
                for entry in column {
                    watch.work(1)?;
                    heap.offer(*entry, k);
                }
                for entry in heap.into_sorted(watch)? {
                    watch.work(WORK_A_CELL)?;
                    output.set(u64::from(entry.row), steps, step, entry.value)?;
                    if steps.count == 1 {
                        output.ranked.push(entry.row);
                    }
                }
                Ok(())
            }
            Pick::Limitk(k) => {
                for entry in column.iter().take(at_most(k[step], self.groups)) {
                    watch.work(WORK_A_CELL)?;
                    output.set(u64::from(entry.row), steps, step, entry.value)?;
                }
                Ok(())
            }
            Pick::LimitRatio(ratio) => {
                let ratio = ratio[step].clamp(-1.0, 1.0);
                for entry in column {
                    watch.work(WORK_A_CELL)?;
                    let series = self.groups.order[entry.row as usize] as usize;
                    if is_sampled(ratio, &self.input.series()[series].labels) {
                        output.set(u64::from(entry.row), steps, step, entry.value)?;
                    }
                }
                Ok(())
            }
            Pick::CountValues { is_dropped, .. } => {
                for entry in column {
                    watch.work(WORK_A_CELL)?;
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

/// A parameter as a count: cut to an integer, and no more than there are series.
pub(super) fn at_most(k: f64, groups: &Groups) -> usize {
    (k.max(0.0) as usize).min(groups.order.len())
}

/// Whether a series is among those that a ratio keeps.
///
/// Source: `AddRatioSampleWithOffset` of Prometheus.
pub(super) fn is_sampled(ratio: f64, labels: &Labels) -> bool {
    let offset = xxh64(labels.as_bytes()) as f64 / u64::MAX as f64;
    (ratio >= 0.0 && offset < ratio) || (ratio < 0.0 && offset >= 1.0 + ratio)
}

fn assemble(
    ctx: &Context,
    steps: Steps,
    input: &dyn VectorOperator,
    groups: &Groups,
    pick: &Pick,
    outputs: Vec<Output>,
) -> Result<Matrix, QueryError> {
    let mut watch = Watch::new(&ctx.budget);
    let mut metas = Vec::new();
    let mut rows = Vec::new();
    let mut charges = Vec::new();
    for (group, mut output) in outputs.into_iter().enumerate() {
        let keys: Vec<u64> = if output.ranked.is_empty() {
            sort_by(output.rows.keys().copied().collect(), &mut watch, |_| 1, u64::cmp)?
        } else {
            output.ranked.iter().map(|row| u64::from(*row)).collect()
        };
        for key in keys {
            watch.work(WORK_A_CELL)?;
            let Some(row) = output.rows.remove(&key) else { continue };
            metas.push(match pick {
                Pick::Quantile(_) => groups.metas[group].clone(),
                Pick::CountValues { label, is_dropped } => {
                    let label = (!is_dropped).then_some(label.as_str());
                    let text = value_text(f64::from_bits(key));
                    let meta = counted(&groups.metas[group], label, &text);
                    let bytes = meta.labels.as_bytes().len() + size_of::<SeriesMeta>();
                    output.charge.grow(bytes as u64)?;
                    meta
                }
                Pick::Topk { .. } | Pick::Limitk(_) | Pick::LimitRatio(_) => {
                    input.series()[groups.order[key as usize] as usize].clone()
                }
            });
            rows.push(row);
        }
        charges.push(output.charge);
    }
    let mut matrix = Matrix::new(ctx, metas, steps)?;
    for (index, row) in rows.into_iter().enumerate() {
        watch.work(row.values.len())?;
        let (values, presence) = matrix.row_mut(index);
        values.copy_from_slice(&row.values);
        presence.copy_from_slice(&row.presence);
    }
    Ok(matrix)
}

/// The labels of a counted value, whose text stands in a label where there is one for it.
///
/// Source: `aggregationCountValues` of Prometheus.
pub(super) fn counted(group: &SeriesMeta, label: Option<&str>, text: &str) -> SeriesMeta {
    let mut labels = group.labels.to_builder();
    if let Some(label) = label {
        labels.set(label, text);
    }
    SeriesMeta { labels: labels.build(), drop_name: false }
}

/// The text of a counted number.
pub(super) fn value_text(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use model::{Budget, BudgetLimits};
    use proptest::prelude::*;

    use super::*;

    /// Rows of one width, each cell with a value that tells where it stands.
    fn rows() -> impl Strategy<Value = Vec<Vec<Option<f64>>>> {
        let width = prop_oneof![1usize..10, 62usize..67, 126usize..131];
        let percent = prop_oneof![Just(0), Just(100), Just(60)];
        (width, 1usize..9, percent).prop_flat_map(|(width, count, percent)| {
            let cell = (0..100, 0i32..9)
                .prop_map(move |(draw, n)| (draw < percent).then_some(f64::from(n)));
            prop::collection::vec(prop::collection::vec(cell, width), count)
        })
    }

    proptest! {
        #[test]
        fn gathered_columns_hold_what_is_present(rows in rows(), height in 1usize..5, skipped in 0usize..9) {
            let width = rows[0].len();
            let tiles: Vec<Tile> = rows
                .chunks(height)
                .map(|rows| {
                    let mut tile = Tile::new(TileShape { series: height, steps: width + 3 });
                    tile.reset(rows.len(), width);
                    for (index, row) in rows.iter().enumerate() {
                        let (values, presence) = tile.row_mut(index);
                        for (step, cell) in row.iter().enumerate() {
                            values[step] = cell.unwrap_or(f64::NAN);
                            if cell.is_some() {
                                set_present(presence, step);
                            }
                        }
                    }
                    tile
                })
                .collect();
            let tiles: Vec<&Tile> = tiles.iter().collect();
            let block = Block { tiles: &tiles, height, step: 0, width };
            let group = skipped.min(rows.len())..rows.len();
            let mut columns: [Vec<Cell>; COLUMNS] = Default::default();
            let mut watch = Watch::new(&Budget::new(BudgetLimits::default()));
            for first in (0..width).step_by(COLUMNS) {
                block.gather(group.clone(), first, &mut columns, &mut watch).unwrap();
                for (index, column) in columns.iter().enumerate() {
                    let cell = |row: usize| {
                        let value = (*rows[row].get(first + index)?)?;
                        Some(Cell { value, row: row as u32 })
                    };
                    prop_assert_eq!(column, &group.clone().filter_map(cell).collect::<Vec<_>>());
                }
            }
        }
    }
}
