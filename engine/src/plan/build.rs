//! Conversion of the syntax tree to a plan.

use model::{BudgetError, BudgetResource, Selection, SourceError};

use crate::annotations::Annotations;
use crate::catalog::{Function, FunctionId, Histograms, QueryTimeFunction};
use crate::error::QueryError;
use crate::parse::ast::{
    Aggregate, AggregateOp, At, Binary, BinaryOp, Call, DurationExpr, Expr, ExprKind,
    MatrixSelector, RangeMode, Span, Subquery, ValueType, VectorSelector,
};
use crate::plan::cost;
use crate::plan::invariance::{self, Invariance};
use crate::plan::seen::mark_seen;
use crate::plan::windows::{unite, windows_of_lookup, windows_of_range};
use crate::plan::{
    Aggregation, InfoSelector, Lookup, LookupValue, Node, NodeKind, Plan, PlanOptions, RangeInput,
    RangeOrigin, Rollup, shallow, unwrap_parens,
};
use crate::steps::{BucketlessLook, LookTimes, Reach, Steps, subquery_grid};

/// Plans a query.
///
/// Errors: impossible durations, a range vector as the result of a range query, and too many
/// steps.
pub fn plan(expr: &Expr, options: &PlanOptions) -> Result<Plan, QueryError> {
    check_steps(options.steps.count as u64, options)?;
    if !options.is_instant {
        check_range_type(expr.value_type())?;
    }
    let mut marks = Vec::new();
    invariance::mark(expr, &mut marks);
    let mut planner = Planner {
        options,
        marks,
        next_mark: 0,
        selections: Vec::new(),
        bucketless: Vec::new(),
        annotations: Annotations::default(),
        has_subqueries: false,
    };
    let is_range = options.steps.start_ms != options.end_ms;
    let buckets = BucketUse::Shown;
    let scope = Scope { steps: options.steps, buckets, is_once: false, is_range };
    let root = planner.visit(expr, scope)?;
    unite(&mut planner.selections);
    let scalar_bytes = cost::scalar_bytes_peak(&root);
    Ok(Plan {
        root,
        selections: planner.selections,
        bucketless: planner.bucketless,
        annotations: planner.annotations,
        scalar_bytes,
        has_subqueries: planner.has_subqueries,
    })
}

/// Makes the argument of `timestamp` look at the time of its `@`, without its offset. It sees only
/// the samples that a lookup with the offset, or up to `ahead_ms` after it, sees, too.
///
/// Source: `rangeEvalTimestampFunctionOverVectorSelector` of Prometheus, which ignores the offset
/// but loads samples with it.
fn look_at_pinned(lookup: &mut Lookup, offset_ms: i64, ahead_ms: i64) {
    let end_ms = offset_ms.min(ahead_ms);
    let Reach { back_ms, .. } = lookup.reach;
    lookup.times.first_ms = lookup.times.first_ms.saturating_add(end_ms);
    let apart_ms = offset_ms.max(0).saturating_sub(end_ms);
    lookup.reach.back_ms = back_ms.saturating_sub(apart_ms).max(0);
}

/// Source: `NewRangeQuery` of Prometheus.
fn check_range_type(value_type: ValueType) -> Result<(), QueryError> {
    match value_type {
        ValueType::Scalar | ValueType::Vector => Ok(()),
        ValueType::String | ValueType::Matrix => Err(QueryError::Parse(format!(
            "invalid expression type \"{value_type}\" for range query, must be Scalar or instant Vector"
        ))),
    }
}

fn check_steps(reached: u64, options: &PlanOptions) -> Result<(), QueryError> {
    if reached > options.steps_max {
        return Err(QueryError::Source(SourceError::Budget(BudgetError::Exceeded {
            resource: BudgetResource::Steps,
            limit: options.steps_max,
            reached,
        })));
    }
    Ok(())
}

/// Context in which an expression is evaluated.
#[derive(Clone, Copy)]
struct Scope {
    steps: Steps,
    buckets: BucketUse,
    /// True if an outer expression is already evaluated only once.
    is_once: bool,
    /// True if the end differs from the start, even if there is only one step.
    is_range: bool,
}

/// Use of the buckets of native histograms.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BucketUse {
    /// The result contains the buckets.
    Shown,
    /// The result depends only on counts and sums.
    Ignored,
    /// The result always depends on the buckets.
    Needed,
}

impl BucketUse {
    /// Returns the use of buckets in the arguments of a function.
    ///
    /// Source: `detectHistogramStatsDecoding` of Prometheus, as [`BucketUse::below_operator`].
    fn below_call(self, function: &Function) -> BucketUse {
        match function.histograms {
            Histograms::Summarized if self == BucketUse::Shown => BucketUse::Ignored,
            Histograms::Buckets => BucketUse::Needed,
            Histograms::Summarized
            | Histograms::Dropped
            | Histograms::Kept
            | Histograms::Compared
            | Histograms::Counted
            | Histograms::Answered => self,
        }
    }

    /// Returns the use of buckets in the operands of an operator.
    fn below_operator(self, op: BinaryOp) -> BucketUse {
        match op {
            BinaryOp::TrimLower | BinaryOp::TrimUpper => BucketUse::Needed,
            _ => self,
        }
    }
}

/// Difference between lookup times and evaluation times.
#[derive(Clone, Copy)]
struct Shift {
    at_ms: Option<i64>,
    offset_ms: i64,
}

struct Planner<'a> {
    options: &'a PlanOptions,
    /// Invariance of each expression, in the order of visits.
    marks: Vec<Invariance>,
    next_mark: usize,
    selections: Vec<Selection>,
    bucketless: Vec<Option<BucketlessLook>>,
    annotations: Annotations,
    has_subqueries: bool,
}

impl Planner<'_> {
    /// Plans an expression; visits nodes in the order of [`invariance::mark`].
    fn visit(&mut self, expr: &Expr, scope: Scope) -> Result<Node, QueryError> {
        let mark = self.marks[self.next_mark];
        if !mark.is_wrapped || scope.is_once {
            return self.visit_inner(expr, scope);
        }
        let steps = Steps { count: 1, ..scope.steps };
        let inner =
            self.visit_inner(expr, Scope { steps, is_once: true, is_range: false, ..scope })?;
        if scope.steps.count == 1 {
            return Ok(inner);
        }
        Ok(Node {
            value_type: inner.value_type,
            span: inner.span,
            steps: scope.steps,
            kind: NodeKind::Invariant(Box::new(inner)),
        })
    }

    fn visit_inner(&mut self, expr: &Expr, scope: Scope) -> Result<Node, QueryError> {
        self.next_mark += 1;
        let span = expr.span;
        let (kind, value_type) = match &expr.kind {
            ExprKind::Number { value, .. } => (NodeKind::Number(*value), ValueType::Scalar),
            ExprKind::String(text) => (NodeKind::String(text.clone()), ValueType::String),
            ExprKind::Paren(inner) => return self.visit_inner(inner, scope),
            ExprKind::Selector(selector) => {
                let lookup = self.lookup(selector, scope, LookupValue::Sample)?;
                (NodeKind::Lookup(lookup), ValueType::Vector)
            }
            ExprKind::Matrix(_) | ExprKind::Subquery(_) => {
                (NodeKind::Range(self.range(expr, scope)?), ValueType::Matrix)
            }
            ExprKind::Unary { is_minus, operand } => {
                let operand = self.visit_inner(operand, scope)?;
                if !is_minus {
                    return Ok(operand);
                }
                let value_type = operand.value_type;
                (NodeKind::Negate(Box::new(operand)), value_type)
            }
            ExprKind::Binary(binary) => self.binary(binary, scope)?,
            ExprKind::Aggregate(aggregate) => {
                let aggregation = self.aggregate(aggregate, scope)?;
                (NodeKind::Aggregate(aggregation), ValueType::Vector)
            }
            ExprKind::Call(call) => (self.call(call, span, scope)?, call.function.returns),
        };
        Ok(Node { kind, value_type, span, steps: scope.steps })
    }

    fn binary(
        &mut self,
        binary: &Binary,
        scope: Scope,
    ) -> Result<(NodeKind, ValueType), QueryError> {
        let scope = Scope { buckets: scope.buckets.below_operator(binary.op), ..scope };
        let lhs = self.visit(&binary.lhs, scope)?;
        let rhs = self.visit(&binary.rhs, scope)?;
        let are_scalars =
            lhs.value_type == ValueType::Scalar && rhs.value_type == ValueType::Scalar;
        let value_type = if are_scalars { ValueType::Scalar } else { ValueType::Vector };
        let binary = Binary {
            op: binary.op,
            lhs: Box::new(shallow(&binary.lhs)),
            rhs: Box::new(shallow(&binary.rhs)),
            is_bool: binary.is_bool,
            matching: binary.matching.clone(),
        };
        Ok((NodeKind::Binary { binary, lhs: Box::new(lhs), rhs: Box::new(rhs) }, value_type))
    }

    fn aggregate(
        &mut self,
        aggregate: &Aggregate,
        scope: Scope,
    ) -> Result<Aggregation, QueryError> {
        let input = Box::new(self.visit_inner(&aggregate.expr, scope)?);
        let param = match &aggregate.param {
            Some(param) => Some(Box::new(self.visit(param, scope)?)),
            None => None,
        };
        let mut grouping = aggregate.grouping.clone();
        grouping.sort_unstable();
        grouping.dedup();
        // The label for the counted value is also a label of the groups.
        if let (AggregateOp::CountValues, Some(NodeKind::String(label))) =
            (aggregate.op, param.as_deref().map(|node| &node.kind))
            && !model::labels::is_valid_label_name(label)
        {
            let label = model::labels::quoted(label);
            return Err(QueryError::Execution(format!("invalid label name {label}")));
        }
        Ok(Aggregation {
            op: aggregate.op,
            is_without: aggregate.is_without,
            grouping,
            input,
            param,
        })
    }

    fn call(&mut self, call: &Call, span: Span, scope: Scope) -> Result<NodeKind, QueryError> {
        let arg = |index: usize| call.args.get(index).map(|arg| &unwrap_parens(arg).kind);
        let function = call.function;
        let time = match function.id {
            FunctionId::QueryTime(time) => return Ok(NodeKind::Number(self.query_time(time))),
            FunctionId::Timestamp => Some(LookupValue::Timestamp),
            FunctionId::StartTimestamp => Some(LookupValue::StartTimestamp),
            _ => None,
        };
        if let (Some(value), Some(ExprKind::Selector(selector))) = (time, arg(0)) {
            self.skip(&call.args[0]);
            let mut lookup = self.lookup(selector, scope, value)?;
            if selector.at.is_some() {
                let offset_ms = self.offset_ms(selector.offset.as_ref())?;
                let is_smoothed = selector.mode == RangeMode::Smoothed;
                let ahead_ms = if is_smoothed { self.options.lookback_ms } else { 0 };
                look_at_pinned(&mut lookup, offset_ms, ahead_ms);
            }
            return Ok(NodeKind::Lookup(lookup));
        }
        let buckets = scope.buckets.below_call(function);
        let scope = Scope { buckets, ..scope };
        if function.id == FunctionId::Info {
            return self.info(call, scope);
        }
        if scope.is_range && matches!(function.id, FunctionId::Sort(_)) {
            // Source: `NewSortInRangeQueryWarning` of Prometheus.
            self.annotations.warn(
                "sort is ineffective for range queries since results are always ordered by labels",
                span,
            );
        }
        let is_range =
            |kind: &ExprKind| matches!(kind, ExprKind::Matrix(_) | ExprKind::Subquery(_));
        let range_index = (0..call.args.len()).find(|i| arg(*i).is_some_and(is_range));
        let shape = Call { function, args: call.args.iter().map(shallow).collect() };
        let mut args = Vec::with_capacity(call.args.len());
        let mut input = None;
        for (index, expr) in call.args.iter().enumerate() {
            if Some(index) == range_index {
                self.skip_parens(expr);
                self.next_mark += 1;
                input = Some(self.range(unwrap_parens(expr), scope)?);
            } else {
                args.push(self.visit(expr, scope)?);
            }
        }
        Ok(match (range_index, input) {
            (Some(range_index), Some(input)) => {
                if let RangeOrigin::Selector(selector) = input.origin
                    && !self.options.needs_samples
                {
                    self.selections[selector].windows = windows_of_range(function, &input);
                }
                NodeKind::Rollup(Rollup { call: shape, range_index, input, args })
            }
            _ => NodeKind::Call { call: shape, args },
        })
    }

    /// Plans `info`. Its second operand becomes a lookup of the info series that keeps their names
    /// and returns the timestamps of their samples.
    fn info(&mut self, call: &Call, scope: Scope) -> Result<NodeKind, QueryError> {
        let mut args = Vec::with_capacity(2);
        if let Some(base) = call.args.first() {
            args.push(self.visit(base, scope)?);
        }
        let selection = call.args.get(1);
        if let Some(selection) = selection {
            self.skip(selection);
        }
        let shape = Call { function: call.function, args: call.args.iter().map(shallow).collect() };
        let mut shift = Shift { at_ms: None, offset_ms: 0 };
        if let Some(base) = call.args.first() {
            self.shift_of_first_selector(base, &mut shift)?;
        }
        let times = LookTimes::new(scope.steps, shift.at_ms, shift.offset_ms);
        let reach = Reach { back_ms: self.options.lookback_ms, ahead_ms: 0 };
        let matchers = InfoSelector::of(shape.args.get(1)).matchers();
        let selected = times.reach(reach);
        self.selections.push(Selection {
            matchers,
            times: selected,
            only_newest: false,
            windows: None,
        });
        self.bucketless.push(None);
        let selector = self.selections.len() - 1;
        let value = LookupValue::FloatTimestamp;
        let lookup = Lookup { selector, times, reach, value, drops_name: false, seen: None };
        args.push(Node {
            kind: NodeKind::Lookup(lookup),
            value_type: ValueType::Vector,
            span: selection.map_or(Span::default(), |expr| expr.span),
            steps: scope.steps,
        });
        Ok(NodeKind::Call { call: shape, args })
    }

    /// Finds the first selector of the base and accumulates `@` and `offset` on the path to it:
    /// info series are looked up at the sample times of the base. Returns whether there is a
    /// selector.
    fn shift_of_first_selector(&self, expr: &Expr, shift: &mut Shift) -> Result<bool, QueryError> {
        let first = |exprs: &[&Expr], shift: &mut Shift| {
            for expr in exprs {
                if self.shift_of_first_selector(expr, shift)? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        match &expr.kind {
            ExprKind::Number { .. } | ExprKind::String(_) => Ok(false),
            ExprKind::Selector(selector) => {
                self.add_shift(selector.at, selector.offset.as_ref(), shift)?;
                Ok(true)
            }
            ExprKind::Matrix(matrix) => {
                let selector = &matrix.selector;
                self.add_shift(selector.at, selector.offset.as_ref(), shift)?;
                Ok(true)
            }
            ExprKind::Subquery(subquery) => {
                let before = *shift;
                self.add_shift(subquery.at, subquery.offset.as_ref(), shift)?;
                let is_found = self.shift_of_first_selector(&subquery.expr, shift)?;
                if !is_found {
                    *shift = before;
                }
                Ok(is_found)
            }
            ExprKind::Unary { operand, .. } => self.shift_of_first_selector(operand, shift),
            ExprKind::Paren(inner) => self.shift_of_first_selector(inner, shift),
            ExprKind::Binary(binary) => first(&[&binary.lhs, &binary.rhs], shift),
            ExprKind::Aggregate(aggregate) => first(&[&aggregate.expr], shift),
            ExprKind::Call(call) => first(&call.args.iter().collect::<Vec<_>>(), shift),
        }
    }

    fn add_shift(
        &self,
        at: Option<At>,
        offset: Option<&DurationExpr>,
        shift: &mut Shift,
    ) -> Result<(), QueryError> {
        let offset_ms = self.offset_ms(offset)?;
        match at {
            Some(at) => *shift = Shift { at_ms: Some(self.at_ms(at)), offset_ms },
            None => shift.offset_ms = shift.offset_ms.saturating_add(offset_ms),
        }
        Ok(())
    }

    /// Skips the marks of a selector and of the parentheses around it.
    fn skip(&mut self, expr: &Expr) {
        self.skip_parens(expr);
        self.next_mark += 1;
    }

    fn skip_parens(&mut self, mut expr: &Expr) {
        while let ExprKind::Paren(inner) = &expr.kind {
            self.next_mark += 1;
            expr = inner;
        }
    }

    /// Returns the value of a query-time function.
    ///
    /// Source: `foldQueryContextFunctions` of Prometheus.
    fn query_time(&self, function: QueryTimeFunction) -> f64 {
        let PlanOptions { steps: Steps { start_ms, step_ms, .. }, end_ms, .. } = *self.options;
        let time_ms = match function {
            QueryTimeFunction::Start => start_ms,
            QueryTimeFunction::End => end_ms,
            QueryTimeFunction::Range => end_ms.saturating_sub(start_ms),
            QueryTimeFunction::Step if end_ms == start_ms => 0,
            QueryTimeFunction::Step => step_ms,
        };
        time_ms as f64 / 1000.0
    }

    fn lookup(
        &mut self,
        selector: &VectorSelector,
        scope: Scope,
        value: LookupValue,
    ) -> Result<Lookup, QueryError> {
        let times = self.times(selector.at, selector.offset.as_ref(), scope.steps)?;
        let lookback_ms = self.options.lookback_ms;
        let is_smoothed = selector.mode == RangeMode::Smoothed;
        let loaded =
            Reach { back_ms: lookback_ms, ahead_ms: if is_smoothed { lookback_ms } else { 0 } };
        let selector = self.select(selector, times, loaded, scope.buckets);
        // Timestamps are those of samples and are not smoothed.
        let (value, reach) = match value {
            LookupValue::Sample if is_smoothed => (LookupValue::Smoothed, loaded),
            value => (value, Reach { ahead_ms: 0, ..loaded }),
        };
        if value == LookupValue::Sample && scope.steps.count == 1 {
            self.selections[selector].only_newest = true;
        }
        let drops_name = matches!(value, LookupValue::Timestamp | LookupValue::StartTimestamp);
        let lookup = Lookup { selector, times, reach, value, drops_name, seen: None };
        if !self.options.needs_samples {
            self.selections[selector].windows = windows_of_lookup(&lookup);
        }
        Ok(lookup)
    }

    fn range(&mut self, expr: &Expr, scope: Scope) -> Result<RangeInput, QueryError> {
        match &expr.kind {
            ExprKind::Matrix(matrix) => self.matrix(matrix, expr.span, scope),
            ExprKind::Subquery(subquery) => {
                self.has_subqueries = true;
                self.subquery(subquery, expr.span, scope.steps)
            }
            _ => Err(QueryError::Execution("expected a range vector".to_owned())),
        }
    }

    fn matrix(
        &mut self,
        matrix: &MatrixSelector,
        span: Span,
        scope: Scope,
    ) -> Result<RangeInput, QueryError> {
        let selector = &matrix.selector;
        let range_ms = self.duration_ms(&matrix.range, false)?;
        let times = self.times(selector.at, selector.offset.as_ref(), scope.steps)?;
        let lookback_ms = self.options.lookback_ms;
        let margin = match selector.mode {
            RangeMode::Plain => Reach { back_ms: 0, ahead_ms: 0 },
            RangeMode::Anchored => Reach { back_ms: lookback_ms, ahead_ms: 0 },
            RangeMode::Smoothed => Reach { back_ms: lookback_ms, ahead_ms: lookback_ms },
        };
        let back_ms = range_ms.saturating_add(margin.back_ms);
        let reach = Reach { back_ms, ahead_ms: margin.ahead_ms };
        let mode = selector.mode;
        let origin = RangeOrigin::Selector(self.select(selector, times, reach, scope.buckets));
        Ok(RangeInput { origin, times, range_ms, mode, margin, span, seen: None })
    }

    fn subquery(
        &mut self,
        subquery: &Subquery,
        span: Span,
        steps: Steps,
    ) -> Result<RangeInput, QueryError> {
        let range_ms = self.duration_ms(&subquery.range, false)?;
        let step_ms = match &subquery.step {
            Some(step) => self.duration_ms(step, false)?.max(1),
            None => self.options.subquery_step_ms,
        };
        let times = self.times(subquery.at, subquery.offset.as_ref(), steps)?;
        let reached = (times.last_ms().abs_diff(times.first_ms))
            .saturating_add(range_ms.unsigned_abs())
            / step_ms.unsigned_abs();
        check_steps(reached, self.options)?;
        let grid = subquery_grid(times, range_ms, step_ms);
        // The inner expression is checked even if the grid has no step.
        let inner_steps = grid.unwrap_or(Steps { start_ms: times.first_ms, step_ms, count: 1 });
        let selections = self.selections.len();
        let is_range = grid.is_some_and(|grid| grid.start_ms != times.last_ms());
        // Functions look for counter resets in the inner values, which needs buckets.
        let buckets = BucketUse::Needed;
        let scope = Scope { steps: inner_steps, buckets, is_once: false, is_range };
        let mut inner = self.visit(&subquery.expr, scope)?;
        let inner = if grid.is_some() {
            if !self.options.needs_samples {
                mark_seen(&mut inner, times, range_ms);
            }
            Some(Box::new(inner))
        } else {
            self.selections.truncate(selections);
            self.bucketless.truncate(selections);
            None
        };
        let margin = Reach { back_ms: 0, ahead_ms: 0 };
        let origin = RangeOrigin::Subquery(inner);
        let mode = RangeMode::Plain;
        Ok(RangeInput { origin, times, range_ms, mode, margin, span, seen: None })
    }

    fn times(
        &self,
        at: Option<At>,
        offset: Option<&DurationExpr>,
        steps: Steps,
    ) -> Result<LookTimes, QueryError> {
        let offset_ms = self.offset_ms(offset)?;
        Ok(LookTimes::new(steps, at.map(|at| self.at_ms(at)), offset_ms))
    }

    fn offset_ms(&self, offset: Option<&DurationExpr>) -> Result<i64, QueryError> {
        offset.map_or(Ok(0), |offset| self.duration_ms(offset, true))
    }

    fn duration_ms(
        &self,
        duration: &DurationExpr,
        may_be_negative: bool,
    ) -> Result<i64, QueryError> {
        let PlanOptions { steps, end_ms, is_instant, .. } = self.options;
        let step_ms = if *is_instant { 0 } else { steps.step_ms };
        duration.evaluate(step_ms, end_ms.saturating_sub(steps.start_ms), may_be_negative)
    }

    fn at_ms(&self, at: At) -> i64 {
        match at {
            At::Time(time_ms) => time_ms,
            At::Start => self.options.steps.start_ms,
            At::End => self.options.end_ms,
        }
    }

    /// Registers a selection to load and returns its number.
    fn select(
        &mut self,
        selector: &VectorSelector,
        times: LookTimes,
        reach: Reach,
        buckets: BucketUse,
    ) -> usize {
        let look = BucketlessLook { times, back_ms: reach.back_ms };
        self.bucketless.push((buckets == BucketUse::Ignored).then_some(look));
        let times = times.reach(reach);
        let matchers = selector.matchers.clone();
        let only_newest = false;
        self.selections.push(Selection { matchers, times, only_newest, windows: None });
        self.selections.len() - 1
    }
}
