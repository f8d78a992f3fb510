//! Limits of tenants in the configuration file, and their metrics.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use prost::Message as _;
use storage::{Store, StoreOptions};
use testkit::prompb::{Exemplar, MetricMetadata, Sample, WriteRequest};
use testkit::{TemporaryDirectory, temporary_directory};
use tower::ServiceExt as _;

use super::{FLAGS, HEADER, Node};
use crate::config::Config;
use crate::http::router::router;
use crate::http::tests::scripted_source::ScriptedSource;
use crate::http::tests::{Answer, ask, parse_args, send, shared_with, source};
use crate::ingest::now_ms;
use crate::logging::tests::Lines;
use crate::query::active::Client;
use crate::state::Shared;
use crate::web_config::ActiveWebConfig;

/// Server with a configuration file.
struct LimitedNode {
    node: Node,
    directory: TemporaryDirectory,
}

fn shared(directory: &TemporaryDirectory, config: &str) -> Arc<Shared> {
    let path = directory.path().join("tessella.yml");
    std::fs::write(&path, config).unwrap();
    let file = format!("--config.file={}", path.display());
    let args = parse_args(&[&FLAGS[..], &[&file]].concat());
    let config = Config::load(Some(&path)).unwrap();
    Shared::new(args, config, ActiveWebConfig::default())
}

impl LimitedNode {
    async fn start(name: &str, config: &str) -> LimitedNode {
        let directory = temporary_directory(name);
        let options = StoreOptions {
            background: false,
            tenant_label: Some("tenant_id".to_owned()),
            retention_confirmation: std::time::Duration::ZERO,
            ..StoreOptions::default()
        };
        let store = Arc::new(Store::open("memory:///", options).await.unwrap());
        let shared = shared(&directory, config);
        shared.set_store(&store);
        let grpc = crate::grpc::router(Arc::clone(&shared));
        LimitedNode { node: Node { http: router(shared), grpc, store }, directory }
    }

    /// Replaces the configuration file, and reloads it.
    async fn reload(&self, config: &str) {
        std::fs::write(self.directory.path().join("tessella.yml"), config).unwrap();
        assert_eq!(ask(&self.node.http, "POST", "/-/reload").await.status, 200);
    }

    /// Writes one sample of each series.
    async fn write(&self, tenant: &str, series: std::ops::Range<usize>) -> Answer {
        self.write_at(tenant, now_ms(), series).await
    }

    async fn write_at(&self, tenant: &str, time_ms: i64, series: std::ops::Range<usize>) -> Answer {
        let names: Vec<String> = series.map(|number| format!("series_{number}")).collect();
        let labels: Vec<_> = names.iter().map(|name| [("__name__", name.as_str())]).collect();
        let samples = [(time_ms, 1.0)];
        let request = WriteRequest::of(labels.iter().map(|labels| (&labels[..], &samples[..])));
        self.write_request(tenant, &request).await
    }

    async fn write_request(&self, tenant: &str, request: &WriteRequest) -> Answer {
        let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).unwrap();
        let headers = [("content-encoding", "snappy"), ("content-type", "application/x-protobuf")];
        self.node.send(tenant, "POST", "/api/v1/write", &headers, body).await
    }

    async fn has_metric(&self, line: &str) {
        let text = ask(&self.node.http, "GET", "/metrics").await.text;
        let lines = text.lines().filter(|line| line.starts_with("tessella_tenant"));
        let lines: Vec<&str> = lines.collect();
        assert!(lines.contains(&line), "{line} is not in {lines:#?}");
    }
}

#[tokio::test]
async fn active_series_are_limited_by_tenant() {
    let config = "tenants: {defaults: {active_series: 3}, overrides: {large: {active_series: 5}}}";
    let server = LimitedNode::start("tenant-series", config).await;
    assert_eq!(server.write("small", 0..3).await.status, 204);
    let refused = server.write("small", 2..5).await;
    assert_eq!(refused.status, 429);
    let text = "too many active series of the tenant: tenant small has 3, the limit is 3 \
                (active_series of tenants in the configuration file) for series \
                {__name__=\"series_3\", tenant_id=\"small\"}";
    assert!(refused.text.contains(text), "{}", refused.text);
    assert!(refused.headers.contains_key("retry-after"));
    // Known series, and other tenants, are accepted.
    assert_eq!(server.write("small", 0..3).await.status, 204);
    assert_eq!(server.write("large", 0..5).await.status, 204);
    assert_eq!(server.write("large", 0..6).await.status, 429);
    server.has_metric("tessella_tenant_active_series{tenant=\"small\"} 3").await;
    server.has_metric("tessella_tenant_active_series{tenant=\"large\"} 5").await;
    server.has_metric("tessella_tenant_samples_received_total{tenant=\"small\"} 9").await;
    let reason = "reason=\"active_series_per_tenant\"";
    let rejected = "tessella_tenant_samples_rejected_total";
    server.has_metric(&format!("{rejected}{{{reason},tenant=\"small\"}} 2")).await;
    server.reload("tenants: {defaults: {active_series: 4}}").await;
    assert_eq!(server.write("small", 0..4).await.status, 204);
    assert_eq!(server.write("small", 4..5).await.status, 429);
    // Series that are sealed are not active.
    server.node.store.seal_all().await.unwrap();
    assert_eq!(server.write("small", 5..9).await.status, 204);
}

#[tokio::test]
async fn samples_are_limited_by_tenant() {
    let config = "tenants: {defaults: {samples_per_second: 1}, overrides: {large: \
                  {samples_per_second: 0}}}";
    let server = LimitedNode::start("tenant-rate", config).await;
    assert_eq!(server.write("small", 0..1_000).await.status, 204);
    let refused = server.write("small", 0..1).await;
    // Senders of Prometheus repeat 503, and drop the samples after 429.
    assert_eq!(
        (refused.status.as_u16(), &refused.headers["retry-after"]),
        (503, &"60".parse().unwrap())
    );
    let text = "tenant small sends more than 1 samples a second (samples_per_second of tenants in \
                the configuration file): repeat the request in 60 s\n";
    assert_eq!(refused.text, text);
    for tenant in ["large", "other"] {
        assert_eq!(server.write(tenant, 0..1_000).await.status, 204);
    }
    assert_eq!(server.write("large", 0..1).await.status, 204);
    let rejected = "tessella_tenant_samples_rejected_total";
    server
        .has_metric(&format!("{rejected}{{reason=\"samples_per_second\",tenant=\"small\"}} 1"))
        .await;
    server.reload("tenants: {overrides: {other: {samples_per_second: 1}}}").await;
    assert_eq!(server.write("small", 0..1).await.status, 204);
    assert_eq!(server.write("other", 0..1).await.status, 503);
}

#[tokio::test]
async fn entries_without_a_valid_sample_count_towards_the_rate() {
    let config = "tenants: {defaults: {samples_per_second: 1}}";
    let server = LimitedNode::start("tenant-entries", config).await;
    let samples: Vec<(i64, f64)> = (0..20).map(|at| (now_ms() + at, 1.0)).collect();
    let series = || WriteRequest::of([(&[("__name__", "up")][..], &samples[..])]);
    let mut invalid = series();
    invalid.timeseries[0].labels[0].value = vec![0xff];
    let mut exemplars = series();
    let of = |sample: &Sample| Exemplar {
        labels: Vec::new(),
        value: sample.value,
        timestamp: sample.timestamp,
    };
    exemplars.timeseries[0].exemplars =
        exemplars.timeseries[0].samples.drain(..).map(|sample| of(&sample)).collect();
    let metadata = |name: &str| WriteRequest {
        timeseries: Vec::new(),
        metadata: vec![
            MetricMetadata {
                metric_family_name: name.into(),
                ..MetricMetadata::default()
            };
            20
        ],
    };
    let requests = [
        ("invalid", invalid, 400),
        ("exemplars", exemplars, 204),
        ("metadata", metadata("up"), 204),
        ("unnamed", metadata(""), 204),
    ];
    for (tenant, request, status) in requests {
        let answer = server.write_request(tenant, &request).await;
        assert_eq!(answer.status, status, "{tenant}: {}", answer.text);
        assert_eq!(server.write(tenant, 0..1).await.status, 503, "{tenant}");
    }
    let received = "tessella_tenant_samples_received_total";
    server.has_metric(&format!("{received}{{tenant=\"invalid\"}} 21")).await;
    server.has_metric(&format!("{received}{{tenant=\"exemplars\"}} 1")).await;
}

/// Begins to receive a response that exceeds the buffer of a connection, from one address.
async fn begin(router: &Router, tenants: &str) -> Response {
    let path = "/api/v1/query_range?query=time()&start=0&end=10999&step=1";
    let mut request = Request::get(path).header(HEADER, tenants).body(Body::empty()).unwrap();
    request.extensions_mut().insert(Client::at("10.1.2.3:456".parse().unwrap()));
    router.clone().oneshot(request).await.unwrap()
}

async fn is_whole(response: Response) -> bool {
    axum::body::to_bytes(response.into_body(), usize::MAX).await.is_ok()
}

#[tokio::test]
async fn unread_responses_are_limited_by_tenant() {
    let shared = shared_with(&[&FLAGS[..], &["--query.max-sending-per-client=2"]].concat());
    shared.set_ready(source());
    let router = router(shared);
    let other = begin(&router, "b").await;
    let first = begin(&router, "a").await;
    let both = begin(&router, "a|b").await;
    let last = begin(&router, "a").await;
    assert!(!is_whole(first).await);
    for response in [other, both, last] {
        assert!(is_whole(response).await);
    }
    let first = begin(&router, "b").await;
    let others = [begin(&router, "a|b").await, begin(&router, "b|c").await];
    assert!(!is_whole(first).await);
    for response in others {
        assert!(is_whole(response).await);
    }
}

#[tokio::test]
async fn unread_responses_hold_memory_of_their_tenant() {
    let directory = temporary_directory("tenant-unread");
    let shared = shared(&directory, "tenants: {defaults: {query_memory: 1MiB}}");
    shared.set_ready(source());
    let router = router(shared);
    let mut unread = Vec::new();
    let refused = loop {
        let response = begin(&router, "a").await;
        if response.status() != 200 {
            break response.status();
        }
        unread.push(response);
        assert!(unread.len() < 40, "none is refused");
    };
    assert_eq!(refused, 429);
    assert_eq!(begin(&router, "b").await.status(), 200);
    assert!(is_whole(unread.pop().unwrap()).await);
    drop(unread);
    assert_eq!(begin(&router, "a").await.status(), 200);
}

#[tokio::test]
async fn memory_of_queries_is_limited_by_tenant() {
    let config =
        "tenants: {defaults: {query_memory: 100}, overrides: {large: {query_memory: 1MiB}}}";
    let server = LimitedNode::start("tenant-memory", config).await;
    for tenant in ["small", "large"] {
        assert_eq!(server.write(tenant, 0..100).await.status, 204);
    }
    let paths = [
        "/api/v1/query?query=%7B__name__=~%22series.*%22%7D",
        "/api/v1/series?match[]=%7B__name__=~%22series.*%22%7D",
    ];
    for path in paths {
        assert_eq!(server.node.ask("large", "GET", path).await.status, 200);
        for tenants in ["small", "large|small"] {
            let refused = server.node.ask(tenants, "GET", path).await;
            assert_eq!(refused.status, 429, "{path}: {}", refused.text);
            assert!(refused.text.contains("queries of tenant small need"), "{}", refused.text);
            let text = "bytes of memory together, the limit is 100 (query_memory of tenants in the";
            assert!(refused.text.contains(text), "{}", refused.text);
        }
        // All memory of the failed queries is released.
        assert_eq!(server.node.ask("large", "GET", path).await.status, 200);
    }
    let of = |tenant: &str, count: u64| {
        format!("tessella_tenant_queries_total{{tenant=\"{tenant}\"}} {count}")
    };
    server.has_metric(&of("small", 2)).await;
    server.has_metric(&of("large", 3)).await;
    server.has_metric("tessella_tenant_query_samples_total{tenant=\"large\"} 200").await;
}

#[tokio::test]
async fn queries_at_once_are_limited_by_tenant() {
    let directory = temporary_directory("tenant-queries");
    let config = "tenants: {defaults: {concurrent_queries: 1}}";
    let shared = shared(&directory, config);
    shared.set_ready(Arc::new(ScriptedSource::default()));
    let router = router(shared);
    let ask = |tenants: &str, path: &str| {
        let request = Request::get(path).header(HEADER, tenants).body(Body::empty()).unwrap();
        let router = router.clone();
        async move { send(&router, request).await }
    };
    let forever = "/api/v1/query?query=forever&time=1";
    let mut running = Box::pin(ask("a", forever));
    assert!(futures::poll!(&mut running).is_pending());
    for path in ["/api/v1/query?query=up&time=1", "/api/v1/labels"] {
        for tenants in ["a", "a|b"] {
            let refused = ask(tenants, path).await;
            assert_eq!(refused.status, 429, "{}", refused.text);
            let text = "tenant a has 1 running or waiting queries, which is its limit \
                        (concurrent_queries of tenants in the configuration file)";
            assert!(refused.text.contains(text), "{}", refused.text);
            assert_eq!(refused.headers["retry-after"], "1");
        }
        assert_eq!(ask("b", path).await.status, 200);
    }
    // The slot of a query is free again once its client has disconnected.
    drop(running);
    assert_eq!(ask("a", "/api/v1/query?query=up&time=1").await.status, 200);
}

#[test]
fn limits_without_tenants_are_an_error() {
    let config = Config::parse("tessella.yml", "tenants: {defaults: {active_series: 3}}").unwrap();
    let error = config.tenant_limits(&parse_args(&["--config.file=tessella.yml"])).unwrap_err();
    let text = "tessella.yml: the section tenants needs the flag --tenancy.header";
    assert_eq!(error.to_string(), text);
    assert!(config.tenant_limits(&parse_args(&FLAGS)).is_ok());
}

#[tokio::test]
async fn an_external_label_may_not_be_that_of_tenants() {
    let file = "global: {external_labels: {tenant_id: a, region: eu}}";
    let config = Config::parse("tessella.yml", file).unwrap();
    let text = "the external label \"tenant_id\" (--external-label, global.external_labels) has the \
                name of the label of tenants (--tenancy.label): rename it, or run the server \
                without --tenancy.header";
    let error = config.check_external_labels(&parse_args(&FLAGS)).unwrap_err();
    assert_eq!(error.to_string(), text);
    let flag = [&FLAGS[..], &["--external-label=tenant_id=a"]].concat();
    assert!(Config::default().check_external_labels(&parse_args(&flag)).is_err());
    let renamed = [&flag[..], &["--tenancy.label=team"]].concat();
    assert!(Config::default().check_external_labels(&parse_args(&renamed)).is_ok());
    assert!(config.check_external_labels(&parse_args(&[])).is_ok());
    let server = LimitedNode::start("tenant-external", "").await;
    std::fs::write(server.directory.path().join("tessella.yml"), file).unwrap();
    let refused = ask(&server.node.http, "POST", "/-/reload").await;
    assert_eq!(refused.status, 500);
    assert!(refused.text.contains(text), "{}", refused.text);
    server.reload("global: {external_labels: {region: eu}}").await;
}

#[tokio::test]
async fn slow_queries_are_logged_with_their_tenants() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let args = [&FLAGS[..], &["--query.log-slower-than=1ms"]].concat();
    let shared = shared_with(&args);
    shared.set_ready(Arc::new(ScriptedSource::default()));
    let path = "/api/v1/query?query=forever&time=1&timeout=5ms";
    let request = Request::get(path).header(HEADER, "b|a").body(Body::empty()).unwrap();
    assert_eq!(send(&router(shared), request).await.status, 503);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let slow: Vec<&str> = text.lines().filter(|line| line.contains("slow query")).collect();
    assert!(slow.len() == 1 && slow[0].contains("tenant=\"a|b\""), "{text}");
}

#[tokio::test]
async fn retention_rules_select_tenants() {
    let server = LimitedNode::start("tenant-retention", "").await;
    let day_ms = 86_400_000;
    for tenant in ["trial", "paying"] {
        assert_eq!(server.write_at(tenant, now_ms() - day_ms, 0..2).await.status, 204);
        assert_eq!(server.write(tenant, 0..2).await.status, 204);
    }
    // The clock and the newest sample have to agree before anything expires.
    server.node.store.maintain().await.unwrap();
    let rules = "storage: {retention: {rules: [{match: '{tenant_id=\"trial\"}', time: 6h}]}}";
    server.reload(rules).await;
    server.node.store.maintain().await.unwrap();
    let refused = server.write_at("trial", now_ms() - day_ms, 2..3).await;
    assert_eq!(refused.status, 400);
    let text = "rule {tenant_id=\"trial\"} with time 6h of storage.retention";
    assert!(refused.text.contains(text), "{}", refused.text);
    assert_eq!(server.write_at("paying", now_ms() - day_ms, 2..3).await.status, 204);
    let path =
        "/api/v1/query?query=count(count_over_time(%7B__name__=~%22series.*%22%7D%5B2d%5D)%3E1)";
    let count = async |tenant: &str| {
        let answer = server.node.ask(tenant, "GET", path).await;
        let answer: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        answer["data"]["result"][0]["value"][1].clone()
    };
    // Of the trial, one sample of each series is left.
    assert_eq!(count("trial").await, serde_json::Value::Null);
    assert_eq!(server.write("paying", 0..3).await.status, 204);
    assert_eq!(count("paying").await, "3");
}
