//! Traversal of a syntax tree.

use engine::parse::ast::{Expr, ExprKind};
use model::Matcher;

/// Calls `visit` with the matchers of every selector.
pub(crate) fn for_each_selector(expr: &Expr, visit: &mut impl FnMut(&[Matcher])) {
    match &expr.kind {
        ExprKind::Selector(selector) => visit(&selector.matchers),
        ExprKind::Matrix(matrix) => visit(&matrix.selector.matchers),
        _ => children(expr).into_iter().for_each(|child| for_each_selector(child, visit)),
    }
}

/// Returns the operands and arguments of an expression in the order of the text.
pub(crate) fn children(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        ExprKind::Number { .. }
        | ExprKind::String(_)
        | ExprKind::Selector(_)
        | ExprKind::Matrix(_) => Vec::new(),
        ExprKind::Subquery(subquery) => vec![&subquery.expr],
        ExprKind::Unary { operand, .. } => vec![operand],
        ExprKind::Binary(binary) => vec![&binary.lhs, &binary.rhs],
        ExprKind::Aggregate(aggregate) => {
            aggregate.param.iter().map(|p| &**p).chain([&*aggregate.expr]).collect()
        }
        ExprKind::Call(call) => call.args.iter().collect(),
        ExprKind::Paren(inner) => vec![inner],
    }
}
