//! Version, configuration, flags, runtime and metrics of the server.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use json::number::push_integer;
use json::pieces::Ready;
use json::text::push_text;

use crate::build_info::{BUILD_DATE, REVISION};
use crate::http::body::success;
use crate::http::error::ApiError;
use crate::metrics::to_text;
use crate::retention_status::UNLIMITED;
use crate::state::Shared;
use crate::time::format_rfc3339;

/// Version of Prometheus whose API is implemented, followed by our own. Grafana selects endpoints and
/// parameters by it.
const VERSION: &str = concat!("3.14.0+tessella.", env!("CARGO_PKG_VERSION"));

/// `/api/v1/status/buildinfo`, without `features`, which Grafana takes for another product.
pub(crate) async fn build_info() -> Response {
    let fields = [
        ("version", VERSION),
        ("revision", REVISION),
        ("branch", ""),
        ("buildUser", ""),
        ("buildDate", &**BUILD_DATE),
        ("goVersion", ""),
    ];
    success(Ready(object(fields.map(|(name, value)| (name, value.to_owned())))), &[], &[])
}

/// `/api/v1/status/config`.
pub(crate) async fn config(State(shared): State<Arc<Shared>>) -> Response {
    success(Ready(object([("yaml", shared.config().to_yaml())])), &[], &[])
}

/// `/api/v1/status/flags`.
pub(crate) async fn flags(State(shared): State<Arc<Shared>>) -> Response {
    success(Ready(object(shared.args.flags())), &[], &[])
}

/// `/api/v1/status/runtimeinfo`: the fields of Prometheus. Those of Go's runtime have
/// counterparts: tasks for goroutines, threads for processors, and no memory limit.
///
/// Source: `RuntimeInfo` in `web/api/v1/api.go` of Prometheus 3.14.
pub(crate) async fn runtime_info(State(shared): State<Arc<Shared>>) -> Response {
    let directory = std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let retention = shared.config().storage.retention.limit(&shared.args);
    let (was_reload_good, read_seconds) = shared.metrics.config_was_read();
    let read_at = std::time::UNIX_EPOCH + Duration::from_secs_f64(read_seconds);
    let mut json = object([
        ("startTime", format_rfc3339(shared.started)),
        ("CWD", directory),
        ("hostname", host.trim_end().to_owned()),
        ("serverTime", format_rfc3339(std::time::SystemTime::now())),
        ("lastConfigTime", format_rfc3339(read_at)),
        ("GOGC", String::new()),
        ("GODEBUG", String::new()),
        ("storageRetention", retention.unwrap_or_else(|| UNLIMITED.to_owned())),
    ]);
    json.pop();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for (name, value) in [
        // A server with a damaged log does not start, so a running one has none.
        ("corruptionCount", 0),
        ("goroutineCount", tasks as u64),
        ("GOMAXPROCS", cores as u64),
        ("GOMEMLIMIT", i64::MAX as u64),
    ] {
        json.extend_from_slice(format!(",\"{name}\":").as_bytes());
        push_integer(&mut json, value);
    }
    json.extend_from_slice(b",\"reloadConfigSuccess\":");
    json.extend_from_slice(if was_reload_good { b"true" } else { b"false" });
    json.push(b'}');
    success(Ready(json), &[], &[])
}

/// `/metrics`.
pub(crate) async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
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
