//! Expressions as text, on one line or, if too long, on several lines.
//!
//! Source: `printer.go` and `prettier.go` of Prometheus.

use std::fmt::{self, Display, Write as _};

use model::MatchOp;
use model::duration::write_duration;
use model::labels::{is_legacy_label_name, write_quoted};

use super::ast::{
    Aggregate, At, Binary, Cardinality, DurationExpr, DurationKind, Expr, ExprKind, Matching,
    MatrixSelector, RangeMode, Subquery, VectorSelector,
};
use super::duration::literal_ms;

/// Maximum bytes of an expression on one line.
const LINE_BYTES_MAX: usize = 100;

/// Formats an expression on several lines, as `format_query` does; `None` if it needs more than
/// `bytes_max`. Each operator of a chain adds a level of indentation.
pub fn format(expr: &Expr, bytes_max: usize) -> Option<String> {
    let mut out = Lines { text: String::new(), bytes_max, is_trimming: false };
    pretty(&mut out, expr, 0).ok()?;
    Some(out.text)
}

/// Output of limited size; writing fails beyond the limit.
struct Lines {
    text: String,
    bytes_max: usize,
    /// True if indentation is skipped until other text is written.
    is_trimming: bool,
}

impl fmt::Write for Lines {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > self.bytes_max {
            return Err(fmt::Error);
        }
        self.is_trimming &= text.is_empty();
        self.text.push_str(text);
        Ok(())
    }
}

impl Lines {
    fn indent(&mut self, level: usize) -> fmt::Result {
        if self.is_trimming {
            return Ok(());
        }
        (0..level).try_for_each(|_| self.write_str("  "))
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExprKind::Number { value, is_duration: true } => {
                write_signed_duration(f, value_ms(*value))
            }
            ExprKind::Number { value, .. } => write_number(f, *value),
            ExprKind::String(text) => write_quoted(f, text),
            ExprKind::Selector(selector) => write_selector(f, selector),
            ExprKind::Matrix(matrix) => write_matrix(f, matrix),
            ExprKind::Subquery(subquery) => {
                write!(f, "{}", subquery.expr)?;
                write_subquery_times(f, subquery)
            }
            ExprKind::Unary { is_minus, operand } => {
                write!(f, "{}{operand}", if *is_minus { "-" } else { "+" })
            }
            ExprKind::Binary(binary) => {
                write!(f, "{} ", binary.lhs)?;
                write_operator(f, binary)?;
                write!(f, " {}", binary.rhs)
            }
            ExprKind::Aggregate(aggregate) => {
                write_aggregate_head(f, aggregate)?;
                f.write_str("(")?;
                if let Some(param) = &aggregate.param {
                    write!(f, "{param}, ")?;
                }
                write!(f, "{})", aggregate.expr)
            }
            ExprKind::Call(call) => {
                write!(f, "{}(", call.function.name)?;
                for (position, arg) in call.args.iter().enumerate() {
                    write!(f, "{}{arg}", if position > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            ExprKind::Paren(inner) => write!(f, "({inner})"),
        }
    }
}

impl Display for DurationExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_wrapped {
            f.write_str("(")?;
        }
        match &self.kind {
            DurationKind::Literal { seconds, is_duration: true } => {
                write_signed_duration(f, value_ms(*seconds))?;
            }
            DurationKind::Literal { seconds, .. } => write_number(f, *seconds)?,
            DurationKind::Unary { is_minus, operand } => {
                write!(f, "{}{operand}", if *is_minus { "-" } else { "" })?;
            }
            DurationKind::Binary { op, lhs, rhs } => write!(f, "{lhs} {op} {rhs}")?,
            DurationKind::Step => f.write_str("step()")?,
            DurationKind::Range => f.write_str("range()")?,
            DurationKind::MinOf(a, b) => write!(f, "min_of({a}, {b})")?,
            DurationKind::MaxOf(a, b) => write!(f, "max_of({a}, {b})")?,
        }
        if self.is_wrapped { f.write_str(")") } else { Ok(()) }
    }
}

/// Converts seconds to whole ms, truncated to nanoseconds first like Go.
fn value_ms(seconds: f64) -> i64 {
    (seconds * 1e9) as i64 / 1_000_000
}

/// Writes a number like Go's format `f`.
pub(super) fn write_number(out: &mut impl fmt::Write, value: f64) -> fmt::Result {
    if value.is_nan() {
        out.write_str("NaN")
    } else if value.is_infinite() {
        out.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        write!(out, "{value}")
    }
}

/// Writes a number like Go's `%v`: with an exponent below -4 and from 6 on.
fn write_value(out: &mut impl fmt::Write, value: f64) -> fmt::Result {
    let magnitude = value.abs();
    if !value.is_finite() || magnitude == 0.0 || (1e-4..1e6).contains(&magnitude) {
        return write_number(out, value);
    }
    write_scientific(out, value)
}

/// Writes a number with a signed exponent of at least two digits.
pub(super) fn write_scientific(out: &mut impl fmt::Write, value: f64) -> fmt::Result {
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    write!(out, "{mantissa}e{sign}{digits:0>2}")
}

/// Writes a duration with its sign and the units that divide it: `1h30m`.
fn write_signed_duration(out: &mut impl fmt::Write, ms: i64) -> fmt::Result {
    if ms < 0 {
        out.write_str("-")?;
    }
    write_duration(out, ms.unsigned_abs())
}

/// Writes the duration of a range or an offset; a literal always in units.
fn write_span(out: &mut impl fmt::Write, duration: &DurationExpr) -> fmt::Result {
    match duration.kind {
        DurationKind::Literal { seconds, .. } => write_signed_duration(out, literal_ms(seconds)),
        _ => write!(out, "{duration}"),
    }
}

fn write_offset(out: &mut impl fmt::Write, offset: Option<&DurationExpr>) -> fmt::Result {
    let Some(offset) = offset else { return Ok(()) };
    out.write_str(" offset ")?;
    if let DurationKind::Literal { seconds, .. } = offset.kind
        && seconds < 0.0
    {
        out.write_str("-")?;
        return write_signed_duration(out, literal_ms(-seconds));
    }
    write_span(out, offset)
}

fn write_at(out: &mut impl fmt::Write, at: Option<At>) -> fmt::Result {
    match at {
        None => Ok(()),
        Some(At::Time(ms)) => write!(out, " @ {:.3}", ms as f64 / 1000.0),
        Some(At::Start) => out.write_str(" @ start()"),
        Some(At::End) => out.write_str(" @ end()"),
    }
}

fn write_mode(out: &mut impl fmt::Write, mode: RangeMode) -> fmt::Result {
    match mode {
        RangeMode::Plain => Ok(()),
        RangeMode::Anchored => out.write_str(" anchored"),
        RangeMode::Smoothed => out.write_str(" smoothed"),
    }
}

fn write_series(out: &mut impl fmt::Write, selector: &VectorSelector) -> fmt::Result {
    let name = selector.name.as_deref().unwrap_or_default();
    out.write_str(name)?;
    let mut conditions: Vec<String> = selector
        .matchers
        .iter()
        .filter(|matcher| {
            let is_name = matcher.name() == model::METRIC_NAME && matcher.op() == MatchOp::Equal;
            !(is_name && matcher.value() == name && !name.is_empty())
        })
        .map(ToString::to_string)
        .collect();
    if conditions.is_empty() {
        return Ok(());
    }
    conditions.sort_unstable();
    write!(out, "{{{}}}", conditions.join(","))
}

fn write_selector(out: &mut impl fmt::Write, selector: &VectorSelector) -> fmt::Result {
    write_series(out, selector)?;
    write_at(out, selector.at)?;
    write_mode(out, selector.mode)?;
    write_offset(out, selector.offset.as_ref())
}

fn write_matrix(out: &mut impl fmt::Write, matrix: &MatrixSelector) -> fmt::Result {
    let selector = &matrix.selector;
    write_series(out, selector)?;
    out.write_str("[")?;
    write_span(out, &matrix.range)?;
    out.write_str("]")?;
    write_mode(out, selector.mode)?;
    write_at(out, selector.at)?;
    write_offset(out, selector.offset.as_ref())
}

fn write_subquery_times(out: &mut impl fmt::Write, subquery: &Subquery) -> fmt::Result {
    out.write_str("[")?;
    write_span(out, &subquery.range)?;
    out.write_str(":")?;
    if let Some(step) = &subquery.step {
        write_span(out, step)?;
    }
    out.write_str("]")?;
    write_at(out, subquery.at)?;
    write_offset(out, subquery.offset.as_ref())
}

fn write_labels(out: &mut impl fmt::Write, labels: &[String]) -> fmt::Result {
    for (position, label) in labels.iter().enumerate() {
        if position > 0 {
            out.write_str(", ")?;
        }
        if is_legacy_label_name(label) {
            out.write_str(label)?;
        } else {
            write_quoted(out, label)?;
        }
    }
    Ok(())
}

fn write_aggregate_head(out: &mut impl fmt::Write, aggregate: &Aggregate) -> fmt::Result {
    out.write_str(aggregate.op.as_str())?;
    if aggregate.grouping.is_empty() && !aggregate.is_without {
        return Ok(());
    }
    out.write_str(if aggregate.is_without { " without (" } else { " by (" })?;
    write_labels(out, &aggregate.grouping)?;
    out.write_str(") ")
}

/// Writes a binary operator with its modifiers.
fn write_operator(out: &mut impl fmt::Write, binary: &Binary) -> fmt::Result {
    out.write_str(binary.op.as_str())?;
    if binary.is_bool {
        out.write_str(" bool")?;
    }
    binary.matching.as_ref().map_or(Ok(()), |matching| write_matching(out, matching))
}

fn write_matching(out: &mut impl fmt::Write, matching: &Matching) -> fmt::Result {
    let group = match matching.cardinality {
        Cardinality::ManyToOne => Some(" group_left ("),
        Cardinality::OneToMany => Some(" group_right ("),
        Cardinality::OneToOne | Cardinality::ManyToMany => None,
    };
    if !matching.labels.is_empty() || matching.is_on || group.is_some() {
        out.write_str(if matching.is_on { " on (" } else { " ignoring (" })?;
        write_labels(out, &matching.labels)?;
        out.write_str(")")?;
    }
    if let Some(group) = group {
        out.write_str(group)?;
        write_labels(out, &matching.include)?;
        out.write_str(")")?;
    }
    let fill = |out: &mut dyn fmt::Write, word: &str, value: Option<f64>| -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        let mut text = String::new();
        write_value(&mut text, value)?;
        write!(out, " {word} ({text})")
    };
    let (left, right) = (matching.fill_left, matching.fill_right);
    if left.is_some() && left == right {
        return fill(out, "fill", left);
    }
    fill(out, "fill_left", left)?;
    fill(out, "fill_right", right)
}

/// Returns whether an expression does not fit on one line.
fn needs_split(expr: &Expr) -> bool {
    /// Counts bytes; fails above the limit.
    struct Counter(usize);
    impl fmt::Write for Counter {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            if self.0 > LINE_BYTES_MAX { Err(fmt::Error) } else { Ok(()) }
        }
    }
    has_many_levels(expr) || write!(Counter(0), "{expr}").is_err()
}

/// Returns whether first operands nest too deep for one line. Such expressions write nothing before
/// their first operand, so that [`needs_split`] would recurse without limit.
fn has_many_levels(mut expr: &Expr) -> bool {
    for _ in 0..LINE_BYTES_MAX {
        expr = match &expr.kind {
            ExprKind::Binary(binary) => &binary.lhs,
            ExprKind::Subquery(subquery) => &subquery.expr,
            ExprKind::Unary { operand: inner, .. } | ExprKind::Paren(inner) => inner,
            _ => return false,
        };
    }
    true
}

fn pretty(out: &mut Lines, expr: &Expr, level: usize) -> fmt::Result {
    if let ExprKind::Unary { is_minus, operand } = &expr.kind {
        out.indent(level)?;
        out.write_str(if *is_minus { "-" } else { "+" })?;
        out.is_trimming = true;
        return pretty(out, operand, level);
    }
    if let ExprKind::Subquery(subquery) = &expr.kind {
        // Unlike other expressions, a short subquery is not indented.
        if !needs_split(expr) {
            return write!(out, "{expr}");
        }
        pretty(out, &subquery.expr, level)?;
        return write_subquery_times(out, subquery);
    }
    if let ExprKind::Binary(binary) = &expr.kind
        && needs_split(expr)
    {
        pretty(out, &binary.lhs, level + 1)?;
        out.write_str("\n")?;
        out.indent(level)?;
        write_operator(out, binary)?;
        out.write_str("\n")?;
        return pretty(out, &binary.rhs, level + 1);
    }
    out.indent(level)?;
    match &expr.kind {
        ExprKind::Aggregate(aggregate) if needs_split(expr) => {
            write_aggregate_head(out, aggregate)?;
            out.write_str("(\n")?;
            if let Some(param) = &aggregate.param {
                pretty(out, param, level + 1)?;
                out.write_str(",\n")?;
            }
            pretty(out, &aggregate.expr, level + 1)?;
        }
        ExprKind::Call(call) if needs_split(expr) => {
            out.write_str(call.function.name)?;
            out.write_str("(\n")?;
            for (position, arg) in call.args.iter().enumerate() {
                if position > 0 {
                    out.write_str(",\n")?;
                }
                pretty(out, arg, level + 1)?;
            }
        }
        ExprKind::Paren(inner) if needs_split(expr) => {
            out.write_str("(\n")?;
            pretty(out, inner, level + 1)?;
        }
        _ => return write!(out, "{expr}"),
    }
    out.write_str("\n")?;
    out.indent(level)?;
    out.write_str(")")?;
    Ok(())
}
