//! Join of two vectors whose label sets do not determine the pairs of series. The pairs depend on
//! the series present at each step; an ambiguous step is an error. Both sides are materialized.
//!
//! ```text
//! for each match group, for each active step:
//!   more than one series of the one side         -> error
//!   for each series of the many side:
//!     match = the one side, else its fill, else skip
//!     a second result of the group that conflicts -> error
//!     result kept if the operator keeps it
//!   no series of the many side matched           -> result with the many side's fill
//! ```
//!
//! The error of the earliest step is reported.

use hashbrown::HashMap;
use model::{Checkpoint, Labels};

use crate::error::QueryError;
use crate::exec::adapter::unique::SAME_LABELSET;
use crate::exec::matrix::found_rows::FoundRows;
use crate::exec::matrix::{Matrix, materialize};
use crate::exec::operator::{Context, SeriesMeta, VectorOperator};
use crate::parse::ast::Cardinality;
use crate::result::SampleValue;
use crate::tile::{is_present, mark_histograms};

use super::join::Operation;
use super::matching::Groups;
use super::mixed::{Cell, StepNotes, pair};

/// Evaluates an operation step by step.
///
/// Errors: an ambiguous step, with Prometheus' message, and the limits of the query.
/// Source: `VectorBinop` of Prometheus.
pub(super) fn evaluate(
    ctx: &Context,
    operation: &Operation<'_>,
    groups: &Groups,
    lhs: &dyn VectorOperator,
    rhs: &dyn VectorOperator,
) -> Result<Matrix, QueryError> {
    let lhs_matrix = materialize(ctx, lhs)?;
    let rhs_matrix = materialize(ctx, rhs)?;
    let is_swapped = operation.is_swapped();
    let (many, one) =
        if is_swapped { (&rhs_matrix, &lhs_matrix) } else { (&lhs_matrix, &rhs_matrix) };
    let (many_groups, one_groups) =
        if is_swapped { (&groups.rhs, &groups.lhs) } else { (&groups.lhs, &groups.rhs) };
    let many_members = members(many_groups, groups.count);
    let one_members = members(one_groups, groups.count);
    let mut checkpoint = Checkpoint::new(&ctx.budget);
    let mut evaluation = Evaluation {
        ctx,
        operation,
        many,
        one,
        active: active_steps(operation, many, one, &mut checkpoint)?,
        results: FoundRows::new(ctx, many.steps())?,
        latest: Vec::new(),
        refusal: None,
        notes: StepNotes::default(),
        checkpoint,
    };
    for (group, (many_members, one_members)) in many_members.iter().zip(&one_members).enumerate() {
        evaluation.group(group, many_members, one_members)?;
    }
    evaluation.notes.report(ctx, operation.binary.op, operation.span);
    match evaluation.refusal {
        Some(refusal) => Err(QueryError::Execution(refusal.message)),
        None => evaluation.results.into_matrix(ctx),
    }
}

/// Returns the series of every group, in the order of groups.
fn members(groups: &[u32], count: usize) -> Vec<Vec<u32>> {
    let mut members = vec![Vec::new(); count];
    for (index, group) in groups.iter().enumerate() {
        members[*group as usize].push(index as u32);
    }
    members
}

/// Returns the steps at which the operation is evaluated: both vectors have values, or one vector
/// has values and the other is filled.
fn active_steps(
    operation: &Operation<'_>,
    many: &Matrix,
    one: &Matrix,
    checkpoint: &mut Checkpoint,
) -> Result<Vec<u64>, QueryError> {
    let mut anything = |matrix: &Matrix| -> Result<Vec<u64>, QueryError> {
        let mut any = vec![0; matrix.steps().count.div_ceil(64)];
        for index in 0..matrix.series().len() {
            checkpoint.work(1 + any.len())?;
            any.iter_mut().zip(matrix.row(index).1).for_each(|(any, word)| *any |= word);
            mark_histograms(&mut any, 0, matrix.histograms(index));
        }
        Ok(any)
    };
    let matching = operation.matching;
    let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
    let mut active = anything(many)?;
    for (word, one) in active.iter_mut().zip(anything(one)?) {
        *word = if fills { *word | one } else { *word & one };
    }
    Ok(active)
}

/// Error of an ambiguous step; the one with the lowest `order` is reported.
struct Refusal {
    order: RefusalOrder,
    message: String,
}

/// Position of a refusal; Prometheus reports the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RefusalOrder {
    step: usize,
    phase: u8,
    place: u32,
}

/// A match group at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GroupStep {
    group: usize,
    step: usize,
}

struct Evaluation<'a> {
    ctx: &'a Context,
    operation: &'a Operation<'a>,
    many: &'a Matrix,
    one: &'a Matrix,
    /// One bit per step: whether it is evaluated.
    active: Vec<u64>,
    results: FoundRows,
    /// Group and step of the latest value of each result.
    latest: Vec<Option<GroupStep>>,
    refusal: Option<Refusal>,
    notes: StepNotes,
    checkpoint: Checkpoint,
}

/// An operand of a side: a series, or a fill value.
#[derive(Clone, Copy)]
struct Input<'a> {
    series: Option<u32>,
    value: Cell<'a>,
}

impl<'a> Input<'a> {
    /// Returns the value of a series at a step.
    fn at(matrix: &'a Matrix, index: u32, step: usize) -> Option<Input<'a>> {
        let (values, presence) = matrix.row(index as usize);
        let value = Cell::at(values, presence, matrix.histograms(index as usize), step)?;
        Some(Input { series: Some(index), value })
    }

    fn fill(value: f64) -> Input<'a> {
        Input { series: None, value: Cell::Float(value) }
    }
}

impl<'a> Evaluation<'a> {
    fn group(&mut self, group: usize, many: &[u32], one: &[u32]) -> Result<(), QueryError> {
        if one.is_empty() && self.operation.matching.fill_right.is_none() {
            return Ok(());
        }
        let mut slots = HashMap::default();
        for step in 0..self.many.steps().count {
            self.checkpoint.work(1)?;
            if !is_present(&self.active, step) || self.is_refused_before(step) {
                continue;
            }
            self.checkpoint.work(many.len() + one.len())?;
            let Some(one) = self.single(one, step) else { continue };
            let mut has_met = false;
            for index in many {
                let Some(many) = Input::at(self.many, *index, step) else { continue };
                let partner = one.or(self.operation.matching.fill_right.map(Input::fill));
                if let Some(partner) = partner {
                    has_met |=
                        self.meet(GroupStep { group, step }, many, partner, has_met, &mut slots)?;
                }
            }
            if let (Some(one), Some(value)) = (one, self.operation.matching.fill_left)
                && !has_met
            {
                let many = Input::fill(value);
                self.meet(GroupStep { group, step }, many, one, false, &mut slots)?;
            }
        }
        Ok(())
    }

    /// Returns the only series of the one side that is present at a step, if any. The outer `None`
    /// means that two are present.
    fn single(&mut self, one: &[u32], step: usize) -> Option<Option<Input<'a>>> {
        let mut found: Option<Input<'a>> = None;
        for index in one {
            let Some(input) = Input::at(self.one, *index, step) else { continue };
            if let Some(Input { series: Some(earlier), .. }) = found {
                let message = self.duplicate_message(*index, earlier);
                self.refuse(RefusalOrder { step, phase: 0, place: *index }, message);
                return None;
            }
            found = Some(input);
        }
        Some(found)
    }

    fn duplicate_message(&self, one: u32, other: u32) -> String {
        let labels = |index: u32| &self.one.series()[index as usize].labels;
        let (first, second) = (labels(one).min(labels(other)), labels(one).max(labels(other)));
        let side = if self.operation.is_swapped() { "left" } else { "right" };
        format!(
            "found duplicate series for the match group {} on the {side} hand-side of the \
             operation: [{}, {}];many-to-many matching not allowed: matching labels must be \
             unique on one side",
            self.operation.listed.group_labels(first),
            first,
            second,
        )
    }

    /// Computes one result of a group at a step; `has_met` is false for the group's first result.
    /// Returns whether the pair counts as matched.
    fn meet(
        &mut self,
        at: GroupStep,
        many: Input<'_>,
        one: Input<'_>,
        has_met: bool,
        slots: &mut HashMap<(Option<u32>, Option<u32>), u32, foldhash::fast::RandomState>,
    ) -> Result<bool, QueryError> {
        let GroupStep { group, step } = at;
        // For an instant query, Prometheus removes names before it checks for label sets that
        // several groups produce.
        let is_checked_later = self.ctx.delayed_name_removal && self.many.steps().count == 1;
        let realm = if is_checked_later { group as u32 } else { 0 };
        let binary = self.operation.binary;
        let place = (u8::from(many.series.is_none()), many.series.or(one.series).unwrap_or(0));
        let (lhs, rhs) = if self.operation.is_swapped() {
            (one.value, many.value)
        } else {
            (many.value, one.value)
        };
        let paired = match pair(binary.op, lhs, rhs) {
            Ok(paired) => paired,
            Err(note) => {
                self.notes.add(step, place, note);
                return Ok(false);
            }
        };
        if let Some(note) = paired.note {
            self.notes.add(step, place, note);
        }
        let slot = match slots.get(&(many.series, one.series)) {
            Some(slot) => *slot,
            None => {
                let meta = self.result(many.series, one.series);
                let slot = self.results.slot(meta, realm, place)?;
                slots.insert((many.series, one.series), slot);
                slot
            }
        };
        let is_one_to_one = self.operation.matching.cardinality == Cardinality::OneToOne;
        if is_one_to_one && has_met {
            let message = "multiple matches for labels: many-to-one matching must be explicit \
                           (group_left/group_right)";
            self.refuse(
                RefusalOrder { step, phase: 1 + place.0, place: place.1 },
                message.to_owned(),
            );
            return Ok(true);
        }
        if self.met_at(slot, at) {
            let message = "multiple matches for labels: grouping labels must ensure unique matches";
            self.refuse(
                RefusalOrder { step, phase: 1 + place.0, place: place.1 },
                message.to_owned(),
            );
            return Ok(true);
        }
        let value = if binary.is_bool {
            f64::from(u8::from(paired.holds)).into()
        } else if paired.holds {
            paired.value
        } else {
            return Ok(true);
        };
        let is_first = match value {
            SampleValue::Float(value) => self.results.set(slot, step, value),
            SampleValue::Histogram(histogram) => {
                self.results.set_histogram(slot, step, histogram)?
            }
        };
        if !is_first {
            self.refuse(RefusalOrder { step, phase: 3, place: 0 }, SAME_LABELSET.to_owned());
        }
        Ok(true)
    }

    /// Returns the result series of a pair; a filled side (`None`) has the labels of the match
    /// group.
    fn result(&self, many: Option<u32>, one: Option<u32>) -> SeriesMeta {
        let labels = |matrix: &Matrix, index: Option<u32>| {
            index.map(|index| matrix.series()[index as usize].labels.clone())
        };
        let (many, one) = (labels(self.many, many), labels(self.one, one));
        let of_group = |labels: &Option<Labels>| {
            labels
                .as_ref()
                .map_or_else(Labels::empty, |labels| self.operation.listed.group_labels(labels))
        };
        let many_labels = many.clone().unwrap_or_else(|| of_group(&one));
        let one_labels = one.unwrap_or_else(|| of_group(&many));
        self.operation.result(self.ctx, &many_labels, &one_labels)
    }

    /// Records that the group has a result in row `slot` at a step; returns whether it already had
    /// one.
    fn met_at(&mut self, slot: u32, at: GroupStep) -> bool {
        let slot = slot as usize;
        if self.latest.len() <= slot {
            self.latest.resize(slot + 1, None);
        }
        self.latest[slot].replace(at) == Some(at)
    }

    /// Returns whether an earlier step already has an error, so that errors of this step are
    /// irrelevant.
    fn is_refused_before(&self, step: usize) -> bool {
        self.refusal.as_ref().is_some_and(|refusal| refusal.order.step < step)
    }

    fn refuse(&mut self, order: RefusalOrder, message: String) {
        if self.refusal.as_ref().is_none_or(|refusal| order < refusal.order) {
            self.refusal = Some(Refusal { order, message });
        }
    }
}
