//! Operators of which an operand is a native histogram.
//!
//! ```text
//! histogram + histogram, histogram - histogram    histogram
//! histogram == histogram, histogram != histogram  the left one, if it passes
//! histogram * float, float * histogram            histogram
//! histogram / float                               histogram
//! histogram </ float, histogram >/ float          histogram
//! all else                                        nothing, and a note
//! ```
//!
//! Source: `vectorElemBinop` of Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Histogram;

use crate::exec::adapter::elementwise::{HistogramKernel, HistogramRule};
use crate::exec::operator::Context;
use crate::parse::ast::{BinaryOp, Span};
use crate::result::SampleValue;
use crate::tile::{HistogramCell, is_present};

use super::kernel::{self, Side};

/// Value of a series at a step.
#[derive(Clone, Copy)]
pub(super) enum Cell<'a> {
    Float(f64),
    Histogram(&'a Arc<Histogram>),
}

impl<'a> Cell<'a> {
    /// Returns the value of a row at a step; the histograms may be empty.
    #[inline]
    pub(super) fn at(
        values: &[f64],
        presence: &[u64],
        histograms: &'a [HistogramCell],
        step: usize,
    ) -> Option<Cell<'a>> {
        if is_present(presence, step) {
            return Some(Cell::Float(values[step]));
        }
        histograms.get(step)?.as_ref().map(Cell::Histogram)
    }

    pub(super) fn is_histogram(&self) -> bool {
        matches!(self, Cell::Histogram(_))
    }

    fn kind(self) -> &'static str {
        if self.is_histogram() { "histogram" } else { "float" }
    }
}

/// Annotation of an operator about two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairAnnotation {
    /// It does not act on such a pair; the kinds of both.
    Types(&'static str, &'static str),
    /// One has custom buckets, the other exponential ones.
    Layouts,
    /// One was reset, the other was not.
    Resets,
    /// The result has the custom bounds that both had.
    Bounds,
}

impl PairAnnotation {
    /// Adds the note to those of the query.
    pub(super) fn report(self, ctx: &Context, op: BinaryOp, span: Span) {
        let operation = if op == BinaryOp::Add { "addition" } else { "subtraction" };
        let op = op.as_str();
        match self {
            PairAnnotation::Types(lhs, rhs) => ctx.info(
                format!(
                    "incompatible sample types encountered for binary operator \"{op}\": \
                     {lhs} {op} {rhs}"
                ),
                span,
            ),
            PairAnnotation::Layouts => ctx.warn(
                format!("incompatible bucket layout encountered for binary operator {op}"),
                span,
            ),
            PairAnnotation::Resets => {
                ctx.warn(format!("conflicting counter resets during histogram {operation}"), span);
            }
            PairAnnotation::Bounds => ctx.info(
                format!("mismatched custom buckets were reconciled during {operation}"),
                span,
            ),
        }
    }
}

/// Result for two operands.
pub(super) struct Paired {
    /// The result; of a comparison its left operand.
    pub(super) value: SampleValue,
    /// True if a comparison holds; true for other operators.
    pub(super) holds: bool,
    /// Annotation about the operands.
    pub(super) note: Option<PairAnnotation>,
}

impl Paired {
    fn of(value: impl Into<SampleValue>) -> Paired {
        Paired { value: value.into(), holds: true, note: None }
    }
}

/// One operator on two operands, neither of them a set.
///
/// Errors: a note alone, where they give nothing. Conflicting resets are among that, as they are
/// in Prometheus.
pub(super) fn pair(op: BinaryOp, lhs: Cell<'_>, rhs: Cell<'_>) -> Result<Paired, PairAnnotation> {
    use BinaryOp::{Add, Eq, Mul, Ne, Sub, TrimLower, TrimUpper};
    match (op, lhs, rhs) {
        (TrimLower | TrimUpper, Cell::Float(_), _) => {
            Err(PairAnnotation::Types(lhs.kind(), rhs.kind()))
        }
        (_, Cell::Float(lhs), Cell::Float(rhs)) => {
            let (value, holds) = kernel::pair(op, lhs, rhs);
            Ok(Paired { holds, ..Paired::of(value) })
        }
        (Mul, Cell::Float(factor), Cell::Histogram(histogram)) => {
            Ok(Paired::of(scaled(histogram, |h| h.mul(factor))))
        }
        (_, Cell::Histogram(histogram), Cell::Float(number)) => {
            let changed = change(op, Side::Left, histogram, number);
            changed.map(Paired::of).ok_or(PairAnnotation::Types(lhs.kind(), rhs.kind()))
        }
        (Add | Sub, Cell::Histogram(lhs), Cell::Histogram(rhs)) => combine(op, lhs, rhs),
        (Eq | Ne, Cell::Histogram(lhs), Cell::Histogram(rhs)) => {
            let holds = lhs.equals(rhs) == (op == Eq);
            Ok(Paired { holds, ..Paired::of(Arc::clone(lhs)) })
        }
        _ => Err(PairAnnotation::Types(lhs.kind(), rhs.kind())),
    }
}

/// A sum or a difference.
fn combine(op: BinaryOp, lhs: &Histogram, rhs: &Histogram) -> Result<Paired, PairAnnotation> {
    let mut result = lhs.clone();
    let combined = if op == BinaryOp::Add { result.add(rhs) } else { result.sub(rhs) };
    let combined = combined.map_err(|_| PairAnnotation::Layouts)?;
    if combined.reset_collision {
        return Err(PairAnnotation::Resets);
    }
    if op == BinaryOp::Sub {
        result.reset_hint = model::ResetHint::Gauge;
    }
    result.compact(0);
    let note = combined.bounds_reconciled.then_some(PairAnnotation::Bounds);
    Ok(Paired { note, ..Paired::of(Arc::new(result)) })
}

/// A histogram changed by a number; `None` where the operator does not act on the two. `side`
/// is that of the histogram.
fn change(op: BinaryOp, side: Side, histogram: &Histogram, number: f64) -> Option<Arc<Histogram>> {
    Some(match (op, side) {
        (BinaryOp::Mul, _) => scaled(histogram, |h| h.mul(number)),
        (BinaryOp::Div, Side::Left) => scaled(histogram, |h| h.div(number)),
        (BinaryOp::TrimUpper, Side::Left) => trimmed(histogram, |h| h.trim_upper(number)),
        (BinaryOp::TrimLower, Side::Left) => trimmed(histogram, |h| h.trim_lower(number)),
        _ => return None,
    })
}

fn scaled(histogram: &Histogram, scale: impl FnOnce(&mut Histogram)) -> Arc<Histogram> {
    trimmed(histogram, |histogram| {
        scale(histogram);
        histogram.compact(0);
    })
}

fn trimmed(histogram: &Histogram, trim: impl FnOnce(&mut Histogram)) -> Arc<Histogram> {
    let mut changed = histogram.clone();
    trim(&mut changed);
    Arc::new(changed)
}

/// Returns the treatment of histograms under an operator with a scalar; `side` is the side
/// of the vector.
pub(super) fn with_scalars(
    ctx: &Context,
    op: BinaryOp,
    span: Span,
    scalars: Arc<[f64]>,
    side: Side,
) -> HistogramRule {
    let acts = op == BinaryOp::Mul
        || side == Side::Left
            && matches!(op, BinaryOp::Div | BinaryOp::TrimLower | BinaryOp::TrimUpper);
    if acts {
        let kernel: HistogramKernel = Box::new(move |first_step, histograms, _, _| {
            let scalars = &scalars[first_step..];
            for (cell, scalar) in histograms.iter_mut().zip(scalars) {
                *cell = cell.take().and_then(|histogram| change(op, side, &histogram, *scalar));
            }
        });
        return HistogramRule::Change(kernel);
    }
    let ctx = ctx.clone();
    let note = match side {
        Side::Left => PairAnnotation::Types("histogram", "float"),
        Side::Right => PairAnnotation::Types("float", "histogram"),
    };
    HistogramRule::Answer(Box::new(move |_, _, _, _| note.report(&ctx, op, span)))
}

/// The unary minus of histograms.
pub(super) fn negated() -> HistogramRule {
    HistogramRule::Change(Box::new(|_, histograms, _, _| {
        for cell in histograms.iter_mut() {
            *cell = cell.take().map(|histogram| trimmed(&histogram, |h| h.mul(-1.0)));
        }
    }))
}

/// The notes of some steps. Of all that is said at one step only what is said last counts, as in
/// Prometheus.
#[derive(Default)]
pub(super) struct StepNotes {
    /// The place of the pair and its note, by step.
    latest: BTreeMap<usize, ((u8, u32), PairAnnotation)>,
}

impl StepNotes {
    /// Takes a note of a pair at a step; places tell which pair comes last.
    pub(super) fn add(&mut self, step: usize, place: (u8, u32), note: PairAnnotation) {
        let latest = self.latest.entry(step).or_insert((place, note));
        if latest.0 <= place {
            *latest = (place, note);
        }
    }

    /// Takes the notes of other pairs.
    pub(super) fn merge(&mut self, others: StepNotes) {
        for (step, (place, note)) in others.latest {
            self.add(step, place, note);
        }
    }

    /// Adds the notes to those of the query.
    pub(super) fn report(self, ctx: &Context, op: BinaryOp, span: Span) {
        let mut said: Vec<PairAnnotation> = Vec::new();
        for (_, note) in self.latest.into_values() {
            if !said.contains(&note) {
                note.report(ctx, op, span);
                said.push(note);
            }
        }
    }
}
