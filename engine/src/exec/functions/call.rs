//! Calls of functions without range arguments.

use std::sync::Arc;

use hashbrown::HashSet;

use model::{Checkpoint, Reservation};

use crate::annotations::Cause;
use crate::catalog::{
    BoundFunction, DateFunction, Function, FunctionId, HistogramFunction, LabelFunction,
    SortFunction,
};
use crate::error::QueryError;
use crate::exec::adapter::elementwise::{HistogramRule, RowKernel, elementwise};
use crate::exec::operator::{Context, Operand, VectorOperator};
use crate::number_text::open_metrics;
use crate::parse::ast::{Call, Expr, ExprKind, Span};
use crate::plan::InfoSelector;
use crate::steps::Steps;
use model::calendar::Moment;

use super::classic_histogram::{self, Question, Request};
use super::info;
use super::sort::{self, Direction};
use super::{date, label, math, native_answers, vector_scalar};

/// Checks the string arguments of a call before its other arguments are evaluated.
///
/// Errors: invalid label names and expressions, with Prometheus' messages.
pub fn check_texts(call: &Call) -> Result<(), QueryError> {
    let FunctionId::Label(function) = call.function.id else { return Ok(()) };
    let text = |arg: &Expr| match &unwrapped(arg).kind {
        ExprKind::String(text) => Some(text.clone()),
        _ => None,
    };
    let texts: Vec<String> = call.args.iter().filter_map(text).collect();
    label::check(function, &texts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Calls a function on evaluated arguments; none of them is a range.
///
/// Errors: invalid arguments, with Prometheus' messages; limits of the query; errors of the
/// arguments; an unknown function. Errors may also occur later, when tiles of the result are read.
/// Source: `promql/functions.go` of Prometheus.
pub fn call(
    ctx: &Context,
    steps: Steps,
    call: &Call,
    args: Vec<Operand>,
) -> Result<Operand, QueryError> {
    let function = call.function;
    let mut args = Arguments { function, values: args.into_iter() };
    match function.id {
        FunctionId::Math(function) => args.map(ctx, math::unary(function)),
        FunctionId::Date(function) => dates(ctx, steps, function, args),
        FunctionId::Bound(function) => bounded(ctx, steps, function, args),
        FunctionId::Histogram(function) => classic(ctx, call, function, args),
        FunctionId::NativeHistogram(function) => {
            let rule = native_answers::of_each(function);
            args.map_mixed(ctx, Box::new(|_, _, presence| presence.fill(0)), rule)
        }
        FunctionId::Label(function) => relabeled(ctx, function, args),
        FunctionId::Sort(function) => sorted(ctx, function, args),
        FunctionId::Absent => vector_scalar::absent(ctx, &*args.vector()?, &call.args[0]),
        FunctionId::Info => {
            let base = args.vector()?;
            let selector = InfoSelector::of(call.args.get(1));
            info::evaluate(ctx, &selector, &*base, &*args.vector()?)
        }
        FunctionId::MaxOf => args.choose(math::go_max),
        FunctionId::MinOf => args.choose(math::go_min),
        FunctionId::Pi => Ok(Operand::Scalar(vec![std::f64::consts::PI; steps.count])),
        FunctionId::Scalar => vector_scalar::scalar(ctx, &*args.vector()?),
        // Computed values have no start timestamps.
        FunctionId::StartTimestamp => args.map(ctx, Box::new(|_, _, presence| presence.fill(0))),
        FunctionId::Time => Ok(Operand::Scalar(vector_scalar::time(steps))),
        FunctionId::Timestamp => {
            let (kernel, rule) = vector_scalar::timestamp(steps);
            args.map_mixed(ctx, kernel, rule)
        }
        FunctionId::Vector => vector_scalar::vector(ctx, steps, &args.scalar()?),
        FunctionId::Rollup(_) | FunctionId::QueryTime(_) => {
            let message = format!("function \"{}\" is not supported here", function.name);
            Err(QueryError::Execution(message))
        }
    }
}

/// Evaluated arguments of a call, taken in order.
struct Arguments {
    function: &'static Function,
    values: std::vec::IntoIter<Operand>,
}

impl Arguments {
    fn vector(&mut self) -> Result<Box<dyn VectorOperator>, QueryError> {
        match self.values.next() {
            Some(Operand::Vector(operator)) => Ok(operator),
            other => Err(self.mismatch("instant vector", other.as_ref())),
        }
    }

    fn scalar(&mut self) -> Result<Vec<f64>, QueryError> {
        match self.values.next() {
            Some(Operand::Scalar(values)) => Ok(values),
            other => Err(self.mismatch("scalar", other.as_ref())),
        }
    }

    fn string(&mut self) -> Result<String, QueryError> {
        match self.values.next() {
            Some(Operand::String(text)) => Ok(text),
            other => Err(self.mismatch("string", other.as_ref())),
        }
    }

    fn strings(&mut self) -> Result<Vec<String>, QueryError> {
        let mut strings = Vec::with_capacity(self.values.len());
        while self.values.len() > 0 {
            strings.push(self.string()?);
        }
        Ok(strings)
    }

    /// Applies a kernel to the values of the vector argument and drops its histograms.
    fn map(self, ctx: &Context, kernel: RowKernel) -> Result<Operand, QueryError> {
        self.map_mixed(ctx, kernel, HistogramRule::Drop)
    }

    /// Applies a kernel to the values of the vector argument, and a rule to its histograms.
    fn map_mixed(
        mut self,
        ctx: &Context,
        kernel: RowKernel,
        rule: HistogramRule,
    ) -> Result<Operand, QueryError> {
        elementwise(ctx, self.vector()?, self.function.names.into(), kernel, rule)
    }

    /// Combines two scalar arguments at each step.
    fn choose(mut self, choose: fn(f64, f64) -> f64) -> Result<Operand, QueryError> {
        let mut values = self.scalar()?;
        let others = self.scalar()?;
        values.iter_mut().zip(others).for_each(|(value, other)| *value = choose(*value, other));
        Ok(Operand::Scalar(values))
    }

    fn mismatch(&self, expected: &str, found: Option<&Operand>) -> QueryError {
        let found = match found {
            Some(Operand::Scalar(_)) => "scalar",
            Some(Operand::String(_)) => "string",
            Some(Operand::Vector(_)) => "instant vector",
            None => "nothing",
        };
        QueryError::Execution(format!(
            "expected type {expected} in call to function \"{}\", got {found}",
            self.function.name
        ))
    }
}

/// Bytes of a request with its label value and its entry in the set of quantiles.
const REQUEST_BYTES: usize = 2 * size_of::<Request>() + 64;

/// Returns the position of an argument, without the parentheses around it.
fn argument_cause(call: &Call, index: usize) -> Cause {
    Cause { at: argument_span(call, index), operands: call.arguments_span() }
}

fn argument_span(call: &Call, index: usize) -> Span {
    call.args.get(index).map_or_else(Span::default, |argument| unwrapped(argument).span)
}

fn unwrapped(expr: &Expr) -> &Expr {
    match &expr.kind {
        ExprKind::Paren(inner) => unwrapped(inner),
        _ => expr,
    }
}

fn dates(
    ctx: &Context,
    steps: Steps,
    function: DateFunction,
    args: Arguments,
) -> Result<Operand, QueryError> {
    let question = date::question(function);
    if args.values.len() > 0 {
        return args.map(ctx, date::kernel(question));
    }
    let seconds = (0..steps.count).map(|step| steps.time(step) / 1000);
    let values: Vec<f64> = seconds.map(|seconds| question(Moment::from_seconds(seconds))).collect();
    vector_scalar::vector(ctx, steps, &values)
}

fn bounded(
    ctx: &Context,
    steps: Steps,
    function: BoundFunction,
    mut args: Arguments,
) -> Result<Operand, QueryError> {
    let input = args.vector()?;
    // The plan charges for scalar arguments; defaults are charged for here.
    let reservation = Reservation::new(&ctx.budget, steps.count as u64 * 8)?;
    let every_step = |value: f64| vec![value; steps.count];
    let kernel = match function {
        BoundFunction::Round if args.values.len() == 0 => math::round(every_step(1.0)),
        BoundFunction::Round => math::round(args.scalar()?),
        BoundFunction::Min => math::clamp(args.scalar()?, every_step(f64::INFINITY)),
        BoundFunction::Max => math::clamp(every_step(f64::NEG_INFINITY), args.scalar()?),
        BoundFunction::Clamp => {
            let min = args.scalar()?;
            math::clamp(min, args.scalar()?)
        }
    };
    let kernel: RowKernel = Box::new(move |first_step, values, presence| {
        let _ = &reservation;
        kernel(first_step, values, presence);
    });
    elementwise(ctx, input, args.function.names.into(), kernel, HistogramRule::Drop)
}

fn sorted(
    ctx: &Context,
    function: SortFunction,
    mut args: Arguments,
) -> Result<Operand, QueryError> {
    use Direction::{Ascending, Descending};
    let input = args.vector()?;
    match function {
        SortFunction::Value => sort::by_value(ctx, input, Ascending),
        SortFunction::ValueDescending => sort::by_value(ctx, input, Descending),
        SortFunction::Labels => sort::by_label(ctx, input, &args.strings()?, Ascending),
        SortFunction::LabelsDescending => sort::by_label(ctx, input, &args.strings()?, Descending),
    }
}

fn relabeled(
    ctx: &Context,
    function: LabelFunction,
    mut args: Arguments,
) -> Result<Operand, QueryError> {
    let input = args.vector()?;
    let texts = args.strings()?;
    match (function, &texts[..]) {
        (LabelFunction::Replace, [target, replacement, source, pattern]) => {
            label::replace(ctx, input, [target, replacement, source, pattern])
        }
        (LabelFunction::Join, [target, separator, sources @ ..]) => {
            label::join(ctx, input, target, separator, sources)
        }
        (LabelFunction::Replace | LabelFunction::Join, _) => Err(args.mismatch("string", None)),
    }
}

fn classic(
    ctx: &Context,
    call: &Call,
    function: HistogramFunction,
    mut args: Arguments,
) -> Result<Operand, QueryError> {
    let ask = |question| vec![Request { question, label: None }];
    let reservation = Reservation::new(&ctx.budget, 0)?;
    match function {
        HistogramFunction::Quantile => {
            let quantiles = args.scalar()?;
            classic_histogram::check_quantiles(ctx, &quantiles, argument_cause(call, 0));
            let shares = Arc::from(quantiles);
            let requests = ask(Question::Quantile { shares, only: None });
            classic_histogram::evaluate(
                ctx,
                argument_span(call, 1),
                args.vector()?,
                requests,
                reservation,
            )
        }
        HistogramFunction::Fraction => {
            let lower = args.scalar()?;
            let requests = ask(Question::Fraction { lower, upper: args.scalar()? });
            classic_histogram::evaluate(
                ctx,
                argument_span(call, 2),
                args.vector()?,
                requests,
                reservation,
            )
        }
        HistogramFunction::Quantiles => {
            let input = args.vector()?;
            let label = args.string()?;
            quantiles(ctx, call, input, &label, args)
        }
    }
}

/// `histogram_quantiles`: one series per quantile, distinguished by a label.
fn quantiles(
    ctx: &Context,
    call: &Call,
    input: Box<dyn VectorOperator>,
    label: &str,
    mut args: Arguments,
) -> Result<Operand, QueryError> {
    let mut reservation = Reservation::new(&ctx.budget, 0)?;
    let mut checkpoint = Checkpoint::new(&ctx.budget);
    let mut requests = Vec::new();
    let mut index = 2;
    while args.values.len() > 0 {
        let quantiles = args.scalar()?;
        classic_histogram::check_quantiles(ctx, &quantiles, argument_cause(call, index));
        index += 1;
        // One series per value: a quantile that changes over time makes several.
        reservation.grow((quantiles.len() * size_of::<f64>()) as u64)?;
        let mut seen: HashSet<u64, foldhash::fast::RandomState> = HashSet::default();
        let shares: Arc<[f64]> = Arc::from(quantiles);
        for share in shares.iter().filter(|share| seen.insert(share.to_bits())) {
            let question =
                Question::Quantile { shares: Arc::clone(&shares), only: Some(share.to_bits()) };
            reservation.grow((REQUEST_BYTES + label.len()) as u64)?;
            checkpoint.work(REQUEST_BYTES)?;
            let label = Some((label.to_owned(), open_metrics(*share)));
            requests.push(Request { question, label });
        }
    }
    classic_histogram::evaluate(ctx, argument_span(call, 0), input, requests, reservation)
}
