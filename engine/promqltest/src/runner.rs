//! Runs a script: loads its data, runs its queries, compares the results.

use std::sync::{Arc, LazyLock};

use engine::parse::ast::Expr;
use engine::parse::{ParseOptions, parse};
use engine::result::SampleValue;
use engine::{Engine, QueryError, QueryOptions, QueryOutput, Value};
use model::memory::MemorySource;
use model::{Labels, Source};
use regex::Regex;

use crate::compare::{check_sorted, check_value};
use crate::data::Dataset;
use crate::pin;
use crate::script::{Command, Eval, Evaluation, Script, ScriptError};
use crate::series::SeriesValue;
use crate::walk::for_each_selector;

/// Distance of the range query's first and last step from the time of an instant eval.
const RANGE_STEP_MS: i64 = 60_000;

/// Outcome of an eval.
#[derive(Debug)]
pub struct EvalReport {
    /// Line number in the script, from 1.
    pub line: usize,
    /// Query.
    pub query: String,
    /// Features beyond stable PromQL on floats.
    pub needs: Needs,
    /// Result of the eval as written.
    pub plain: Result<(), Failure>,
    /// Result of the eval and its variations.
    pub varied: Result<(), Failure>,
}

/// Features of an eval beyond stable PromQL on floats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Native histograms, selected or expected.
    pub native_histograms: bool,
    /// Selected series with start timestamps.
    pub start_timestamps: bool,
    /// Experimental functions or syntax.
    pub experimental: bool,
}

/// Difference between the result of an eval and the expectation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{query}, {evaluation:?}: {message}")]
pub struct Failure {
    /// Query, as written or as a variation.
    pub query: String,
    /// Time of evaluation.
    pub evaluation: Evaluation,
    /// Description of the difference.
    pub message: String,
}

impl Needs {
    /// Returns whether only stable PromQL on floats is used.
    pub fn is_plain(self) -> bool {
        self == Needs::default()
    }
}

/// Runs the commands of a script in order; a failed eval does not stop it.
///
/// Calls `make_source` for a source with the given samples whenever they have changed.
///
/// Errors: data that cannot be loaded.
pub async fn run_script(
    script: &Script,
    engine: &Engine,
    mut make_source: impl AsyncFnMut(&MemorySource) -> Arc<dyn Source>,
) -> Result<Vec<EvalReport>, ScriptError> {
    let mut data = Dataset::default();
    let mut source = None;
    let mut reports = Vec::new();
    for command in &script.commands {
        match command {
            Command::Clear => {
                data.clear();
                source = None;
            }
            Command::Load(load) => {
                data.load(load).map_err(|message| ScriptError { line: load.line, message })?;
                source = None;
            }
            Command::Eval(eval) => {
                let source = match &source {
                    Some(source) => source,
                    None => source.insert(make_source(data.samples()).await),
                };
                reports.push(run_eval(engine, source, &data, eval).await);
            }
        }
    }
    Ok(reports)
}

async fn run_eval(
    engine: &Engine,
    source: &Arc<dyn Source>,
    data: &Dataset,
    eval: &Eval,
) -> EvalReport {
    let expr = parse(&eval.query, &ParseOptions::ALL);
    let needs = needs_of(eval, expr.as_ref().ok(), data);
    let plain = check_answer(engine, source, eval, &eval.query, eval.evaluation).await.map(|_| ());
    let varied = match &plain {
        Ok(()) => check_variations(engine, source, eval, expr.as_ref().ok()).await,
        Err(failure) => Err(failure.clone()),
    };
    EvalReport { line: eval.line, query: eval.query.clone(), needs, plain, varied }
}

fn needs_of(eval: &Eval, expr: Option<&Expr>, data: &Dataset) -> Needs {
    let values = eval.expected.series.values().flat_map(|series| &series.values);
    let mut needs = Needs {
        native_histograms: values.into_iter().any(|v| matches!(v, SeriesValue::Histogram(_))),
        start_timestamps: false,
        experimental: expr.is_some() && parse(&eval.query, &ParseOptions::STABLE).is_err(),
    };
    if let Some(expr) = expr {
        for_each_selector(expr, &mut |matchers| {
            needs.native_histograms |= data.selects_histograms(matchers);
            needs.start_timestamps |= data.selects_start_times(matchers);
        });
    }
    needs
}

/// Runs a query and compares its result; returns the result if there is one.
async fn check_answer(
    engine: &Engine,
    source: &Arc<dyn Source>,
    eval: &Eval,
    query: &str,
    evaluation: Evaluation,
) -> Result<Option<QueryOutput>, Failure> {
    let answer = ask(engine, source, query, evaluation).await;
    let mismatch = |message: String| Failure { query: query.to_owned(), evaluation, message };
    let output = match (answer, &eval.expectations.failure) {
        (Ok(output), None) => output,
        (Ok(_), Some(_)) => return Err(mismatch("expected a failure, found none".to_owned())),
        (Err(error), None) => return Err(mismatch(error.to_string())),
        (Err(error), Some(pattern)) if pattern.fits(&error.to_string()) => return Ok(None),
        (Err(error), Some(pattern)) => {
            let message =
                format!("expected failure {:?}, found {:?}", pattern.as_str(), error.to_string());
            return Err(mismatch(message));
        }
    };
    let (warnings, infos) = output.annotations.to_strings(query, 0);
    eval.expectations.check_annotations(&warnings, &infos).map_err(mismatch)?;
    check_value(eval, &output.value).map_err(mismatch)?;
    Ok(Some(output))
}

async fn ask(
    engine: &Engine,
    source: &Arc<dyn Source>,
    query: &str,
    evaluation: Evaluation,
) -> Result<QueryOutput, QueryError> {
    let options = QueryOptions::default();
    let source = Arc::clone(source);
    match evaluation {
        Evaluation::Instant { time_ms } => engine.instant(source, query, time_ms, &options).await,
        Evaluation::Range { start_ms, end_ms, step_ms } => {
            engine.range(source, query, start_ms, end_ms, step_ms, &options).await
        }
    }
}

/// Repeats an instant eval in a range query, and pinned with `@` at other times.
async fn check_variations(
    engine: &Engine,
    source: &Arc<dyn Source>,
    eval: &Eval,
    expr: Option<&Expr>,
) -> Result<(), Failure> {
    let Evaluation::Instant { time_ms } = eval.evaluation else { return Ok(()) };
    let Some(expr) = expr else { return Ok(()) };
    let mut variations = vec![(eval.query.clone(), time_ms)];
    if let Some(pinned) = pin::pin(&eval.query, expr, time_ms) {
        variations.extend(pin::other_times(time_ms).into_iter().map(|t| (pinned.clone(), t)));
    }
    for (query, time_ms) in variations {
        let evaluation = Evaluation::Instant { time_ms };
        let output = check_answer(engine, source, eval, &query, evaluation).await?;
        if let Some(output) = output {
            check_in_range(engine, source, eval, &query, time_ms, &output.value).await?;
        }
    }
    Ok(())
}

static DEPENDS_ON_RANGE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(start|end|range|step)\(\)")
        .expect("the pattern is a constant that a test compiles")
});

/// Compares the middle step of a range query with the expectation of the instant eval.
async fn check_in_range(
    engine: &Engine,
    source: &Arc<dyn Source>,
    eval: &Eval,
    query: &str,
    time_ms: i64,
    instant: &Value,
) -> Result<(), Failure> {
    let expected = &eval.expected;
    if expected.raw_times.is_some() || expected.is_string || DEPENDS_ON_RANGE.is_match(query) {
        return Ok(());
    }
    let evaluation = Evaluation::Range {
        start_ms: time_ms - RANGE_STEP_MS,
        end_ms: time_ms + RANGE_STEP_MS,
        step_ms: RANGE_STEP_MS,
    };
    let mismatch = |message: String| Failure { query: query.to_owned(), evaluation, message };
    let answer = ask(engine, source, query, evaluation).await;
    let value = answer.map_err(|error| mismatch(error.to_string()))?.value;
    // A range query always sorts by labels.
    if eval.expectations.is_ordered {
        return Ok(());
    }
    let samples = samples_at(&value, time_ms).map_err(mismatch)?;
    let value = match (instant, samples.first()) {
        (Value::Scalar { .. }, Some((_, SampleValue::Float(value)))) => {
            Value::Scalar { time_ms, value: *value }
        }
        _ => Value::Vector { time_ms, samples },
    };
    check_value(eval, &value).map_err(mismatch)
}

fn samples_at(value: &Value, time_ms: i64) -> Result<Vec<(Labels, SampleValue)>, String> {
    let Value::Grid { steps, rows } = value else {
        return Err(format!("a range query returned {value:?}"));
    };
    check_sorted(rows.iter().map(|row| &row.labels))?;
    let step_index = (0..steps.count).find(|step_index| steps.time(*step_index) == time_ms);
    let at = |row: &engine::result::Row| Some((row.labels.clone(), row.at(step_index?)?));
    Ok(rows.iter().filter_map(at).collect())
}
