//! Parts of a query.

use std::collections::BTreeSet;

use engine::parse::ast::{At, Binary, DurationExpr, DurationKind, Expr, ExprKind, RangeMode};
use engine::parse::{ParseOptions, parse};
use model::Matcher;

use crate::walk::children;

/// Categories of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Functions, by name.
    Function,
    /// Aggregations, by name.
    Aggregation,
    /// Operators, as written.
    Operator,
    /// Modifiers of a selector, a match or a grouping.
    Modifier,
    /// Literals and selectors.
    Operand,
    /// Queries rejected by the parser.
    Refused,
}

type Parts = BTreeSet<(Category, &'static str)>;

/// Returns the distinct parts of a query.
pub fn parts(query: &str) -> Parts {
    let mut parts = Parts::new();
    match parse(query, &ParseOptions::ALL) {
        Ok(expr) => add(&expr, &mut parts),
        Err(_) => {
            parts.insert((Category::Refused, "parse error"));
        }
    }
    parts
}

fn add(expr: &Expr, parts: &mut Parts) {
    let mut note = |category, part| {
        parts.insert((category, part));
    };
    match &expr.kind {
        ExprKind::Number { .. } => note(Category::Operand, "number"),
        ExprKind::String(_) => note(Category::Operand, "string"),
        ExprKind::Paren(_) => {}
        ExprKind::Unary { .. } => note(Category::Operator, "sign"),
        ExprKind::Call(call) => note(Category::Function, call.function.name),
        ExprKind::Aggregate(aggregate) => {
            note(Category::Aggregation, aggregate.op.as_str());
            match (aggregate.is_without, aggregate.grouping.is_empty()) {
                (true, _) => note(Category::Modifier, "without"),
                (false, false) => note(Category::Modifier, "by"),
                (false, true) => {}
            }
        }
        ExprKind::Binary(binary) => add_binary(binary, parts),
        ExprKind::Selector(selector) => {
            note(Category::Operand, "instant selector");
            add_mode(selector.mode, parts);
            add_matchers(&selector.matchers, parts);
            add_times(selector.offset.as_ref(), selector.at, parts);
        }
        ExprKind::Matrix(matrix) => {
            note(Category::Operand, "range selector");
            add_mode(matrix.selector.mode, parts);
            add_matchers(&matrix.selector.matchers, parts);
            add_times(matrix.selector.offset.as_ref(), matrix.selector.at, parts);
            add_duration(Some(&matrix.range), parts);
        }
        ExprKind::Subquery(subquery) => {
            note(Category::Modifier, "subquery");
            add_times(subquery.offset.as_ref(), subquery.at, parts);
            add_duration(Some(&subquery.range), parts);
            add_duration(subquery.step.as_ref(), parts);
        }
    }
    children(expr).into_iter().for_each(|child| add(child, parts));
}

fn add_binary(binary: &Binary, parts: &mut Parts) {
    let mut note = |part| {
        parts.insert((Category::Modifier, part));
    };
    if binary.is_bool {
        note("bool");
    }
    if let Some(matching) = &binary.matching {
        use engine::parse::ast::Cardinality::{ManyToMany, ManyToOne, OneToMany, OneToOne};
        match (matching.is_on, matching.labels.is_empty()) {
            (true, _) => note("on"),
            (false, false) => note("ignoring"),
            (false, true) => {}
        }
        match matching.cardinality {
            ManyToOne => note("group_left"),
            OneToMany => note("group_right"),
            OneToOne | ManyToMany => {}
        }
        match (matching.fill_left, matching.fill_right) {
            (None, None) => {}
            (Some(_), None) => note("fill_left"),
            (None, Some(_)) => note("fill_right"),
            (Some(_), Some(_)) => note("fill"),
        }
    }
    parts.insert((Category::Operator, binary.op.as_str()));
}

fn add_mode(mode: RangeMode, parts: &mut Parts) {
    match mode {
        RangeMode::Plain => {}
        RangeMode::Anchored => {
            parts.insert((Category::Modifier, "anchored"));
        }
        RangeMode::Smoothed => {
            parts.insert((Category::Modifier, "smoothed"));
        }
    }
}

fn add_matchers(matchers: &[Matcher], parts: &mut Parts) {
    if matchers.len() > 1 {
        parts.insert((Category::Operand, "matchers"));
    }
}

fn add_times(offset: Option<&DurationExpr>, at: Option<At>, parts: &mut Parts) {
    if offset.is_some() {
        parts.insert((Category::Modifier, "offset"));
    }
    match at {
        None => {}
        Some(At::Time(_)) => {
            parts.insert((Category::Modifier, "@"));
        }
        Some(At::Start) => {
            parts.insert((Category::Modifier, "@ start()"));
        }
        Some(At::End) => {
            parts.insert((Category::Modifier, "@ end()"));
        }
    }
    add_duration(offset, parts);
}

fn add_duration(duration: Option<&DurationExpr>, parts: &mut Parts) {
    let is_literal =
        duration.is_none_or(|duration| matches!(duration.kind, DurationKind::Literal { .. }));
    if !is_literal {
        parts.insert((Category::Modifier, "duration expression"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_once_by_category() {
        let found = parts("sum by (a) (rate(m[5m] offset 1m) + on () 2 * m) > bool 1");
        let names = |category| -> Vec<&str> {
            found.iter().filter(|part| part.0 == category).map(|part| part.1).collect()
        };
        assert_eq!(names(Category::Function), ["rate"]);
        assert_eq!(names(Category::Aggregation), ["sum"]);
        assert_eq!(names(Category::Operator), ["*", "+", ">"]);
        assert_eq!(names(Category::Modifier), ["bool", "by", "offset", "on"]);
        assert_eq!(
            parts("sum(").into_iter().collect::<Vec<_>>(),
            [(Category::Refused, "parse error")]
        );
    }
}
