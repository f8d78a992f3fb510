//! Which path and method leads where, and what surrounds every handler.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::handler::Handler;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use model::Source;
use tower_http::compression::CompressionLayer;

use super::error::ApiError;
use super::{admin, exemplars, labels, landing, lifecycle, metadata, query, status, write};
use crate::server::{Readiness, Shared};

/// Tells a client that is refused whether the server is about to stop.
const STOPPING: HeaderName = HeaderName::from_static("x-prometheus-stopping");
/// The beginning of every path of the API.
const API: &str = "/api/v1";

/// The methods of an endpoint, and how they are listed to whoever uses another.
type Methods = (MethodFilter, &'static str);

const GET: Methods = (MethodFilter::GET, "GET, OPTIONS");
const GET_HEAD: Methods = (MethodFilter::GET, "GET, HEAD, OPTIONS");
const GET_POST: Methods = (MethodFilter::GET.or(MethodFilter::POST), "GET, OPTIONS, POST");
const POST: Methods = (MethodFilter::POST, "OPTIONS, POST");
const POST_PUT: Methods = (MethodFilter::POST.or(MethodFilter::PUT), "OPTIONS, POST, PUT");
const GET_POST_PUT: Methods =
    (MethodFilter::GET.or(MethodFilter::POST).or(MethodFilter::PUT), "GET, OPTIONS, POST, PUT");

/// Paths that still lack the state of the server.
type Routes = Router<Arc<Shared>>;

/// Everything that the server answers.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let state = || Arc::clone(&shared);
    let api = queries(lookups(statuses(Router::new())))
        .route_layer(from_fn_with_state(state(), with_cors));
    let writes = add(api, "/api/v1/write", POST, write::remote_write);
    let when_ready = add(writes, "/-/ready", GET_HEAD, lifecycle::ready)
        .route_layer(from_fn_with_state(state(), only_when_ready));
    pages(when_ready)
        .route_layer(from_fn_with_state(state(), count))
        .fallback(not_found)
        .layer(CompressionLayer::new())
        .with_state(shared)
}

/// What is served before the log has been replayed, too.
fn pages(mut routes: Routes) -> Routes {
    routes = add(routes, "/", GET, landing::page);
    routes = add(routes, "/metrics", GET, status::metrics);
    routes = add(routes, "/-/healthy", GET_HEAD, lifecycle::healthy);
    routes = add(routes, "/-/reload", GET_POST_PUT, lifecycle::reload);
    add(routes, "/-/quit", GET_POST_PUT, lifecycle::quit)
}

fn queries(mut routes: Routes) -> Routes {
    routes = add(routes, "/api/v1/query", GET_POST, query::instant);
    routes = add(routes, "/api/v1/query_range", GET_POST, query::range);
    routes = add(routes, "/api/v1/query_exemplars", GET_POST, exemplars::query);
    routes = add(routes, "/api/v1/format_query", GET_POST, query::format);
    add(routes, "/api/v1/parse_query", GET_POST, query::parse)
}

fn lookups(mut routes: Routes) -> Routes {
    routes = add(routes, "/api/v1/labels", GET_POST, labels::names);
    routes = add(routes, "/api/v1/label/{name}/values", GET, labels::values);
    routes = add(routes, "/api/v1/series", GET_POST, labels::series);
    add(routes, "/api/v1/metadata", GET, metadata::list)
}

fn statuses(mut routes: Routes) -> Routes {
    routes = add(routes, "/api/v1/status/buildinfo", GET, status::build_info);
    routes = add(routes, "/api/v1/status/config", GET, status::config);
    routes = add(routes, "/api/v1/status/flags", GET, status::flags);
    routes = add(routes, "/api/v1/status/runtimeinfo", GET, status::runtime_info);
    for (path, data) in status::EMPTY_ANSWERS {
        routes = add(routes, path, GET, move || status::constant(data));
    }
    let tombstones = "/api/v1/admin/tsdb/clean_tombstones";
    routes = add(routes, tombstones, POST_PUT, admin::clean_tombstones);
    routes = add(routes, "/api/v1/admin/tsdb/delete_series", POST_PUT, admin::delete_series);
    routes = add(routes, "/api/v1/admin/tsdb/snapshot", POST_PUT, admin::snapshot);
    // Preflight requests are answered whatever they ask for.
    routes.route(
        "/api/v1/{*path}",
        MethodRouter::new().options(|| async { StatusCode::NO_CONTENT }).fallback(not_found),
    )
}

/// Adds an endpoint that refuses other methods as Prometheus does: HEAD is not GET there.
fn add<H, T>(routes: Routes, path: &str, methods: Methods, handler: H) -> Routes
where
    H: Handler<T, Arc<Shared>>,
    T: 'static,
{
    let (filter, allow) = methods;
    let other = move |method: Method, uri: Uri| async move { other_method(&method, &uri, allow) };
    let mut endpoint = MethodRouter::new().on(filter, handler).fallback(other);
    if allow.contains("GET") && !allow.contains("HEAD") {
        endpoint = endpoint.on(MethodFilter::HEAD, other);
    }
    routes.route(path, endpoint)
}

fn other_method(method: &Method, uri: &Uri, allow: &'static str) -> Response {
    let mut response = match *method {
        Method::OPTIONS if uri.path().starts_with(API) => {
            return StatusCode::NO_CONTENT.into_response();
        }
        Method::OPTIONS => StatusCode::OK.into_response(),
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n"),
    };
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

async fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// A short text, as Go's server answers with where no handler does.
pub(super) fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    let mut response = (status, text.into()).into_response();
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Where series come from.
///
/// Errors: the store is not open; the layer below answers such requests before a handler.
pub(super) fn source_of(shared: &Shared) -> Result<&Arc<dyn Source>, ApiError> {
    shared.source().ok_or_else(|| ApiError::overloaded("the store is not open yet"))
}

async fn only_when_ready(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let stopping = match shared.readiness() {
        Readiness::Ready => return next.run(request).await,
        Readiness::Starting => HeaderValue::from_static("false"),
        Readiness::Stopping => HeaderValue::from_static("true"),
    };
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable").into_response();
    response.headers_mut().insert(STOPPING, stopping);
    response
}

/// Lets pages of other origins read the answers, as far as the flag allows.
///
/// Source: `SetCORS` of Prometheus.
async fn with_cors(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    let Some(origin) = origin else {
        return response;
    };
    let fixed = [
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "Accept, Authorization, Content-Type, Origin"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if origin.to_str().is_ok_and(|origin| shared.args.cors_origin.is_match(origin)) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}

async fn count(
    State(shared): State<Arc<Shared>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let response = next.run(request).await;
    shared.metrics.request(path.as_str(), response.status().as_u16(), started.elapsed());
    response
}
