//! `thanos.Query`: PromQL at one time, or on a grid.
//!
//! A root relies on these rules: series have all external labels, sorted; times are on the grid; no
//! series is empty, and no value is a staleness marker; histograms have float counts. Texts and
//! ranges of samples have no form in the responses.
//!
//! Source: `pkg/api/query/grpc.go` and `pkg/query/remote_engine.go` of Thanos 0.42.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use engine::result::{QueryOutput, Row, SampleValue, Value};
use engine::steps::Steps;
use engine::{QueryOptions, When};
use model::{Labels, is_stale};
use wire::thanos::{QueryRequest, QueryResponses, QueryTimes, warning};

use super::call::{Call, respond};
use super::node::{self, LabeledSource};
use super::status::{Code, Status};
use crate::http::error::ApiError;
use crate::query::Answer;
use crate::query::active::Client;
use crate::state::Shared;
use crate::time::Time;

/// Field of a warning in a `QueryResponse`.
const WARNING_FIELD: u32 = 1;
/// Maximum number of warnings, and of infos, of a response; the rest is counted.
const ANNOTATIONS_MAX: usize = 10;
/// Maximum size of one series in a message, in bytes.
const SERIES_BYTES_MAX: usize = 16 << 20;
/// Bytes of a float with its time, about.
const POINT_BYTES: usize = 20;

/// `thanos.Query/Query`.
pub(super) async fn instant(
    State(shared): State<Arc<Shared>>,
    call: Call,
) -> Result<Response, Status> {
    let request = QueryRequest::decode_instant(&call.message)?;
    answer(&shared, request, call.client).await
}

/// `thanos.Query/QueryRange`.
pub(super) async fn range(
    State(shared): State<Arc<Shared>>,
    call: Call,
) -> Result<Response, Status> {
    let request = QueryRequest::decode_range(&call.message)?;
    answer(&shared, request, call.client).await
}

async fn answer(
    shared: &Shared,
    request: QueryRequest,
    client: Client,
) -> Result<Response, Status> {
    let when = when(request.times)?;
    let LabeledSource { source, labels } = node::source(shared, &client, &request.replica_labels)?;
    let mut options = QueryOptions {
        result_cache_scope: format!("{labels}{}", client.tenants_text()).into(),
        use_result_cache: true,
        ..shared.query_options()
    };
    if let Ok(seconds @ 1..) = u64::try_from(request.timeout_seconds) {
        options.limits.timeout = Some(Duration::from_secs(seconds));
    }
    if request.lookback_delta_seconds > 0 {
        options.lookback_ms = millis(request.lookback_delta_seconds);
    }
    let query = engine::QueryRequest { text: request.text.into(), when, options };
    let answered = shared.queries.run(source, &query, client, &shared.metrics).await;
    let Answer { output, sending, .. } = answered.map_err(|failure| {
        let error = ApiError::from(failure);
        shared.metrics.query_failed(error.error_type());
        error
    })?;
    let messages = Messages::new(output, &query.text, request.batch_series_max)?;
    Ok(respond(sending, messages))
}

/// Returns the times of an evaluation.
///
/// Errors: a grid that never ends. A root sends whole seconds, so a step below 1 s arrives as 0.
fn when(times: QueryTimes) -> Result<When, Status> {
    let invalid = |message: &str| Err(Status::new(Code::InvalidArgument, message));
    match times {
        QueryTimes::Instant { time_seconds: 0 } => Ok(When::Instant(Time::now().query_ms())),
        QueryTimes::Instant { time_seconds } => Ok(When::Instant(millis(time_seconds))),
        QueryTimes::Range { start_seconds, end_seconds, .. } if end_seconds < start_seconds => {
            invalid("end timestamp must not be before start time")
        }
        QueryTimes::Range { start_seconds, end_seconds, interval_seconds } => {
            let (start_ms, end_ms) = (millis(start_seconds), millis(end_seconds));
            match interval_seconds {
                1.. => Ok(When::Range { start_ms, end_ms, step_ms: millis(interval_seconds) }),
                0 if start_ms == end_ms => Ok(When::Range { start_ms, end_ms, step_ms: 1_000 }),
                _ => invalid(
                    "zero or negative query resolution step widths are not accepted, and steps \
                     below one second arrive as zero: try a step of at least one second",
                ),
            }
        }
    }
}

/// Returns ms, of at most 292 years as times and durations of HTTP have, so that sums do not overflow.
fn millis(seconds: i64) -> i64 {
    const MAX_MS: i64 = i64::MAX / 1_000_000;
    seconds.saturating_mul(1_000).clamp(-MAX_MS, MAX_MS)
}

/// Messages of a response, encoded one after the other.
struct Messages {
    encoder: QueryResponses,
    rows: Rows,
    /// Messages after the last series, in order.
    last: VecDeque<Vec<u8>>,
    is_finished: bool,
}

/// Series that are not encoded yet.
enum Rows {
    Instant { time_ms: i64, samples: std::vec::IntoIter<(Labels, SampleValue)> },
    Grid { steps: Steps, rows: std::vec::IntoIter<Row> },
}

impl Messages {
    /// Errors: a value without a form in the response, or a series that is too large for a message.
    fn new(output: QueryOutput, text: &str, batch_series_max: usize) -> Result<Messages, Status> {
        let (warnings, infos) = output.annotations.to_strings(text, ANNOTATIONS_MAX);
        let mut last: VecDeque<_> =
            warnings.iter().chain(&infos).map(|text| warning(WARNING_FIELD, text)).collect();
        last.push_back(QueryResponses::stats(output.stats.sample_count));
        let unsupported = |what: &str| {
            let message =
                format!("{what} cannot be returned to Thanos: its responses hold vectors");
            Err(Status::new(Code::InvalidArgument, message))
        };
        let rows = match output.value {
            Value::Scalar { time_ms, value } => {
                let sample = (Labels::empty(), SampleValue::Float(value));
                Rows::Instant { time_ms, samples: vec![sample].into_iter() }
            }
            Value::Vector { time_ms, samples } => {
                Rows::Instant { time_ms, samples: samples.into_iter() }
            }
            Value::Grid { steps, rows } => {
                if rows.iter().any(|row| row_bytes(row) > SERIES_BYTES_MAX) {
                    let message = format!(
                        "a series of the result takes more than {SERIES_BYTES_MAX} bytes: use a \
                         larger step, or a shorter range"
                    );
                    return Err(Status::new(Code::ResourceExhausted, message));
                }
                Rows::Grid { steps, rows: rows.into_iter() }
            }
            Value::String { .. } => return unsupported("a string"),
            Value::Samples(_) => return unsupported("a range vector"),
        };
        let encoder = QueryResponses::new(batch_series_max);
        Ok(Messages { encoder, rows, last, is_finished: false })
    }

    /// Encodes the next series. Returns `None` after the last one, else a message if it is full.
    fn encode_next(&mut self) -> Option<Option<Vec<u8>>> {
        let encoder = &mut self.encoder;
        match &mut self.rows {
            Rows::Instant { time_ms, samples } => {
                let (labels, value) = samples.next()?;
                encoder.begin(&labels);
                push(encoder, *time_ms, &value);
            }
            Rows::Grid { steps, rows } => {
                let row = rows.next()?;
                encoder.begin(&row.labels);
                for step in 0..steps.count {
                    match row.histograms.get(step) {
                        Some(Some(histogram)) => {
                            encoder.push_histogram(steps.time(step), histogram);
                        }
                        _ if row.is_present(step) && !is_stale(row.values[step]) => {
                            encoder.push_float(steps.time(step), row.values[step]);
                        }
                        _ => {}
                    }
                }
            }
        }
        Some(encoder.end())
    }
}

fn push(encoder: &mut QueryResponses, time_ms: i64, value: &SampleValue) {
    match value {
        SampleValue::Float(value) if is_stale(*value) => {}
        SampleValue::Float(value) => encoder.push_float(time_ms, *value),
        SampleValue::Histogram(histogram) => encoder.push_histogram(time_ms, histogram),
    }
}

/// Returns the size of an encoded series, in bytes, about.
fn row_bytes(row: &Row) -> usize {
    let histograms = row.iter_histograms().map(|(_, histogram)| histogram.heap_bytes());
    row.values.len() * POINT_BYTES + histograms.sum::<usize>()
}

impl Iterator for Messages {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        while !self.is_finished {
            match self.encode_next() {
                Some(Some(message)) => return Some(message),
                Some(None) => {}
                None => {
                    self.is_finished = true;
                    if let Some(message) = self.encoder.finish() {
                        return Some(message);
                    }
                }
            }
        }
        self.last.pop_front()
    }
}
