//! Evaluation of a plan: from the leaves up, each node becomes an operand.

use std::sync::Arc;

use hashbrown::HashSet;
use model::{Checkpoint, Labels, Reservation, SeriesSet};

use crate::catalog::{FunctionId, RollupFunction};
use crate::error::QueryError;
use crate::exec::adapter::broadcast::broadcast;
use crate::exec::adapter::unique::SAME_LABELSET;
use crate::exec::aggregate::aggregate;
use crate::exec::binary;
use crate::exec::functions;
use crate::exec::matrix::materialize;
use crate::exec::matrix::scan::all_series;
use crate::exec::operator::{Context, Operand, SeriesMeta, VectorOperator};
use crate::exec::rollup::{Origin, RollupOperator};
use crate::exec::selector::instant::InstantSelector;
use crate::exec::stats::meter::{MeterGuard, metered};
use crate::parse::ast::Span;
use crate::plan::{
    Aggregation, Lookup, LookupValue, Node, NodeKind, RangeInput, RangeOrigin, Rollup,
};
use crate::steps::Steps;

/// Evaluates a node.
///
/// Shape: `sets` are the loaded series, by selector number.
/// Errors: errors of operators and functions, and the limits of the query. Errors may also occur
/// later, when tiles of the operand are read.
pub fn evaluate(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    node: &Node,
) -> Result<Operand, QueryError> {
    ctx.budget.check()?;
    let Some(meter) = ctx.meters().and_then(|meters| meters.node(node)) else {
        return evaluate_plainly(ctx, sets, node);
    };
    let _run = MeterGuard::start(meter);
    Ok(metered(evaluate_plainly(ctx, sets, node)?, meter))
}

fn evaluate_plainly(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    node: &Node,
) -> Result<Operand, QueryError> {
    let steps = node.steps;
    match &node.kind {
        NodeKind::Number(value) => Ok(Operand::Scalar(vec![*value; steps.count])),
        NodeKind::String(text) => Ok(Operand::String(text.clone())),
        NodeKind::Lookup(lookup) => select(ctx, sets, steps, lookup, node.span),
        NodeKind::Range(_) => Err(QueryError::Execution("unexpected range vector".to_owned())),
        NodeKind::Rollup(rollup) => roll_up(ctx, sets, steps, rollup),
        NodeKind::Call { call, args } => {
            functions::check_texts(call)?;
            let args = args.iter().map(|arg| evaluate(ctx, sets, arg)).collect::<Result<_, _>>()?;
            functions::call(ctx, steps, call, args)
        }
        NodeKind::Negate(operand) => {
            let operand = evaluate(ctx, sets, operand)?;
            binary::negate(ctx, steps, node.span, operand)
        }
        NodeKind::Binary { binary, lhs, rhs } => {
            let lhs = evaluate(ctx, sets, lhs)?;
            let rhs = evaluate(ctx, sets, rhs)?;
            binary::evaluate(ctx, steps, binary, node.span, lhs, rhs)
        }
        NodeKind::Aggregate(aggregation) => {
            evaluate_aggregation(ctx, sets, steps, aggregation, node.span)
        }
        NodeKind::Invariant(inner) => broadcast(ctx, evaluate(ctx, sets, inner)?, steps),
    }
}

/// Returns the origin of the samples of a range; `None` if a subquery has no step.
pub fn origin(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    input: &RangeInput,
) -> Result<Option<Origin>, QueryError> {
    match &input.origin {
        RangeOrigin::Selector(selector) => Ok(Some(Origin::Set(Arc::clone(&sets[*selector])))),
        RangeOrigin::Subquery(None) => Ok(None),
        RangeOrigin::Subquery(Some(inner)) => match evaluate(ctx, sets, inner)? {
            Operand::Vector(operator) => Ok(Some(Origin::Operator(operator))),
            Operand::Scalar(_) | Operand::String(_) => {
                Err(QueryError::Execution("subquery is only allowed on instant vector".to_owned()))
            }
        },
    }
}

fn select(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    steps: Steps,
    lookup: &Lookup,
    span: Span,
) -> Result<Operand, QueryError> {
    let set = Arc::clone(&sets[lookup.selector]);
    Ok(Operand::Vector(match lookup.value {
        LookupValue::Smoothed => {
            Box::new(RollupOperator::smoothed_lookup(ctx, steps, lookup, span, set)?)
        }
        LookupValue::Sample
        | LookupValue::Timestamp
        | LookupValue::FloatTimestamp
        | LookupValue::StartTimestamp => {
            Box::new(InstantSelector::new(ctx, set, steps, lookup.clone())?)
        }
    }))
}

fn roll_up(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    steps: Steps,
    rollup: &Rollup,
) -> Result<Operand, QueryError> {
    let mut args = Vec::with_capacity(rollup.args.len());
    for arg in &rollup.args {
        match evaluate(ctx, sets, arg)? {
            Operand::Scalar(values) => args.push(values),
            Operand::String(_) | Operand::Vector(_) => {
                let name = rollup.call.function.name;
                return Err(QueryError::Execution(format!("expected a scalar argument of {name}")));
            }
        }
    }
    let origin = match origin(ctx, sets, &rollup.input)? {
        Some(origin) => origin,
        None => {
            Origin::Operator(Box::new(crate::exec::matrix::Matrix::new(ctx, Vec::new(), steps)?))
        }
    };
    let operator = RollupOperator::new(ctx, steps, rollup, origin, args)?;
    if rollup.call.function.id == FunctionId::Rollup(RollupFunction::Absent) {
        return functions::absent(ctx, &operator, &rollup.call.args[rollup.range_index]);
    }
    if ctx.delayed_name_removal {
        return Ok(Operand::Vector(Box::new(operator)));
    }
    distinct(ctx, operator)
}

/// Rejects series with the same labels after their names are dropped.
///
/// Source: the check of range vector calls in Prometheus without delayed name removal, which
/// rejects two such series even without a common step.
fn distinct(ctx: &Context, mut operator: RollupOperator) -> Result<Operand, QueryError> {
    if operator.is_sorted() {
        return Ok(Operand::Vector(Box::new(operator)));
    }
    let all = all_series(&operator);
    if !repeats(ctx, operator.series(), &all)? {
        return Ok(Operand::Vector(Box::new(operator)));
    }
    operator.see_all_steps();
    let matrix = materialize(ctx, &operator)?;
    let present: Vec<u32> = all.into_iter().filter(|i| matrix.has_any(*i as usize)).collect();
    if repeats(ctx, matrix.series(), &present)? {
        return Err(QueryError::Execution(SAME_LABELSET.to_owned()));
    }
    Ok(Operand::Vector(Box::new(matrix)))
}

/// Returns whether two of the listed series have the same labels.
fn repeats(ctx: &Context, series: &[SeriesMeta], listed: &[u32]) -> Result<bool, QueryError> {
    let _reservation =
        Reservation::new(&ctx.budget, (listed.len() * 2 * size_of::<&Labels>()) as u64)?;
    let mut checkpoint = Checkpoint::new(&ctx.budget);
    let mut seen: HashSet<&Labels, foldhash::fast::RandomState> = HashSet::default();
    for index in listed {
        let labels = &series[*index as usize].labels;
        checkpoint.work(labels.as_bytes().len())?;
        if !seen.insert(labels) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn evaluate_aggregation(
    ctx: &Context,
    sets: &[Arc<dyn SeriesSet>],
    steps: Steps,
    aggregation: &Aggregation,
    span: Span,
) -> Result<Operand, QueryError> {
    let param = match &aggregation.param {
        Some(param) => Some(evaluate(ctx, sets, param)?),
        None => None,
    };
    match evaluate(ctx, sets, &aggregation.input)? {
        Operand::Vector(input) => {
            let matrix = aggregate(ctx, steps, aggregation, span, &*input, param)?;
            Ok(Operand::Vector(Box::new(matrix)))
        }
        Operand::Scalar(_) | Operand::String(_) => {
            Err(QueryError::Execution("expected an instant vector to aggregate".to_owned()))
        }
    }
}
