//! Queries that are made to hurt: each ends with an answer, or with an error that names the
//! limit and the figure; none panics, overflows, or holds more memory than it may.

use std::sync::Arc;
use std::time::Duration;

use engine::result::SampleValue;
use engine::{Engine, EngineOptions, QueryError, QueryOptions, QueryOutput, Value};
use futures::executor::block_on;
use model::memory::MemorySource;
use model::{BudgetLimits, Labels, Source};

const NOW_MS: i64 = 1_700_000_000_000;
const SERIES: i64 = 40;
const MEMORY_BYTES_MAX: u64 = 128 << 20;
const SAMPLES_MAX: u64 = 1_000_000;

/// Expected result of a query.
enum Outcome {
    Answer,
    /// An error in which all of these occur.
    Error(&'static [&'static str]),
    /// An answer, or such an error: which one depends on the size of our own structures.
    AnswerOr(&'static [&'static str]),
}
use Outcome::{Answer, AnswerOr, Error};

const STEPS: Outcome = Error(&["steps, the limit is 5000000 (--query.max-steps)"]);
const MEMORY: Outcome = Error(&["bytes of memory, the limit is 134217728 (--query.max-memory)"]);
const NESTING: Outcome = Error(&["nested more than 128 levels deep"]);

/// `m{i, job, text}`: a sample every minute for two hours before [`NOW_MS`].
fn source() -> Arc<dyn Source> {
    let mut source = MemorySource::new();
    for series in 0..SERIES {
        let (i, job) = (series.to_string(), (series % 4).to_string());
        let pairs = [("__name__", "m"), ("i", &i), ("job", &job), ("text", "aaaaaaaaaaaaaaaa")];
        let labels = Labels::from_pairs(pairs);
        for sample in 0..120 {
            let value = (series * 1000 + sample) as f64 + 0.5;
            source.append(&labels, NOW_MS - sample_age_ms(sample), value);
        }
    }
    Arc::new(source)
}

fn sample_age_ms(sample: i64) -> i64 {
    (119 - sample) * 60_000
}

fn options() -> QueryOptions {
    let limits = BudgetLimits {
        samples_max: SAMPLES_MAX,
        memory_bytes_max: MEMORY_BYTES_MAX,
        series_max: 100_000,
        object_store_reads_max: u64::MAX,
        timeout: Some(Duration::from_secs(60)),
        pool: None,
        tenant_pools: Arc::default(),
        view: None,
    };
    QueryOptions { limits, ..QueryOptions::default() }
}

fn shown(query: &str) -> String {
    query.chars().take(100).collect()
}

#[track_caller]
fn judge(query: &str, expected: &Outcome, found: &Result<QueryOutput, QueryError>) {
    let shown = shown(query);
    match (found, expected) {
        (Ok(output), Answer | AnswerOr(_)) => {
            assert!(output.stats.memory_bytes_peak <= MEMORY_BYTES_MAX, "{shown}");
        }
        (Err(error), Error(texts) | AnswerOr(texts)) => {
            let error = error.to_string();
            // A refused pattern stands in its message, perhaps twice.
            assert!(error.len() < 100_000, "{shown}: an error of {} bytes", error.len());
            assert!(texts.iter().all(|text| error.contains(text)), "{shown}: {error}");
        }
        (Ok(_), Error(texts)) => panic!("{shown}: has an answer, not {texts:?}"),
        (Err(error), Answer) => panic!("{shown}: {error}"),
    }
}

#[track_caller]
fn check_all(cases: &[(String, Outcome)], ask: impl Fn(&str) -> Result<QueryOutput, QueryError>) {
    for (query, expected) in cases {
        judge(query, expected, &ask(query));
    }
    assert_resident_memory_is_small();
}

/// Memory held without a charge would show here.
fn assert_resident_memory_is_small() {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    assert!(kib.unwrap_or(0) < 768 << 10, "{kib:?} KiB were resident");
}

#[track_caller]
fn check_instant(cases: &[(String, Outcome)]) {
    let engine = Engine::new(EngineOptions { threads: 2, ..EngineOptions::default() });
    let source = source();
    check_all(cases, |query| {
        block_on(engine.instant(Arc::clone(&source), query, NOW_MS, &options()))
    });
}

/// Over 11,000 steps, the most that the server allows.
#[track_caller]
fn check_range(cases: &[(String, Outcome)]) {
    let engine = Engine::new(EngineOptions { threads: 2, ..EngineOptions::default() });
    let source = source();
    let start_ms = NOW_MS - 10_999 * 1_000;
    check_all(cases, |query| {
        block_on(engine.range(Arc::clone(&source), query, start_ms, NOW_MS, 1_000, &options()))
    });
}

fn nested(open: &str, inner: &str, close: &str, count: usize) -> String {
    open.repeat(count) + inner + &close.repeat(count)
}

fn owned(cases: impl IntoIterator<Item = (&'static str, Outcome)>) -> Vec<(String, Outcome)> {
    cases.into_iter().map(|(query, outcome)| (query.to_owned(), outcome)).collect()
}

#[test]
fn inner_steps_are_counted_before_they_are_evaluated() {
    check_instant(&owned([
        ("max_over_time(m[10y:1ms])", STEPS),
        ("max_over_time(max_over_time(m[1y:1s])[1y:1s])", STEPS),
        ("max_over_time(max_over_time(m[30d:1s])[40d:1s])", STEPS),
        ("max_over_time(max_over_time(m[1h:1s])[1h:1s])", Answer),
        ("max_over_time(m[290y:1h])", Answer),
        ("m[290y:1ms]", STEPS),
        ("max_over_time(m[290y:1ms] @ 1e9)", STEPS),
        ("max_over_time(m[290y:1ms] offset -290y)", STEPS),
        ("rate(m[1y:1s:1s])", Error(&["parse error"])),
    ]));
    check_range(&owned([
        ("max_over_time(m[1y:1s])", STEPS),
        ("quantile_over_time(0.5, max_over_time(m[1y:1s])[1y:1s])", STEPS),
        ("max_over_time(m[2h:1s])", AnswerOr(&["bytes of memory, the limit is"])),
    ]));
}

#[test]
fn subqueries_are_charged_while_samples_arrive() {
    check_instant(&owned([
        ("max_over_time((m @ 1700000000)[50d:1s])", MEMORY),
        ("max_over_time(vector(1)[57d:1s])", MEMORY),
        ("(m @ 1700000000)[50d:1s]", MEMORY),
        ("vector(time())[57d:1s]", MEMORY),
        ("quantile_over_time(0.5, (m @ 1700000000)[50d:1s])", MEMORY),
    ]));
}

#[test]
fn scalars_are_charged_before_they_are_made() {
    let inner = nested("min_of(1, ", "time()", ")", 100);
    let powers = nested("1 ^ (", "time()", ")", 50);
    check_instant(&[
        (format!("max_over_time(vector({inner})[57d:1s])"), MEMORY),
        (format!("max_over_time(vector({powers})[57d:1s])"), MEMORY),
        (format!("vector({inner})"), Answer),
    ]);
    check_range(&[(format!("vector({inner})"), Answer), (powers, Answer)]);
}

#[test]
fn depth_is_bounded() {
    check_instant(&[
        (nested("(", "m", ")", 100_000), NESTING),
        (nested("abs(", "m", ")", 100_000), NESTING),
        (nested("sum(", "m", ")", 100_000), NESTING),
        (nested("-", "m", "", 100_000), NESTING),
        (nested("-", "1", "", 100_000), NESTING),
        (nested("max_over_time(", "m", "[1m:1m])", 40_000), NESTING),
        (nested("1 ^ ", "m", "", 100_000), NESTING),
        (nested("vector(1) or ", "m", "", 70_000), Error(&["parts, which is the limit"])),
        (nested("1 + ", "m", "", 100_000), Error(&["levels deep"])),
        (nested("(", "m", ")", 100), Answer),
        (nested("abs(", "m", ")", 100), Answer),
        (nested("sum(", "m", ")", 100), Answer),
        (nested("-(", "m", ")", 60), Answer),
        (nested("vector(1) or ", "m", "", 200), Answer),
        (nested("m or ", "m", "", 200), Answer),
        (nested("max_over_time(", "m", "[1m:1m])", 50), Answer),
        ("m[".repeat(100_000), Error(&["parse error"])),
        ("{".repeat(100_000), Error(&["parse error"])),
        ("a".repeat(2 << 20), Error(&["longer than the limit of 1048576 bytes"])),
    ]);
    check_range(&[
        (nested("vector(1) or ", "m", "", 200), AnswerOr(&["bytes of memory, the limit is"])),
        (nested("-(", "m", ")", 60), Answer),
    ]);
}

/// Generated queries add up many selectors: 60,000 characters of them are answered.
#[test]
fn long_rows_of_operators_are_answered() {
    let row = |operand: &str, operator: &str, count: usize| vec![operand; count].join(operator);
    let selectors: Vec<String> =
        (0..300).map(|i| format!("m{{i=\"{}\",job!=\"x\"}}", i % 50)).collect();
    let cases = [
        row("m", "+", 300),
        row("m", " or ", 300),
        selectors.join(" or "),
        format!("sum by (job) ({})", selectors.join(" + ")),
        format!("max_over_time(({})[5m:1m])", row("vector(1)", "+", 500)),
    ];
    let cases: Vec<_> = cases.into_iter().map(|query| (query, Answer)).collect();
    check_instant(&cases);
    check_instant(&[(row("1", "+", 8193), Error(&["a tree of more than 8192 levels deep"]))]);
    let engine = Engine::new(EngineOptions::default());
    let sum = |count, explain| {
        let options = QueryOptions { explain, ..options() };
        block_on(engine.instant(source(), &row("vector(1)", "+", count), NOW_MS, &options))
    };
    let Value::Vector { samples, .. } = sum(5500, false).unwrap().value else {
        panic!("no vector")
    };
    assert_eq!(samples[0].1, SampleValue::Float(5500.0));
    let error = sum(300, true).unwrap_err().to_string();
    assert!(error.contains("explained only if it has at most 256"), "{error}");
}

#[test]
fn matchers_and_regular_expressions_are_bounded() {
    let many = |count: usize, matcher: &str| format!("{{{}}}", vec![matcher; count].join(","));
    let regex = |pattern: &str| format!("m{{i=~\"{pattern}\"}}");
    let replaced = |pattern: &str| format!("label_replace(m, \"a\", \"$1\", \"i\", \"{pattern}\")");
    let mut cases = vec![
        (many(100_000, "a=\"b\""), Error(&["20000"])),
        (many(1_000_000, "a=b"), Error(&["longer than the limit"])),
        (many(1_000, "a=~\".+b\""), Error(&["64 regular expressions"])),
        (many(64, "a=~\"(x{900}){1,1}\""), Answer),
    ];
    for make in [&regex as &dyn Fn(&str) -> String, &replaced] {
        cases.push((make(&"a.".repeat(50_000)), Error(&["32768"])));
        cases.push((make(&"(".repeat(10_000)), Error(&[])));
        cases.push((make(&nested("(", "a", ")", 10_000)), Error(&[])));
        cases.push((make("(((((a{1,100}){1,100}){1,100}){1,100}){1,100})"), Error(&[])));
        cases.push((make("(\\\\pL{900})"), AnswerOr(&["compiles to more than"])));
        cases.push((make("(a*)*(a*)*(a*)*(a|aa)+$"), Answer));
    }
    check_instant(&cases);
}

#[test]
fn labels_that_functions_make_are_bounded() {
    let replace = "label_replace(";
    let doubling = nested(replace, "m", ", \"text\", \"$1$1\", \"text\", \"(.*)\")", 40);
    let joining = nested("label_join(", "m", ", \"text\", \"\", \"text\", \"text\")", 40);
    let once = nested(replace, "m", ", \"text\", \"$1$1\", \"text\", \"(.*)\")", 14);
    let slow =
        nested(replace, "sum by (text) (m)", ", \"text\", \"$1$1\", \"text\", \"(.*)\")", 16);
    let many = nested(
        replace,
        "(label_join(m, \"n\", \"\", \"i\") or label_join(m, \"n\", \"\", \"i\", \"i\") or m)",
        ", \"text\", \"$1$1\", \"text\", \"(.*)\")",
        10,
    );
    let many = format!("label_join({many}, \"text\", \"\"{})", ", \"text\"".repeat(60));
    let all_values = Error(&["values of label \"text\" would be more than 67108864 bytes in all"]);
    let length = Error(&["label \"text\" would be 2097152 bytes long, the limit is 1048576"]);
    let carried = format!(
        "label_replace(m, \"a\", \"\", \"\", \"\") * on (job) group_left (text) \
         (max by (job, text) ({once}))"
    );
    check_instant(&[
        (doubling, AnswerOr(&["the limit is"])),
        (joining, AnswerOr(&["the limit is"])),
        (
            nested(replace, "sum by (text) (m)", ", \"text\", \"$1$1\", \"text\", \"(.*)\")", 17),
            length,
        ),
        (once, Answer),
        (many, all_values),
        (nested(&format!("({carried}) or "), "m", "", 10), AnswerOr(&["the limit is"])),
        (carried, Answer),
        (
            format!("label_replace({slow}, \"b\", \"$1\", \"text\", \"(?:(a?){{500}}(a*)*)*\")"),
            AnswerOr(&["the limit is"]),
        ),
        ("label_replace(vector(1), \"a\", \"$1\", \"b\", \"((((.*))))\")".to_owned(), Answer),
    ]);
}

#[test]
fn absurd_times_and_parameters_cause_no_panic() {
    check_instant(&owned([
        ("m[300y]", Error(&["out of range"])),
        ("count_over_time(m[290y])", Answer),
        ("m offset -290y", Answer),
        ("m offset 290y", Answer),
        ("rate(m[290y] offset -290y)", Answer),
        ("rate(m[290y] offset 290y)", Answer),
        ("m @ 1e300", Error(&["parse error"])),
        ("m @ 9e15", Answer),
        ("m @ -9e15", Answer),
        ("rate(m[290y] @ -9e15 offset 290y)", Answer),
        ("max_over_time(m[290y:290y] @ -9e15 offset 290y)", Answer),
        ("m[1e300]", Error(&["parse error"])),
        ("m[2^1023]", Error(&[])),
        ("topk(1e308, m)", Error(&["Scalar value 1e+308 overflows int64"])),
        ("bottomk(-1e308, m)", AnswerOr(&["int64"])),
        ("topk(9e18, m)", Answer),
        ("limitk(9e18, m)", Answer),
        ("limit_ratio(1e308, m)", Answer),
        ("quantile(1e308, m)", Answer),
        ("count_values(\"v\", m)", Answer),
        ("count_values(\"v\", m * 1e300)", Answer),
        ("round(m, 1e-320)", Answer),
        ("predict_linear(m[1h], 1e308)", Answer),
        ("double_exponential_smoothing(m[1h], 0.1, 1e308)", Error(&["trend factor"])),
        ("timestamp(m @ 9e15) + day_of_year(vector(1e308)) + year(vector(-1e308))", Answer),
        ("histogram_quantile(1e308, label_replace(m, \"le\", \"$1\", \"i\", \"(.*)\"))", Answer),
        ("m ^ 1e308 % 0 atan2 m", Answer),
    ]));
    check_range(&owned([
        ("count_values(\"v\", m)", MEMORY),
        ("count_values(\"v\", time() + m)", AnswerOr(&["bytes of memory, the limit is"])),
        ("quantile_over_time(0.9, m[1h])", Answer),
        ("mad_over_time(m[2h:10m])", Answer),
        ("m + on () group_left () m", Error(&["found duplicate series for the match group"])),
        ("m + ignoring (i) m", Error(&["found duplicate series for the match group"])),
        ("topk(9e18, m)", Answer),
    ]));
}

#[test]
fn evaluation_times_at_the_limits_cause_no_panic() {
    let engine = Engine::new(EngineOptions { threads: 1, ..EngineOptions::default() });
    let queries = [
        "m",
        "rate(m[1h] offset 1h)",
        "max_over_time(m[1h:1m])",
        "time() + start() + end() + range() + step()",
        "m[range()]",
        "predict_linear(m[1h], 1e18)",
        "info(m)",
        "max_over_time(time()[1h:1m] @ end() offset -1h)",
        "timestamp(m smoothed)",
    ];
    let times = [
        (i64::MIN, i64::MAX, i64::MAX),
        (i64::MIN, i64::MIN + 10, 3),
        (i64::MAX - 10, i64::MAX, 3),
        (i64::MIN, i64::MAX, i64::MAX / 1000),
        (0, i64::MAX, 1 << 60),
    ];
    for query in queries {
        for (start_ms, end_ms, step_ms) in times {
            let found = [
                block_on(engine.range(source(), query, start_ms, end_ms, step_ms, &options())),
                block_on(engine.instant(source(), query, start_ms, &options())),
                block_on(engine.instant(source(), query, end_ms, &options())),
            ];
            for found in found {
                if let Err(error) = found {
                    assert!(!error.to_string().contains("unexpected error"), "{query}: {error}");
                }
            }
        }
    }
    let found = block_on(engine.range(source(), "m", i64::MIN, i64::MAX, 1, &options()));
    judge("m", &STEPS, &found);
}

#[test]
fn errors_of_long_queries_stay_short() {
    let long = format!("m{{a=\"{}\"}} + ", "x".repeat(900_000));
    check_instant(&[(long, Error(&["parse error"]))]);
}
