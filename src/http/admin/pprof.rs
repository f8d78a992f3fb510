//! `/debug/pprof/…`: profiles of the process.
//!
//! Source: `net/http/pprof` of Go, which Prometheus serves under this path: names, parameters, types
//! and errors. Profiles that only Go's runtime has are without samples here, because `promtool debug`
//! stops at a profile that it cannot parse.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::http::router::plain;
use crate::profile::{cpu, report};
use crate::state::{Readiness, Shared};

/// Default duration of a CPU profile.
const SECONDS_DEFAULT: u64 = 30;
/// Maximum duration of a CPU profile.
const SECONDS_MAX: u64 = 300;

/// Content type of profiles, which are compressed already.
pub(crate) const CONTENT_TYPE: &str = "application/octet-stream";

/// Header that marks an error for `go tool pprof`.
const IS_ERROR: HeaderName = HeaderName::from_static("x-go-pprof");

/// Permit to write a profile: one at a time, because each holds symbol tables.
static WRITING: Semaphore = Semaphore::const_new(1);

/// `/debug/pprof/<name>`.
pub(crate) async fn profile(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    params: Params,
) -> Result<Response, ApiError> {
    let written = match name.as_str() {
        "profile" => cpu_profile(&shared, &params).await?,
        "heap" | "allocs" => {
            let allocated_first = name == "allocs";
            instant_profile(&params, move || report::of_heap(allocated_first)).await?
        }
        "block" | "goroutine" | "mutex" | "threadcreate" => {
            let reason = format!("there is no profile {name:?} of this server");
            instant_profile(&params, move || report::empty(&reason)).await?
        }
        "trace" => {
            let message = "there are no execution traces of this server";
            return Ok(refusal(StatusCode::NOT_IMPLEMENTED, message));
        }
        _ => return Ok(refusal(StatusCode::NOT_FOUND, "Unknown profile")),
    };
    Ok(match written {
        Ok(profile) => {
            let disposition = format!("attachment; filename=\"{name}\"");
            let headers = [
                (header::CONTENT_TYPE, CONTENT_TYPE),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::CONTENT_DISPOSITION, &disposition),
            ];
            (headers, profile).into_response()
        }
        Err(refusal) => refusal,
    })
}

/// Takes samples for `seconds` and writes them.
async fn cpu_profile(
    shared: &Arc<Shared>,
    params: &Params,
) -> Result<Result<Vec<u8>, Response>, ApiError> {
    // As in Go, an invalid number selects the default.
    let seconds = params.text("seconds")?.parse().ok().filter(|seconds| *seconds > 0_u64);
    let seconds = seconds.unwrap_or(SECONDS_DEFAULT);
    if seconds > SECONDS_MAX {
        let message = format!("\"seconds\" is {seconds}, the maximum is {SECONDS_MAX}");
        return Ok(Err(refusal(StatusCode::BAD_REQUEST, &message)));
    }
    let is_stopping = || shared.readiness() == Readiness::Stopping;
    match cpu::sample(Duration::from_secs(seconds), is_stopping).await {
        Ok(samples) => write(move || report::of_cpu(samples)).await.map(Ok),
        Err(error) => {
            let status = match error.kind() {
                io::ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            let reason = match error.kind() {
                io::ErrorKind::ResourceBusy => "cpu profiling already in use".to_owned(),
                _ => error.to_string(),
            };
            Ok(Err(refusal(status, &format!("Could not enable CPU profiling: {reason}"))))
        }
    }
}

/// Writes a profile without a duration.
async fn instant_profile(
    params: &Params,
    written: impl FnOnce() -> Vec<u8> + Send + 'static,
) -> Result<Result<Vec<u8>, Response>, ApiError> {
    if !params.text("seconds")?.is_empty() {
        let message = "\"seconds\" parameter is not supported for this profile type";
        return Ok(Err(refusal(StatusCode::BAD_REQUEST, message)));
    }
    if params.text("debug")?.parse().is_ok_and(|debug: i64| debug != 0) {
        let message = "\"debug\" parameter is not supported: profiles have no text format";
        return Ok(Err(refusal(StatusCode::BAD_REQUEST, message)));
    }
    write(written).await.map(Ok)
}

async fn write(written: impl FnOnce() -> Vec<u8> + Send + 'static) -> Result<Vec<u8>, ApiError> {
    let permit = WRITING.acquire().await.expect("the semaphore is never closed");
    let writing = tokio::task::spawn_blocking(move || {
        // Held until the end even if the client is gone.
        let _permit = permit;
        written()
    });
    writing.await.map_err(|error| ApiError::internal(format!("cannot write the profile: {error}")))
}

/// Returns an error in the form that `go tool pprof` prints.
fn refusal(status: StatusCode, message: &str) -> Response {
    let mut response = plain(status, format!("{message}\n"));
    response.headers_mut().insert(IS_ERROR, HeaderValue::from_static("1"));
    response
}
