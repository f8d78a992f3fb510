//! The syntax tree for the planner: Prometheus' node kinds, with positions.

use model::Matcher;

pub use crate::catalog::ValueType;
pub use crate::span::Span;

/// An expression with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Kind of the expression.
    pub kind: ExprKind,
    /// Position in the query text, equal to Prometheus' `PositionRange`.
    pub span: Span,
}

impl Expr {
    /// Returns the type of the value.
    pub fn value_type(&self) -> ValueType {
        match &self.kind {
            ExprKind::Number { .. } => ValueType::Scalar,
            ExprKind::String(_) => ValueType::String,
            ExprKind::Selector(_) | ExprKind::Aggregate(_) => ValueType::Vector,
            ExprKind::Matrix(_) | ExprKind::Subquery(_) => ValueType::Matrix,
            ExprKind::Unary { operand, .. } => operand.value_type(),
            ExprKind::Binary(binary) => {
                let is_scalar = |operand: &Expr| operand.value_type() == ValueType::Scalar;
                // In a chain of operators, the right side is the shorter one.
                if is_scalar(&binary.rhs) && is_scalar(&binary.lhs) {
                    ValueType::Scalar
                } else {
                    ValueType::Vector
                }
            }
            ExprKind::Call(call) => call.function.returns,
            ExprKind::Paren(inner) => inner.value_type(),
        }
    }

    /// Returns all selectors from left to right, including those of ranges.
    ///
    /// Source: `ExtractSelectors` of Prometheus.
    pub fn selectors(&self) -> Vec<&VectorSelector> {
        let mut selectors = Vec::new();
        self.push_selectors(&mut selectors);
        selectors
    }

    fn push_selectors<'a>(&'a self, out: &mut Vec<&'a VectorSelector>) {
        match &self.kind {
            ExprKind::Number { .. } | ExprKind::String(_) => {}
            ExprKind::Selector(selector) => out.push(selector),
            ExprKind::Matrix(matrix) => out.push(&matrix.selector),
            ExprKind::Subquery(subquery) => subquery.expr.push_selectors(out),
            ExprKind::Unary { operand, .. } | ExprKind::Paren(operand) => {
                operand.push_selectors(out);
            }
            ExprKind::Binary(binary) => {
                binary.lhs.push_selectors(out);
                binary.rhs.push_selectors(out);
            }
            ExprKind::Aggregate(aggregate) => {
                if let Some(param) = &aggregate.param {
                    param.push_selectors(out);
                }
                aggregate.expr.push_selectors(out);
            }
            ExprKind::Call(call) => call.args.iter().for_each(|arg| arg.push_selectors(out)),
        }
    }
}

/// The kinds of expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// `1.5`, `5m`.
    Number {
        /// The value; in seconds if written as a duration.
        value: f64,
        /// True if it was written as a duration.
        is_duration: bool,
    },
    /// `"text"`, unescaped.
    String(String),
    /// `name{…}` with its modifiers.
    Selector(VectorSelector),
    /// `name{…}[5m]` with its modifiers.
    Matrix(MatrixSelector),
    /// `expr[1h:1m]`.
    Subquery(Subquery),
    /// `-expr`, `+expr`.
    Unary {
        /// True if the sign is a minus.
        is_minus: bool,
        /// The operand.
        operand: Box<Expr>,
    },
    /// `lhs op rhs`.
    Binary(Binary),
    /// `sum by (a) (expr)`.
    Aggregate(Aggregate),
    /// `function(arguments)`.
    Call(Call),
    /// `(expr)`.
    Paren(Box<Expr>),
}

/// Duration: a literal, or computed from other durations and from the query's step and range.
#[derive(Debug, Clone, PartialEq)]
pub struct DurationExpr {
    /// Kind of the duration expression.
    pub kind: DurationKind,
    /// Position in the query text.
    pub span: Span,
    /// True if it is in parentheses, for printing. Never set on a literal.
    pub is_wrapped: bool,
}

/// The kinds of duration expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationKind {
    /// `5m`, `300`, `-1.5`.
    Literal {
        /// Seconds.
        seconds: f64,
        /// True if it was written as a duration.
        is_duration: bool,
    },
    /// `-expr`, `+expr`.
    Unary {
        /// True if the sign is a minus.
        is_minus: bool,
        /// The operand.
        operand: Box<DurationExpr>,
    },
    /// `lhs op rhs`, `op` one of `+ - * / % ^`.
    Binary {
        /// The operator.
        op: char,
        /// Left operand.
        lhs: Box<DurationExpr>,
        /// Right operand.
        rhs: Box<DurationExpr>,
    },
    /// `step()`: the query's step.
    Step,
    /// `range()`: the query's end minus its start.
    Range,
    /// `min_of(a, b)`.
    MinOf(Box<DurationExpr>, Box<DurationExpr>),
    /// `max_of(a, b)`.
    MaxOf(Box<DurationExpr>, Box<DurationExpr>),
}

/// `@ …`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    /// A time in ms since the epoch.
    Time(i64),
    /// `@ start()`.
    Start,
    /// `@ end()`.
    End,
}

/// Choice of samples at the boundaries of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RangeMode {
    /// Samples strictly inside `(start, end]`.
    #[default]
    Plain,
    /// `anchored`: with the last sample at or before the start.
    Anchored,
    /// `smoothed`: interpolated at both boundaries.
    Smoothed,
}

/// An instant selector.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSelector {
    /// The name before the braces, if any.
    pub name: Option<String>,
    /// All matchers, including the one of the name.
    pub matchers: Vec<Matcher>,
    /// `offset …`; subtracted from the evaluation time.
    pub offset: Option<DurationExpr>,
    /// `@ …`.
    pub at: Option<At>,
    /// `anchored`, `smoothed`.
    pub mode: RangeMode,
}

/// A range selector; its `offset` and `@` are in `selector`.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixSelector {
    /// The instant selector.
    pub selector: VectorSelector,
    /// Position of the selector without the range.
    pub selector_span: Span,
    /// Duration of the range.
    pub range: DurationExpr,
}

/// A range over an instant expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Subquery {
    /// The inner expression.
    pub expr: Box<Expr>,
    /// Duration of the range.
    pub range: DurationExpr,
    /// The resolution, if given.
    pub step: Option<DurationExpr>,
    /// `offset …`.
    pub offset: Option<DurationExpr>,
    /// `@ …`.
    pub at: Option<At>,
}

/// Binary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Mod,
    /// `^`
    Pow,
    /// `atan2`
    Atan2,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `and`
    And,
    /// `or`
    Or,
    /// `unless`
    Unless,
    /// `</`: keeps the buckets of a histogram below a number.
    TrimUpper,
    /// `>/`: keeps the buckets of a histogram above a number.
    TrimLower,
}

impl BinaryOp {
    /// All operators.
    pub const ALL: [BinaryOp; 18] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Mod,
        BinaryOp::Pow,
        BinaryOp::Atan2,
        BinaryOp::Eq,
        BinaryOp::Ne,
        BinaryOp::Lt,
        BinaryOp::Le,
        BinaryOp::Gt,
        BinaryOp::Ge,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Unless,
        BinaryOp::TrimUpper,
        BinaryOp::TrimLower,
    ];

    /// Returns the operator in PromQL.
    pub fn as_str(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Mod => "%",
            BinaryOp::Pow => "^",
            BinaryOp::Atan2 => "atan2",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
            BinaryOp::Unless => "unless",
            BinaryOp::TrimUpper => "</",
            BinaryOp::TrimLower => ">/",
        }
    }

    /// Returns whether it is one of `== != < <= > >=`.
    pub fn is_comparison(self) -> bool {
        use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
        matches!(self, Eq | Ne | Lt | Le | Gt | Ge)
    }

    /// Returns whether it is one of `and or unless`.
    pub fn is_set(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless)
    }
}

/// Cardinality of a match between two vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cardinality {
    /// The default.
    OneToOne,
    /// `group_left`.
    ManyToOne,
    /// `group_right`.
    OneToMany,
    /// Set operators.
    ManyToMany,
}

/// Vector matching of a binary operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Matching {
    /// Cardinality.
    pub cardinality: Cardinality,
    /// `on (…)` instead of `ignoring (…)`.
    pub is_on: bool,
    /// The labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    /// The labels of `group_left (…)` or `group_right (…)`.
    pub include: Vec<String>,
    /// `fill_left (…)` or `fill (…)`: the value of a missing left side.
    pub fill_left: Option<f64>,
    /// `fill_right (…)` or `fill (…)`: the value of a missing right side.
    pub fill_right: Option<f64>,
}

/// An operation on two operands.
#[derive(Debug, Clone, PartialEq)]
pub struct Binary {
    /// The operator.
    pub op: BinaryOp,
    /// Left operand.
    pub lhs: Box<Expr>,
    /// Right operand.
    pub rhs: Box<Expr>,
    /// True if `bool` is given.
    pub is_bool: bool,
    /// Set if both operands are vectors.
    pub matching: Option<Matching>,
}

/// Aggregation operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggregateOp {
    /// `sum`
    Sum,
    /// `avg`
    Avg,
    /// `min`
    Min,
    /// `max`
    Max,
    /// `count`
    Count,
    /// `group`
    Group,
    /// `stddev`
    Stddev,
    /// `stdvar`
    Stdvar,
    /// `topk`
    Topk,
    /// `bottomk`
    Bottomk,
    /// `quantile`
    Quantile,
    /// `count_values`
    CountValues,
    /// `limitk`
    Limitk,
    /// `limit_ratio`
    LimitRatio,
}

impl AggregateOp {
    /// Returns the operator's name.
    pub fn as_str(self) -> &'static str {
        match self {
            AggregateOp::Sum => "sum",
            AggregateOp::Avg => "avg",
            AggregateOp::Min => "min",
            AggregateOp::Max => "max",
            AggregateOp::Count => "count",
            AggregateOp::Group => "group",
            AggregateOp::Stddev => "stddev",
            AggregateOp::Stdvar => "stdvar",
            AggregateOp::Topk => "topk",
            AggregateOp::Bottomk => "bottomk",
            AggregateOp::Quantile => "quantile",
            AggregateOp::CountValues => "count_values",
            AggregateOp::Limitk => "limitk",
            AggregateOp::LimitRatio => "limit_ratio",
        }
    }
}

/// An aggregation over the series of one operand.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// The operator.
    pub op: AggregateOp,
    /// The operand.
    pub expr: Box<Expr>,
    /// The parameter, for example of `topk` and `quantile`.
    pub param: Option<Box<Expr>>,
    /// `without (…)` instead of `by (…)`.
    pub is_without: bool,
    /// The labels of `by` or `without`.
    pub grouping: Vec<String>,
}

/// A function call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The function.
    pub function: &'static crate::catalog::Function,
    /// Arguments, with checked types and count.
    pub args: Vec<Expr>,
}

impl Call {
    /// Returns the span from the first to the last argument.
    pub fn arguments_span(&self) -> Span {
        Span::hull(self.args.iter().map(|arg| arg.span))
    }
}
