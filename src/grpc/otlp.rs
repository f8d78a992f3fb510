//! `opentelemetry.proto.collector.metrics.v1.MetricsService`: OTLP metrics.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/>, "OTLP/gRPC".

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use futures::StreamExt;
use wire::otlp::Encoding;

use super::call::{
    ARRIVAL_TIMEOUT, PREFIX_BYTES, client_of, incomplete, parse_prefix, respond_with,
};
use super::node;
use super::status::{Code, Status};
use crate::access::User;
use crate::http::error::ApiError;
use crate::http::router::store_of;
use crate::ingest::OtlpFormat;
use crate::listener::LastResponse;
use crate::query::LookupRequest;
use crate::state::Shared;

/// `Export`: stores a request, and responds once all its samples are durable. Rejected samples are
/// reported in a response, because senders would repeat the request after an error.
pub(super) async fn export(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Status> {
    if !shared.args.enable_otlp_receiver {
        let text = "otlp write receiver needs to be enabled with --web.enable-otlp-receiver";
        return Err(Status::new(Code::Unimplemented, text));
    }
    node::check_ready(&shared)?;
    let store = store_of(&shared)?;
    if let Some(user) = request.extensions().get::<User>().filter(|user| user.is_read_only) {
        let message = format!("the user {:?} is read-only", user.name);
        return Err(Status::new(Code::PermissionDenied, message));
    }
    let client = client_of(&shared, &request)?;
    let label = shared.tenancy.as_ref().map(|tenancy| tenancy.write_label(client.scope()));
    let label = label.transpose().map_err(ApiError::from)?;
    let (head, body) = request.into_parts();
    let (is_compressed, declared, body) = match tokio::time::timeout(
        // The receiver bounds the time of the rest.
        shared.args.read_timeout.min(ARRIVAL_TIMEOUT),
        message_body(body),
    )
    .await
    {
        Ok(message) => message?,
        Err(_) => {
            return Err(Status::new(Code::DeadlineExceeded, "request took too long to arrive"));
        }
    };
    let is_compressed = is_compressed && is_gzip(&head.headers)?;
    let settings = shared.config().otlp.settings(&shared.args);
    let format = OtlpFormat { encoding: Encoding::Protobuf, is_compressed };
    let writing = shared.remote_write.write_otlp(&store, format, settings, declared, body, label);
    let written = writing.await;
    let message = match written {
        Ok(_) => Vec::new(),
        Err(error) => match error.rejected_samples() {
            Some(count) => wire::otlp::partial_success(count, &error.to_string()),
            None => return Err(Status::from(ApiError::from(&error))),
        },
    };
    let text = "opentelemetry.proto.collector.metrics.v1.MetricsService/Export".to_owned();
    Ok(respond_with(shared.queries.work(LookupRequest { text, client }), message))
}

/// Keeps the connection of a write that failed: no other node takes it.
pub(super) async fn keep_connection(mut response: Response) -> Response {
    response.extensions_mut().remove::<LastResponse>();
    response
}

/// Returns whether the only message of a body is compressed, its length, and its bytes.
async fn message_body(body: Body) -> Result<(bool, usize, Body), Status> {
    let mut data = body.into_data_stream();
    let mut start = Vec::new();
    while start.len() < PREFIX_BYTES {
        match data.next().await {
            Some(Ok(bytes)) => start.extend_from_slice(&bytes),
            Some(Err(_)) | None => return Err(incomplete()),
        }
    }
    let prefix = start.first_chunk().ok_or_else(incomplete)?;
    let (is_compressed, length) = parse_prefix(*prefix);
    let first = Bytes::from(start).slice(PREFIX_BYTES..);
    let all = futures::stream::iter([Ok(first)]).chain(data);
    let checked = futures::stream::unfold((all, Some(length)), |(mut rest, missing)| async move {
        let missing = missing?;
        let error = |text| (Err(std::io::Error::other(text)), None);
        let (part, missing) = match rest.next().await {
            Some(Ok(part)) if part.len() > missing => error("request has more than one message"),
            Some(Ok(part)) => {
                let missing = missing - part.len();
                (Ok(part), Some(missing))
            }
            Some(Err(failure)) => (Err(std::io::Error::other(failure)), None),
            None if missing > 0 => error("the message is incomplete"),
            None => return None,
        };
        Some((part, (rest, missing)))
    });
    Ok((is_compressed, length, Body::from_stream(checked)))
}

/// Returns `true` for gzip.
///
/// Errors: another compression.
fn is_gzip(headers: &HeaderMap) -> Result<bool, Status> {
    match headers.get("grpc-encoding").map(axum::http::HeaderValue::as_bytes) {
        Some(b"gzip") => Ok(true),
        _ => Err(Status::new(Code::Unimplemented, "only gzip and no compression are supported")),
    }
}
