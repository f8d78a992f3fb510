//! Pins a query to one evaluation time.
//!
//! `rate(x[5m]) + y offset 1m` becomes `rate(x[5m] @ 60.000) + y offset 1m @ 60.000`, whose result
//! does not depend on the evaluation time. Modifiers are inserted into the text, so that the text
//! before them keeps its position.
//!
//! Source: `atModifierTestCases` in the runner of Prometheus.

use std::sync::LazyLock;

use engine::parse::ast::{At, Expr, ExprKind};
use regex::Regex;

use crate::walk::children;

/// Functions that depend on the evaluation time even for constant arguments.
const TIME_DEPENDENT: [&str; 15] = [
    "days_in_month",
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "end",
    "hour",
    "minute",
    "month",
    "year",
    "predict_linear",
    "range",
    "start",
    "step",
    "time",
    "timestamp",
];

static START_OR_END: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"@\s*(start|end)\s*\(\s*\)")
        .expect("the pattern is a constant that a test compiles")
});

/// Pins every selector and subquery that has no `@` to `time_ms`, except those inside a subquery.
/// Returns `None` if a function still depends on the evaluation time.
pub(crate) fn pin(query: &str, expr: &Expr, time_ms: i64) -> Option<String> {
    let mut edits = Vec::new();
    collect(query, expr, &mut edits)?;
    edits.sort_by_key(|(start, _)| *start);
    let modifier = format!("@ {}.{:03}", time_ms / 1000, time_ms % 1000);
    let mut pinned = String::with_capacity(query.len() + edits.len() * 16);
    let mut copied = 0;
    for (start, end) in edits {
        pinned.push_str(&query[copied..start]);
        if start == end {
            pinned.push(' ');
        }
        pinned.push_str(&modifier);
        copied = end;
    }
    pinned.push_str(&query[copied..]);
    Some(pinned)
}

/// Returns other times at which to evaluate a query pinned to `time_ms`.
pub(crate) fn other_times(time_ms: i64) -> Vec<i64> {
    match time_ms {
        0 => vec![-1000, 0, 1000],
        _ => vec![-10 * time_ms, 0, time_ms / 5, time_ms, 10 * time_ms],
    }
}

/// Collects the byte ranges that the modifier replaces; an empty range is an insertion.
fn collect(query: &str, expr: &Expr, edits: &mut Vec<(usize, usize)>) -> Option<()> {
    let at = match &expr.kind {
        ExprKind::Selector(selector) => selector.at,
        ExprKind::Matrix(matrix) => matrix.selector.at,
        ExprKind::Subquery(subquery) => subquery.at,
        ExprKind::Call(call) if TIME_DEPENDENT.contains(&call.function.name) => return None,
        _ => {
            return children(expr).into_iter().try_for_each(|child| collect(query, child, edits));
        }
    };
    let span = expr.span.start as usize..expr.span.end as usize;
    match at {
        Some(At::Time(_)) => {}
        Some(At::Start | At::End) => {
            // Modifiers are at the end, so the last match belongs to this node.
            let found = START_OR_END.find_iter(&query[span.clone()]).last()?;
            edits.push((span.start + found.start(), span.start + found.end()));
        }
        None => edits.push((span.end, span.end)),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::parse::{ParseOptions, parse};

    #[track_caller]
    fn check(query: &str, expected: Option<&str>) {
        let expr = parse(query, &ParseOptions::ALL).unwrap();
        assert_eq!(pin(query, &expr, 60_500).as_deref(), expected);
    }

    #[test]
    fn what_is_not_pinned_gets_the_time() {
        check("x + y{a=\"@ end()\"}", Some("x @ 60.500 + y{a=\"@ end()\"} @ 60.500"));
        check("rate(x[5m] offset 1m)", Some("rate(x[5m] offset 1m @ 60.500)"));
        check("x @ 3 + y @ end()", Some("x @ 3 + y @ 60.500"));
        check("y @ start () offset 1m", Some("y @ 60.500 offset 1m"));
        check("topk(scalar(x), y)", Some("topk(scalar(x @ 60.500), y @ 60.500)"));
    }

    #[test]
    fn what_stands_inside_a_subquery_stays() {
        check("sum_over_time(x[1h:1m])", Some("sum_over_time(x[1h:1m] @ 60.500)"));
        check(
            "max_over_time((x @ end())[1h:1m] @ end())",
            Some("max_over_time((x @ end())[1h:1m] @ 60.500)"),
        );
        check(
            "max_over_time(timestamp(x)[1h:1m] @ 5)",
            Some("max_over_time(timestamp(x)[1h:1m] @ 5)"),
        );
    }

    #[test]
    fn functions_of_the_time_are_left_alone() {
        check("x + time()", None);
        check("timestamp(x)", None);
    }

    #[test]
    fn pinned_queries_are_evaluated_far_away() {
        assert_eq!(other_times(0), [-1000, 0, 1000]);
        assert_eq!(other_times(5000), [-50_000, 0, 1000, 5000, 50_000]);
    }
}
