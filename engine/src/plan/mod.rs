//! From syntax tree to typed plan.
//!
//! The plan settles everything that depends on the query's times alone: which steps each node
//! is evaluated over, which samples each selector loads and sees, what is evaluated only once.
//! Nothing here is as large as the data; limits on steps are checked before anything is loaded.

mod build;
mod cost;
mod explain;
mod info;
mod invariance;
mod meters;

use model::Selection;

use crate::annotations::Annotations;
use crate::parse::ast::{AggregateOp, Binary, Call, Expr, ExprKind, RangeMode, Span, ValueType};
use crate::steps::{BucketlessLook, LookTimes, Reach, Steps};

pub use build::plan;
pub use explain::{Explained, Figures, Load, LoadCost, LoadFigures, NodeCost};
pub use info::InfoSelector;
pub use meters::{Meter, Meters};

/// What planning needs to know of the query beside its text.
#[derive(Debug, Clone, Copy)]
pub struct PlanOptions {
    /// The query's steps.
    pub steps: Steps,
    /// The end that was asked for; the last step may lie before it.
    pub end_ms: i64,
    /// Whether it is an instant query, so that `step()` and `range()` are 0.
    pub is_instant: bool,
    /// How far back instant selectors look.
    pub lookback_ms: i64,
    /// The resolution of subqueries that name none.
    pub subquery_step_ms: i64,
    /// The most steps that the query or a subquery may have.
    pub steps_max: u64,
}

/// A query ready to be loaded and executed.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The node whose value is the answer.
    pub root: Node,
    /// What to load, by selector number.
    pub selections: Vec<Selection>,
    /// For each of them, how steps look at it, where the buckets of its histograms do not matter.
    pub bucketless: Vec<Option<BucketlessLook>>,
    /// What can be said of the query before there is any data.
    pub annotations: Annotations,
    /// Maximum of the bytes of scalars, one number a step, that evaluation holds at once.
    pub scalar_bytes: u64,
    /// Whether the query has subqueries.
    pub has_subqueries: bool,
}

/// An expression with the steps that it is evaluated over.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// What it evaluates to.
    pub value_type: ValueType,
    /// Where it stands in the query.
    pub span: Span,
    /// When it is evaluated.
    pub steps: Steps,
}

/// The kinds of plan nodes.
#[derive(Debug, Clone)]
pub enum NodeKind {
    /// A number, the same at all steps.
    Number(f64),
    /// A text.
    String(String),
    /// The newest sample of each series, or one interpolated, at each step.
    Lookup(Lookup),
    /// Samples over ranges, as the answer of an instant query.
    Range(RangeInput),
    /// A function of samples over ranges.
    Rollup(Rollup),
    /// A function of values, with its arguments.
    Call {
        /// The call; its compound arguments are planned apart, and only their spans remain.
        call: Call,
        /// Its arguments.
        args: Vec<Node>,
    },
    /// A unary minus.
    Negate(Box<Node>),
    /// An operation on two operands.
    Binary {
        /// The operation; its operands are planned apart, and only their spans remain.
        binary: Binary,
        /// Left operand.
        lhs: Box<Node>,
        /// Right operand.
        rhs: Box<Node>,
    },
    /// An aggregation.
    Aggregate(Aggregation),
    /// Evaluated at the first step only; the value holds for all.
    Invariant(Box<Node>),
}

/// Instant selector: one lookup for each series and step.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// Number of the selector.
    pub selector: usize,
    /// The times it looks at.
    pub times: LookTimes,
    /// How far it looks.
    pub reach: Reach,
    /// Result of a lookup.
    pub value: LookupValue,
    /// Whether the metric's name goes.
    pub drops_name: bool,
}

/// Result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupValue {
    /// The newest sample's value.
    Sample,
    /// The newest sample's time in seconds: `timestamp(selector)`.
    Timestamp,
    /// The newest sample's time in seconds if it is a float; a histogram stays as it is.
    FloatTimestamp,
    /// Since when the newest sample's counter counts, in seconds: `start_timestamp(selector)`.
    StartTimestamp,
    /// The value between the samples before and after.
    Smoothed,
}

/// A function of samples over ranges.
#[derive(Debug, Clone)]
pub struct Rollup {
    /// The call; its compound arguments are planned apart, and only their spans remain.
    pub call: Call,
    /// Which argument is the range.
    pub range_index: usize,
    /// The range.
    pub input: RangeInput,
    /// The other arguments, in order: scalars.
    pub args: Vec<Node>,
}

/// Samples over ranges.
#[derive(Debug, Clone)]
pub struct RangeInput {
    /// Where the samples come from.
    pub origin: RangeOrigin,
    /// The ends of the ranges.
    pub times: LookTimes,
    /// How long the ranges are.
    pub range_ms: i64,
    /// How samples at the borders are chosen.
    pub mode: RangeMode,
    /// How far is looked beyond the range, back and ahead, where the mode asks for it.
    pub margin: Reach,
    /// Where it stands in the query.
    pub span: Span,
}

/// Where the samples of a range come from.
#[derive(Debug, Clone)]
pub enum RangeOrigin {
    /// A selector, by its number.
    Selector(usize),
    /// A subquery's inner expression over the union of all ranges; `None` where no step of its
    /// grid falls into any range.
    Subquery(Option<Box<Node>>),
}

/// An aggregation.
#[derive(Debug, Clone)]
pub struct Aggregation {
    /// The operator.
    pub op: AggregateOp,
    /// `without (…)`, as against `by (…)`.
    pub is_without: bool,
    /// The labels of `by` or `without`, sorted.
    pub grouping: Vec<String>,
    /// The operand.
    pub input: Box<Node>,
    /// The parameter of topk, quantile and their like.
    pub param: Option<Box<Node>>,
}

/// An expression without what stands below it: leaves as they are, of the rest the span.
fn shallow(expr: &Expr) -> Expr {
    let kind = match &unwrap_parens(expr).kind {
        kind @ (ExprKind::Number { .. }
        | ExprKind::String(_)
        | ExprKind::Selector(_)
        | ExprKind::Matrix(_)) => kind.clone(),
        _ => ExprKind::Number { value: f64::NAN, is_duration: false },
    };
    Expr { kind, span: unwrap_parens(expr).span }
}

/// An expression without the parentheses around it.
fn unwrap_parens(mut expr: &Expr) -> &Expr {
    while let ExprKind::Paren(inner) = &expr.kind {
        expr = inner;
    }
    expr
}

#[cfg(test)]
mod tests;
