//! `status/self_metrics`: the server's own metrics as JSON.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use json::number::push_number;
use json::pieces::Ready;
use json::text::push_text;
use model::{MatchOp, Matcher};
use prometheus::proto::{Metric, MetricFamily, MetricType};

use crate::http::body::success;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::state::Shared;

/// `/api/v1/status/self_metrics`: metrics whose names match `metric_name_pattern`, or all.
///
/// Source: `selfMetrics` in `web/api/v1/api.go` of Prometheus, and the JSON of protobuf for
/// `io.prometheus.client.MetricFamily`: whole numbers of 64 bits are texts there.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let pattern = params.text("metric_name_pattern")?.to_owned();
    let names = (!pattern.is_empty()).then(|| Matcher::new(MatchOp::Regex, "name", pattern));
    let names = names
        .transpose()
        .map_err(|error| ApiError::bad_data(format!("invalid metric_name_pattern: {error}")))?;
    let mut json = vec![b'['];
    let families = shared.gather_metrics();
    let families = families
        .iter()
        .filter(|family| names.as_ref().is_none_or(|names| names.matches(family.name())));
    for (position, family) in families.enumerate() {
        if position > 0 {
            json.push(b',');
        }
        push_family(&mut json, family);
    }
    json.push(b']');
    Ok(success(Ready(json), &[], &[]))
}

fn push_family(json: &mut Vec<u8>, family: &MetricFamily) {
    json.extend_from_slice(b"{\"name\":");
    push_text(json, family.name());
    json.extend_from_slice(b",\"help\":");
    push_text(json, family.help());
    let kind = family.get_field_type();
    let name = match kind {
        MetricType::COUNTER => "COUNTER",
        MetricType::GAUGE => "GAUGE",
        MetricType::HISTOGRAM => "HISTOGRAM",
        MetricType::SUMMARY => "SUMMARY",
        MetricType::UNTYPED => "UNTYPED",
    };
    json.extend_from_slice(format!(",\"type\":\"{name}\",\"metric\":[").as_bytes());
    for (position, metric) in family.get_metric().iter().enumerate() {
        if position > 0 {
            json.push(b',');
        }
        push_metric(json, kind, metric);
    }
    json.extend_from_slice(b"]}");
}

fn push_metric(json: &mut Vec<u8>, kind: MetricType, metric: &Metric) {
    json.push(b'{');
    if !metric.get_label().is_empty() {
        json.extend_from_slice(b"\"label\":");
        for (position, label) in metric.get_label().iter().enumerate() {
            json.extend_from_slice(if position == 0 { b"[{\"name\":" } else { b",{\"name\":" });
            push_text(json, label.name());
            json.extend_from_slice(b",\"value\":");
            push_text(json, label.value());
            json.push(b'}');
        }
        json.extend_from_slice(b"],");
    }
    match kind {
        MetricType::COUNTER => push_value(json, "counter", metric.get_counter().get_value()),
        MetricType::GAUGE => push_value(json, "gauge", metric.get_gauge().get_value()),
        MetricType::HISTOGRAM => push_histogram(json, metric),
        // The server has no metrics of these types.
        MetricType::SUMMARY | MetricType::UNTYPED => push_value(json, "untyped", 0.0),
    }
    json.push(b'}');
}

fn push_value(json: &mut Vec<u8>, kind: &str, value: f64) {
    json.extend_from_slice(format!("\"{kind}\":{{\"value\":").as_bytes());
    push_float(json, value);
    json.push(b'}');
}

fn push_histogram(json: &mut Vec<u8>, metric: &Metric) {
    let histogram = metric.get_histogram();
    let count = histogram.get_sample_count();
    json.extend_from_slice(
        format!("\"histogram\":{{\"sampleCount\":\"{count}\",\"sampleSum\":").as_bytes(),
    );
    push_float(json, histogram.get_sample_sum());
    json.extend_from_slice(b",\"bucket\":[");
    for (position, bucket) in histogram.get_bucket().iter().enumerate() {
        if position > 0 {
            json.push(b',');
        }
        let count = bucket.cumulative_count();
        json.extend_from_slice(
            format!("{{\"cumulativeCount\":\"{count}\",\"upperBound\":").as_bytes(),
        );
        push_float(json, bucket.upper_bound());
        json.push(b'}');
    }
    json.extend_from_slice(b"]}");
}

/// Numbers that JSON cannot hold are texts.
fn push_float(json: &mut Vec<u8>, value: f64) {
    match value {
        f64::INFINITY => json.extend_from_slice(b"\"Infinity\""),
        f64::NEG_INFINITY => json.extend_from_slice(b"\"-Infinity\""),
        value if value.is_nan() => json.extend_from_slice(b"\"NaN\""),
        value => push_number(json, value),
    }
}
