//! Routes of all endpoints, and the layers around them.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodFilter, MethodRouter};
use model::{Matcher, Source, SourceError};
use storage::Store;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate};

use super::admin::{lifecycle, pprof, tsdb};
use super::api::{exemplars, federate, labels, metadata, query, read, search, stubs};
use super::error::ApiError;
use super::layers::{access, encoders, prefix, request_log, tenants};
use super::pages::{documents, openapi, ui};
use super::status::{
    active_queries, cardinality, features, self_metrics, server, store, top_queries,
};
use super::write;
use crate::external_labels::with_external_labels;
use crate::flags::Args;
use crate::query::active::Client;
use crate::query::metric_use::noting;
use crate::state::{Readiness, Shared};
use crate::tenancy::{Scope, with_tenants};

/// Header of rejected requests, `true` if the server is stopping.
const STOPPING: HeaderName = HeaderName::from_static("x-prometheus-stopping");
/// Prefix of all paths of the API.
const API: &str = "/api/v1";

/// Methods of an endpoint.
#[derive(Clone, Copy)]
struct Methods {
    filter: MethodFilter,
    /// Value of the header `Allow`.
    allow: &'static str,
    /// Access of read-only users.
    readers: Readers,
    tenants: TenantRule,
}

/// Tenants of the requests of an endpoint, if tenants are on.
#[derive(Clone, Copy)]
enum TenantRule {
    /// Required: the endpoint returns or changes data of tenants.
    Required,
    /// Refused: it describes or changes the whole server.
    Refused,
    /// Ignored: it knows no data.
    Ignored,
}

/// Requests that read-only users may send.
#[derive(Clone, Copy, PartialEq)]
enum Readers {
    /// All: the endpoint only reads, with any method, as parameters may come as a form.
    All,
    /// Requests with methods that change nothing.
    Safe,
    /// None.
    None,
}

const fn methods(filter: MethodFilter, allow: &'static str) -> Methods {
    Methods { filter, allow, readers: Readers::Safe, tenants: TenantRule::Required }
}

impl Methods {
    /// Returns the methods of an endpoint for the operator of all tenants.
    const fn of_operator(self) -> Methods {
        Methods { tenants: TenantRule::Refused, ..self }
    }

    /// Returns the methods of an endpoint without data.
    const fn without_data(self) -> Methods {
        Methods { tenants: TenantRule::Ignored, ..self }
    }
}

const GET: Methods = methods(MethodFilter::GET, "GET, OPTIONS");
const GET_HEAD: Methods = methods(MethodFilter::GET, "GET, HEAD, OPTIONS");
const DELETE: Methods = methods(MethodFilter::DELETE, "DELETE, OPTIONS");
const POST: Methods = methods(MethodFilter::POST, "OPTIONS, POST");
const POST_PUT: Methods = methods(MethodFilter::POST.or(MethodFilter::PUT), "OPTIONS, POST, PUT");
const GET_POST_PUT: Methods = methods(
    MethodFilter::GET.or(MethodFilter::POST).or(MethodFilter::PUT),
    "GET, OPTIONS, POST, PUT",
);
/// Endpoints that read, with parameters in the URL or in a form.
const READ: Methods = Methods {
    filter: MethodFilter::GET.or(MethodFilter::POST),
    allow: "GET, OPTIONS, POST",
    readers: Readers::All,
    tenants: TenantRule::Required,
};
/// Endpoints that read, with parameters in the body.
const READ_POST: Methods = Methods { readers: Readers::All, ..POST };
/// Expensive endpoints that reveal internals.
const INSPECT: Methods = Methods { readers: Readers::None, ..READ };

/// Routes without the state of the server.
type Routes = Router<Arc<Shared>>;

/// Returns the router of the server.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let state = || Arc::clone(&shared);
    let api = queries(lookups(statuses(Router::new())))
        .route_layer(from_fn_with_state(state(), with_cors));
    let writes = add(api, "/api/v1/write", POST, write::remote_write);
    let writes = add(writes, "/api/v1/otlp/v1/metrics", POST, write::otlp);
    let reads = add(writes, "/api/v1/read", READ_POST, read::remote_read);
    let described = add(reads, "/api/v1/openapi.yaml", GET.without_data(), openapi::describe);
    let federation = add(described, "/federate", GET, federate::federate);
    let when_ready = add(federation, "/-/ready", GET_HEAD.without_data(), lifecycle::ready)
        .route_layer(from_fn_with_state(state(), only_when_ready));
    let always = statuses_always().route_layer(from_fn_with_state(state(), with_cors));
    let is_logged = shared.args.request_log;
    let encoders = encoders::Encoders::new(Arc::clone(shared.queries.memory()));
    let routes = pages(when_ready.merge(always), &shared.args)
        .route_layer(from_fn_with_state(state(), count))
        .fallback(not_found)
        .with_state(state());
    let all = prefix::with_prefix(routes, &shared.args)
        .layer(CompressionLayer::new().compress_when(is_compressible()))
        .layer(map_response(move |response| std::future::ready(encoders.encode(response))))
        .layer(from_fn_with_state(state(), tenants::read_header))
        .layer(from_fn_with_state(shared, access::check_access));
    if is_logged { all.layer(from_fn(request_log::log)) } else { all }
}

/// Adds endpoints of the API that are served before the log is replayed, too.
fn statuses_always() -> Routes {
    let mut routes = Router::new();
    for (path, data) in stubs::CONSTANTS_ALWAYS {
        routes = add(routes, path, GET.without_data(), move || stubs::constant(data));
    }
    add(routes, "/api/v1/notifications/live", GET.without_data(), stubs::no_stream)
}

/// Excludes content types that are compressed already.
fn is_compressible() -> impl Predicate {
    DefaultPredicate::new()
        .and(NotForContentType::const_new(read::SAMPLES_TYPE))
        .and(NotForContentType::const_new(read::STREAMED_TYPE))
        .and(NotForContentType::const_new(pprof::CONTENT_TYPE))
}

/// Adds pages and endpoints that are served before the log is replayed, too.
fn pages(mut routes: Routes, args: &Args) -> Routes {
    let page = ui::Page::new(&args.page_title);
    for path in ui::PAGES {
        let page = page.clone();
        let answer = async move |headers: HeaderMap| ui::send_page(&page, &headers);
        routes = add(routes, path, GET.without_data(), answer);
    }
    routes = add(routes, "/ui/{name}", GET.without_data(), ui::file);
    let documents = documents::Documents::new(&args.page_title);
    let to_list = async || Redirect::permanent("docs/");
    routes = add(routes, "/docs", GET.without_data(), to_list);
    let all = documents.clone();
    let list = async move |headers: HeaderMap| all.list(&headers);
    routes = add(routes, "/docs/", GET.without_data(), list);
    let document = async move |Path(name): Path<String>, headers: HeaderMap| {
        documents.document(&name, &headers)
    };
    routes = add(routes, "/docs/{name}", GET.without_data(), document);
    routes = add(routes, "/favicon.svg", GET.without_data(), ui::icon);
    routes = add(routes, "/favicon.ico", GET.without_data(), ui::icon);
    routes = add(routes, "/metrics", GET.of_operator(), server::metrics);
    routes = add(routes, "/debug/pprof/{name}", INSPECT.of_operator(), pprof::profile);
    routes = add(routes, "/-/healthy", GET_HEAD.without_data(), lifecycle::healthy);
    routes = add(routes, "/-/reload", GET_POST_PUT.of_operator(), lifecycle::reload);
    routes = add(routes, "/-/promote", GET_POST_PUT.of_operator(), lifecycle::promote);
    add(routes, "/-/quit", GET_POST_PUT.of_operator(), lifecycle::quit)
}

fn queries(mut routes: Routes) -> Routes {
    routes = add(routes, "/api/v1/query", READ, query::instant);
    routes = add(routes, "/api/v1/query_range", READ, query::range);
    routes = add(routes, "/api/v1/query_exemplars", READ, exemplars::query);
    routes = add(routes, "/api/v1/format_query", READ, query::format);
    add(routes, "/api/v1/parse_query", READ, query::parse)
}

fn lookups(mut routes: Routes) -> Routes {
    routes = add(routes, "/api/v1/labels", READ, labels::names);
    routes = add(routes, "/api/v1/label/{name}/values", GET, labels::values);
    routes = add(routes, "/api/v1/series", READ, labels::series);
    for (path, what) in [
        ("/api/v1/search/metric_names", search::Endpoint::MetricNames),
        ("/api/v1/search/label_names", search::Endpoint::LabelNames),
        ("/api/v1/search/label_values", search::Endpoint::LabelValues),
    ] {
        let handler = move |state, params| search::answer(what, state, params);
        routes = add(routes, path, READ, handler);
    }
    add(routes, "/api/v1/metadata", GET, metadata::list)
}

fn statuses(mut routes: Routes) -> Routes {
    routes = add(routes, "/api/v1/status/buildinfo", GET.without_data(), server::build_info);
    routes = add(routes, "/api/v1/status/config", GET.of_operator(), server::config);
    routes = add(routes, "/api/v1/status/flags", GET.of_operator(), server::flags);
    routes = add(routes, "/api/v1/status/runtimeinfo", GET.of_operator(), server::runtime_info);
    routes = add(routes, "/api/v1/status/storage", GET.of_operator(), store::storage);
    routes = add(routes, "/api/v1/status/days", GET.of_operator(), store::days);
    let path = "/api/v1/status/created_series";
    routes = add(routes, path, GET.of_operator(), cardinality::created_series);
    routes = add(routes, "/api/v1/status/tsdb", GET, store::tsdb);
    routes = add(routes, "/api/v1/status/tsdb/blocks", GET.of_operator(), store::blocks);
    routes = add(routes, "/api/v1/status/self_metrics", GET.of_operator(), self_metrics::list);
    routes = add(routes, "/api/v1/status/cardinality", GET, cardinality::of_day);
    routes = add(routes, "/api/v1/status/top_queries", GET, top_queries::list);
    let active = "/api/v1/status/active_queries";
    routes = add(routes, active, GET, active_queries::list);
    routes = add(routes, &format!("{active}/{{id}}"), DELETE, active_queries::cancel);
    routes = add(routes, &format!("{active}/{{id}}/cancel"), POST, active_queries::cancel);
    routes = add(routes, "/api/v1/features", GET.without_data(), features::list);
    for (path, data) in stubs::CONSTANTS {
        routes = add(routes, path, GET.without_data(), move || stubs::constant(data));
    }
    routes = add(routes, "/api/v1/rules", GET.without_data(), stubs::rules);
    routes = add(routes, "/api/v1/targets", GET.without_data(), stubs::targets);
    routes = add(routes, "/api/v1/targets/metadata", GET.without_data(), stubs::target_metadata);
    routes = add(routes, "/api/v1/targets/relabel_steps", GET.without_data(), stubs::relabel_steps);
    let tombstones = "/api/v1/admin/tsdb/clean_tombstones";
    routes = add(routes, tombstones, POST_PUT.of_operator(), tsdb::clean_tombstones);
    routes = add(routes, "/api/v1/admin/tsdb/delete_series", POST_PUT, tsdb::delete_series);
    routes = add(routes, "/api/v1/admin/tsdb/snapshot", POST_PUT.of_operator(), tsdb::snapshot);
    // Preflight requests succeed for any path.
    routes.route(
        "/api/v1/{*path}",
        MethodRouter::new().options(|| async { StatusCode::NO_CONTENT }).fallback(not_found),
    )
}

/// Adds an endpoint that rejects other methods like Prometheus, where GET does not imply HEAD.
fn add<H, T>(routes: Routes, path: &str, methods: Methods, handler: H) -> Routes
where
    H: Handler<T, Arc<Shared>>,
    T: 'static,
{
    let Methods { filter, allow, readers, tenants: rule } = methods;
    let other = move |method: Method, uri: Uri| async move { other_method(&method, &uri, allow) };
    let mut endpoint = MethodRouter::new().on(filter, handler).fallback(other);
    if allow.contains("GET") && !allow.contains("HEAD") {
        endpoint = endpoint.on(MethodFilter::HEAD, other);
    }
    match readers {
        Readers::All => {}
        Readers::Safe => endpoint = endpoint.layer(from_fn(access::only_reading)),
        Readers::None => endpoint = endpoint.layer(from_fn(access::not_only_reading)),
    }
    let endpoint = match rule {
        TenantRule::Required => endpoint.layer(from_fn(tenants::only_tenants)),
        TenantRule::Refused => endpoint.layer(from_fn(tenants::only_operator)),
        TenantRule::Ignored => endpoint,
    };
    routes.route(path, endpoint)
}

pub(super) fn other_method(method: &Method, uri: &Uri, allow: &'static str) -> Response {
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

pub(super) async fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Returns a short text in the form of Go's server.
pub(super) fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    let mut response = (status, text.into()).into_response();
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns the source of a client's queries: all series, or those of its tenants.
///
/// Errors: the client has no tenant and needs one, or the store is not open, which the layer below answers before a handler, or this process
/// has lost it, so its head becomes stale.
pub(crate) fn source_of(shared: &Shared, client: &Client) -> Result<Arc<dyn Source>, ApiError> {
    let whole = whole_source_of(shared)?;
    let source = match &shared.tenancy {
        None => whole,
        Some(tenancy) => match tenancy.scope(client.scope())? {
            Scope::Root => whole,
            Scope::Tenants(tenants) => with_tenants(whole, tenancy, tenants),
        },
    };
    Ok(noting(source, &shared.metric_uses, client))
}

fn whole_source_of(shared: &Shared) -> Result<Arc<dyn Source>, ApiError> {
    if let Some(error) = shared.store().and_then(|store| store.lost()) {
        return Err(ApiError::from(SourceError::from(error)));
    }
    shared.source().ok_or_else(ApiError::not_open)
}

/// Returns the source of queries by other servers, whose series have the external labels.
///
/// Errors: those of [`source_of`].
pub(crate) fn external_source_of(
    shared: &Shared,
    client: &Client,
) -> Result<Arc<dyn Source>, ApiError> {
    Ok(with_external_labels(source_of(shared, client)?, shared.external_labels()))
}

/// Returns the matchers of the series of a client's tenants; none if tenants are off.
///
/// Errors: the client has no tenant.
pub(crate) fn tenant_matchers(shared: &Shared, client: &Client) -> Result<Vec<Matcher>, ApiError> {
    let Some(tenancy) = &shared.tenancy else { return Ok(Vec::new()) };
    Ok(vec![tenancy.matcher(tenancy.tenants_of(client.scope())?)])
}

/// Returns the store.
///
/// Errors: it is not open, or not yet for writes.
pub(crate) fn store_of(shared: &Shared) -> Result<Arc<Store>, ApiError> {
    shared.store().ok_or_else(ApiError::not_open)
}

async fn only_when_ready(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let stopping = match shared.readiness() {
        Readiness::Reading | Readiness::Ready => return next.run(request).await,
        Readiness::Starting => HeaderValue::from_static("false"),
        Readiness::Stopping => HeaderValue::from_static("true"),
    };
    let mut text = "Service Unavailable".to_owned();
    if let Some(reason) = shared.unwritable() {
        text.push_str(": the store cannot be opened for writes: ");
        text.push_str(&reason);
    }
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    response.headers_mut().insert(STOPPING, stopping);
    response
}

/// Adds CORS headers for origins that the flag allows.
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
