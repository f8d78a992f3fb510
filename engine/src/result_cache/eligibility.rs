//! Eligibility of queries for the result cache, and the reach of their steps.
//!
//! A step of an eligible query depends only on the samples within its reach, not on the query's
//! range or on other steps. Functions without this property make a query ineligible.

use crate::catalog::{FunctionId, Names};
use crate::exec::operator::is_schema_label;
use crate::parse::ast::{
    AggregateOp, Binary, BinaryOp, Call, DurationExpr, DurationKind, Expr, ExprKind, Matching,
    ValueType, VectorSelector,
};
use crate::plan::{Node, NodeKind, Plan, RangeOrigin, Rollup};
use crate::steps::Reach;

/// Returns the reach of a query's steps, if its results can be cached.
pub(crate) fn cacheable_reach(expr: &Expr, plan: &Plan) -> Option<Reach> {
    if plan.selections.is_empty() || !plan.annotations.is_empty() {
        return None;
    }
    names(expr)?;
    let mut reach = Reach { back_ms: 0, ahead_ms: 0 };
    widen(&mut reach, &plan.root, Reach { back_ms: 0, ahead_ms: 0 });
    Some(reach)
}

/// Treatment of metric names of an expression's series at the end of the query.
///
/// If the operands of `or` differ in this, the first of two series with the same labels decides;
/// their order depends on the query's range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FinalNames {
    /// Names are kept.
    Kept,
    /// Names are removed.
    Dropped,
    /// The series have no names.
    Absent,
}

/// Returns the treatment of the names of an expression's series; `None` for an expression that
/// cannot be cached.
fn names(expr: &Expr) -> Option<FinalNames> {
    match &expr.kind {
        ExprKind::Number { .. } | ExprKind::String(_) => Some(FinalNames::Absent),
        ExprKind::Selector(selector) => of_selector(selector),
        ExprKind::Matrix(matrix) => {
            is_fixed(&matrix.range).then_some(())?;
            of_selector(&matrix.selector)
        }
        ExprKind::Subquery(subquery) => {
            let durations =
                [Some(&subquery.range), subquery.step.as_ref(), subquery.offset.as_ref()];
            let is_local = subquery.at.is_none() && durations.into_iter().flatten().all(is_fixed);
            is_local.then_some(())?;
            names(&subquery.expr)
        }
        ExprKind::Unary { is_minus, operand } => {
            let names = names(operand)?;
            Some(if *is_minus { dropped(names) } else { names })
        }
        ExprKind::Binary(binary) => of_binary(binary),
        ExprKind::Aggregate(aggregate) => {
            if let Some(param) = &aggregate.param {
                names(param)?;
            }
            let names = names(&aggregate.expr)?;
            let is_schema = |label: &String| is_schema_label(label);
            // A grouping without a schema label removes names; otherwise, the operand's names stay.
            let may_have_name =
                aggregate.is_without || aggregate.grouping.iter().any(is_schema) || picks(expr);
            Some(if may_have_name { names } else { FinalNames::Absent })
        }
        ExprKind::Call(call) => of_call(call),
        ExprKind::Paren(inner) => names(inner),
    }
}

/// Returns whether the aggregation returns a subset of its operand's series (`topk`, `limitk`, …).
fn picks(expr: &Expr) -> bool {
    use AggregateOp::{Bottomk, LimitRatio, Limitk, Topk};
    matches!(&expr.kind, ExprKind::Aggregate(aggregate)
        if matches!(aggregate.op, Topk | Bottomk | Limitk | LimitRatio))
}

fn of_selector(selector: &VectorSelector) -> Option<FinalNames> {
    let is_local = selector.at.is_none() && selector.offset.as_ref().is_none_or(is_fixed);
    is_local.then_some(FinalNames::Kept)
}

fn of_binary(binary: &Binary) -> Option<FinalNames> {
    let (lhs, rhs) = (names(&binary.lhs)?, names(&binary.rhs)?);
    let fills = |m: &Matching| m.fill_left.is_some() || m.fill_right.is_some();
    if binary.matching.as_ref().is_some_and(fills) {
        return None;
    }
    let is_vector = |expr: &Expr| expr.value_type() == ValueType::Vector;
    match binary.op {
        BinaryOp::TrimLower | BinaryOp::TrimUpper => None,
        BinaryOp::And | BinaryOp::Unless => Some(lhs),
        BinaryOp::Or => match (lhs, rhs) {
            (names, FinalNames::Absent) | (FinalNames::Absent, names) => Some(names),
            (lhs, rhs) => (lhs == rhs).then_some(lhs),
        },
        _ if is_vector(&binary.lhs) && is_vector(&binary.rhs) => {
            Some(if binary.is_bool { FinalNames::Dropped } else { FinalNames::Kept })
        }
        op if op.is_comparison() && !binary.is_bool => {
            Some(if is_vector(&binary.lhs) { lhs } else { rhs })
        }
        _ => Some(dropped(if is_vector(&binary.lhs) { lhs } else { rhs })),
    }
}

fn of_call(call: &Call) -> Option<FinalNames> {
    if !call.function.is_cacheable {
        return None;
    }
    let mut args = Vec::with_capacity(call.args.len());
    for arg in &call.args {
        args.push(names(arg)?);
    }
    if matches!(call.function.id, FunctionId::Label(_)) {
        let Some(ExprKind::String(target)) = call.args.get(1).map(|arg| &arg.kind) else {
            return None;
        };
        if is_schema_label(target) {
            return None;
        }
    }
    Some(match call.function.names {
        Names::Kept => args[0],
        Names::Dropped | Names::DroppedAlone => FinalNames::Dropped,
        Names::None => FinalNames::Absent,
    })
}

fn dropped(names: FinalNames) -> FinalNames {
    match names {
        FinalNames::Kept | FinalNames::Dropped => FinalNames::Dropped,
        FinalNames::Absent => FinalNames::Absent,
    }
}

/// Returns whether a duration does not depend on the query's range.
fn is_fixed(duration: &DurationExpr) -> bool {
    match &duration.kind {
        DurationKind::Literal { .. } | DurationKind::Step => true,
        DurationKind::Range => false,
        DurationKind::Unary { operand, .. } => is_fixed(operand),
        DurationKind::Binary { lhs, rhs, .. }
        | DurationKind::MinOf(lhs, rhs)
        | DurationKind::MaxOf(lhs, rhs) => is_fixed(lhs) && is_fixed(rhs),
    }
}

fn children(node: &Node) -> Vec<&Node> {
    match &node.kind {
        NodeKind::Number(_) | NodeKind::String(_) | NodeKind::Lookup(_) | NodeKind::Range(_) => {
            Vec::new()
        }
        NodeKind::Rollup(rollup) => rollup.args.iter().collect(),
        NodeKind::Call { args, .. } => args.iter().collect(),
        NodeKind::Negate(inner) | NodeKind::Invariant(inner) => vec![inner],
        NodeKind::Binary { lhs, rhs, .. } => vec![lhs, rhs],
        NodeKind::Aggregate(aggregation) => {
            aggregation.param.as_deref().into_iter().chain([&*aggregation.input]).collect()
        }
    }
}

/// Widens `reach` by the reach of `node`, whose steps are within `outer` around the steps of the
/// query.
fn widen(reach: &mut Reach, node: &Node, outer: Reach) {
    let see = |first_ms: i64, back_ms: i64, ahead_ms: i64| {
        let shift_ms = node.steps.start_ms.saturating_sub(first_ms);
        Reach {
            back_ms: outer.back_ms.saturating_add(shift_ms).saturating_add(back_ms),
            ahead_ms: outer.ahead_ms.saturating_sub(shift_ms).saturating_add(ahead_ms),
        }
    };
    let seen = match &node.kind {
        NodeKind::Lookup(lookup) => {
            Some(see(lookup.times.first_ms, lookup.reach.back_ms, lookup.reach.ahead_ms))
        }
        NodeKind::Range(input) | NodeKind::Rollup(Rollup { input, .. }) => {
            let back_ms = input.range_ms.saturating_add(input.margin.back_ms);
            let seen = see(input.times.first_ms, back_ms, input.margin.ahead_ms);
            match &input.origin {
                RangeOrigin::Selector(_) => Some(seen),
                RangeOrigin::Subquery(inner) => {
                    if let Some(inner) = inner {
                        widen(reach, inner, seen);
                    }
                    None
                }
            }
        }
        _ => None,
    };
    if let Some(seen) = seen {
        reach.back_ms = reach.back_ms.max(seen.back_ms);
        reach.ahead_ms = reach.ahead_ms.max(seen.ahead_ms);
    }
    for child in children(node) {
        widen(reach, child, outer);
    }
}
