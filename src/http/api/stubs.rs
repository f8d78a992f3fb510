//! Stub endpoints for features that do not exist here: targets, rules, alerts. They check parameters
//! and respond like a Prometheus without any.
//!
//! Source: `web/api/v1/api.go` of Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use json::pieces::Ready;

use super::labels::selectors;
use crate::http::body::success;
use crate::http::error::ApiError;
use crate::http::params::{Params, parse_bool, parse_integer};
use crate::state::Shared;
use crate::units::quoted;

/// Endpoints without parameters, and their data.
pub(crate) const CONSTANTS: [(&str, &str); 3] = [
    ("/api/v1/alertmanagers", r#"{"activeAlertmanagers":[],"droppedAlertmanagers":[]}"#),
    ("/api/v1/alerts", r#"{"alerts":[]}"#),
    ("/api/v1/scrape_pools", r#"{"scrapePools":[]}"#),
];

/// Endpoints without parameters that respond while the log is replayed, too. The replay has no
/// progress, because its length is unknown.
pub(crate) const CONSTANTS_ALWAYS: [(&str, &str); 2] = [
    ("/api/v1/notifications", "[]"),
    ("/api/v1/status/walreplay", r#"{"min":0,"max":0,"current":0}"#),
];

/// Returns constant data.
pub(crate) async fn constant(data: &'static str) -> Response {
    success(Ready(data.as_bytes().to_vec()), &[], &[])
}

/// `/api/v1/notifications/live`: 204, which Prometheus sends to subscribers over its limit.
pub(crate) async fn no_stream() -> Response {
    let mut response = axum::http::StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// `/api/v1/targets`.
pub(crate) async fn targets(params: Params) -> Response {
    let state = params.bytes("state").to_ascii_lowercase();
    let counts = match &state[..] {
        b"" | b"any" | b"dropped" => "{}",
        _ => "null",
    };
    let json =
        format!(r#"{{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{counts}}}"#);
    success(Ready(json.into_bytes()), &[], &[])
}

/// `/api/v1/targets/metadata`.
pub(crate) async fn target_metadata(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let limit = params.text("limit")?;
    if !limit.is_empty() && parse_integer(limit).is_err() {
        return Err(ApiError::bad_data("limit must be a number"));
    }
    let target = params.text("match_target")?.to_owned();
    if !target.is_empty() {
        let parse = move || engine::parse::parse_selector(&target).map(drop);
        let parsed = shared.queries.compute_blocking(parse).await?;
        parsed.map_err(|error| ApiError::invalid_parameter("match_target", error))?;
    }
    Ok(constant("[]").await)
}

/// `/api/v1/targets/relabel_steps`: no scrape pool exists.
pub(crate) async fn relabel_steps(params: Params) -> Result<Response, ApiError> {
    let pool = params.text("scrapePool")?;
    for (name, text) in [("scrapePool", pool), ("labels", params.text("labels")?)] {
        if text.is_empty() {
            return Err(ApiError::bad_data(format!("no {name} parameter provided")));
        }
    }
    let pool = quoted(pool);
    let message = format!("error retrieving scrape config: scrape pool {pool} not found");
    Err(ApiError::bad_data(message))
}

/// `/api/v1/rules`.
pub(crate) async fn rules(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    params.check()?;
    selectors(&shared, &params).await?.map_err(ApiError::bad_data)?;
    let kind = params.text("type")?.to_lowercase();
    if !matches!(&kind[..], "" | "alert" | "record") {
        let message = format!("not supported value {}", quoted(&kind));
        return Err(ApiError::invalid_parameter("type", message));
    }
    let exclude_alerts = params.text("exclude_alerts")?.to_lowercase();
    if !exclude_alerts.is_empty()
        && let Err(error) = parse_bool(&exclude_alerts)
    {
        let message = format!("error converting exclude_alerts: {error}");
        return Err(ApiError::invalid_parameter("exclude_alerts", message));
    }
    check_page(params.text("group_limit")?, params.text("group_next_token")?)?;
    Ok(constant(r#"{"groups":[]}"#).await)
}

/// Checks the page of groups: no token is valid.
fn check_page(limit: &str, token: &str) -> Result<(), ApiError> {
    let wrong = |name: &str, message: String| Err(ApiError::invalid_parameter(name, message));
    if limit.is_empty() && !token.is_empty() {
        let message = "group_limit needs to be present in order to paginate over the groups";
        return wrong("group_next_token", message.to_owned());
    }
    if limit.is_empty() {
        return Ok(());
    }
    match parse_integer(limit) {
        Err(error) => {
            let error = error.replace("strconv.Atoi", "strconv.ParseInt");
            wrong("group_limit", format!("group_limit needs to be a valid number: {error}"))
        }
        Ok(..=0) => wrong("group_limit", "group_limit needs to be greater than 0".to_owned()),
        Ok(_) if !token.is_empty() => wrong(
            "group_next_token",
            format!("invalid group_next_token '{token}'. were rule groups changed?"),
        ),
        Ok(_) => Ok(()),
    }
}
