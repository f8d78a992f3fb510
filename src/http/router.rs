//! Routes of all endpoints, and the layers around them.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::MethodRouter;
use model::{Matcher, Source, SourceError};
use storage::Store;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate};

use super::admin::{lifecycle, pprof, tsdb};
use super::api::{exemplars, federate, labels, metadata, query, read, search, stubs};
use super::endpoint::{
    Admission, DELETE, EndpointGroup, GET, GET_HEAD, GET_POST_PUT, INSPECT, POST, POST_PUT, READ,
    READ_POST, Routes, add,
};
use super::error::ApiError;
use super::layers::encoders::Encoders;
use super::layers::{access, prefix, request_log};
use super::pages::{documents, openapi, ui};
use super::status::{
    active_queries, cardinality, features, self_metrics, server, store, top_queries,
};
use super::write;
use crate::external_labels::with_external_labels;
use crate::flags::Args;
use crate::query::active::Client;
use crate::query::metric_use::noting;
use crate::state::Shared;
use crate::tenancy::{Scope, with_tenants};

/// Returns the router of the server.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let group = |needs_data, has_cors| EndpointGroup { needs_data, has_cors };
    let routes = queries(lookups(statuses(Routes::new(&shared, group(true, true)))));
    let routes = writes(routes.in_group(group(true, false)));
    let routes = statuses_always(routes.in_group(group(false, true)));
    let routes = pages(routes.in_group(group(false, false)), &shared.args);
    let routes = routes.into_router().fallback(not_found).with_state(Arc::clone(&shared));
    let is_logged = shared.args.request_log;
    let encoders = Encoders::new(Arc::clone(shared.queries.memory()));
    // As one layer: axum clones all inner layers of a route at each layer.
    let all = prefix::with_prefix(routes, &shared.args).layer((
        from_fn_with_state((shared, encoders), check_and_offload),
        CompressionLayer::new().compress_when(is_compressible()),
    ));
    if is_logged { all.layer(from_fn(request_log::log)) } else { all }
}

/// Checks the access, and moves the encoding of a long response to other threads.
async fn check_and_offload(
    State((shared, encoders)): State<(Arc<Shared>, Encoders)>,
    request: Request,
    next: Next,
) -> Response {
    encoders.encode(access::check_access(State(shared), request, next).await)
}

/// Adds endpoints for other servers: writes, reads, and readiness.
fn writes(mut routes: Routes) -> Routes {
    routes = add(routes, "/api/v1/write", POST, write::remote_write);
    routes = add(routes, "/api/v1/otlp/v1/metrics", POST, write::otlp);
    routes = add(routes, "/api/v1/read", READ_POST, read::remote_read);
    routes = add(routes, "/api/v1/openapi.yaml", GET.without_data(), openapi::describe);
    routes = add(routes, "/federate", GET, federate::federate);
    add(routes, "/-/ready", GET_HEAD.without_data(), lifecycle::ready)
}

/// Adds endpoints of the API that are served before the log is replayed, too.
fn statuses_always(mut routes: Routes) -> Routes {
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
    let preflight = MethodRouter::new().options(|| async { StatusCode::NO_CONTENT });
    routes.route("/api/v1/{*path}", Admission::ALL, preflight.fallback(not_found))
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
/// Errors: the client has no tenant and needs one, or the store is not open, which
/// [`endpoint`](super::endpoint) checks before a handler, or this process has lost it, so its head
/// becomes stale.
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
