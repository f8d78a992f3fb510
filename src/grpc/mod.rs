//! gRPC services, on a port of their own: those of Thanos, by which an unmodified `thanos query` asks
//! this node, OTLP metrics, and health.
//!
//! ```text
//! Thanos Query ── Info, Query, Store, … ──> listener (HTTP/2) ── access ── count ── method
//!                                           query::Queries, as for HTTP ── external labels ── store
//! ```
//!
//! [`call`] frames messages, [`status`] maps errors, [`node`] holds what the methods share. The
//! messages are in [`wire::thanos`].

mod call;
mod info;
mod metadata;
mod node;
mod otlp;
mod query;
mod status;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hyper::body::Frame;

use crate::http::layers::access;
use crate::metrics::Metrics;
use crate::state::Shared;
use status::{Code, STATUS, Status};

/// Services whose health can be asked.
const SERVICES: [&str; 8] = [
    "thanos.info.Info",
    "thanos.Query",
    "thanos.Store",
    "thanos.Exemplars",
    "thanos.Metadata",
    "thanos.Status",
    "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "grpc.health.v1.Health",
];

/// Returns the router of all methods.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let state = || Arc::clone(&shared);
    let mut routes = Router::new();
    routes = add(routes, "/thanos.info.Info/Info", info::info);
    routes = add(routes, "/thanos.Query/Query", query::instant);
    routes = add(routes, "/thanos.Query/QueryRange", query::range);
    routes = add(routes, "/thanos.Store/Series", store::series);
    routes = add(routes, "/thanos.Store/LabelNames", store::label_names);
    routes = add(routes, "/thanos.Store/LabelValues", store::label_values);
    routes = add(routes, "/thanos.Exemplars/Exemplars", metadata::list_exemplars);
    routes = add(routes, "/thanos.Metadata/MetricMetadata", metadata::list_metadata);
    routes = add(routes, "/thanos.Status/TSDBStatistics", metadata::tsdb_statistics);
    routes = add(routes, "/grpc.health.v1.Health/Check", info::health);
    let export = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    let write = post(otlp::export).layer(map_response(otlp::keep_connection));
    routes = routes.route(export, write);
    routes
        .route_layer(from_fn_with_state(state(), count))
        .fallback(unknown_method)
        .with_state(state())
        .layer(from_fn(only_grpc))
        .layer(from_fn_with_state(shared, access::check_access))
}

fn add<H, T>(routes: Router<Arc<Shared>>, path: &str, handler: H) -> Router<Arc<Shared>>
where
    H: Handler<T, Arc<Shared>>,
    T: 'static,
{
    routes.route(path, post(handler))
}

async fn unknown_method(request: Request) -> Status {
    let message = format!("unknown method {}", request.uri().path());
    Status::new(Code::Unimplemented, message)
}

/// Rejects requests of other protocols, such as those of a browser.
async fn only_grpc(request: Request, next: Next) -> Response {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let is_grpc = content_type.is_some_and(|value| {
        let value = value.as_bytes();
        value == b"application/grpc" || value.starts_with(b"application/grpc+proto")
    });
    if is_grpc {
        return next.run(request).await;
    }
    let text = "this address serves gRPC (--grpc.listen-address)\n";
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into_response()
}

/// Counts calls by their status, once it is sent.
async fn count(
    State(shared): State<Arc<Shared>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let mut record =
        CallRecord { shared, path, started: Instant::now(), code: Code::Canceled as u8 };
    let response = next.run(request).await;
    if let Some(code) = code_of(response.headers()) {
        record.code = code;
        return response;
    }
    if !response.status().is_success() {
        record.code = Code::Unknown as u8;
        return response;
    }
    response.map(|body| Body::new(CountedBody { body, record }))
}

fn code_of(headers: &HeaderMap) -> Option<u8> {
    headers.get(STATUS)?.to_str().ok()?.parse().ok()
}

/// Call that is counted when it is dropped.
struct CallRecord {
    shared: Arc<Shared>,
    path: MatchedPath,
    started: Instant,
    code: u8,
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        let metrics: &Metrics = &self.shared.metrics;
        metrics.call(self.path.as_str(), self.code, self.started.elapsed());
    }
}

struct CountedBody {
    body: Body,
    record: CallRecord,
}

impl hyper::body::Body for CountedBody {
    type Data = axum::body::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(std::pin::Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(code) = frame.trailers_ref().and_then(code_of)
        {
            self.record.code = code;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
