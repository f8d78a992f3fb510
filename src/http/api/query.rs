//! `query`, `query_range`, `format_query` and `parse_query`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use engine::parse::ast::Expr;
use engine::{QueryRequest, Value, When};
use json::cost::QueryCost;
use json::pieces::Ready;
use json::text::push_text;
use json::value::ValuePieces;

use crate::http::body::answer;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::http::router::source_of;
use crate::query::active::Client;
use crate::query::{Answer, QueryFailure};
use crate::state::{Readiness, Shared};
use crate::time::{Time, duration_from_nanos, parse_nanos};
use crate::units::{millis, quoted};

/// Maximum number of intervals between the steps of a range query.
const STEPS_MAX: i64 = 11_000;
/// Maximum size of a formatted query, in bytes.
const FORMATTED_BYTES_MAX: usize = 16 << 20;
/// Maximum number of warnings, and of infos, of an answer; the rest is counted.
const ANNOTATIONS_MAX: usize = 10;

/// Query of a request, and options of its response.
struct Request<'a> {
    query: QueryRequest,
    client: Client,
    limit: usize,
    stats: &'a str,
}

/// `/api/v1/query`.
pub(crate) async fn instant(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let limit = params.limit()?;
    let time = params.time_or("time", Time::now())?;
    let when = When::Instant(time.query_ms());
    let request = Request::new(&shared, &params, limit, when)?;
    let answer = run(&shared, &request).await?;
    Ok(encode(&request, answer))
}

/// `/api/v1/query_range`.
pub(crate) async fn range(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let limit = params.limit()?;
    let when = steps(&params)?;
    let request = Request::new(&shared, &params, limit, when)?;
    let answer = run(&shared, &request).await?;
    Ok(encode(&request, answer))
}

/// Parses the steps of a range query, with checks in Prometheus' order.
fn steps(params: &Params) -> Result<When, ApiError> {
    let (start, end) = (params.time("start")?, params.time("end")?);
    let is_backwards =
        || ApiError::invalid_parameter("end", "end timestamp must not be before start time");
    if end < start {
        return Err(is_backwards());
    }
    let step_nanos = parse_nanos(params.text("step")?)
        .map_err(|error| ApiError::invalid_parameter("step", error))?;
    let is_not_positive = || {
        let message = "zero or negative query resolution step widths are not accepted. \
                       Try a positive integer";
        ApiError::invalid_parameter("step", message)
    };
    if step_nanos <= 0 {
        return Err(is_not_positive());
    }
    if end.nanos_since(start) / step_nanos > STEPS_MAX {
        return Err(ApiError::bad_data(
            "exceeded maximum resolution of 11,000 points per timeseries. \
             Try decreasing the query resolution (?step=XX)",
        ));
    }
    let (start_ms, end_ms) = (start.query_ms(), end.query_ms());
    // Times may wrap to another order; Prometheus returns no samples.
    if end_ms < start_ms {
        return Err(is_backwards());
    }
    // Prometheus divides by zero for a step below 1 ms.
    let step_ms = step_nanos / 1_000_000;
    if step_ms == 0 {
        return Err(is_not_positive());
    }
    Ok(When::Range { start_ms, end_ms, step_ms })
}

impl<'a> Request<'a> {
    fn new(
        shared: &Shared,
        params: &'a Params,
        limit: usize,
        when: When,
    ) -> Result<Request<'a>, ApiError> {
        let mut options = shared.query_options();
        let timeout = params.text("timeout")?;
        if !timeout.is_empty() {
            let nanos = parse_nanos(timeout)
                .map_err(|error| ApiError::invalid_parameter("timeout", error))?;
            options.limits.timeout = Some(duration_from_nanos(nanos));
        }
        let lookback = params.text("lookback_delta")?;
        if !lookback.is_empty() {
            let nanos = parse_nanos(lookback).map_err(|error| {
                ApiError::bad_data(format!("error parsing lookback delta duration: {error}"))
            })?;
            let lookback = duration_from_nanos(nanos);
            // 0 selects the default of the server.
            if !lookback.is_zero() {
                options.lookback_ms = millis(lookback);
            }
        }
        options.explain = params.flag("explain")?;
        let client = params.client();
        let (text, stats) = (params.query()?.into(), params.text("stats")?);
        options.result_cache_scope = client.tenants_text().into();
        options.per_step_stats = !stats.is_empty();
        // Statistics and plans describe the whole work, so they need an evaluation. The store for
        // reading is replaced later, so its results are not cached.
        options.use_result_cache = stats.is_empty()
            && !options.explain
            && !is_uncached(params)?
            && shared.readiness() == Readiness::Ready;
        let query = QueryRequest { text, when, options };
        Ok(Request { query, client, limit, stats })
    }
}

/// Returns whether the result cache is disabled by `nocache=1`, as in VictoriaMetrics.
fn is_uncached(params: &Params) -> Result<bool, ApiError> {
    match params.text("nocache")? {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => params.flag("nocache"),
    }
}

async fn run(shared: &Shared, request: &Request<'_>) -> Result<Answer, ApiError> {
    let source = source_of(shared, &request.client)?;
    let client = request.client.clone();
    let answer = shared.queries.run(source, &request.query, client, &shared.metrics).await;
    answer.map_err(|failure| {
        let error = ApiError::from(failure);
        shared.metrics.query_failed(error.error_type());
        error
    })
}

fn encode(request: &Request<'_>, answered: Answer) -> Response {
    let mut output = answered.output;
    let (annotations, infos) = output.annotations.to_strings(&request.query.text, ANNOTATIONS_MAX);
    let mut warnings = Vec::new();
    if truncate(&mut output.value, request.limit) {
        warnings.push("results truncated due to limit".to_owned());
    }
    if !matches!(request.stats, "" | "true" | "all") {
        warnings.push(format!(
            "value {} for parameter \"stats\" is deprecated and will be rejected in the next \
             major release, use \"true\" or \"all\"",
            quoted(request.stats)
        ));
    }
    warnings.extend(annotations);
    let cost = (!request.stats.is_empty()).then_some(QueryCost {
        stats: output.stats,
        queue_seconds: answered.waited.as_secs_f64(),
        is_per_step: request.stats == "all",
    });
    answer(ValuePieces::new(output, cost), answered.sending, &warnings, &infos)
}

/// Truncates to a number of series, 0 for all. Returns whether some were removed.
fn truncate(value: &mut Value, limit: usize) -> bool {
    fn cut<T>(series: &mut Vec<T>, limit: usize) -> bool {
        let is_cut = limit > 0 && series.len() > limit;
        if is_cut {
            series.truncate(limit);
        }
        is_cut
    }
    match value {
        Value::Scalar { .. } | Value::String { .. } => false,
        Value::Vector { samples, .. } => cut(samples, limit),
        Value::Grid { rows, .. } => cut(rows, limit),
        Value::Samples(series) => cut(series, limit),
    }
}

impl From<QueryFailure> for ApiError {
    fn from(failure: QueryFailure) -> Self {
        match failure {
            QueryFailure::Gate(error) => ApiError::from(error),
            QueryFailure::Engine(error) => ApiError::from(error),
            QueryFailure::TimedOut => ApiError::timed_out("expression evaluation"),
            QueryFailure::Canceled => ApiError::canceled(),
            QueryFailure::Panicked(_) => ApiError::internal(failure.to_string()),
        }
    }
}

/// `/api/v1/format_query`.
pub(crate) async fn format(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let format = |tree: Expr| engine::parse::format(&tree, FORMATTED_BYTES_MAX);
    let Some(text) = parsed(&shared, &params, format).await? else {
        return Err(ApiError::execution(format!(
            "the formatted query exceeds the limit of {FORMATTED_BYTES_MAX} bytes"
        )));
    };
    let mut json = Vec::new();
    push_text(&mut json, &text);
    Ok(answer(Ready(json), shared.queries.work(params.request()), &[], &[]))
}

/// `/api/v1/parse_query`.
pub(crate) async fn parse(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let json = parsed(&shared, &params, |tree| engine::parse::to_json(&tree)).await?;
    let work = shared.queries.work(params.request());
    Ok(answer(Ready(json.into_bytes()), work, &[], &[]))
}

/// Parses the query of a request, and maps the expression.
async fn parsed<T: Send + 'static>(
    shared: &Shared,
    params: &Params,
    map: impl FnOnce(Expr) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let (text, options) = (params.query()?.to_owned(), shared.args.parse_options());
    Ok(shared.queries.parse(text, options, map).await??)
}
