//! Errors of the API: their names, status codes and JSON.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::QueryError;
use model::{BudgetError, SourceError};

use super::json::body::json_response;
use super::json::text::push_text;
use super::router::plain;
use crate::query::gate::GateError;
use crate::units::format_duration;

/// An answer that is an error.
///
/// Source: `errorType` and `getDefaultErrorCode` of Prometheus' API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    error_type: &'static str,
    message: String,
    /// Whether the same request may succeed in a moment.
    is_overload: bool,
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

    /// The server holds too much work, or its store does not answer.
    pub(crate) fn overloaded(message: impl Into<String>) -> ApiError {
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message);
        ApiError { is_overload: true, ..error }
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

    /// This server never does that: to ask it again is of no use.
    pub(crate) fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "unavailable", message)
    }

    /// The fault is ours, or the data's.
    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// The same error, with what was being done in front.
    pub(crate) fn about(self, what: &str) -> ApiError {
        ApiError { message: format!("{what}: {}", self.message), ..self }
    }

    /// Its name in the answer.
    pub(crate) fn error_type(&self) -> &'static str {
        self.error_type
    }

    /// The same as a plain text, for endpoints whose errors are no JSON.
    pub(crate) fn into_text(self) -> Response {
        let mut response = plain(self.status, format!("{}\n", self.message));
        self.add_headers(&mut response);
        response
    }

    fn add_headers(&self, response: &mut Response) {
        if self.is_overload {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
    }

    /// There is no such thing.
    pub(crate) fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// The query was ended by somebody.
    pub(crate) fn canceled() -> ApiError {
        let status = StatusCode::from_u16(499).expect("499 is a status code");
        ApiError::new(status, "canceled", "query was canceled in expression evaluation")
    }

    fn new(status: StatusCode, error_type: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, error_type, message: message.into(), is_overload: false }
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
            SourceError::Budget(exceeded) => ApiError::execution(exceeded.to_string()),
            SourceError::Unavailable(_) => ApiError::overloaded(error.to_string()),
            SourceError::Corrupt { .. } => ApiError::internal(error.to_string()),
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
            GateError::TimedOut => ApiError::timed_out("query queue"),
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
