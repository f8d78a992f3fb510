//! Planning: from the syntax tree to a typed plan.
//!
//! The plan determines everything that depends only on the query's times: the steps of each node,
//! the samples that each selector loads and sees, and the expressions that are evaluated once. A
//! plan is never as large as the data. Limits on steps are checked before anything is loaded.

mod build;
mod cost;
mod explain;
mod info;
mod invariance;
mod meters;
mod seen;
mod windows;

use model::{Selection, Windows};

use crate::annotations::Annotations;
use crate::parse::ast::{AggregateOp, Binary, Call, Expr, ExprKind, RangeMode, Span, ValueType};
use crate::steps::{BucketlessLook, LookTimes, Reach, Steps};

pub use build::plan;
pub use explain::{Explained, Figures, Load, LoadCost, LoadFigures, NodeCost, WindowCounts};
pub use info::InfoSelector;
pub use meters::{Meter, Meters};

/// Options of planning, in addition to the query's text.
#[derive(Debug, Clone, Copy)]
pub struct PlanOptions {
    /// Steps of the query.
    pub steps: Steps,
    /// Requested end; the last step may be before it.
    pub end_ms: i64,
    /// True if this is an instant query, for which `step()` and `range()` are 0.
    pub is_instant: bool,
    /// Lookback of instant selectors.
    pub lookback_ms: i64,
    /// Default resolution of subqueries.
    pub subquery_step_ms: i64,
    /// Maximum steps of the query and of each subquery.
    pub steps_max: u64,
    /// True if facts of windows must not replace samples, and no step may be left out.
    pub needs_samples: bool,
}

/// A query ready to be loaded and executed.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Node whose value is the result.
    pub root: Node,
    /// Selections to load, by selector number.
    pub selections: Vec<Selection>,
    /// For each selection, its lookup times if the buckets of its histograms do not matter.
    pub bucketless: Vec<Option<BucketlessLook>>,
    /// Annotations that do not depend on data.
    pub annotations: Annotations,
    /// Maximum bytes of scalars (one number per step) that are held at once.
    pub scalar_bytes: u64,
    /// True if the query has subqueries.
    pub has_subqueries: bool,
}

/// An expression with the steps at which it is evaluated.
#[derive(Debug, Clone)]
pub struct Node {
    /// Operation of the node.
    pub kind: NodeKind,
    /// Type of the value.
    pub value_type: ValueType,
    /// Position in the query.
    pub span: Span,
    /// Steps at which it is evaluated.
    pub steps: Steps,
}

/// The kinds of plan nodes.
#[derive(Debug, Clone)]
pub enum NodeKind {
    /// A number, the same at every step.
    Number(f64),
    /// A string.
    String(String),
    /// The newest sample of each series, or an interpolated one, at each step.
    Lookup(Lookup),
    /// Samples over ranges, as the result of an instant query.
    Range(RangeInput),
    /// A function of samples over ranges.
    Rollup(Rollup),
    /// A function of values.
    Call {
        /// The call; its compound arguments are in `args`, and only their spans remain here.
        call: Call,
        /// Arguments.
        args: Vec<Node>,
    },
    /// A unary minus.
    Negate(Box<Node>),
    /// An operation on two operands.
    Binary {
        /// The operation; its operands are in `lhs` and `rhs`, and only their spans remain here.
        binary: Binary,
        /// Left operand.
        lhs: Box<Node>,
        /// Right operand.
        rhs: Box<Node>,
    },
    /// An aggregation.
    Aggregate(Aggregation),
    /// An expression evaluated at the first step only; its value holds for every step.
    Invariant(Box<Node>),
}

/// Instant selector: one lookup for each series and step.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// Selector number.
    pub selector: usize,
    /// Lookup times.
    pub times: LookTimes,
    /// Distance that the lookup reaches back and ahead.
    pub reach: Reach,
    /// Value that the lookup returns.
    pub value: LookupValue,
    /// True if the metric name is removed.
    pub drops_name: bool,
    /// Ranges of a subquery outside of which no look time matters, if there are gaps between them.
    pub seen: Option<Windows>,
}

/// Value that a lookup returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupValue {
    /// Value of the newest sample.
    Sample,
    /// Timestamp of the newest sample in seconds: `timestamp(selector)`.
    Timestamp,
    /// Timestamp of the newest sample in seconds if it is a float; a histogram is kept.
    FloatTimestamp,
    /// Start timestamp of the newest sample in seconds: `start_timestamp(selector)`.
    StartTimestamp,
    /// Value interpolated between the samples before and after.
    Smoothed,
}

/// A function of samples over ranges.
#[derive(Debug, Clone)]
pub struct Rollup {
    /// The call; its compound arguments are planned separately, and only their spans remain here.
    pub call: Call,
    /// Index of the argument that is the range.
    pub range_index: usize,
    /// The range.
    pub input: RangeInput,
    /// All other arguments in order; they are scalars.
    pub args: Vec<Node>,
}

/// Samples over ranges.
#[derive(Debug, Clone)]
pub struct RangeInput {
    /// Source of the samples.
    pub origin: RangeOrigin,
    /// Ends of the ranges.
    pub times: LookTimes,
    /// Duration of each range.
    pub range_ms: i64,
    /// Choice of samples at the boundaries.
    pub mode: RangeMode,
    /// Distance to look beyond the range, back and ahead, if the mode needs it.
    pub margin: Reach,
    /// Position in the query.
    pub span: Span,
    /// Ranges of a subquery outside of which no look time matters, if there are gaps between them.
    pub seen: Option<Windows>,
}

/// Source of the samples of a range.
#[derive(Debug, Clone)]
pub enum RangeOrigin {
    /// A selector, by number.
    Selector(usize),
    /// The inner expression of a subquery over the union of all ranges; `None` if no range
    /// contains a step of its grid.
    Subquery(Option<Box<Node>>),
}

/// An aggregation.
#[derive(Debug, Clone)]
pub struct Aggregation {
    /// The operator.
    pub op: AggregateOp,
    /// `without (…)` instead of `by (…)`.
    pub is_without: bool,
    /// Labels of `by` or `without`, sorted.
    pub grouping: Vec<String>,
    /// The operand.
    pub input: Box<Node>,
    /// Parameter, for example of `topk` and `quantile`.
    pub param: Option<Box<Node>>,
}

/// Returns the expression if it is a leaf; otherwise a placeholder with its span.
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

/// Removes the parentheses around an expression.
fn unwrap_parens(mut expr: &Expr) -> &Expr {
    while let ExprKind::Paren(inner) = &expr.kind {
        expr = inner;
    }
    expr
}

#[cfg(test)]
mod tests;
