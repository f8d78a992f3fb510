//! Statuses of gRPC: codes, and responses without messages.
//!
//! Source: <https://grpc.github.io/grpc/core/md_doc_statuscodes.html>.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use wire::thanos::RequestError;

use crate::http::error::ApiError;
use crate::listener::LastResponse;
use crate::query::QueryFailure;

/// Content type of all responses.
pub(super) const CONTENT_TYPE: &str = "application/grpc";
/// Header and trailer with the code.
pub(super) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// Header and trailer with the message.
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// Maximum size of a message in a header, in bytes; clients limit the size of headers.
const MESSAGE_BYTES_MAX: usize = 2 << 10;

/// Code of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    Ok = 0,
    Canceled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Aborted = 10,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// Status of a call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Status {
    pub(super) code: Code,
    pub(super) message: String,
}

impl Status {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }

    /// Returns the trailers of this status.
    pub(super) fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert(STATUS, HeaderValue::from(self.code as u16));
        if !self.message.is_empty() {
            trailers.insert(MESSAGE, encoded(&self.message));
        }
        trailers
    }
}

/// Returns the trailers of a call that succeeded.
pub(super) fn success() -> HeaderMap {
    Status::new(Code::Ok, "").trailers()
}

/// Returns a message with percent escapes for all but printable ASCII.
fn encoded(message: &str) -> HeaderValue {
    let mut text = String::new();
    for byte in message.bytes() {
        if text.len() >= MESSAGE_BYTES_MAX {
            text.push_str("...");
            break;
        }
        match byte {
            b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::from_str(&text).expect("it is printable ASCII")
}

impl IntoResponse for Status {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = self.trailers();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        if self.code == Code::Unavailable {
            // The client repeats the call, perhaps at another node of the same name.
            response.extensions_mut().insert(LastResponse);
        }
        response
    }
}

/// Maps statuses of HTTP. Clients repeat UNAVAILABLE at another node. They do not repeat a bad query
/// or one over its limits, which would fail there, too, nor one whose time is over.
impl From<ApiError> for Status {
    fn from(error: ApiError) -> Status {
        let code = match error.status() {
            StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::InvalidArgument,
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::FORBIDDEN => Code::PermissionDenied,
            StatusCode::NOT_FOUND => Code::NotFound,
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => {
                Code::ResourceExhausted
            }
            StatusCode::UNPROCESSABLE_ENTITY => Code::Aborted,
            StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
            StatusCode::SERVICE_UNAVAILABLE if error.error_type() == "timeout" => {
                Code::DeadlineExceeded
            }
            StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
            _ if error.error_type() == "canceled" => Code::Canceled,
            _ => Code::Internal,
        };
        Status::new(code, error.message())
    }
}

impl From<QueryFailure> for Status {
    fn from(failure: QueryFailure) -> Status {
        Status::from(ApiError::from(failure))
    }
}

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Status {
        Status::new(Code::InvalidArgument, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_escaped_and_bounded() {
        let text = |message: &str| encoded(message).to_str().unwrap().to_owned();
        assert_eq!(text("100% of \u{e9}\n"), "100%25 of %C3%A9%0A");
        assert_eq!(text(&"x".repeat(5_000)).len(), MESSAGE_BYTES_MAX + 3);
    }
}
