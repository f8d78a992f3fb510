//! Errors of the API: names, status codes, headers and JSON. The statuses of all errors of queries,
//! writes and administrative requests are set here; refusals of access, methods and paths are not.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::QueryError;
use json::text::push_text;
use model::{BudgetError, SourceError};
use storage::StoreError;

use super::body::json_response;
use super::router::plain;
use crate::ingest::{WriteError, WriteErrorKind};
use crate::query::gate::GateError;
use crate::tenancy::TenantError;
use crate::units::format_duration;

/// Delay after which clients may repeat a request that the server was too busy for.
const RETRY_SECONDS: u32 = 1;
/// Delay after which senders may repeat new series: sealed windows have freed memory by then.
const RETRY_SERIES_SECONDS: u32 = 30;

/// Error response.
///
/// Source: `errorType` and `getDefaultErrorCode` of Prometheus' API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    error_type: &'static str,
    message: String,
    /// Delay after which the same request may succeed.
    retry_seconds: Option<u32>,
}

impl ApiError {
    /// The request is malformed.
    pub(crate) fn bad_data(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_data", message)
    }

    /// A parameter is malformed.
    pub(crate) fn invalid_parameter(name: &str, message: impl std::fmt::Display) -> ApiError {
        ApiError::bad_data(format!("invalid parameter {name:?}: {message}"))
    }

    /// The query cannot be answered from this data.
    pub(crate) fn execution(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "execution", message)
    }

    /// The query took too long, in the stage that is named.
    pub(crate) fn timed_out(stage: &str) -> ApiError {
        let message = format!("query timed out in {stage}");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message)
    }

    /// The server is too busy, or its store does not answer.
    pub(crate) fn overloaded(message: impl Into<String>) -> ApiError {
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message);
        error.retry_after(RETRY_SECONDS)
    }

    /// A tenant exceeds a limit of its own.
    fn too_many(message: impl Into<String>) -> ApiError {
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "unavailable", message);
        error.retry_after(RETRY_SECONDS)
    }

    /// The store is not open.
    pub(crate) fn not_open() -> ApiError {
        ApiError::overloaded("the store is not open yet")
    }

    /// The request did not arrive in time.
    pub(crate) fn slow(limit: Duration) -> ApiError {
        let limit = format_duration(limit);
        let message = format!("request took longer than {limit} to arrive (--web.read-timeout)");
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
    }

    /// The endpoint is turned off; Prometheus answers 500 here.
    pub(crate) fn disabled(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "unavailable", message)
    }

    /// The server never accepts such a request.
    pub(crate) fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "unavailable", message)
    }

    /// The server failed, or its data is corrupted.
    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// Prefixes the message with the action that failed.
    pub(crate) fn about(self, action: &str) -> ApiError {
        ApiError { message: format!("{action}: {}", self.message), ..self }
    }

    /// Status in HTTP.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Text for people.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Name in the response.
    pub(crate) fn error_type(&self) -> &'static str {
        self.error_type
    }

    /// Returns a plain text, for endpoints whose errors are not JSON.
    pub(crate) fn into_text(self) -> Response {
        let mut response = plain(self.status, format!("{}\n", self.message));
        self.add_headers(&mut response);
        response
    }

    fn add_headers(&self, response: &mut Response) {
        if let Some(seconds) = self.retry_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
    }

    fn retry_after(self, seconds: u32) -> ApiError {
        ApiError { retry_seconds: Some(seconds), ..self }
    }

    /// The resource does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// The query was canceled by a request.
    pub(crate) fn canceled() -> ApiError {
        let status = StatusCode::from_u16(499).expect("499 is a status code");
        ApiError::new(status, "canceled", "query was canceled in expression evaluation")
    }

    fn new(status: StatusCode, error_type: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, error_type, message: message.into(), retry_seconds: None }
    }
}

impl From<SourceError> for ApiError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Budget(BudgetError::TimedOut(_)) => {
                ApiError::timed_out("expression evaluation")
            }
            SourceError::Budget(BudgetError::Canceled) => ApiError::canceled(),
            SourceError::Budget(BudgetError::PoolExceeded { .. }) => {
                ApiError::overloaded(error.to_string())
            }
            SourceError::Budget(BudgetError::TenantExceeded { .. }) => {
                ApiError::too_many(error.to_string())
            }
            SourceError::Budget(exceeded) => ApiError::execution(exceeded.to_string()),
            SourceError::Ambiguous { .. } | SourceError::OnlySummaries { .. } => {
                ApiError::execution(error.to_string())
            }
            SourceError::Unavailable(_) => ApiError::overloaded(error.to_string()),
            SourceError::Corrupt { .. } => ApiError::internal(error.to_string()),
        }
    }
}

impl From<TenantError> for ApiError {
    fn from(error: TenantError) -> Self {
        match error {
            TenantError::Missing(_) => {
                ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", error.to_string())
            }
            _ => ApiError::bad_data(error.to_string()),
        }
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Parse(message) => ApiError::invalid_parameter("query", message),
            QueryError::Execution(message) => ApiError::execution(message),
            QueryError::Source(error) => ApiError::from(error),
        }
    }
}

impl From<GateError> for ApiError {
    fn from(error: GateError) -> Self {
        match error {
            GateError::QueueFull { .. } => ApiError::overloaded(error.to_string()),
            GateError::Tenant(_) => ApiError::too_many(error.to_string()),
            GateError::TimedOut => ApiError::timed_out("query queue"),
        }
    }
}

/// Maps errors of administrative requests.
///
/// Errors of the store are 500, `internal`, as in Prometheus. A request over a limit is malformed, and
/// one that the object store does not answer may succeed in a moment: 503, as in Prometheus while its
/// store is not ready.
///
/// Source: `deleteSeries`, `snapshot`, `cleanTombstones` and `setUnavailStatusOnTSDBNotReady` in
/// `web/api/v1/api.go`.
impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        match error {
            StoreError::LimitExceeded(_)
            | StoreError::OnlySummaries { .. }
            | StoreError::Budget(_) => ApiError::bad_data(error.to_string()),
            StoreError::Overloaded { .. }
            | StoreError::HeadFull { .. }
            | StoreError::Unavailable(_)
            | StoreError::Stalled { .. } => ApiError::overloaded(error.to_string()),
            StoreError::ReadOnly => ApiError::forbidden(error.to_string()),
            StoreError::Uncleaned(_)
            | StoreError::Fenced
            | StoreError::InUse(_)
            | StoreError::Lost(_)
            | StoreError::Leftovers(_)
            | StoreError::Overtaken
            | StoreError::Closed
            | StoreError::NoStore(_)
            | StoreError::InvalidUrl { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::Remote { .. }
            | StoreError::InvalidSetting { .. }
            | StoreError::Corrupt { .. } => ApiError::internal(error.to_string()),
        }
    }
}

/// Maps errors of write requests, which senders read by their status.
///
/// Overload, and too many samples of a tenant, is 503, because senders of Prometheus drop samples after 408 and, by default, after 429.
/// New series over a limit are 429: the rest of their request is stored, and retries for hours would
/// block the sender.
impl From<&WriteError> for ApiError {
    fn from(error: &WriteError) -> ApiError {
        let bad_data = |status| ApiError::new(status, "bad_data", error.to_string());
        match error.kind() {
            WriteErrorKind::Unsupported => bad_data(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            WriteErrorKind::Invalid => bad_data(StatusCode::BAD_REQUEST),
            WriteErrorKind::TooLarge => bad_data(StatusCode::PAYLOAD_TOO_LARGE),
            WriteErrorKind::SeriesLimit => {
                bad_data(StatusCode::TOO_MANY_REQUESTS).retry_after(RETRY_SERIES_SECONDS)
            }
            WriteErrorKind::TenantRate(retry) => {
                let seconds = u32::try_from(retry.as_secs()).unwrap_or(u32::MAX);
                ApiError::overloaded(error.to_string()).retry_after(seconds)
            }
            WriteErrorKind::Unavailable => ApiError::overloaded(error.to_string()),
            WriteErrorKind::Internal => ApiError::internal(error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut json = format!("{{\"status\":\"error\",\"errorType\":\"{}\"", self.error_type);
        json.push_str(",\"error\":");
        let mut json = json.into_bytes();
        push_text(&mut json, &self.message);
        json.push(b'}');
        let mut response = json_response(self.status, Body::from(json));
        self.add_headers(&mut response);
        response
    }
}
