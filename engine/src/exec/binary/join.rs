//! Join of two vectors whose label sets determine the pairs of series: both sides stream.

use std::sync::{Mutex, PoisonError};

use hashbrown::{HashMap, HashSet};
use model::{Checkpoint, Labels, Reservation};

use crate::error::QueryError;
use crate::exec::matrix::gather::Gather;
use crate::exec::matrix::materialize;
use crate::exec::matrix::scan::drain;
use crate::exec::operator::{Context, SeriesMeta, TileReader, VectorOperator};
use crate::parse::ast::{Binary, BinaryOp, Cardinality, Matching, Span};
use crate::result::SampleValue;
use crate::steps::Steps;
use crate::tile::{Tile, set_present};

use super::kernel::{self, Side};
use super::matching::{Groups, Listed, changes_schema, result_labels};
use super::mixed::{Cell, PairAnnotation, StepNotes, pair};
use super::{keep_only, with_bits};

/// A binary operation on two vectors.
pub(super) struct Operation<'a> {
    /// Operator with its `bool`.
    pub(super) binary: &'a Binary,
    /// Vector matching.
    pub(super) matching: &'a Matching,
    /// Labels of `on` or `ignoring`.
    pub(super) listed: Listed<'a>,
    /// Position of the operation.
    pub(super) span: Span,
}

impl Operation<'_> {
    /// Returns whether the right side is the many side.
    pub(super) fn is_swapped(&self) -> bool {
        self.matching.cardinality == Cardinality::OneToMany
    }

    /// Returns the result series for the labels of a series of each side.
    pub(super) fn result(&self, ctx: &Context, many: &Labels, one: &Labels) -> SeriesMeta {
        let is_bool = self.binary.is_bool;
        let drops_name = is_bool && !ctx.delayed_name_removal;
        let (op, matching) = (self.binary.op, self.matching);
        let labels = result_labels(op, matching, &self.listed, drops_name, many, one);
        SeriesMeta { labels, drop_name: is_bool }
    }
}

/// Bytes of a pair without its labels, including its entries in the sets that detect duplicate
/// labels.
const PAIR_BYTES: usize = 2 * (size_of::<SeriesMeta>() + size_of::<(u32, u32, u32)>() + 8);

/// Pairs of series, each with its result series.
pub(super) struct Pairs {
    many: Vec<u32>,
    one: Vec<u32>,
    series: Vec<SeriesMeta>,
    /// Charge for the labels of the result series.
    reservation: Reservation,
}

impl Pairs {
    /// Pairs the series of both sides; `None` if a step may be ambiguous, or if the operation has
    /// fill values.
    ///
    /// Errors: the limits of the query.
    pub(super) fn new(
        ctx: &Context,
        operation: &Operation<'_>,
        groups: &Groups,
        lhs: &dyn VectorOperator,
        rhs: &dyn VectorOperator,
    ) -> Result<Option<Pairs>, QueryError> {
        let matching = operation.matching;
        if matching.fill_left.is_some() || matching.fill_right.is_some() {
            return Ok(None);
        }
        let ((many, many_groups), (one, one_groups)) = if operation.is_swapped() {
            ((rhs, &groups.rhs), (lhs, &groups.lhs))
        } else {
            ((lhs, &groups.lhs), (rhs, &groups.rhs))
        };
        let mut checkpoint = Checkpoint::new(&ctx.budget);
        let bytes = groups.count * size_of::<Option<u32>>();
        let _reservation = Reservation::new(&ctx.budget, bytes as u64)?;
        let mut one_of_group = vec![None; groups.count];
        for (index, group) in one_groups.iter().enumerate() {
            checkpoint.work(1)?;
            if one_of_group[*group as usize].replace(index as u32).is_some() {
                return Ok(None);
            }
        }
        let reservation = Reservation::new(&ctx.budget, 0)?;
        let mut pairs =
            Pairs { many: Vec::new(), one: Vec::new(), series: Vec::new(), reservation };
        for (index, group) in many_groups.iter().enumerate() {
            let Some(one_index) = one_of_group[*group as usize] else { continue };
            let many_labels = &many.series()[index].labels;
            let one_labels = &one.series()[one_index as usize].labels;
            pairs.many.push(index as u32);
            pairs.one.push(one_index);
            let meta = operation.result(ctx, many_labels, one_labels);
            let label_bytes = meta.labels.as_bytes().len();
            checkpoint.work(label_bytes + matching.include.len())?;
            pairs.reservation.grow((label_bytes + PAIR_BYTES) as u64)?;
            pairs.series.push(meta);
        }
        Ok(pairs.is_unambiguous(matching, &mut checkpoint)?.then_some(pairs))
    }

    /// Returns whether no two results can conflict: result series have different label sets, and
    /// for one-to-one, each series of the one side is in one pair.
    fn is_unambiguous(
        &self,
        matching: &Matching,
        checkpoint: &mut Checkpoint,
    ) -> Result<bool, QueryError> {
        if matching.cardinality == Cardinality::OneToOne {
            let mut ones: HashSet<u32, foldhash::fast::RandomState> = HashSet::default();
            for one in &self.one {
                checkpoint.work(1)?;
                if !ones.insert(*one) {
                    return Ok(false);
                }
            }
        }
        let mut labels: HashSet<&Labels, foldhash::fast::RandomState> = HashSet::default();
        for meta in &self.series {
            checkpoint.work(meta.labels.as_bytes().len())?;
            if !labels.insert(&meta.labels) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Streams the operation over the pairs.
///
/// Errors: errors of series without a match.
pub(super) fn stream(
    ctx: &Context,
    operation: &Operation<'_>,
    pairs: Pairs,
    lhs: Box<dyn VectorOperator>,
    rhs: Box<dyn VectorOperator>,
) -> Result<Box<dyn VectorOperator>, QueryError> {
    let is_swapped = operation.is_swapped();
    let (many, one) = if is_swapped { (rhs, lhs) } else { (lhs, rhs) };
    drain(ctx, &*many, &others(&*many, &pairs.many))?;
    drain(ctx, &*one, &others(&*one, &pairs.one))?;
    let is_mixed = many.has_histograms() || one.has_histograms();
    let join = Join {
        ctx: ctx.clone(),
        is_mixed,
        notes: Mutex::default(),
        op: operation.binary.op,
        is_bool: operation.binary.is_bool,
        span: operation.span,
        many_side: if is_swapped { Side::Right } else { Side::Left },
        many,
        one,
        pairs,
    };
    if !is_mixed {
        return Ok(Box::new(join));
    }
    // Only the last annotation of a step counts, so all pairs must be read first.
    let joined = materialize(ctx, &join)?;
    let notes = join.notes.into_inner().unwrap_or_else(PoisonError::into_inner);
    notes.report(ctx, join.op, join.span);
    Ok(Box::new(joined))
}

/// Returns the series of an operator that are not in `listed`.
fn others(operator: &dyn VectorOperator, listed: &[u32]) -> Vec<u32> {
    let mut is_listed = vec![false; operator.series().len()];
    listed.iter().for_each(|index| is_listed[*index as usize] = true);
    (0..is_listed.len() as u32).filter(|index| !is_listed[*index as usize]).collect()
}

struct Join {
    ctx: Context,
    op: BinaryOp,
    is_bool: bool,
    span: Span,
    many_side: Side,
    /// Whether a side may contain histograms.
    is_mixed: bool,
    /// Annotations of pairs of mixed rows.
    notes: Mutex<StepNotes>,
    many: Box<dyn VectorOperator>,
    one: Box<dyn VectorOperator>,
    pairs: Pairs,
}

impl VectorOperator for Join {
    fn series(&self) -> &[SeriesMeta] {
        &self.pairs.series
    }

    fn steps(&self) -> Steps {
        self.many.steps()
    }

    fn has_effects(&self) -> bool {
        self.is_trimming() || self.is_mixed || self.many.has_effects() || self.one.has_effects()
    }

    fn has_histograms(&self) -> bool {
        self.is_mixed
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        let many: Vec<u32> = series.iter().map(|i| self.pairs.many[*i as usize]).collect();
        let mut ones = Vec::new();
        let mut seen: HashMap<u32, usize, foldhash::fast::RandomState> = HashMap::default();
        let one_rows = series
            .iter()
            .map(|index| {
                let one = self.pairs.one[*index as usize];
                *seen.entry(one).or_insert_with(|| {
                    ones.push(one);
                    ones.len() - 1
                })
            })
            .collect();
        Box::new(JoinReader {
            join: self,
            many: self.many.open(&many),
            one: Gather::open(&self.ctx, &*self.one, &ones),
            one_rows,
            pairs: if self.is_mixed { series.to_vec() } else { Vec::new() },
            results: Vec::new(),
            first_step: 0,
        })
    }
}

struct JoinReader<'a> {
    join: &'a Join,
    many: Box<dyn TileReader + 'a>,
    one: Gather<'a>,
    /// For each row, the row of its match on the one side.
    one_rows: Vec<usize>,
    /// For each row, the index of its pair; empty if there are no histograms.
    pairs: Vec<u32>,
    /// Results of a mixed row that involve histograms, by step.
    results: Vec<(usize, SampleValue)>,
    first_step: usize,
}

impl TileReader for JoinReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        self.many.next_tile(step_count, tile)?;
        self.one.next(step_count)?;
        if self.join.is_mixed {
            let mut notes = StepNotes::default();
            for row in 0..self.one_rows.len() {
                self.join_mixed(row, tile, &mut notes);
            }
            self.join.notes.lock().unwrap_or_else(PoisonError::into_inner).merge(notes);
            self.first_step += step_count;
            return Ok(());
        }
        for (row, one_row) in self.one_rows.iter().enumerate() {
            let (values, presence) = tile.row_mut(row);
            let (other, present) = self.one.row(*one_row);
            keep_only(presence, present);
            self.join.apply(values, presence, other);
        }
        Ok(())
    }
}

impl JoinReader<'_> {
    /// Applies the operation to a row if it or its match may have histograms.
    fn join_mixed(&mut self, row: usize, tile: &mut Tile, notes: &mut StepNotes) {
        let join = self.join;
        let one_row = self.one_rows[row];
        let (other, present) = self.one.row(one_row);
        let partners = self.one.histograms(one_row);
        for step in 0..tile.steps() {
            let (values, presence) = tile.row(row);
            let many = Cell::at(values, presence, tile.histograms(row), step);
            let (Some(many), Some(one)) = (many, Cell::at(other, present, partners, step)) else {
                continue;
            };
            // Pairs of floats are computed in the loop below; annotations of trimming are added in
            // order.
            let are_floats = !many.is_histogram() && !one.is_histogram();
            if are_floats && !join.is_trimming() {
                continue;
            }
            let (lhs, rhs) = if join.many_side == Side::Left { (many, one) } else { (one, many) };
            let note = match pair(join.op, lhs, rhs) {
                Ok(paired) => {
                    if join.is_bool {
                        self.results.push((step, f64::from(u8::from(paired.holds)).into()));
                    } else if paired.holds {
                        self.results.push((step, paired.value));
                    }
                    paired.note
                }
                Err(note) => Some(note),
            };
            if let Some(note) = note {
                notes.add(self.first_step + step, (0, self.pairs[row]), note);
            }
        }
        let (values, presence) = tile.row_mut(row);
        keep_only(presence, present);
        if join.is_trimming() {
            presence.fill(0);
        } else {
            join.apply(values, presence, other);
        }
        if tile.has_histograms() {
            tile.histograms_mut(row).fill(None);
        }
        for (step, value) in self.results.drain(..) {
            match value {
                SampleValue::Float(value) => {
                    let (values, presence) = tile.row_mut(row);
                    values[step] = value;
                    set_present(presence, step);
                }
                SampleValue::Histogram(histogram) => tile.set_histogram(row, step, histogram),
            }
        }
    }
}

impl Join {
    fn is_trimming(&self) -> bool {
        !changes_schema(self.op) && !self.op.is_comparison()
    }

    /// Applies the operation to a row of the many side and to `other`, its match on the one side.
    fn apply(&self, values: &mut [f64], presence: &mut [u64], other: &[f64]) {
        if changes_schema(self.op) {
            kernel::arithmetic(self.op, self.many_side, values, other);
        } else if self.op.is_comparison() {
            with_bits(values.len(), |holds| match self.many_side {
                Side::Left => {
                    kernel::comparison(self.op, values, other, holds);
                    self.finish_comparison(values, presence, holds);
                }
                Side::Right => {
                    kernel::comparison(self.op, other, values, holds);
                    // A comparison returns the left operand, which is the row of the one side here.
                    values.copy_from_slice(&other[..values.len()]);
                    self.finish_comparison(values, presence, holds);
                }
            });
        } else {
            if presence.iter().any(|word| *word != 0) {
                PairAnnotation::Types("float", "float").report(&self.ctx, self.op, self.span);
            }
            presence.fill(0);
        }
    }

    fn finish_comparison(&self, values: &mut [f64], presence: &mut [u64], holds: &[u64]) {
        if self.is_bool {
            kernel::bits_to_values(holds, values);
        } else {
            keep_only(presence, holds);
        }
    }
}
