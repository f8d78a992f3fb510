//! Fuzz targets and their assertions. Shared with `fuzz/`.

#![allow(dead_code, reason = "each fuzz target uses one of the entries")]

use std::sync::Arc;
use std::time::Duration;

use engine::parse::{ParseOptions, format, parse, to_json};
use engine::result::SampleValue;
use engine::steps::Steps;
use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryError, QueryOptions, QueryOutput, Value};
use futures::executor::block_on;
use model::memory::MemorySource;
use model::{BudgetLimits, Labels, Source, stale_nan};

const START_MS: i64 = 1_700_000_000_000;
const STEP_MS: i64 = 15_000;

/// Parses any bytes. What parses is printed, and what is printed parses to the same.
pub fn parse_bytes(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(tree) = parse(&text, &ParseOptions::ALL) else { return };
    let printed = tree.to_string();
    let _ = (format(&tree, 1 << 20), to_json(&tree));
    // Two signs let an offset take in what follows it; printed, there is but one. An empty second
    // argument of `info` is printed as nothing at all. An infinity is printed with its sign, which
    // is read as an operator where a power follows. Prometheus does all three.
    if text.contains("offset") || text.contains("info") || printed.contains("Inf") {
        return;
    }
    match parse(&printed, &ParseOptions::ALL) {
        Ok(again) => assert_eq!(again.to_string(), printed, "{text}"),
        Err(error) => panic!("{text}: printed as {printed}, which is refused: {error}"),
    }
}

/// Engines that have to agree, and something to query.
pub struct Stage {
    plain: Engine,
    odd: Engine,
    source: Arc<dyn Source>,
}

impl Default for Stage {
    fn default() -> Stage {
        Stage::new()
    }
}

impl Stage {
    /// Two engines that differ in what no answer may depend on.
    pub fn new() -> Stage {
        let engine = |threads, tile_shape| {
            Engine::new(EngineOptions { threads, tile_shape, ..EngineOptions::default() })
        };
        Stage {
            plain: engine(1, TileShape::default()),
            odd: engine(2, TileShape { series: 3, steps: 7 }),
            source: source(),
        }
    }

    /// Plans a query made of the bytes, at times made of them, and shows the plan. Nothing may
    /// panic, and what is refused is refused before much is held.
    pub fn plan_bytes(&self, bytes: &[u8]) {
        let mut choices = Choices { bytes, next: 0 };
        let steps = Steps {
            start_ms: choices.time(),
            step_ms: choices.time().unsigned_abs().clamp(1, i64::MAX as u64) as i64,
            count: [1, 2, 21, 11_000, 4_000_000][choices.below(5)],
        };
        let query = choices.query();
        match block_on(self.plain.explain(&query, steps, &options())) {
            Ok(plan) => assert!(!plan.is_empty(), "{query}"),
            Err(error) => refused_in_words(&query, &error),
        }
    }

    /// Evaluates a query made of the bytes at an instant and over a range, with tiles of two
    /// shapes. Nothing may panic, and the answers are the same to the last bit.
    pub fn evaluate_bytes(&self, bytes: &[u8]) {
        self.evaluate(&Choices { bytes, next: 0 }.query());
    }

    fn evaluate(&self, query: &str) {
        let ask = |engine: &Engine, step_count: i64| {
            let source = Arc::clone(&self.source);
            let options = options();
            block_on(async {
                if step_count == 1 {
                    return engine.instant(source, query, START_MS, &options).await;
                }
                let start_ms = START_MS - (step_count - 1) * STEP_MS;
                engine.range(source, query, start_ms, START_MS, STEP_MS, &options).await
            })
        };
        for step_count in [1, 21] {
            let first = ask(&self.plain, step_count);
            let second = ask(&self.odd, step_count);
            for answer in [&first, &second] {
                if let Err(error) = answer {
                    refused_in_words(query, error);
                }
            }
            agree(query, &first, &second);
        }
    }
}

/// A panic is caught by the engine, and told as an unexpected error.
fn refused_in_words(query: &str, error: &QueryError) {
    let text = error.to_string();
    assert!(!text.contains("unexpected error"), "{query}: {text}");
}

fn agree(
    query: &str,
    first: &Result<QueryOutput, QueryError>,
    second: &Result<QueryOutput, QueryError>,
) {
    match (first, second) {
        (Ok(first), Ok(second)) => {
            let (first, second) = (cells(&first.value), cells(&second.value));
            assert_eq!(first.len(), second.len(), "{query}");
            for (first, second) in first.iter().zip(&second) {
                let is_same = first.0 == second.0 && first.1 == second.1;
                let is_same = is_same && is_equal(first.2, second.2);
                assert!(is_same, "{query}: {first:?} {second:?}");
            }
        }
        // Tiles of another size need other memory.
        (Err(QueryError::Source(_)), _) | (_, Err(QueryError::Source(_))) => {}
        (Err(_), Err(_)) => {}
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => panic!("{query}: only one engine: {error}"),
    }
}

/// Returns whether two values are equal to the last bit; NaN is NaN.
fn is_equal(first: f64, second: f64) -> bool {
    first.to_bits() == second.to_bits() || (first.is_nan() && second.is_nan())
}

/// Labels, time and value of everything in an answer.
fn cells(value: &Value) -> Vec<(String, i64, f64)> {
    match value {
        Value::String { .. } => Vec::new(),
        Value::Scalar { time_ms, value } => vec![(String::new(), *time_ms, *value)],
        Value::Vector { time_ms, samples } => {
            let floats = samples.iter().filter_map(|(labels, value)| match value {
                SampleValue::Float(value) => Some((labels.to_string(), *time_ms, *value)),
                SampleValue::Histogram(_) => None,
            });
            floats.collect()
        }
        Value::Samples(series) => series
            .iter()
            .flat_map(|series| {
                let samples = series.timestamps.iter().zip(&series.values);
                samples.map(|(time, value)| (series.labels.to_string(), *time, *value))
            })
            .collect(),
        Value::Grid { rows, .. } => rows
            .iter()
            .flat_map(|row| {
                row.iter().map(|(step, value)| (row.labels.to_string(), step as i64, value))
            })
            .collect(),
    }
}

fn options() -> QueryOptions {
    let limits = BudgetLimits {
        samples_max: 2_000_000,
        memory_bytes_max: 64 << 20,
        series_max: 10_000,
        object_store_reads_max: u64::MAX,
        timeout: Some(Duration::from_secs(10)),
        pool: None,
        tenant_pools: Arc::default(),
        view: None,
    };
    QueryOptions { limits, ..QueryOptions::default() }
}

/// Series with resets, gaps, staleness markers, NaN and infinities.
fn source() -> Arc<dyn Source> {
    let mut source = MemorySource::new();
    let mut state = 7u64;
    let mut random = |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    for name in ["a", "b", "c_bucket"] {
        for series in 0..8 {
            let (i, job) = (series.to_string(), (series % 3).to_string());
            let le = ["0.1", "1", "5", "+Inf"][series % 4];
            let labels =
                Labels::from_pairs([("__name__", name), ("i", &i), ("job", &job), ("le", le)]);
            let mut time_ms = START_MS - 1_800_000 + random(20_000) as i64;
            while time_ms < START_MS + 60_000 {
                let value = match random(40) {
                    0 => f64::NAN,
                    1 => f64::INFINITY,
                    2 => f64::NEG_INFINITY,
                    3 => stale_nan(),
                    4 => -0.0,
                    _ => random(400) as f64 / 4.0 - 20.0,
                };
                source.append(&labels, time_ms, value);
                time_ms += if random(20) == 0 { 400_000 } else { 5_000 + random(25_000) as i64 };
            }
        }
    }
    Arc::new(source)
}

/// Bytes as a row of choices; past their end, always the first.
struct Choices<'a> {
    bytes: &'a [u8],
    next: usize,
}

impl Choices<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let byte = self.bytes.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        usize::from(byte) % bound
    }

    /// A time in ms, anywhere.
    fn time(&mut self) -> i64 {
        match self.below(8) {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => 0,
            3 => -1,
            4 => START_MS,
            5 => STEP_MS,
            _ => (0..8).fold(0, |time, _| time << 8 | self.below(256) as i64),
        }
    }

    /// A query: written from rules, or with some mutations, or the rest of the bytes.
    fn query(&mut self) -> String {
        match self.below(3) {
            0 => write_vector(self, 4),
            1 => {
                let query = write_vector(self, 3);
                mutated(&query, self)
            }
            _ => {
                let rest = self.bytes.get(self.next..).unwrap_or_default();
                String::from_utf8_lossy(rest).into_owned()
            }
        }
    }

    fn pick<'t>(&mut self, items: &[&'t str]) -> &'t str {
        items[self.below(items.len())]
    }
}

const SELECTORS: [&str; 8] = [
    "a",
    "b",
    "c_bucket",
    "{i=~\"[0-3]\"}",
    "a{job!=\"1\"}",
    "nothing",
    "b{i=\"2\"}",
    "{job=\"0\"}",
];
const MODIFIERS: [&str; 8] = [
    "",
    " offset 1m",
    " offset -30s",
    " @ 1699999900",
    " @ start()",
    " @ end() offset 7s",
    "",
    " @ -1e9",
];
const RANGES: [&str; 8] = ["1m", "5m", "17s", "1h", "1ms", "step()", "10m", "290y"];
const RESOLUTIONS: [&str; 6] = ["15s", "1m", "7s", "", "13m", "step()"];
const NUMBERS: [&str; 12] =
    ["0", "1", "2.5", "-1", "0.5", "1e308", "NaN", "Inf", "-Inf", "1e-320", "time()", "9e18"];
const OPERATORS: [&str; 20] = [
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "atan2",
    "==",
    "!=",
    "<",
    ">=",
    "== bool",
    "> bool",
    "and",
    "or",
    "unless",
    "</",
    ">/",
    "+ fill(0)",
    "- fill_left(1) fill_right(2)",
];
const MATCHINGS: [&str; 6] = [
    "",
    "on (job)",
    "ignoring (__name__)",
    "on (i) group_left ()",
    "ignoring (i) group_right (le)",
    "on ()",
];
const AGGREGATIONS: [&str; 8] = ["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"];
const RANKINGS: [&str; 6] = ["topk", "bottomk", "quantile", "limitk", "limit_ratio", "topk"];
const GROUPINGS: [&str; 5] = ["", "by (job)", "without (i)", "by (__name__, le)", "by (nothing)"];
const ROLLUPS: [&str; 24] = [
    "rate",
    "increase",
    "delta",
    "irate",
    "idelta",
    "resets",
    "changes",
    "sum_over_time",
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "count_over_time",
    "last_over_time",
    "first_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "mad_over_time",
    "deriv",
    "present_over_time",
    "absent_over_time",
    "ts_of_max_over_time",
    "ts_of_last_over_time",
    "ts_of_min_over_time",
    "ts_of_first_over_time",
];
const FUNCTIONS: [&str; 20] = [
    "abs",
    "ceil",
    "sgn",
    "exp",
    "ln",
    "sqrt",
    "absent",
    "sort",
    "sort_desc",
    "timestamp",
    "day_of_year",
    "hour",
    "days_in_month",
    "info",
    "floor",
    "-",
    "+",
    "deg",
    "acosh",
    "month",
];

/// Writes a range vector.
fn write_range(choices: &mut Choices<'_>, depth: usize) -> String {
    let range = choices.pick(&RANGES);
    let modifier = choices.pick(&MODIFIERS);
    if depth > 0 && choices.below(3) == 0 {
        let inner = write_vector(choices, depth - 1);
        return format!("({inner})[{range}:{}]{modifier}", choices.pick(&RESOLUTIONS));
    }
    let extended = ["", "", " anchored", " smoothed"][choices.below(4)];
    format!("{}[{range}]{extended}{modifier}", choices.pick(&SELECTORS))
}

/// Writes an instant vector.
fn write_vector(choices: &mut Choices<'_>, depth: usize) -> String {
    if depth == 0 {
        return format!("{}{}", choices.pick(&SELECTORS), choices.pick(&MODIFIERS));
    }
    let depth = depth - 1;
    match choices.below(12) {
        0 => format!("{}{}", choices.pick(&SELECTORS), choices.pick(&MODIFIERS)),
        1 | 2 => format!("{}({})", choices.pick(&ROLLUPS), write_range(choices, depth)),
        3 => {
            let (op, grouping) = (choices.pick(&AGGREGATIONS), choices.pick(&GROUPINGS));
            format!("{op} {grouping} ({})", write_vector(choices, depth))
        }
        4 => {
            let (op, grouping) = (choices.pick(&RANKINGS), choices.pick(&GROUPINGS));
            let number = choices.pick(&NUMBERS);
            format!("{op} {grouping} ({number}, {})", write_vector(choices, depth))
        }
        5 | 6 => {
            let lhs = write_vector(choices, depth);
            let (op, matching) = (choices.pick(&OPERATORS), choices.pick(&MATCHINGS));
            let (op, fill) = op.split_once(" fill").map_or((op, ""), |(op, _)| (op, "fill (0)"));
            format!("({lhs}) {op} {matching} {fill} ({})", write_vector(choices, depth))
        }
        7 => {
            let number = choices.pick(&NUMBERS);
            let op = choices.pick(&OPERATORS[..13]);
            format!("({}) {op} {number}", write_vector(choices, depth))
        }
        8 => format!("{}({})", choices.pick(&FUNCTIONS), write_vector(choices, depth)),
        9 => {
            let target = choices.pick(&["i", "job", "__name__", "x"]);
            let inner = write_vector(choices, depth);
            format!("label_replace({inner}, \"{target}\", \"$1\", \"le\", \"(.).*\")")
        }
        10 => {
            let number = choices.pick(&NUMBERS);
            format!("histogram_quantile({number}, {})", write_vector(choices, depth))
        }
        _ => {
            let number = choices.pick(&NUMBERS);
            match choices.below(4) {
                0 => format!("quantile_over_time({number}, {})", write_range(choices, depth)),
                1 => format!("predict_linear({}, {number})", write_range(choices, depth)),
                2 => format!("count_values(\"v\", {})", write_vector(choices, depth)),
                _ => format!("vector(scalar({}))", write_vector(choices, depth)),
            }
        }
    }
}

/// The query with some parts cut out, doubled or swapped for others.
fn mutated(query: &str, choices: &mut Choices<'_>) -> String {
    const PIECES: [&str; 16] = [
        "(", ")", "[", "]", "1m", "sum", "{", "}", " or ", "-", "1e308", "\"", ":", " offset ",
        " @ ", ",",
    ];
    let mut chars: Vec<char> = query.chars().collect();
    for _ in 0..=choices.below(3) {
        let at = (choices.below(256) * 256 + choices.below(256)) % (chars.len() + 1);
        let end = (at + choices.below(6)).min(chars.len());
        let piece: Vec<char> = match choices.below(3) {
            0 => Vec::new(),
            1 => chars[at..end].repeat(2),
            _ => choices.pick(&PIECES).chars().collect(),
        };
        chars.splice(at..end, piece);
    }
    chars.into_iter().collect()
}
