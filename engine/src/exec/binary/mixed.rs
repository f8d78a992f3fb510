//! Operators with native histograms as operands.
//!
//! ```text
//! histogram + histogram, histogram - histogram    histogram
//! histogram == histogram, histogram != histogram  the left one, if the comparison holds
//! histogram * float, float * histogram            histogram
//! histogram / float                               histogram
//! histogram </ float, histogram >/ float          histogram
//! all else                                        no result, an annotation
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
    /// Returns the value of a row at a step; `histograms` may be empty.
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

/// Annotation of an operator applied to two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairAnnotation {
    /// The operator does not support the types of the left and the right value.
    Types(&'static str, &'static str),
    /// One histogram has custom buckets, the other exponential buckets.
    Layouts,
    /// One histogram is marked as reset, the other as not reset.
    Resets,
    /// Custom bounds differ; the result has only the common bounds.
    Bounds,
}

impl PairAnnotation {
    /// Adds the annotation to those of the query.
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

/// Result of an operator applied to two values.
pub(super) struct Paired {
    /// The value; for a comparison, the left operand.
    pub(super) value: SampleValue,
    /// True if a comparison holds; true for other operators.
    pub(super) holds: bool,
    /// Annotation in addition to the result.
    pub(super) note: Option<PairAnnotation>,
}

impl Paired {
    fn of(value: impl Into<SampleValue>) -> Paired {
        Paired { value: value.into(), holds: true, note: None }
    }
}

/// Applies one operator, except a set operator, to two values.
///
/// Errors: an annotation if there is no result. As in Prometheus, this includes conflicting resets.
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

/// Computes a sum or a difference.
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

/// Applies an operator to a histogram and a number; `None` if the operator does not support them.
/// `side` is the side of the histogram.
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

/// Returns the rule for histograms of a vector under an operator with a scalar; `side` is the side
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

/// Returns the rule of the unary minus for histograms.
pub(super) fn negated() -> HistogramRule {
    HistogramRule::Change(Box::new(|_, histograms, _, _| {
        for cell in histograms.iter_mut() {
            *cell = cell.take().map(|histogram| trimmed(&histogram, |h| h.mul(-1.0)));
        }
    }))
}

/// Annotations by step. As in Prometheus, only the last annotation of a step is reported.
#[derive(Default)]
pub(super) struct StepNotes {
    /// Position of the pair and its annotation, by step.
    latest: BTreeMap<usize, ((u8, u32), PairAnnotation)>,
}

impl StepNotes {
    /// Adds the annotation of a pair at a step; the pair with the highest position wins.
    pub(super) fn add(&mut self, step: usize, place: (u8, u32), note: PairAnnotation) {
        let latest = self.latest.entry(step).or_insert((place, note));
        if latest.0 <= place {
            *latest = (place, note);
        }
    }

    /// Adds the annotations of `others`.
    pub(super) fn merge(&mut self, others: StepNotes) {
        for (step, (place, note)) in others.latest {
            self.add(step, place, note);
        }
    }

    /// Adds the annotations to those of the query.
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
