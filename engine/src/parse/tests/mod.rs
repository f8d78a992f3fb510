//! Tests of the whole parser against results of Prometheus.

mod cases;

use proptest::prelude::*;

use super::ast::{AggregateOp, DurationKind, Expr, ExprKind, RangeMode};
use super::*;
use crate::stack;

fn parsed(query: &str) -> Expr {
    match parse(query, &ParseOptions::ALL) {
        Ok(expr) => expr,
        Err(error) => panic!("{query}: {error}"),
    }
}

fn refusal(query: &str, options: &ParseOptions) -> String {
    match parse(query, options) {
        Ok(expr) => panic!("{query} passes as {expr}"),
        Err(error) => error.to_string(),
    }
}

/// Formats without a limit.
fn formatted(expr: &Expr) -> String {
    format(expr, usize::MAX).unwrap()
}

#[test]
fn refusals_read_as_those_of_prometheus() {
    for (query, expected) in cases::REFUSED {
        assert_eq!(refusal(query, &ParseOptions::ALL), *expected, "{query}");
    }
}

#[test]
fn formatting_is_that_of_prometheus() {
    for (query, expected) in cases::FORMATTED {
        assert_eq!(formatted(&parsed(query)), *expected, "{query}");
    }
}

#[test]
fn formatting_ends_at_its_limit() {
    for (query, expected) in cases::FORMATTED {
        let tree = parsed(query);
        assert_eq!(format(&tree, expected.len()).as_deref(), Some(*expected), "{query}");
        assert_eq!(format(&tree, expected.len() - 1), None, "{query}");
    }
    // Signs are not copied, and a chain of operators is visited once.
    let row = vec!["a"; 4000].join("+");
    let query = format!("{}{row}{}", "-(".repeat(60), ")".repeat(60));
    let is_cut = move || format(&parsed(&query), 1 << 20).is_none();
    let cut = stack::start(stack::stack_bytes(&row) * 2, is_cut).unwrap();
    assert!(cut.join().unwrap());
}

#[test]
fn trees_are_those_of_prometheus() {
    for (query, expected) in cases::TREES {
        assert_eq!(to_json(&parsed(query)), *expected, "{query}");
    }
}

#[test]
fn formatted_queries_mean_the_same() {
    for (query, _) in cases::FORMATTED {
        // Two signs make an offset include the operators after it, but print as one. An empty
        // second argument of `info` prints as nothing. Prometheus does both.
        if query.contains("offset --") || query.contains(", {})") {
            continue;
        }
        let tree = parsed(query);
        let again = parsed(&formatted(&tree));
        assert_eq!(again.to_string(), tree.to_string(), "{query}");
        assert_eq!(parsed(&tree.to_string()).to_string(), tree.to_string(), "{query}");
    }
}

/// Collects the texts of all nodes, parents first.
fn spans<'a>(query: &'a str, expr: &Expr, out: &mut Vec<&'a str>) {
    out.push(&query[expr.span.start as usize..expr.span.end as usize]);
    match &expr.kind {
        ExprKind::Number { .. } | ExprKind::String(_) | ExprKind::Selector(_) => {}
        ExprKind::Matrix(matrix) => {
            let span = matrix.selector_span;
            out.push(&query[span.start as usize..span.end as usize]);
        }
        ExprKind::Subquery(subquery) => spans(query, &subquery.expr, out),
        ExprKind::Unary { operand, .. } => spans(query, operand, out),
        ExprKind::Paren(inner) => spans(query, inner, out),
        ExprKind::Binary(binary) => {
            spans(query, &binary.lhs, out);
            spans(query, &binary.rhs, out);
        }
        ExprKind::Aggregate(aggregate) => {
            if let Some(param) = &aggregate.param {
                spans(query, param, out);
            }
            spans(query, &aggregate.expr, out);
        }
        ExprKind::Call(call) => call.args.iter().for_each(|arg| spans(query, arg, out)),
    }
}

#[test]
fn spans_cover_what_was_written() {
    let cases: &[(&str, &[&str])] = &[
        (" up ", &["up"]),
        ("- - 5 + -up", &["- - 5 + -up", "- - 5", "-up", "up"]),
        (
            "sum by (a) ( rate(up{b=\"c\"}[5m] offset 1m) ) # end",
            &[
                "sum by (a) ( rate(up{b=\"c\"}[5m] offset 1m) )",
                "rate(up{b=\"c\"}[5m] offset 1m)",
                "up{b=\"c\"}[5m] offset 1m",
                "up{b=\"c\"}",
            ],
        ),
        ("(sum(up) by (a))", &["(sum(up) by (a))", "sum(up) by (a)", "up"]),
        ("topk(5, up @ start())", &["topk(5, up @ start())", "5", "up @ start()"]),
        // `anchored` and `smoothed` do not extend the span of a selector.
        ("up smoothed + 1", &["up smoothed + 1", "up", "1"]),
        ("(a+b)[1h:1m] offset -(1m)", &["(a+b)[1h:1m] offset -(1m)", "(a+b)", "a+b", "a", "b"]),
        ("2 ^ 3 ^ \"é\"[1m:]", &[]),
        ("-a ^ b * c", &["-a ^ b * c", "-a ^ b", "a ^ b", "a", "b", "c"]),
        ("a or on() b", &["a or on() b", "a", "b"]),
        ("time( )", &["time( )"]),
    ];
    for (query, expected) in cases {
        let Ok(expr) = parse(query, &ParseOptions::ALL) else {
            assert!(expected.is_empty(), "{query}");
            continue;
        };
        let mut found = Vec::new();
        spans(query, &expr, &mut found);
        assert_eq!(found, *expected, "{query}");
    }
}

#[test]
fn what_is_lifted_comes_back() {
    let ExprKind::Matrix(matrix) = parsed("up smoothed[5m + step()] offset -1500ms").kind else {
        panic!("no range selector");
    };
    assert_eq!(matrix.selector.mode, RangeMode::Smoothed);
    assert_eq!(matrix.range.evaluate(30_000, 0, false).unwrap(), 330_000);
    let offset = matrix.selector.offset.unwrap();
    assert!(matches!(offset.kind, DurationKind::Literal { is_duration: true, .. }));
    assert_eq!(offset.evaluate(0, 0, true).unwrap(), -1500);

    let ExprKind::Aggregate(aggregate) = parsed("count_values(`a\\b`, +up)").kind else {
        panic!("no aggregation");
    };
    assert_eq!(aggregate.op, AggregateOp::CountValues);
    assert_eq!(aggregate.param.unwrap().kind, ExprKind::String("a\\b".to_owned()));
    assert!(matches!(aggregate.expr.kind, ExprKind::Unary { is_minus: false, .. }));
}

#[test]
fn nan_is_refused_when_a_duration_is_computed() {
    for query in ["up offset nan", "up offset (1m % nan)"] {
        let expr = parse(query, &ParseOptions::ALL).unwrap();
        let ExprKind::Selector(selector) = &expr.kind else { panic!("{expr:?}") };
        let error = selector.offset.as_ref().unwrap().evaluate(0, 0, true).unwrap_err();
        assert!(error.to_string().ends_with(": duration is NaN or infinite"), "{error}");
    }
}

#[test]
fn each_experiment_can_be_turned_off() {
    let all = ParseOptions::ALL;
    let functions = ParseOptions { experimental_functions: false, ..all };
    let durations = ParseOptions { duration_expressions: false, ..all };
    let ranges = ParseOptions { extended_range_selectors: false, ..all };
    let fill = ParseOptions { fill_modifiers: false, ..all };
    let aggregation = "is experimental and must be enabled with \
                       --enable-feature=promql-experimental-functions";
    let cases = [
        (functions, "1 + info(up)", "1:5: parse error: function \"info\" is not enabled"),
        (functions, "start()", "1:1: parse error: function \"start\" is not enabled"),
        (functions, "limitk(1, up)", &format!("1:1: parse error: limitk() {aggregation}")),
        (
            durations,
            "up[5m+1]",
            "1:4: parse error: experimental duration expression is not enabled",
        ),
        (
            durations,
            "up[step()]",
            "1:4: parse error: experimental duration expression is not enabled",
        ),
        (
            durations,
            "up offset -range()",
            "1:11: parse error: experimental duration expression is not enabled",
        ),
        (
            ranges,
            "1 + up anchored",
            "1:5: parse error: anchored modifier is experimental and not enabled",
        ),
        (
            ranges,
            "up[5m] smoothed",
            "1:1: parse error: smoothed modifier is experimental and not enabled",
        ),
        (
            fill,
            "1 + up + fill(1) up",
            "1:1: parse error: binop fill modifiers are experimental and not enabled",
        ),
    ];
    for (options, query, expected) in cases {
        assert_eq!(refusal(query, &options), expected, "{query}");
        assert!(parse(query, &all).is_ok(), "{query}");
    }
    for query in
        ["rate(up[5m] offset -1m)", "up[5m:1]", "up + on(a) group_left up", "up offset -(1)"]
    {
        assert!(parse(query, &ParseOptions::STABLE).is_ok(), "{query}");
    }
}

#[test]
fn selectors_of_the_metadata_endpoints() {
    let shown = |text: &str| match parse_selector(text) {
        Ok(matchers) => format!("{matchers:?}"),
        Err(error) => error.to_string(),
    };
    let cases = [
        ("up", "[__name__=\"up\"]"),
        ("up{a=\"b\"}", "[a=\"b\", __name__=\"up\"]"),
        ("{\"u.p\", 'x y'!~`a.`}", "[__name__=\"u.p\", \"x y\"!~\"a.\"]"),
        ("{}", "[]"),
        ("", "unknown position: parse error: unexpected end of input"),
        ("up[5m]", "1:3: parse error: unexpected \"[\""),
        ("up offset 5m", "1:4: parse error: unexpected <offset>"),
        ("sum(up)", "1:4: parse error: unexpected \"(\""),
        ("1", "1:1: parse error: unexpected number \"1\""),
        (
            "{a=b}",
            "1:4: parse error: unexpected identifier \"b\" in label matching, expected string",
        ),
        ("up{a=\"b\"} or", "1:11: parse error: unexpected <op:or>"),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text), expected, "{text}");
    }
    let check = |text| require_condition(&parse_selector(text).unwrap());
    assert!(check("{a=\"b\"}").is_ok());
    assert!(check("up").is_ok());
    for text in ["{}", "{a=\"\"}", "{a=~\".*\", b!=\"c\"}"] {
        let error = check(text).unwrap_err().to_string();
        assert_eq!(error, "match[] must contain at least one non-empty matcher", "{text}");
    }
}

#[test]
fn everything_has_a_limit() {
    let nested = |open: &str, close: &str, count: usize| {
        format!("{}up{}", open.repeat(count), close.repeat(count))
    };
    let numbered = |count: usize, item: &str| {
        (0..count).map(|n| item.replace('#', &n.to_string())).collect::<Vec<_>>().join(",")
    };
    let (nesting, nodes) = ("levels deep", "parts, which is the limit");
    let refused = [
        (nested("(", ")", NESTING_MAX + 1), nesting),
        (nested("(", "", 100_000), nesting),
        (nested("-", "", 100_000), nesting),
        (nested("abs(", ")", 100_000), nesting),
        (nested("sum(", ")", 100_000), nesting),
        (nested("", "[5m:1m]", 100_000), nesting),
        (vec!["up"; 30_000].join(" or "), nesting),
        (vec!["2"; 30_000].join("^"), nesting),
        (format!("up[{}1]", "(".repeat(100_000)), nesting),
        (format!("up[{}1]", "1+".repeat(100_000)), nesting),
        (format!("up[{}1]", "-".repeat(100_000)), nesting),
        (format!("up[{}", "min_of(1,".repeat(100_000)), nesting),
        (format!("label_join(up,'a','b',{})", numbered(NODES_MAX, "'#'")), nodes),
        (format!("sum by ({}) (up)", numbered(NODES_MAX, "a#")), nodes),
        (format!("up offset {}1", "0 offset ".repeat(NODES_MAX)), nodes),
        (format!("up{{{}}}", numbered(MATCHERS_MAX + 1, "a='#'")), "matchers, which is the limit"),
        (
            format!("up{{{}}}", numbered(REGEXES_MAX + 1, "a=~'b.#'")),
            "regular expressions, which is the limit",
        ),
        (
            nested(&format!("sum by ({}) (", numbered(150, "a#")), ")", 120),
            "within aggregations, which is the limit",
        ),
        ("a".repeat(QUERY_BYTES_MAX + 1), "longer than the limit of 1048576 bytes"),
    ];
    for (query, expected) in refused {
        let message = refusal(&query, &ParseOptions::ALL);
        assert!(message.contains(expected), "{}…: {message}", &query[..40]);
    }
    let accepted = [
        nested("(", ")", NESTING_MAX),
        nested("sum(", ")", NESTING_MAX),
        nested("-", "", NESTING_MAX),
        vec!["up"; TREE_DEPTH_MAX].join(" or "),
        format!("up[{}1]", "1+".repeat(NESTING_MAX - 2)),
        format!("up{{{}}}", numbered(MATCHERS_MAX, "a='#'")),
        format!("up{{{}}}", numbered(1000, "a=~'b|#'")),
        format!("'{}'", "a".repeat(QUERY_BYTES_MAX - 2)),
    ];
    for query in accepted {
        let is_printed = {
            let query = query.clone();
            move || !formatted(&parsed(&query)).is_empty() && !to_json(&parsed(&query)).is_empty()
        };
        let printing = stack::start(stack::stack_bytes(&query), is_printed).unwrap();
        assert!(printing.join().unwrap(), "{}…", &query[..10]);
    }
}

#[test]
fn numbers_reach_the_crate_as_they_are() {
    for query in ["1e-300", "1.7976931348623157e308", "0.1", "5e-324", "-0", "1e21", "Inf", "-nan"]
    {
        let ExprKind::Number { value, .. } = parsed(query).kind else { panic!("{query}") };
        let ExprKind::Binary(binary) = parsed(&format!("a + fill ({query}) b")).kind else {
            panic!("{query}");
        };
        let filled = binary.matching.unwrap().fill_left.unwrap();
        assert!(filled == value || filled.is_nan() && value.is_nan(), "{query}: {filled}");
    }
}

const WORDS: &[&str] = &[
    "sum",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
    "offset",
    "@",
    "start",
    "end",
    "start()",
    "step()",
    "range()",
    "min_of",
    "max_of",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "5m",
    "1",
    "-",
    "+",
    "*",
    "/",
    "%",
    "^",
    "==",
    "!=",
    "<=",
    "</",
    ">/",
    "and",
    "or",
    "unless",
    "atan2",
    "anchored",
    "smoothed",
    "fill",
    "fill(1)",
    "fill_left(2)",
    "up",
    "a:b",
    "\"s\"",
    "`r\\a`",
    "'q'",
    "=",
    "=~",
    "!~",
    "!",
    "#c\n",
    "\n",
    "info",
    "rate",
    "abs",
    "topk",
    "count_values",
    "time()",
    "Inf",
    "NaN",
    "0x1f",
    "1_0",
    "5s3",
    ".5",
    "5.",
    "$",
    "é",
    "[5m]",
    "[5m:1m]",
    "[5m:]",
    "offset 1m",
    "@ 10",
    "{a=\"b\"}",
    "{a=~\"b.\"}",
    "{\"u.v\"}",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_words_are_a_query_or_an_error(
        words in proptest::collection::vec(proptest::sample::select(WORDS), 0..24),
        separator in proptest::sample::select(&["", " "][..]),
    ) {
        let query = words.join(separator);
        match parse(&query, &ParseOptions::ALL) {
            Ok(expr) => {
                prop_assert!(expr.span.end as usize <= query.len());
                prop_assert!(!formatted(&expr).is_empty());
                let json = to_json(&expr);
                prop_assert_eq!(json.as_bytes()[0], b'{');
            }
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.contains(": parse error: "), "{}", message);
                // promql-parser never gets a text that it would reject.
                prop_assert!(!message.contains("promql-parser rejects"), "{}", message);
            }
        }
        let _ = parse_selector(&query);
    }

    #[test]
    fn any_text_is_a_query_or_an_error(query in "\\PC{0,40}|[ -~\n\t]{0,60}") {
        if let Err(error) = parse(&query, &ParseOptions::ALL) {
            prop_assert!(!error.to_string().contains("promql-parser rejects"), "{}", error);
        }
    }

    #[test]
    fn a_changed_query_is_a_query_or_an_error(
        case in 0..cases::FORMATTED.len(),
        at in any::<proptest::sample::Index>(),
        word in proptest::sample::select(WORDS),
        keep in any::<bool>(),
    ) {
        let query = cases::FORMATTED[case].0;
        let at = at.index(query.len());
        prop_assume!(query.is_char_boundary(at));
        let end = if keep { at } else { query.len().min(at + 1) };
        prop_assume!(query.is_char_boundary(end));
        let changed = format!("{}{word}{}", &query[..at], &query[end..]);
        if let Err(error) = parse(&changed, &ParseOptions::ALL) {
            prop_assert!(!error.to_string().contains("promql-parser rejects"), "{}", error);
        }
    }
}
