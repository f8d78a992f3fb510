//! Binary operators and the unary minus.
//!
//! A scalar is applied to a vector elementwise, in place in the tile ([`kernel`]). Two vectors are
//! matched once by their label sets ([`matching`]), not at every step. If the label sets prove that
//! no step is ambiguous, the operands stream ([`join`]). Otherwise both are materialized, and
//! every step is matched by the series present ([`ambiguous`]). Set operators need only the match
//! groups present on one side ([`set`]). Native histograms have separate rules ([`mixed`]), which
//! rows of floats never check.

pub mod kernel;

mod ambiguous;
mod join;
mod matching;
mod mixed;
mod set;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::QueryError;
use crate::exec::adapter::elementwise::{Name, RowKernel, elementwise, elementwise_meeting};
use crate::exec::adapter::unique::{Meeting, unique};
use crate::exec::matrix::Matrix;
use crate::exec::matrix::scan::{all_series, scan};
use crate::exec::operator::{Context, Operand, VectorOperator};
use crate::parse::ast::{Binary, BinaryOp, Matching, Span};
use crate::steps::Steps;

use kernel::Side;
use mixed::{Cell, PairAnnotation, StepNotes};

/// Evaluates a binary operation on two evaluated operands.
///
/// Errors: ambiguous matches, with Prometheus' messages; limits of the query; errors of the
/// operands. Errors may also occur later, when tiles of the result are read.
/// Source: `promql/engine.go` of Prometheus.
pub fn evaluate(
    ctx: &Context,
    steps: Steps,
    binary: &Binary,
    span: Span,
    lhs: Operand,
    rhs: Operand,
) -> Result<Operand, QueryError> {
    match (lhs, rhs) {
        (Operand::Scalar(lhs), Operand::Scalar(rhs)) => scalars(binary.op, lhs, &rhs),
        (Operand::Vector(lhs), Operand::Scalar(rhs)) => {
            vector_scalar(ctx, binary, span, lhs, rhs, Side::Left)
        }
        (Operand::Scalar(lhs), Operand::Vector(rhs)) => {
            vector_scalar(ctx, binary, span, rhs, lhs, Side::Right)
        }
        (Operand::Vector(lhs), Operand::Vector(rhs)) => {
            debug_assert!(lhs.steps() == steps && rhs.steps() == steps);
            vectors(ctx, binary, span, lhs, rhs).map(Operand::Vector)
        }
        _ => Err(QueryError::Execution(
            "binary expression must contain only scalar and instant vector types".to_owned(),
        )),
    }
}

/// Evaluates the unary minus.
///
/// Errors: as for [`evaluate`].
pub fn negate(
    ctx: &Context,
    _steps: Steps,
    _span: Span,
    operand: Operand,
) -> Result<Operand, QueryError> {
    match operand {
        Operand::Scalar(mut values) => {
            values.iter_mut().for_each(|value| *value = -*value);
            Ok(Operand::Scalar(values))
        }
        Operand::Vector(input) => {
            let kernel: RowKernel =
                Box::new(|_, values, _| values.iter_mut().for_each(|value| *value = -*value));
            let rule = mixed::negated();
            elementwise_meeting(ctx, input, Name::Drop, kernel, rule, Meeting::Merged)
        }
        Operand::String(_) => Err(QueryError::Execution(
            "unary expression only allowed on expressions of type scalar or instant vector"
                .to_owned(),
        )),
    }
}

/// Evaluates two scalars; a comparison returns 1 or 0.
fn scalars(op: BinaryOp, mut lhs: Vec<f64>, rhs: &[f64]) -> Result<Operand, QueryError> {
    if op.is_comparison() {
        let mut holds = vec![0; lhs.len().div_ceil(64)];
        kernel::comparison(op, &lhs, rhs, &mut holds);
        kernel::bits_to_values(&holds, &mut lhs);
    } else if matching::changes_schema(op) {
        kernel::arithmetic(op, Side::Left, &mut lhs, rhs);
    } else {
        let message = format!("operator \"{}\" not allowed for Scalar operations", op.as_str());
        return Err(QueryError::Execution(message));
    }
    Ok(Operand::Scalar(lhs))
}

/// Evaluates a vector and a scalar; `side` is the side of the vector.
fn vector_scalar(
    ctx: &Context,
    binary: &Binary,
    span: Span,
    input: Box<dyn VectorOperator>,
    scalars: Vec<f64>,
    side: Side,
) -> Result<Operand, QueryError> {
    let op = binary.op;
    let scalars: Arc<[f64]> = scalars.into();
    let rule = mixed::with_scalars(ctx, op, span, Arc::clone(&scalars), side);
    if op.is_comparison() {
        let is_bool = binary.is_bool;
        let name = if is_bool { Name::Drop } else { Name::Keep };
        let kernel: RowKernel = Box::new(move |first_step, values, presence| {
            let scalars = &scalars[first_step..first_step + values.len()];
            with_bits(values.len(), |holds| {
                match side {
                    Side::Left => kernel::comparison(op, values, scalars, holds),
                    Side::Right => kernel::comparison(op, scalars, values, holds),
                }
                if is_bool {
                    kernel::bits_to_values(holds, values);
                } else {
                    keep_only(presence, holds);
                }
            });
        });
        return elementwise(ctx, input, name, kernel, rule);
    }
    if matching::changes_schema(op) {
        let kernel: RowKernel = Box::new(move |first_step, values, _| {
            let scalars = &scalars[first_step..first_step + values.len()];
            kernel::arithmetic(op, side, values, scalars);
        });
        return elementwise(ctx, input, Name::Drop, kernel, rule);
    }
    if side == Side::Right || !input.has_histograms() {
        return untrimmed(ctx, op, span, side, &*input);
    }
    let context = ctx.clone();
    let kernel: RowKernel = Box::new(move |_, _, presence| {
        if presence.iter().any(|word| *word != 0) {
            PairAnnotation::Types("float", "float").report(&context, op, span);
            presence.fill(0);
        }
    });
    elementwise(ctx, input, Name::Keep, kernel, rule)
}

/// Evaluates the unsupported trimming of floats or by a histogram: the result is empty, with an
/// info if there are values.
fn untrimmed(
    ctx: &Context,
    op: BinaryOp,
    span: Span,
    side: Side,
    input: &dyn VectorOperator,
) -> Result<Operand, QueryError> {
    debug_assert!(side == Side::Right || !input.has_histograms());
    let said: Mutex<StepNotes> = Mutex::default();
    scan(ctx, input, &all_series(input), |series, first_step, tile| {
        let mut notes = StepNotes::default();
        for (row, index) in series.iter().enumerate() {
            if tile.histograms(row).is_empty() && tile.row(row).1.iter().all(|word| *word == 0) {
                continue;
            }
            for step in 0..tile.steps() {
                let (values, presence) = tile.row(row);
                let Some(cell) = Cell::at(values, presence, tile.histograms(row), step) else {
                    continue;
                };
                let kind = if cell.is_histogram() { "histogram" } else { "float" };
                notes.add(first_step + step, (0, *index), PairAnnotation::Types("float", kind));
            }
        }
        said.lock().unwrap_or_else(PoisonError::into_inner).merge(notes);
    })?;
    said.into_inner().unwrap_or_else(PoisonError::into_inner).report(ctx, op, span);
    Ok(Operand::Vector(Box::new(Matrix::new(ctx, Vec::new(), input.steps())?)))
}

/// Evaluates two vectors.
fn vectors(
    ctx: &Context,
    binary: &Binary,
    span: Span,
    lhs: Box<dyn VectorOperator>,
    rhs: Box<dyn VectorOperator>,
) -> Result<Box<dyn VectorOperator>, QueryError> {
    let default = Matching {
        cardinality: crate::parse::ast::Cardinality::OneToOne,
        is_on: false,
        labels: Vec::new(),
        include: Vec::new(),
        fill_left: None,
        fill_right: None,
    };
    let matching = binary.matching.as_ref().unwrap_or(&default);
    let listed = matching::Listed::new(matching);
    let groups = matching::Groups::new(ctx, &listed, lhs.series(), rhs.series())?;
    if binary.op.is_set() {
        return set::evaluate(ctx, binary.op, &groups, lhs, rhs);
    }
    let operation = join::Operation { binary, matching, listed, span };
    match join::Pairs::new(ctx, &operation, &groups, &*lhs, &*rhs)? {
        Some(pairs) => join::stream(ctx, &operation, pairs, lhs, rhs),
        None => {
            let joined = ambiguous::evaluate(ctx, &operation, &groups, &*lhs, &*rhs)?;
            unique(ctx, Box::new(joined), Meeting::Refused)
        }
    }
}

/// Clears the presence bits that are not set in `holds`.
fn keep_only(presence: &mut [u64], holds: &[u64]) {
    for (index, word) in presence.iter_mut().enumerate() {
        *word &= holds.get(index).copied().unwrap_or(0);
    }
}

/// Calls `body` with zeroed words of one bit per step; the words are on the stack for tiles of the
/// usual width.
fn with_bits<R>(steps: usize, body: impl FnOnce(&mut [u64]) -> R) -> R {
    let words = steps.div_ceil(64);
    let mut few = [0; 4];
    match few.get_mut(..words) {
        Some(few) => body(few),
        None => body(&mut vec![0; words]),
    }
}
