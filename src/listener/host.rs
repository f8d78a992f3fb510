//! The `Host` header of HTTP/1 requests.
//!
//! Source: `readRequest` in `net/http/request.go` and `server.go` of Go, and `ValidHostHeader` of
//! `httpguts`.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::{Method, Request, Version};

/// Returns the response to a request without exactly one valid host.
pub(super) fn refusal(request: &Request<Incoming>) -> Option<Response<Body>> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let is_required = request.version() == Version::HTTP_11 && request.method() != Method::CONNECT;
    let text = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => "400 Bad Request",
        (None, None) if is_required => "400 Bad Request: missing required Host header",
        (Some(host), None) if !is_valid(host) => "400 Bad Request: malformed Host header",
        _ => return None,
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let headers = response.headers_mut();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, plain);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

fn is_valid(host: &HeaderValue) -> bool {
    let is_valid = |b: &u8| b.is_ascii_alphanumeric() || b"!$%&()*+,-.:;=[']_~".contains(b);
    host.as_bytes().iter().all(is_valid)
}
