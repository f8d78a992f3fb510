//! Random queries of every kind.

use engine::catalog::{
    DateFunction, Function, FunctionId, MathFunction, RangeModes, RollupFunction, SortFunction, all,
};
use engine::parse::ast::ValueType;

use crate::generate::operand_rules::METRICS;
use crate::generate::{Operands, Query, Random};

/// Metrics with histograms, or floats and histograms alternately, and some floats to combine.
const NATIVE_METRICS: [&str; 14] = [
    "steady_seconds",
    "steady_seconds",
    "rpc_seconds",
    "rpc_seconds",
    "size_bytes",
    "size_bytes",
    "queue_depth",
    "mixed",
    "mixed",
    "odd_seconds",
    "fine_seconds",
    "alone_seconds",
    "latency",
    "load",
];
const LABELS: [&str; 9] =
    ["job", "instance", "code", "zone", "version", "n", "parity", "le", "nowhere"];
const MATCHERS: [&str; 16] = [
    r#"job="a""#,
    r#"job!="a""#,
    r#"job=~"a|c""#,
    r#"job!~"b.*""#,
    r#"instance=~"[01]""#,
    r#"instance!="""#,
    r#"instance="""#,
    r#"instance=~".+""#,
    r#"instance!~"0|""#,
    r#"code="200""#,
    r#"code=~"5..|""#,
    r#"nowhere="""#,
    r#"nowhere!="x""#,
    r#"n=~"[2-7]""#,
    r#"zone=~"z?""#,
    r#"le!="+Inf""#,
];
const DURATIONS: [&str; 14] = [
    "1m", "5m", "10m", "30m", "1h", "90s", "15s", "16s", "47s", "1ms", "2m30s", "4m1ms", "60", "3h",
];
const OFFSETS: [&str; 8] = ["1m", "-1m", "10m", "37s", "1h", "-30m", "1ms", "15s"];
pub(super) const NUMBERS: [&str; 16] = [
    "0", "1", "2", "-1", "0.5", "3.75", "10", "-2.5", "100", "1e3", "NaN", "Inf", "-Inf", "1e300",
    "0x1F", "7",
];
pub(super) const FRACTIONS: [&str; 8] = ["0", "0.5", "0.9", "0.25", "1", "-0.1", "1.1", "NaN"];
const ARITHMETIC: [&str; 7] = ["+", "-", "*", "/", "%", "^", "atan2"];
const COMPARISONS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];
const SETS: [&str; 3] = ["and", "or", "unless"];
const SIMPLE_AGGREGATES: [&str; 8] =
    ["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"];
/// Returns whether calls need special arguments, which [`Generator::special`] writes.
fn is_special(function: &Function) -> bool {
    use RollupFunction::{Absent, DoubleExponentialSmoothing};
    match function.id {
        FunctionId::Absent
        | FunctionId::Info
        | FunctionId::StartTimestamp
        | FunctionId::Histogram(_)
        | FunctionId::Label(_)
        | FunctionId::Sort(SortFunction::Labels | SortFunction::LabelsDescending)
        | FunctionId::Rollup(Absent | DoubleExponentialSmoothing) => true,
        FunctionId::Math(_)
        | FunctionId::Date(_)
        | FunctionId::Bound(_)
        | FunctionId::Rollup(_)
        | FunctionId::NativeHistogram(_)
        | FunctionId::Sort(SortFunction::Value | SortFunction::ValueDescending)
        | FunctionId::QueryTime(_)
        | FunctionId::MaxOf
        | FunctionId::MinOf
        | FunctionId::Pi
        | FunctionId::Scalar
        | FunctionId::Time
        | FunctionId::Timestamp
        | FunctionId::Vector => false,
    }
}

/// Returns whether a function magnifies the rounding error of a large number.
fn is_magnifying(function: &Function) -> bool {
    match function.id {
        FunctionId::Math(function) => {
            use MathFunction::{Cos, Cosh, Exp, Sin, Sinh, Tan};
            matches!(function, Sin | Cos | Tan | Sinh | Cosh | Exp)
        }
        FunctionId::Date(function) => function != DateFunction::Year,
        _ => false,
    }
}

/// Generates queries by kind: every function, aggregation, operator and modifier with suitable
/// operands.
#[derive(Debug)]
pub struct Generator {
    pub(super) random: Random,
    /// Enables extended range selectors, fill modifiers, duration expressions and functions.
    is_experimental: bool,
    operands: Operands,
}

impl Generator {
    /// Returns a generator for a seed.
    pub fn new(seed: u64, is_experimental: bool, operands: Operands) -> Generator {
        Generator { random: Random::new(seed), is_experimental, operands }
    }

    /// Returns the random numbers.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Generates the next query.
    pub fn query(&mut self) -> Query {
        let mut is_ordered = false;
        let text = match self.random.below(24) {
            0 => {
                is_ordered = true;
                self.ordered()
            }
            1 => self.scalar(3),
            2 => self.range(2),
            3 => self.string(),
            4..=11 if self.operands == Operands::Histograms => self.vector(2),
            _ => self.vector(3),
        };
        Query { text, is_ordered }
    }

    pub(super) fn pick(&mut self, items: &[&'static str]) -> &'static str {
        self.random.pick(items)
    }

    pub(super) fn metric(&mut self) -> &'static str {
        match self.operands {
            Operands::Floats => self.pick(&METRICS),
            Operands::Histograms => self.pick(&NATIVE_METRICS),
        }
    }

    fn string(&mut self) -> String {
        self.pick(&[r#""text""#, "'a\\tb'", "`raw\\n`", r#""""#]).to_owned()
    }

    pub(super) fn scalar(&mut self, depth: u32) -> String {
        if depth == 0 || self.random.one_in(2) {
            return self.pick(&NUMBERS).to_owned();
        }
        match self.random.below(7) {
            0 => "time()".to_owned(),
            1 => "pi()".to_owned(),
            2 | 3 => format!("{}({})", "scalar", self.vector(depth - 1)),
            4 => {
                let operator = self.pick(&COMPARISONS);
                format!("({} {operator} bool {})", self.scalar(depth - 1), self.scalar(depth - 1))
            }
            5 => format!("-{}", self.scalar(depth - 1)),
            _ => {
                let operator = self.pick(&ARITHMETIC);
                format!("({} {operator} {})", self.scalar(depth - 1), self.scalar(depth - 1))
            }
        }
    }

    pub(super) fn vector(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.selector();
        }
        let depth = depth - 1;
        if self.operands == Operands::Histograms && !self.random.one_in(3) {
            return self.native(depth);
        }
        match self.random.below(18) {
            0 | 1 => self.selector(),
            2..=5 => self.call(depth),
            6..=8 => self.aggregate(depth),
            9 => self.special(depth),
            10 => format!("-{}", self.vector(depth)),
            11 => {
                let operator = self.pick(&ARITHMETIC);
                let (vector, scalar) = (self.vector(depth), self.scalar(depth));
                match operator {
                    // The remainder of a large number is only its rounding error.
                    "%" => format!("(clamp({vector}, -1e6, 1e6) % {scalar})"),
                    _ => self.with_scalar(operator, &vector, &scalar),
                }
            }
            12 => {
                let operator = self.pick(&COMPARISONS);
                let bool = if self.random.one_in(2) { " bool" } else { "" };
                let (vector, scalar) = (self.vector(depth), self.scalar(depth));
                self.with_scalar(&format!("{operator}{bool}"), &vector, &scalar)
            }
            13 => {
                let operator = self.pick(&SETS);
                let matching = self.matching();
                format!("({} {operator}{matching} {})", self.vector(depth), self.vector(depth))
            }
            14 => format!("({})", self.vector(depth)),
            _ => self.binary(depth),
        }
    }

    fn with_scalar(&mut self, operator: &str, vector: &str, scalar: &str) -> String {
        if self.random.one_in(2) {
            format!("({vector} {operator} {scalar})")
        } else {
            format!("({scalar} {operator} {vector})")
        }
    }

    fn selector(&mut self) -> String {
        let metric = self.metric();
        let mut selector = self.plain_selector(metric);
        selector.push_str(&self.modifiers());
        selector
    }

    pub(super) fn plain_selector(&mut self, metric: &str) -> String {
        let mut matchers: Vec<String> = Vec::new();
        while self.random.one_in(3) {
            let matcher = self.pick(&MATCHERS);
            let label = matcher.split(['=', '!']).next().unwrap_or_default();
            // Prometheus' storage reorders the matchers, and `absent` depends on their order
            // if several are for one label.
            if !matchers.iter().any(|known| known.starts_with(label)) {
                matchers.push(matcher.to_owned());
            }
        }
        // Only the values of one metric are all distinct.
        if metric != "unique" && self.random.one_in(12) {
            let names: &[&'static str] = match self.operands {
                Operands::Floats => {
                    &["load|other", "requests_total|load", "lonely|sparse", "target_.*"]
                }
                Operands::Histograms => {
                    &["latency.*", "rpc_seconds|load", ".*_seconds", "mixed|load"]
                }
            };
            let names = self.pick(names);
            matchers.push(format!("__name__=~\"{names}\""));
            return format!("{{{}}}", matchers.join(","));
        }
        if matchers.is_empty() {
            return metric.to_owned();
        }
        format!("{metric}{{{}}}", matchers.join(","))
    }

    pub(super) fn modifiers(&mut self) -> String {
        let mut modifiers = String::new();
        if self.random.one_in(6) {
            let offset = if self.is_experimental && self.random.one_in(4) {
                format!("({} + 2 * {})", self.pick(&OFFSETS), self.pick(&DURATIONS))
            } else {
                self.pick(&OFFSETS).to_owned()
            };
            modifiers.push_str(&format!(" offset {offset}"));
        }
        if self.random.one_in(8) {
            let at = match self.random.below(4) {
                0 => "start()".to_owned(),
                1 => "end()".to_owned(),
                _ => format!(
                    "{}.{:03}",
                    1_700_000_003 + self.random.below(8000),
                    self.random.below(1000)
                ),
            };
            modifiers.push_str(&format!(" @ {at}"));
        }
        modifiers
    }

    fn duration(&mut self) -> String {
        if self.is_experimental && self.random.one_in(10) {
            let (a, b) = (self.pick(&DURATIONS), self.pick(&DURATIONS));
            return match self.random.below(4) {
                0 => format!("({a} + {b})"),
                1 => format!("{a} * 2"),
                2 => format!("max_of({a}, step())"),
                _ => format!("max_of({a}, min_of(range(), {b}))"),
            };
        }
        self.pick(&DURATIONS).to_owned()
    }

    pub(super) fn range(&mut self, depth: u32) -> String {
        if depth > 0 && self.random.one_in(5) {
            let inner = self.vector(depth - 1);
            let duration = self.pick(&["1m", "5m", "10m", "30m", "47s"]);
            let step = self.pick(&["", "30s", "1m", "17s", "5m"]);
            return format!("({inner})[{duration}:{step}]{}", self.modifiers());
        }
        let metric = self.metric();
        let selector = self.plain_selector(metric);
        let duration = self.duration();
        format!("{selector}[{duration}]{}", self.modifiers())
    }

    /// Generates a call of a function in the catalog, with arguments of its types.
    fn call(&mut self, depth: u32) -> String {
        let functions: Vec<&'static Function> = all()
            .iter()
            .filter(|f| f.returns == ValueType::Vector && !is_special(f))
            .filter(|f| self.is_experimental || !f.is_experimental)
            .collect();
        let function = functions[self.random.below(functions.len() as u64) as usize];
        let mut count = function.args.len();
        if function.variadic != 0 && self.random.one_in(2) {
            count -= 1;
        }
        if self.is_experimental
            && function.modes == RangeModes::AnchoredOrSmoothed
            && self.random.one_in(4)
        {
            let mode = self.pick(&["anchored", "smoothed"]);
            let metric = self.metric();
            let selector = self.plain_selector(metric);
            return format!("{}({selector}[{}] {mode})", function.name, self.pick(&DURATIONS));
        }
        let is_quantile = function.id == FunctionId::Rollup(RollupFunction::Quantile);
        let args: Vec<String> = function.args[..count]
            .iter()
            .map(|kind| match kind {
                ValueType::Scalar if is_quantile => self.pick(&FRACTIONS).to_owned(),
                ValueType::Scalar => self.scalar(depth),
                ValueType::Vector if is_magnifying(function) => {
                    format!("clamp({}, -700, 700)", self.vector(depth))
                }
                ValueType::Vector => self.vector(depth),
                // Prometheus 3.14.0 returns nothing for such a call with a pinned subquery.
                ValueType::Matrix if function.args.len() > 1 => self.range(0),
                ValueType::Matrix => self.range(depth),
                ValueType::String => self.string(),
            })
            .collect();
        format!("{}({})", function.name, args.join(", "))
    }

    pub(super) fn grouping(&mut self) -> String {
        let word = match self.random.below(5) {
            0 | 1 => "by",
            2 => "without",
            _ => return String::new(),
        };
        format!(" {word} ({})", self.labels())
    }

    fn labels(&mut self) -> String {
        let mut labels = Vec::new();
        while labels.len() < 3 && !self.random.one_in(3) {
            labels.push(self.pick(&LABELS));
        }
        labels.join(", ")
    }

    fn aggregate(&mut self, depth: u32) -> String {
        let grouping = self.grouping();
        match self.random.below(12) {
            0 => {
                format!("quantile{grouping} ({}, {})", self.pick(&FRACTIONS), self.vector(depth))
            }
            1 => {
                let label = self.pick(&["value", "job", "n"]);
                // Rounded, because the last digit of a sine is not defined. No random value is
                // halfway between two multiples of 0.7.
                let vector = self.vector(depth);
                format!(
                    "count_values{grouping} (\"{label}\", round(clamp({vector}, -1e6, 1e6), 0.7))"
                )
            }
            2 => self.ranked(&grouping),
            _ => {
                let operator = self.pick(&SIMPLE_AGGREGATES);
                let vector = self.vector(depth);
                if operator.starts_with("std") {
                    // For small differences of large numbers, the digits depend on the order of the
                    // series, which is random in Prometheus.
                    return format!("{operator}{grouping} (clamp({vector}, -1e6, 1e6))");
                }
                format!("{operator}{grouping} ({vector})")
            }
        }
    }

    /// Generates an aggregation that selects series, over distinct values.
    fn ranked(&mut self, grouping: &str) -> String {
        let operator = match self.random.below(6) {
            0 if self.is_experimental => "limitk",
            1 if self.is_experimental => "limit_ratio",
            2 | 3 => "topk",
            _ => "bottomk",
        };
        let parameter = match operator {
            "limit_ratio" => self.pick(&["0.5", "-0.5", "0.1", "1", "-1", "0", "2", "NaN"]),
            _ => self.pick(&["1", "2", "3", "0", "-1", "2.7", "100", "NaN", "scalar(lonely)"]),
        };
        // After an operator, the order of series in Prometheus is random.
        let operand = match operator {
            "limitk" => self.plain_selector("unique"),
            _ => self.distinct(),
        };
        format!("{operator}{grouping} ({parameter}, {operand})")
    }

    fn distinct(&mut self) -> String {
        let selector = self.plain_selector("unique");
        match self.random.below(4) {
            0 => format!("max_over_time({selector}[2m])"),
            1 => format!("{selector} * -2"),
            2 => format!("{selector} offset 3m"),
            _ => selector,
        }
    }

    fn ordered(&mut self) -> String {
        let distinct = self.distinct();
        match self.random.below(4) {
            0 => format!("{}({distinct})", "sort"),
            1 => format!("{}({distinct})", "sort_desc"),
            2 if self.is_experimental => {
                format!("{}({distinct}, \"n\")", "sort_by_label")
            }
            3 if self.is_experimental => {
                format!("{}({distinct}, \"parity\", \"n\")", "sort_by_label_desc")
            }
            _ => format!("{}(3, {distinct})", "topk"),
        }
    }

    fn matching(&mut self) -> String {
        match self.random.below(4) {
            0 => format!(" on ({})", self.labels()),
            1 => format!(" ignoring ({})", self.labels()),
            _ => String::new(),
        }
    }

    fn binary(&mut self, depth: u32) -> String {
        let mut operator = if self.random.one_in(3) {
            let comparison = self.pick(&COMPARISONS).to_owned();
            if self.random.one_in(2) { comparison + " bool" } else { comparison }
        } else {
            self.pick(&["+", "-", "*", "/", "^", "atan2"]).to_owned()
        };
        let is_filling = self.is_experimental && self.random.one_in(5);
        let fill = if is_filling {
            let fill = self.pick(&["fill", "fill_left", "fill_right"]);
            format!(" {fill} ({})", self.pick(&["0", "1.5", "-2", "NaN"]))
        } else {
            String::new()
        };
        // Random sides rarely have many-to-one matches: half of the time they are built to match.
        if self.random.one_in(2) {
            let sides: &[&(&str, &str, &str)] = match self.operands {
                Operands::Floats => &[
                    &("requests_total", "job, instance", "load"),
                    &("requests_total", "job", "build_info"),
                    &("load", "job, instance", "target_info"),
                    &("temperature", "job", "flappy"),
                    &("latency_bucket", "job", "latency_count"),
                    &("load", "job, instance", "other"),
                ],
                Operands::Histograms => &[
                    &("rpc_seconds", "job, instance", "steady_seconds"),
                    &("steady_seconds", "job", "build_info"),
                    &("size_bytes", "job, instance", "target_info"),
                    &("mixed", "job, instance", "rpc_seconds"),
                    &("fine_seconds", "job", "odd_seconds"),
                    &("latency", "job", "latency_count"),
                ],
            };
            let (many, on, one) = *self.random.pick(sides);
            let (many, one) = (self.plain_selector(many), self.plain_selector(one));
            let include =
                self.pick(&["", " (version)", " (version, cluster)", " (revision)", " (nowhere)"]);
            return if self.random.one_in(2) {
                format!("({many} {operator} on ({on}) group_left{include}{fill} {one})")
            } else {
                format!("({one} {operator} on ({on}) group_right{include}{fill} {many})")
            };
        }
        operator.push_str(&self.matching());
        operator.push_str(&fill);
        format!("({} {operator} {})", self.vector(depth), self.vector(depth))
    }

    fn special(&mut self, depth: u32) -> String {
        let fraction = self.pick(&FRACTIONS);
        match self.random.below(10) {
            0 => format!("{}({})", "absent", self.vector(depth)),
            1 => format!("{}({})", "absent_over_time", self.range(depth)),
            2 => {
                format!("histogram_quantile({fraction}, {})", self.buckets())
            }
            3 => {
                let (lower, upper) = (self.pick(&NUMBERS), self.pick(&NUMBERS));
                format!("histogram_fraction({lower}, {upper}, {})", self.buckets())
            }
            4 => {
                let target = self.pick(&["new", "job", "instance", "__name__"]);
                format!(
                    "label_join({}, \"{target}\", \"-\", \"job\", \"nowhere\", \"instance\")",
                    self.vector(depth)
                )
            }
            5 if self.is_experimental => {
                let selector = self.pick(&[
                    "",
                    ", {version=~\".+\"}",
                    ", {__name__=\"build_info\"}",
                    ", {version=\"v1\"}",
                ]);
                let metric = self.pick(&["load", "requests_total", "temperature"]);
                format!("info({}{selector})", self.plain_selector(metric))
            }
            6 if self.is_experimental => {
                let (smoothing, trend) =
                    (self.pick(&["0.5", "0.1", "1", "0"]), self.pick(&["0.3", "0.9", "2"]));
                format!("double_exponential_smoothing({}, {smoothing}, {trend})", self.range(depth))
            }
            7 if self.is_experimental => {
                format!("histogram_quantiles({}, \"q\", {fraction}, 0.75)", self.buckets())
            }
            _ => {
                let target = self.pick(&["new", "job", "instance", "__name__"]);
                let source = self.pick(&["instance", "job", "__name__", "nowhere"]);
                let regex = self.pick(&["(.*)", "(.)(.*)", "a", "([0-9]+)|x", ""]);
                let value = self.pick(&["$1", "x-$1", "${2}y", "", "fixed"]);
                format!(
                    "label_replace({}, \"{target}\", \"{value}\", \"{source}\", \"{regex}\")",
                    self.vector(depth)
                )
            }
        }
    }

    fn buckets(&mut self) -> String {
        if self.operands == Operands::Histograms && self.random.one_in(2) {
            return self.vector(1);
        }
        let selector = self.plain_selector("latency_bucket");
        match self.random.below(4) {
            0 => format!("rate({selector}[5m])"),
            1 => format!("sum by (le) ({selector})"),
            2 => self.vector(1),
            _ => selector,
        }
    }
}
