//! The syntax tree as the JSON of `parse_query`.
//!
//! Source: `translate_ast.go` of Prometheus; keys are sorted, like Go's map keys.

use std::fmt::Write as _;

use model::Matcher;

use super::ast::{
    Aggregate, At, Binary, Call, Cardinality, DurationExpr, DurationKind, Expr, ExprKind, Matching,
    MatrixSelector, RangeMode, Subquery, ValueType, VectorSelector,
};
use super::duration::literal_ms;
use super::print::{write_number, write_scientific};

/// Returns the tree as `data` of `parse_query`.
pub fn to_json(expr: &Expr) -> String {
    let mut out = String::new();
    push_expr(&mut out, expr);
    out
}

fn push_expr(out: &mut String, expr: &Expr) {
    match &expr.kind {
        ExprKind::Number { value, .. } => {
            out.push_str("{\"type\":\"numberLiteral\",\"val\":");
            push_number_text(out, *value);
            out.push('}');
        }
        ExprKind::String(text) => {
            out.push_str("{\"type\":\"stringLiteral\",\"val\":");
            push_text(out, text);
            out.push('}');
        }
        ExprKind::Selector(selector) => push_selector(out, selector, None),
        ExprKind::Matrix(MatrixSelector { selector, range, .. }) => {
            push_selector(out, selector, Some(range));
        }
        ExprKind::Subquery(subquery) => push_subquery(out, subquery),
        ExprKind::Unary { is_minus, operand } => {
            out.push_str("{\"expr\":");
            push_expr(out, operand);
            let sign = if *is_minus { '-' } else { '+' };
            let _ = write!(out, ",\"op\":\"{sign}\",\"type\":\"unaryExpr\"}}");
        }
        ExprKind::Binary(binary) => push_binary(out, binary),
        ExprKind::Aggregate(aggregate) => push_aggregate(out, aggregate),
        ExprKind::Call(call) => push_call(out, call),
        ExprKind::Paren(inner) => {
            out.push_str("{\"expr\":");
            push_expr(out, inner);
            out.push_str(",\"type\":\"parenExpr\"}");
        }
    }
}

fn push_selector(out: &mut String, selector: &VectorSelector, range: Option<&DurationExpr>) {
    let _ = write!(out, "{{\"anchored\":{},", selector.mode == RangeMode::Anchored);
    out.push_str("\"matchers\":");
    push_list(out, &selector.matchers, push_matcher);
    out.push_str(",\"name\":");
    push_text(out, selector.name.as_deref().unwrap_or_default());
    out.push(',');
    push_span(out, "offset", selector.offset.as_ref());
    if let Some(range) = range {
        push_span(out, "range", Some(range));
    }
    let _ = write!(out, "\"smoothed\":{},", selector.mode == RangeMode::Smoothed);
    push_at(out, selector.at);
    out.push_str(if range.is_some() {
        ",\"type\":\"matrixSelector\"}"
    } else {
        ",\"type\":\"vectorSelector\"}"
    });
}

fn push_matcher(out: &mut String, matcher: &Matcher) {
    out.push_str("{\"name\":");
    push_text(out, matcher.name());
    let _ = write!(out, ",\"type\":\"{}\",\"value\":", matcher.op().as_str());
    push_text(out, matcher.value());
    out.push('}');
}

fn push_subquery(out: &mut String, subquery: &Subquery) {
    out.push_str("{\"expr\":");
    push_expr(out, &subquery.expr);
    out.push(',');
    push_span(out, "offset", subquery.offset.as_ref());
    push_span(out, "range", Some(&subquery.range));
    // Keys are sorted, so `startOrEnd` is between `rangeExpr` and `step`.
    let at = match subquery.at {
        Some(At::Start) => "\"start\"",
        Some(At::End) => "\"end\"",
        _ => "null",
    };
    let _ = write!(out, "\"startOrEnd\":{at},");
    push_span(out, "step", subquery.step.as_ref());
    push_timestamp(out, subquery.at);
    out.push_str(",\"type\":\"subquery\"}");
}

fn push_binary(out: &mut String, binary: &Binary) {
    let _ = write!(out, "{{\"bool\":{},\"lhs\":", binary.is_bool);
    push_expr(out, &binary.lhs);
    out.push_str(",\"matching\":");
    match &binary.matching {
        Some(matching) => push_matching(out, matching),
        None => out.push_str("null"),
    }
    out.push_str(",\"op\":");
    push_text(out, binary.op.as_str());
    out.push_str(",\"rhs\":");
    push_expr(out, &binary.rhs);
    out.push_str(",\"type\":\"binaryExpr\"}");
}

fn push_matching(out: &mut String, matching: &Matching) {
    let card = match matching.cardinality {
        Cardinality::OneToOne => "one-to-one",
        Cardinality::ManyToOne => "many-to-one",
        Cardinality::OneToMany => "one-to-many",
        Cardinality::ManyToMany => "many-to-many",
    };
    let _ = write!(out, "{{\"card\":\"{card}\",\"fillValues\":{{\"lhs\":");
    push_number(out, matching.fill_left);
    out.push_str(",\"rhs\":");
    push_number(out, matching.fill_right);
    out.push_str("},\"include\":");
    push_list(out, &matching.include, |out, label| push_text(out, label));
    out.push_str(",\"labels\":");
    push_list(out, &matching.labels, |out, label| push_text(out, label));
    let _ = write!(out, ",\"on\":{}}}", matching.is_on);
}

fn push_aggregate(out: &mut String, aggregate: &Aggregate) {
    out.push_str("{\"expr\":");
    push_expr(out, &aggregate.expr);
    out.push_str(",\"grouping\":");
    push_list(out, &aggregate.grouping, |out, label| push_text(out, label));
    let _ = write!(out, ",\"op\":\"{}\",\"param\":", aggregate.op.as_str());
    match &aggregate.param {
        Some(param) => push_expr(out, param),
        None => out.push_str("null"),
    }
    let _ = write!(out, ",\"type\":\"aggregation\",\"without\":{}}}", aggregate.is_without);
}

fn push_call(out: &mut String, call: &Call) {
    let function = call.function;
    out.push_str("{\"args\":");
    push_list(out, &call.args, push_expr);
    out.push_str(",\"func\":{\"argTypes\":");
    push_list(out, function.args, |out, value_type| {
        let _ = write!(out, "\"{}\"", type_name(*value_type));
    });
    let _ = write!(
        out,
        ",\"name\":\"{}\",\"returnType\":\"{}\",\"variadic\":{}}},\"type\":\"call\"}}",
        function.name,
        type_name(function.returns),
        function.variadic
    );
}

/// Returns the name of a type in the API.
fn type_name(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Scalar => "scalar",
        ValueType::String => "string",
        ValueType::Vector => "vector",
        ValueType::Matrix => "matrix",
    }
}

fn push_at(out: &mut String, at: Option<At>) {
    let context = match at {
        Some(At::Start) => "\"start\"",
        Some(At::End) => "\"end\"",
        _ => "null",
    };
    let _ = write!(out, "\"startOrEnd\":{context},");
    push_timestamp(out, at);
}

fn push_timestamp(out: &mut String, at: Option<At>) {
    match at {
        Some(At::Time(ms)) => {
            let _ = write!(out, "\"timestamp\":{ms}");
        }
        _ => out.push_str("\"timestamp\":null"),
    }
}

/// Writes a duration under two keys: in ms for a literal, as an expression otherwise.
fn push_span(out: &mut String, key: &str, duration: Option<&DurationExpr>) {
    let (ms, computed) = match duration {
        Some(DurationExpr { kind: DurationKind::Literal { seconds, .. }, .. }) => {
            (literal_ms(*seconds), None)
        }
        other => (0, other),
    };
    let _ = write!(out, "\"{key}\":{ms},\"{key}Expr\":");
    match computed {
        Some(duration) => push_duration(out, duration),
        None => out.push_str("null"),
    }
    out.push(',');
}

fn push_duration(out: &mut String, duration: &DurationExpr) {
    let mut buffer = [0; 4];
    let (op, lhs, rhs): (&str, Option<&DurationExpr>, Option<&DurationExpr>) = match &duration.kind
    {
        DurationKind::Literal { seconds, is_duration } => {
            let _ = write!(out, "{{\"duration\":{is_duration},\"type\":\"numberLiteral\",\"val\":");
            push_number_text(out, *seconds);
            out.push('}');
            return;
        }
        DurationKind::Unary { is_minus, operand } => {
            (if *is_minus { "-" } else { "+" }, None, Some(operand))
        }
        DurationKind::Binary { op, lhs, rhs } => {
            (op.encode_utf8(&mut buffer), Some(lhs), Some(rhs))
        }
        DurationKind::Step => ("step", None, None),
        DurationKind::Range => ("range", None, None),
        DurationKind::MinOf(a, b) => ("min_of", Some(a), Some(b)),
        DurationKind::MaxOf(a, b) => ("max_of", Some(a), Some(b)),
    };
    out.push_str("{\"lhs\":");
    let push_side = |out: &mut String, side: Option<&DurationExpr>| match side {
        Some(side) => push_duration(out, side),
        None => out.push_str("null"),
    };
    push_side(out, lhs);
    let _ = write!(out, ",\"op\":\"{op}\",\"rhs\":");
    push_side(out, rhs);
    let _ = write!(out, ",\"type\":\"durationExpr\",\"wrapped\":{}}}", duration.is_wrapped);
}

fn push_list<T>(out: &mut String, items: &[T], mut push: impl FnMut(&mut String, &T)) {
    out.push('[');
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        push(out, item);
    }
    out.push(']');
}

fn push_number_text(out: &mut String, value: f64) {
    out.push('"');
    let _ = write_number(out, value);
    out.push('"');
}

/// Writes a number like Go's JSON: with an exponent below 1e-6 and from 1e21 on. NaN and
/// infinities become null.
fn push_number(out: &mut String, value: Option<f64>) {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return out.push_str("null");
    };
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        let _ = write!(out, "{value}");
        return;
    }
    let _ = write_scientific(out, value);
}

/// Writes a string like Go's JSON, which also escapes HTML characters.
fn push_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{10ff80}'..='\u{10ffff}' => out.push_str("\\ufffd"),
            '<' | '>' | '&' | '\0'..='\u{1f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
