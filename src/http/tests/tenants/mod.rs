//! Tenants: which endpoints need one, and that none sees another's series.

mod data;
mod isolation;
mod limits;
mod requests;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use storage::{Store, StoreOptions};

use crate::http::api::stubs::{CONSTANTS, CONSTANTS_ALWAYS};
use crate::http::pages::ui::PAGES;
use crate::http::router::router;
use crate::http::tests::{Answer, ask, ready, send, shared_with};

/// Header of the tenants of the tests.
const HEADER: &str = "x-scope-orgid";
/// Flags that turn tenants on, and all endpoints.
const FLAGS: [&str; 5] = [
    "--tenancy.header=X-Scope-OrgID",
    "--web.enable-admin-api",
    "--web.enable-otlp-receiver",
    "--web.enable-lifecycle",
    "--self-metrics=false",
];

/// Endpoints that need a tenant, with a method.
const OF_TENANTS: [&str; 24] = [
    "GET /api/v1/query",
    "GET /api/v1/query_range",
    "GET /api/v1/query_exemplars",
    "GET /api/v1/format_query",
    "GET /api/v1/parse_query",
    "GET /api/v1/labels",
    "GET /api/v1/label/{name}/values",
    "GET /api/v1/series",
    "GET /api/v1/search/metric_names",
    "GET /api/v1/search/label_names",
    "GET /api/v1/search/label_values",
    "GET /api/v1/metadata",
    "GET /api/v1/status/tsdb",
    "GET /api/v1/status/active_queries",
    "GET /api/v1/status/top_queries",
    "GET /api/v1/status/cardinality",
    "DELETE /api/v1/status/active_queries/{id}",
    "POST /api/v1/status/active_queries/{id}/cancel",
    "POST /api/v1/admin/tsdb/delete_series",
    "POST /api/v1/write",
    "POST /api/v1/otlp/v1/metrics",
    "POST /api/v1/read",
    "GET /federate",
    "GET /api/v1/status/tsdb?limit=1",
];

/// Endpoints of the operator, which requests with a tenant may not use.
const OF_OPERATOR: [&str; 16] = [
    "GET /metrics",
    "GET /debug/pprof/{name}",
    "POST /-/reload",
    "POST /-/promote",
    "POST /-/quit",
    "GET /api/v1/status/config",
    "GET /api/v1/status/flags",
    "GET /api/v1/status/runtimeinfo",
    "GET /api/v1/status/storage",
    "GET /api/v1/status/days",
    "GET /api/v1/status/created_series",
    "GET /api/v1/status/tsdb/blocks",
    "GET /api/v1/status/self_metrics",
    "POST /api/v1/admin/tsdb/clean_tombstones",
    "POST /api/v1/admin/tsdb/snapshot",
    "GET /api/v1/status/self_metrics?metric_name_pattern=up",
];

/// Endpoints without data, besides the pages and the stubs without parameters.
const WITHOUT_DATA: [&str; 16] = [
    "GET /-/healthy",
    "GET /-/ready",
    "GET /ui/{name}",
    "GET /docs",
    "GET /docs/",
    "GET /docs/{name}",
    "GET /favicon.svg",
    "GET /favicon.ico",
    "GET /api/v1/openapi.yaml",
    "GET /api/v1/notifications/live",
    "GET /api/v1/status/buildinfo",
    "GET /api/v1/features",
    "GET /api/v1/rules",
    "GET /api/v1/targets",
    "GET /api/v1/targets/metadata",
    "GET /api/v1/targets/relabel_steps",
];

/// Server in process, with a store in memory.
struct Node {
    http: Router,
    grpc: Router,
    store: Arc<Store>,
}

impl Node {
    async fn start(flags: &[&str]) -> Node {
        let options = StoreOptions { background: false, ..StoreOptions::default() };
        let store = Arc::new(Store::open("memory:///", options).await.unwrap());
        let shared = shared_with(&[&FLAGS, flags].concat());
        shared.set_store(&store);
        Node { http: router(Arc::clone(&shared)), grpc: crate::grpc::router(shared), store }
    }

    async fn ask(&self, tenant: &str, method: &str, path: &str) -> Answer {
        self.send(tenant, method, path, &[], Vec::new()).await
    }

    async fn send(
        &self,
        tenant: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header(HEADER, tenant);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        send(&self.http, request.body(Body::from(body)).unwrap()).await
    }
}

fn paths(endpoints: &[&str]) -> impl Iterator<Item = String> {
    let path = |endpoint: &&str| endpoint.split([' ', '?']).nth(1).unwrap().to_owned();
    endpoints.iter().map(path).collect::<Vec<_>>().into_iter()
}

/// Returns all paths that the text of the router has.
fn routed() -> BTreeSet<String> {
    let source = include_str!("../../router.rs");
    let texts = source.split('"').skip(1).step_by(2);
    let mut paths: BTreeSet<String> = texts
        .filter(|text| text.starts_with('/') && *text != "/api/v1/{*path}")
        .map(str::to_owned)
        .collect();
    let active = "/api/v1/status/active_queries/{id}";
    paths.extend([active.to_owned(), format!("{active}/cancel")]);
    let constants = CONSTANTS.iter().chain(&CONSTANTS_ALWAYS).map(|(path, _)| *path);
    paths.extend(constants.chain(PAGES).map(str::to_owned));
    paths
}

#[test]
fn the_lists_have_all_endpoints() {
    let mut listed: BTreeSet<String> = paths(&OF_TENANTS).collect();
    listed.extend(paths(&OF_OPERATOR));
    listed.extend(paths(&WITHOUT_DATA));
    let constants = CONSTANTS.iter().chain(&CONSTANTS_ALWAYS).map(|(path, _)| *path);
    listed.extend(constants.chain(PAGES).map(str::to_owned));
    assert!(listed.len() > 50);
    assert_eq!(listed, routed());
}

/// Sends a request for an endpoint of a list, with a tenant or without.
async fn ask_endpoint(node: &Node, endpoint: &str, tenant: Option<&str>) -> Answer {
    let (method, path) = endpoint.split_once(' ').unwrap();
    let path = path.replace("{name}", "symbol").replace("{id}", "1");
    match tenant {
        Some(tenant) => node.ask(tenant, method, &path).await,
        None => ask(&node.http, method, &path).await,
    }
}

#[tokio::test]
async fn endpoints_with_data_need_a_tenant() {
    let node = Node::start(&[]).await;
    for endpoint in OF_TENANTS {
        let answer = ask_endpoint(&node, endpoint, None).await;
        let text = "no tenant: the request has no header x-scope-orgid (--tenancy.header)";
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{endpoint}");
        assert!(answer.text.contains(text), "{endpoint}: {}", answer.text);
        for invalid in ["", "..", "a/b", "a||b"] {
            let answer = ask_endpoint(&node, endpoint, Some(invalid)).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{endpoint} {invalid}");
            assert!(answer.text.contains("invalid tenant"), "{endpoint}: {}", answer.text);
        }
        let answer = ask_endpoint(&node, endpoint, Some("a")).await;
        assert!(!answer.text.contains("tenant"), "{endpoint}: {}", answer.text);
    }
    // Browsers ask without headers of their own.
    let answer = ask(&node.http, "OPTIONS", "/api/v1/query").await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn endpoints_of_the_operator_refuse_tenants() {
    let node = Node::start(&[]).await;
    for endpoint in OF_OPERATOR {
        let answer = ask_endpoint(&node, endpoint, Some("a|b")).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{endpoint}");
        assert!(answer.text.contains("is for the operator"), "{endpoint}: {}", answer.text);
        let answer = ask_endpoint(&node, endpoint, Some("a/b")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{endpoint}");
        if !endpoint.ends_with("quit") {
            let status = ask_endpoint(&node, endpoint, None).await.status;
            let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
            assert!(!refused.contains(&status), "{endpoint} {status}");
        }
    }
}

#[tokio::test]
async fn endpoints_without_data_ignore_tenants() {
    let node = Node::start(&[]).await;
    let constants = CONSTANTS.iter().chain(&CONSTANTS_ALWAYS).map(|(path, _)| *path);
    let more = constants.chain(PAGES).map(|path| format!("GET {path}"));
    for endpoint in WITHOUT_DATA.map(str::to_owned).into_iter().chain(more) {
        let with = ask_endpoint(&node, &endpoint, Some("a")).await;
        let without = ask_endpoint(&node, &endpoint, None).await;
        assert_eq!((with.status, &with.text), (without.status, &without.text), "{endpoint}");
        assert_ne!(with.status, StatusCode::UNAUTHORIZED, "{endpoint}");
    }
}

#[tokio::test]
async fn changes_name_one_tenant() {
    let node = Node::start(&[]).await;
    for path in
        ["/api/v1/write", "/api/v1/otlp/v1/metrics", "/api/v1/admin/tsdb/delete_series?match[]=up"]
    {
        let headers = [("content-type", "application/x-protobuf")];
        let answer = node.send("a|b", "POST", path, &headers, Vec::new()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        assert!(answer.text.contains("writes and deletes name one"), "{path}: {}", answer.text);
        let answer = node.send("a|a", "POST", path, &headers, Vec::new()).await;
        assert!(!answer.text.contains("name one"), "{path}: {}", answer.text);
    }
}

#[tokio::test]
async fn without_the_flag_the_header_is_ignored() {
    let router = ready(&[]);
    for tenant in ["a", "a/b"] {
        for path in ["/api/v1/query?query=up&time=1", "/metrics"] {
            let request = Request::get(path).header(HEADER, tenant).body(Body::empty()).unwrap();
            assert_eq!(send(&router, request).await.status, StatusCode::OK, "{path}");
        }
    }
}
