//! Detection of expressions that have the same value at every step.

use crate::catalog::FunctionId;
use crate::parse::ast::{Call, Expr, ExprKind};
use crate::plan::unwrap_parens;

/// Invariance of one expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Invariance {
    /// True if the value is the same at every step.
    pub is_invariant: bool,
    /// True if it is evaluated once and reused; false for literals and ranges.
    pub is_wrapped: bool,
}

const VARIES: Invariance = Invariance { is_invariant: false, is_wrapped: false };
const ONCE: Invariance = Invariance { is_invariant: true, is_wrapped: true };
const LITERAL: Invariance = Invariance { is_invariant: true, is_wrapped: false };

/// Appends the invariance of an expression and its descendants in preorder, with the parameter of
/// an aggregation last.
///
/// Source: `preprocessExprHelper` of Prometheus.
pub(super) fn mark(expr: &Expr, marks: &mut Vec<Invariance>) -> Invariance {
    let index = marks.len();
    marks.push(VARIES);
    let found = match &expr.kind {
        ExprKind::Number { .. } | ExprKind::String(_) => LITERAL,
        ExprKind::Selector(selector) => once_if(selector.at.is_some()),
        ExprKind::Matrix(matrix) => {
            Invariance { is_invariant: matrix.selector.at.is_some(), is_wrapped: false }
        }
        ExprKind::Subquery(subquery) => {
            mark(&subquery.expr, marks);
            Invariance { is_invariant: subquery.at.is_some(), is_wrapped: false }
        }
        ExprKind::Unary { operand, .. } => mark(operand, marks),
        ExprKind::Paren(inner) => mark(inner, marks),
        ExprKind::Binary(binary) => {
            let lhs = mark(&binary.lhs, marks);
            let rhs = mark(&binary.rhs, marks);
            once_if(lhs.is_invariant && rhs.is_invariant)
        }
        ExprKind::Aggregate(aggregate) => {
            let found = mark(&aggregate.expr, marks);
            if let Some(param) = &aggregate.param {
                mark(param, marks);
            }
            found
        }
        ExprKind::Call(call) => mark_call(call, marks),
    };
    marks[index] = found;
    found
}

fn mark_call(call: &Call, marks: &mut Vec<Invariance>) -> Invariance {
    if matches!(call.function.id, FunctionId::QueryTime(_)) {
        return LITERAL;
    }
    let mut are_invariant = true;
    let mut are_selectors = true;
    for arg in &call.args {
        are_invariant &= mark(arg, marks).is_invariant;
        are_selectors &= matches!(unwrap_parens(arg).kind, ExprKind::Selector(_));
    }
    // The timestamp of a pinned selector is constant.
    let is_pinned_timestamp = call.function.id == FunctionId::Timestamp && are_selectors;
    let is_timed = call.function.is_timed && !is_pinned_timestamp;
    once_if(are_invariant && !is_timed)
}

fn once_if(condition: bool) -> Invariance {
    if condition { ONCE } else { VARIES }
}
