//! What the server tells of itself.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use super::json::body::{Ready, success};
use super::json::number::push_integer;
use super::json::text::push_text;
use super::time::format_rfc3339;
use crate::metrics::to_text;
use crate::server::Shared;
use crate::units::{format_bytes, format_duration};

/// The version of Prometheus whose API this is. Grafana decides by it which endpoints and
/// parameters it may use; our own version stands behind it.
const VERSION: &str = concat!("3.14.0+tessella.", env!("CARGO_PKG_VERSION"));

/// `/api/v1/status/buildinfo`. `features` is absent: Grafana takes a server that has it for
/// another product.
pub(super) async fn build_info() -> Response {
    let fields = [
        ("version", VERSION),
        ("revision", ""),
        ("branch", ""),
        ("buildUser", ""),
        ("buildDate", ""),
        ("goVersion", ""),
    ];
    success(Ready(object(fields.map(|(name, value)| (name, value.to_owned())))), &[], &[])
}

/// `/api/v1/status/config`.
pub(super) async fn config(State(shared): State<Arc<Shared>>) -> Response {
    success(Ready(object([("yaml", shared.config().to_yaml())])), &[], &[])
}

/// `/api/v1/status/flags`.
pub(super) async fn flags(State(shared): State<Arc<Shared>>) -> Response {
    success(Ready(object(shared.args.flags())), &[], &[])
}

/// `/api/v1/status/runtimeinfo`: of Prometheus' fields those that mean something here.
pub(super) async fn runtime_info(State(shared): State<Arc<Shared>>) -> Response {
    let directory = std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (time, size) = shared.config().storage.retention.of_all(&shared.args);
    let (time, size) = (time.map(format_duration), size.map(format_bytes));
    let retention = time.into_iter().chain(size).collect::<Vec<_>>().join(" or ");
    let (was_reload_good, read_seconds) = shared.metrics.config_was_read();
    let read_at = std::time::UNIX_EPOCH + Duration::from_secs_f64(read_seconds);
    let mut json = object([
        ("startTime", format_rfc3339(shared.started)),
        ("CWD", directory),
        ("hostname", host.trim_end().to_owned()),
        ("serverTime", format_rfc3339(std::time::SystemTime::now())),
        ("lastConfigTime", format_rfc3339(read_at)),
        ("storageRetention", retention),
    ]);
    json.pop();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    json.extend_from_slice(b",\"GOMAXPROCS\":");
    push_integer(&mut json, cores as u64);
    json.extend_from_slice(b",\"reloadConfigSuccess\":");
    json.extend_from_slice(if was_reload_good { b"true" } else { b"false" });
    json.push(b'}');
    success(Ready(json), &[], &[])
}

/// `/metrics`.
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    let text = to_text(&shared.gather_metrics());
    let text = text.map_err(|error| ApiError::internal(error.to_string()))?;
    let content_type = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}

fn object<N: AsRef<str>>(fields: impl IntoIterator<Item = (N, String)>) -> Vec<u8> {
    let mut json = vec![b'{'];
    for (position, (name, value)) in fields.into_iter().enumerate() {
        if position > 0 {
            json.push(b',');
        }
        push_text(&mut json, name.as_ref());
        json.push(b':');
        push_text(&mut json, &value);
    }
    json.push(b'}');
    json
}
