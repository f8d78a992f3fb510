//! Random queries from the rules of a grammar.
//!
//! A rule has a name and alternatives; `<name>` in an alternative stands for a rule. While the
//! depth lasts any alternative is taken, after that only one that comes to its end soonest.
//! What Prometheus leaves to chance is kept out: which of equal values is ranked first, and the
//! last digits of sums, which some functions magnify.

use std::collections::HashMap;

use crate::generate::{Query, Random};

const RULES: &[(&str, &[&str])] = &[
    ("query", &["<vector>", "<scalar>", "<matrix>", "<string>", "<odd>"]),
    (
        "ordered",
        &[
            "sort(<distinct>)",
            "sort_desc(<distinct>)",
            "sort_by_label(<distinct>, \"n\")",
            "sort_by_label_desc(<distinct>, \"parity\", \"n\")",
            "topk(<count>, <distinct>)",
            "bottomk(<count>, <distinct>)",
            "limitk(<count>, <unique>)",
        ],
    ),
    (
        "vector",
        &[
            "<selector>",
            "<selector>",
            "<selector>",
            "<plain>(<vector>)",
            "<large>(clamp(<vector>, -700, 700))",
            "<date>(clamp(<vector>, -1e6, 1e6))",
            "<date>(<metric><braces>)",
            "<date>()",
            "<rollup>(<matrix>)",
            "<rollup>(<matrix>)",
            "<rollup>(<matrix>)",
            "<bordered>(<metric><braces>[<range>]<mode><moved>)",
            "<with-parameter>",
            "<aggregation>",
            "<aggregation>",
            "<aggregation>",
            "<operation>",
            "<operation>",
            "<operation>",
            "<labels-changed>",
            "<classic-histogram>",
            "(<vector>)",
            "-<selector>",
            "+(<vector>)",
            "vector(<scalar>)",
            "absent(<vector>)",
            "absent_over_time(<matrix>)",
            "<annotated>",
        ],
    ),
    (
        "annotated",
        &[
            "rate(load[5m])",
            "increase(load[10m])",
            "quantile(2, load)",
            "quantile by (job) (-1, load)",
            "quantile_over_time(2, load[5m])",
            "histogram_quantile(-1, latency_bucket)",
            "increase((<annotated>)[10m:1m])",
            "quantile_over_time(2, (<annotated>)[10m:1m])",
            "quantile(2, <annotated>)",
            "quantile(<changing> + 2, <annotated>)",
            "quantile(scalar(rate(load[5m])) + 2, <annotated>)",
            "histogram_quantile(2, sum by (le) (<annotated>) or latency_bucket)",
            "(<annotated> + <annotated>)",
            "(<annotated> or on (job) <annotated>)",
            "max(<annotated>)",
            "histogram_quantile(0.5, sum without (le) (<annotated>))",
            "sort(<annotated>)",
        ],
    ),
    (
        "plain",
        &[
            "abs",
            "ceil",
            "floor",
            "sgn",
            "sqrt",
            "ln",
            "log2",
            "log10",
            "atan",
            "asinh",
            "acos",
            "asin",
            "acosh",
            "atanh",
            "tanh",
            "deg",
            "rad",
            "timestamp",
            "sort",
            "sort_desc",
            "round",
        ],
    ),
    ("large", &["exp", "sin", "cos", "tan", "sinh", "cosh"]),
    (
        "date",
        &[
            "day_of_month",
            "day_of_week",
            "day_of_year",
            "days_in_month",
            "hour",
            "minute",
            "month",
            "year",
        ],
    ),
    (
        "rollup",
        &[
            "rate",
            "increase",
            "delta",
            "irate",
            "idelta",
            "deriv",
            "changes",
            "resets",
            "avg_over_time",
            "min_over_time",
            "max_over_time",
            "sum_over_time",
            "count_over_time",
            "stddev_over_time",
            "stdvar_over_time",
            "last_over_time",
            "first_over_time",
            "present_over_time",
            "mad_over_time",
            "ts_of_min_over_time",
            "ts_of_max_over_time",
            "ts_of_first_over_time",
            "ts_of_last_over_time",
        ],
    ),
    (
        "bordered",
        &["rate", "increase", "delta", "changes", "resets", "rate", "increase", "max_over_time"],
    ),
    (
        "with-parameter",
        &[
            "quantile_over_time(<fraction>, <unpinned>)",
            "predict_linear(<unpinned>, <number>)",
            "double_exponential_smoothing(<unpinned>, <smoothing>, <smoothing>)",
            "clamp(<vector>, <number>, <scalar>)",
            "clamp_min(<vector>, <scalar>)",
            "clamp_max(<vector>, <number>)",
            "round(<vector>, <number>)",
        ],
    ),
    ("smoothing", &["0.5", "0.1", "0.9", "1", "0", "-1", "scalar(lonely)"]),
    (
        "aggregation",
        &[
            "<fold><grouping>(<vector>)",
            "<fold>(<vector>)<grouping>",
            "<fold><grouping>(<vector>)",
            "<spread><grouping>(clamp(<vector>, -1e6, 1e6))",
            "quantile<grouping>(<fraction>, <vector>)",
            "quantile<grouping>(<changing>, <vector>)",
            "count_values<grouping>(<counted-label>, round(clamp(<vector>, -1e6, 1e6), 0.7))",
            "topk<grouping>(<count>, <distinct>)",
            "bottomk(<count>, <distinct>)<grouping>",
            "limitk<grouping>(<count>, <unique>)",
            "limit_ratio<grouping>(<ratio>, <vector>)",
        ],
    ),
    // Without `@`, which the release forgets in the parameter of an aggregation over a range.
    (
        "changing",
        &[
            "scalar(lonely)",
            "scalar(lonely offset 1m) / 6",
            "scalar(rate(lonely[5m]))",
            "scalar(<fold>(flappy))",
            "scalar(sum(absent_over_time(sparse[3m])))",
            "(time() % 2)",
            "-scalar(lonely)",
            "scalar(quantile(2, load))",
        ],
    ),
    ("fold", &["sum", "avg", "min", "max", "count", "group"]),
    ("spread", &["stddev", "stdvar"]),
    ("counted-label", &["\"value\"", "\"job\"", "'n'", "\"a b\"", "`service.name`"]),
    ("grouping", &["", "", " by (<labels>) ", " without (<labels>) ", " by () ", " without () "]),
    ("labels", &["<label>", "<label>, <label>", "<label>, <label>, <label>", "<label>,"]),
    (
        "label",
        &[
            "job",
            "instance",
            "code",
            "zone",
            "version",
            "n",
            "parity",
            "le",
            "nowhere",
            "__name__",
            "\"service.name\"",
            "'job'",
            "by",
        ],
    ),
    ("count", &["1", "2", "3", "0", "-1", "2.7", "100", "NaN", "1e19", "-Inf", "scalar(lonely)"]),
    ("ratio", &["0.5", "-0.5", "0.1", "-0.9", "1", "-1", "0", "2", "-3", "NaN", "scalar(lonely)"]),
    ("fraction", &["0", "0.5", "0.9", "0.25", "1", "-0.1", "1.1", "NaN", "Inf", "-Inf"]),
    (
        "distinct",
        &[
            "<unique>",
            "max_over_time(<unique>[2m])",
            "<unique> * -2",
            "<unique> offset 3m",
            "(<unique> @ 1700003600)",
            "<unique> / 4",
        ],
    ),
    (
        "unique",
        &["unique", "unique{n=~\"[2-7]\"}", "unique{parity!=\"odd\"}", "unique{n!~\"0|9\"}"],
    ),
    (
        "operation",
        &[
            "(<vector> <arithmetic><matching> <vector>)",
            "<selector> <comparison><matching> <selector>",
            "(<vector> <comparison> bool<matching> <vector>)",
            "(<vector> <arithmetic><matching><fill> <vector>)",
            "(<vector> <set><set-matching> <vector>)",
            "(<vector> <set><set-matching> <vector>)",
            "(<vector> <arithmetic> <scalar>)",
            "(<scalar> <arithmetic> <vector>)",
            "(<vector> <comparison> <scalar>)",
            "(<scalar> <comparison> bool <vector>)",
            "(clamp(<vector>, -1e6, 1e6) % <number>)",
            "<selector> - <selector> * <selector> ^ <number>",
            "<many> <any-arithmetic> on (job) group_left<include><fill> <one>",
            "<one> <any-arithmetic> on (job) group_right<include><fill> <many>",
            "<many> <comparison><bool> on (job) group_left<include><fill> <one>",
            "<vector> </ <number>",
            "<vector> >/ <vector>",
        ],
    ),
    ("arithmetic", &["+", "-", "*", "/", "atan2"]),
    ("any-arithmetic", &["+", "-", "*", "/", "^", "%", "atan2"]),
    ("comparison", &["==", "!=", "<", "<=", ">", ">="]),
    ("bool", &["", " bool"]),
    ("set", &["and", "or", "unless"]),
    (
        "matching",
        &[
            "",
            "",
            " on (<labels>)",
            " ignoring (<labels>)",
            " on (<labels>) group_left<include>",
            " ignoring (<labels>) group_right<include>",
            " ignoring (code, zone, version, cluster)",
        ],
    ),
    ("set-matching", &["", " on (<labels>)", " ignoring (<labels>)", " on ()", " ignoring ()"]),
    (
        "fill",
        &[
            "",
            " fill (<fill-value>)",
            " fill_left (<fill-value>)",
            " fill_right (<fill-value>)",
            " fill_left (<fill-value>) fill_right (<fill-value>)",
        ],
    ),
    ("fill-value", &["0", "1.5", "-2", "NaN", "+Inf"]),
    ("include", &["", " ()", " (version)", " (version, cluster)", " (revision)", " (nowhere)"]),
    ("many", &["requests_total<braces>", "load<moved>", "latency_bucket", "temperature"]),
    ("one", &["build_info", "flappy", "latency_count", "sum by (job) (load)"]),
    (
        "labels-changed",
        &[
            "label_replace(<vector>, <target>, <replacement>, <source>, <pattern>)",
            "label_join(<vector>, <target>, <string>, <source>, <source>)",
            "label_join(<vector>, <target>, '')",
            "info(<info-base><more-info>)",
            "info(<fold> by (job, instance) (<metric><braces>), {version=~\".+\"})",
        ],
    ),
    (
        "target",
        &["\"new\"", "'job'", "`instance`", "\"__name__\"", "\"a b\"", "\"\"", "\"le\"", "\"Ä\""],
    ),
    ("source", &["\"instance\"", "\"job\"", "\"__name__\"", "\"nowhere\"", "\"service.name\""]),
    (
        "replacement",
        &["\"$1\"", "\"x-$1\"", "\"${2}y\"", "\"\"", "\"$name\"", "\"$$1\"", "\"\\u00e9${1}\""],
    ),
    (
        "pattern",
        &[
            "\"(.*)\"",
            "\"(.)(.*)\"",
            "\"a\"",
            "`([0-9]+)|x`",
            "\"\"",
            "`(?P<name>\\w)`",
            "\"(?i:A)(.*)\"",
            "\"(\"",
        ],
    ),
    ("info-base", &["load", "requests_total<braces>", "temperature", "other{job=\"a\"}"]),
    (
        "more-info",
        &[
            "",
            ", {version=~\".+\"}",
            ", {__name__=\"build_info\"}",
            ", {version=\"v1\"}",
            ", {nowhere=\"\"}",
            ", {__name__=~\".+_info\",version!=\"v1\"}",
            ", build_info",
        ],
    ),
    (
        "classic-histogram",
        &[
            "histogram_quantile(<fraction>, <buckets>)",
            "histogram_quantile(scalar(<vector>), <buckets>)",
            "histogram_fraction(<number>, <number>, <buckets>)",
            "histogram_quantiles(<buckets>, \"q\", <fraction>, 0.75)",
            "histogram_<of-native>(<vector>)",
        ],
    ),
    ("of-native", &["count", "sum", "avg", "stddev", "stdvar"]),
    (
        "buckets",
        &[
            "latency_bucket<braces>",
            "rate(latency_bucket[5m])",
            "sum by (le) (latency_bucket)",
            "sum by (le, job) (increase(latency_bucket[10m:1m]))",
            "label_replace(latency_bucket, \"le\", \"x\", \"le\", \"1\")",
            "<vector>",
        ],
    ),
    (
        "selector",
        &[
            "<metric><braces><moved>",
            "<metric><braces><moved>",
            "{<named><more>}<moved>",
            "<metric><braces> smoothed<moved>",
            "<metric><moved>",
            "(<metric> offset <offset>)",
        ],
    ),
    (
        "metric",
        &[
            "requests_total",
            "temperature",
            "load",
            "other",
            "target_info",
            "build_info",
            "flappy",
            "sparse",
            "lonely",
            "unique",
            "latency_bucket",
            "moment_seconds",
            "absent_metric",
        ],
    ),
    (
        "named",
        &[
            "\"load\"",
            "\"http.requests\"",
            "'requests_total'",
            "__name__=~\"load|other\"",
            "\"tempe\\x72ature\"",
            "__name__=\"lonely\"",
            "\"http.requests\", \"service.name\"=\"a \\\"quoted\\\" name\"",
            "`http.requests`, `service.name`=`b\\c`",
        ],
    ),
    ("more", &["", ",", ", job=\"a\"", ", instance!~\"0|\"", ", \"zone\"=~'z?',"]),
    (
        "braces",
        &[
            "",
            "",
            "{}",
            "{job=\"a\"}",
            "{job!=\"a\", instance=~\"[01]\"}",
            "{instance=~\".+\"}",
            "{instance=\"\"}",
            "{code=~\"5..|\"}",
            "{nowhere!='x'}",
            "{le!=\"+Inf\",}",
            "{job=~`a|c`, n!=\"\\x41\"}",
            "{'job'=\"b\"}",
            "{job=\"\\u0061\"}",
            "{job=~\"(?i)A\"}",
            "{job=~\"[\"}",
        ],
    ),
    (
        "moved",
        &[
            "",
            "",
            "",
            "",
            " offset <offset>",
            " @ <at>",
            " offset <offset> @ <at>",
            " @ <at> offset <offset>",
        ],
    ),
    (
        "offset",
        &[
            "1m",
            "-1m",
            "10m",
            "37s",
            "1h",
            "-30m",
            "1ms",
            "0s",
            "90",
            "-0.5",
            "(2m * 2)",
            "-(1m + 30s)",
            "step()",
            "-step()",
            "(range() / 2)",
            "max_of(1m, step())",
            "1h30m",
            "min_of(-1m, step())",
            "300y",
            "(1m - 2 * 30s)",
        ],
    ),
    (
        "at",
        &[
            "start()",
            "end()",
            "start()",
            "end()",
            "1700003600",
            "1700001234.567",
            "0",
            "-1",
            "-1e9",
            "5e9",
            "1.7e9",
            "1e300",
            "NaN",
        ],
    ),
    (
        "matrix",
        &[
            "<metric><braces>[<range>]<moved>",
            "<metric><braces>[<range>]<moved>",
            "{<named><more>}[<range>]<moved>",
            "<selector>[<inner-range>:<resolution>]<moved>",
            "(<vector>)[<inner-range>:<resolution>]<moved>",
            "<rollup>(<matrix>)[<inner-range>:<resolution>]<moved>",
        ],
    ),
    (
        "unpinned",
        &[
            "<metric><braces>[<range>]<moved>",
            "(<vector>)[<inner-range>:<resolution>]",
            "<selector>[<inner-range>:<resolution>] offset <offset>",
        ],
    ),
    ("mode", &[" anchored", " smoothed"]),
    (
        "range",
        &[
            "1m",
            "5m",
            "10m",
            "30m",
            "1h",
            "90s",
            "15s",
            "16s",
            "47s",
            "1ms",
            "4m1ms",
            "60",
            "3h",
            "0x3c",
            "1e2",
            "(1m + 30s)",
            "5m * 2",
            "10m / 2",
            "step()",
            "range()",
            "2 * step()",
            "max_of(5m, step())",
            "min_of(range(), 10m)",
            "(step() + 1m) * 2",
            "-(-5m)",
            "1h % 25m",
            "(5m) ^ 1",
            "1m - 1m",
            "1m / 0",
            "290y",
        ],
    ),
    (
        "inner-range",
        &["1m", "5m", "10m", "30m", "47s", "600", "(5m + 1m)", "max_of(5m, 2 * 1m)", "0s"],
    ),
    (
        "resolution",
        &["", "30s", "1m", "17s", "5m", "60", "(20s + 10s)", "max_of(step(), 30s)", "0s", "-1m"],
    ),
    (
        "scalar",
        &[
            "<number>",
            "<number>",
            "time()",
            "pi()",
            "scalar(<vector>)",
            "scalar(<selector>)",
            "(<scalar> <any-arithmetic> <number>)",
            "(<number> <comparison> bool <scalar>)",
            "-<number> ^ <number>",
            "start()",
            "end()",
            "step()",
            "range()",
            "min_of(<scalar>, <number>)",
            "max_of(<number>, <scalar>)",
        ],
    ),
    (
        "number",
        &[
            "0", "1", "2", "-1", "0.5", "3.75", "10", "-2.5", "100", "1e3", "NaN", "Inf", "-inf",
            "0x1F", "7", "1_000", ".5", "5.", "1m30s", "0b101", "017", "1e300", "4.9e-324",
        ],
    ),
    (
        "string",
        &[
            "\"text\"",
            "'a\\tb'",
            "`raw\\n`",
            "\"\"",
            "\"\\x41\\101\\u00e9\\U0001F600\"",
            "'\\'\"'",
            "\"\\xff\"",
            "\"\\\\\\a\\b\\f\\v\"",
            "\"\\q\"",
            "'\\400'",
        ],
    ),
    (
        "odd",
        &[
            "rate(<vector>)",
            "abs(<matrix>)",
            "sum(<scalar>)",
            "sum(<string>)",
            "<matrix> + 1",
            "<string> + <vector>",
            "<vector> and <scalar>",
            "<scalar> > <number>",
            "topk(<vector>)",
            "sum(<number>, <selector>)",
            "quantile(<string>, <selector>)",
            "count_values(<number>, <selector>)",
            "<selector>[<range>] offset <offset> offset <offset>",
            "<selector> @ <at> @ <at>",
            "(<vector>) offset 1m",
            "<metric>[<range>][<range>]",
            "<selector> + on (<labels>) group_left (<label>) <selector>",
            "<selector> and on (job) group_left <selector>",
            "<number> + on (job) <number>",
            "<selector> + bool <selector>",
            "<selector> and fill (0) <selector>",
            "<selector> + fill (<selector>) <selector>",
            "abs()",
            "abs(<selector>, <selector>)",
            "nosuch(<selector>)",
            "label_replace(<selector>, <target>, <replacement>, <source>)",
            "<metric>{job=\"a\"",
            "<metric>{job=1}",
            "<metric>{}{}",
            "{}",
            "{job=\"\"}",
            "{\"load\", __name__=\"load\"}",
            "load{\"load\"}",
            "load{__name__=\"other\"}",
            "<selector> anchored",
            "<selector> smoothed anchored",
            "<metric>[<range>] anchored anchored",
            "<metric>[<range>] smoothed",
            "<rollup>(<metric>[<range>]<mode>)",
            "(<metric>)[<inner-range>:<resolution>] smoothed",
            "<scalar>[<inner-range>:<resolution>]",
            "<string>[5m:1m]",
            "-<string>",
            "-<matrix>",
            "<aggregation> by (job)",
            "<fold> by (job, 1) (<selector>)",
            "<metric>[5m:1m:1m]",
            "<metric>[]",
            "<metric>[<number>s]",
            "<vector> <vector>",
            "(<vector>",
            "<vector>)",
            "<vector> +",
            "== <vector>",
            "<metric> offset",
            "<metric> @",
            "<metric> # the rest is a comment",
            "sum by (job) # comment\n (<vector>)",
        ],
    ),
];

/// What a mutation puts in.
const PIECES: [&str; 24] = [
    "(", ")", "[", "]", "{", "}", ",", ":", "=", "!", "\"", "'", "`", "\\", "@", "#", "\n", " by ",
    " on ", "offset", "-", "5m", "1e", "é",
];

/// Expands the rules.
#[derive(Debug)]
pub struct Grammar {
    random: Random,
    /// Alternatives by rule, each with how deep it must at least go.
    rules: HashMap<&'static str, Vec<(&'static str, u32)>>,
}

impl Grammar {
    /// A generator whose queries a seed decides.
    pub fn new(seed: u64) -> Grammar {
        let mut heights: HashMap<&'static str, u32> = HashMap::new();
        let height = |heights: &HashMap<&str, u32>, text: &str| {
            names(text)
                .map(|name| heights.get(name).copied())
                .try_fold(0, |max, height| height.map(|height: u32| max.max(height + 1)))
        };
        while heights.len() < RULES.len() {
            let before = heights.len();
            for (name, alternatives) in RULES {
                if let Some(least) = alternatives.iter().filter_map(|a| height(&heights, a)).min() {
                    heights.entry(name).or_insert(least);
                }
            }
            assert!(heights.len() > before, "a rule never ends");
        }
        let rule = |alternatives: &[&'static str]| {
            let with_height = |text: &&'static str| Some((*text, height(&heights, text)?));
            alternatives.iter().filter_map(with_height).collect()
        };
        let rules = RULES.iter().map(|(name, alternatives)| (*name, rule(alternatives))).collect();
        Grammar { random: Random::new(seed), rules }
    }

    /// The numbers behind it.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// The next query.
    pub fn query(&mut self) -> Query {
        let (start, is_ordered) = match self.random.below(32) {
            0 | 1 => ("ordered", true),
            2 | 3 => ("odd", false),
            4 => ("query", false),
            5 => ("scalar", false),
            6 => ("matrix", false),
            _ => ("vector", false),
        };
        let depth = 4 + self.random.below(8) as u32;
        let mut text = String::new();
        self.expand(start, depth, &mut text);
        if self.random.one_in(16) {
            return Query { text: self.mutated(&text), is_ordered: false };
        }
        Query { text, is_ordered }
    }

    /// The text with a piece of it cut out, doubled or put elsewhere.
    fn mutated(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        let at = self.random.below(chars.len() as u64 + 1) as usize;
        let end = (at + 1 + self.random.below(5) as usize).min(chars.len());
        let mut piece: Vec<char> = chars[at..end].to_vec();
        match self.random.below(4) {
            0 => piece.clear(),
            1 => piece = piece.repeat(2),
            2 => piece = self.random.pick(&PIECES).chars().collect(),
            _ => {
                let from = self.random.below(chars.len() as u64 + 1) as usize;
                piece.extend(chars[from..].iter().take(6));
            }
        }
        chars.splice(at..end, piece);
        chars.into_iter().collect()
    }

    fn expand(&mut self, rule: &str, depth: u32, out: &mut String) {
        let alternatives = &self.rules[rule];
        let least = alternatives.iter().map(|(_, height)| *height).min().unwrap_or(0);
        let open: Vec<&'static str> = alternatives
            .iter()
            .filter(|(_, height)| *height <= depth.max(least))
            .map(|(text, _)| *text)
            .collect();
        let mut rest: &'static str = self.random.pick(&open);
        while let Some((before, name, after)) = next_name(rest) {
            out.push_str(before);
            self.expand(name, depth.saturating_sub(1), out);
            rest = after;
        }
        out.push_str(rest);
    }
}

/// The text before the first rule's name in an alternative, the name, and the text after it.
fn next_name(text: &'static str) -> Option<(&'static str, &'static str, &'static str)> {
    let mut from = 0;
    loop {
        let start = from + text[from..].find('<')?;
        let end = start + text[start..].find('>')?;
        let name = &text[start + 1..end];
        if RULES.iter().any(|(rule, _)| *rule == name) {
            return Some((&text[..start], name, &text[end + 1..]));
        }
        from = start + 1;
    }
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('<')
        .skip(1)
        .filter_map(|piece| piece.split_once('>'))
        .map(|(name, _)| name)
        .filter(|name| RULES.iter().any(|(rule, _)| rule == name))
}

#[cfg(test)]
mod tests {
    use engine::functions::all;
    use engine::parse::{ParseOptions, parse};

    use super::*;
    use crate::generate::{Category, Generator, parts};

    #[test]
    fn every_function_comes_up() {
        let mut broad = Generator::new(1, true);
        let mut grammar = Grammar::new(1);
        let mut seen: Vec<(Category, &str)> = Vec::new();
        for _ in 0..4_000 {
            seen.extend(parts(&broad.query().text));
            seen.extend(parts(&grammar.query().text));
        }
        for function in all().iter().filter(|function| function.name != "start_timestamp") {
            assert!(seen.contains(&(Category::Function, function.name)), "{}", function.name);
        }
    }

    #[test]
    fn most_queries_are_valid() {
        let mut grammar = Grammar::new(2);
        let is_valid = |text: &str| parse(text, &ParseOptions::ALL).is_ok();
        let valid = (0..1_000).filter(|_| is_valid(&grammar.query().text)).count();
        assert!((500..950).contains(&valid), "{valid}");
    }
}
