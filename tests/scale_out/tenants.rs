//! Tenants under an unmodified `thanos query` that enforces them: it adds matchers to queries, and
//! its calls name no tenant.

use std::process::Command;

use serde_json::Value;
use testkit::{Child, TemporaryDirectory, free_port, percent_encode, temporary_directory};

use super::data::{END_SECONDS, SHARDS, Selected, TARGETS, request};
use super::root::{Node, start_root_with, thanos_binary};

const HEADER: &str = "X-Scope-OrgID";

/// Two shards with series of two tenants, and a root over them that enforces tenants.
struct Tenants {
    nodes: Vec<Node>,
    /// HTTP address of the root.
    root: String,
    _root: Child,
    _directory: TemporaryDirectory,
}

impl Tenants {
    /// Starts all processes; `None`, with a message, without Thanos.
    fn start(name: &str, args: &[&str]) -> Option<Tenants> {
        let thanos = thanos_binary()?;
        let directory = temporary_directory(&format!("scale-out-{name}"));
        let header = format!("--tenancy.header={HEADER}");
        let args = [&[header.as_str()], args].concat();
        let start = |shard| {
            let grpc = format!("127.0.0.1:{}", free_port());
            Node::start(&directory, shard, &grpc, &args)
        };
        let nodes: Vec<Node> = (0..SHARDS).map(start).collect();
        for (shard, node) in (0..).zip(&nodes) {
            write(node, "team-a", &request(&Selected::of_shard(shard)));
            let less = Selected { has_native: false, ..Selected::of_shard(shard) };
            write(node, "team-b", &request(&less));
        }
        let addresses: Vec<&str> = nodes.iter().map(|node| &node.grpc[..]).collect();
        let flags = [
            "--query.enforce-tenancy",
            "--query.tenant-header=X-Scope-OrgID",
            "--query.tenant-label-name=tenant_id",
        ];
        let (root, child) = start_root_with(Command::new(thanos), &directory, &addresses, &flags);
        Some(Tenants { nodes, root, _root: child, _directory: directory })
    }

    /// Returns the status and the response of the root to a tenant.
    fn ask(&self, tenant: Option<&str>, path: &str) -> (u16, Value) {
        let tenant = tenant.map(|tenant| format!("{HEADER}: {tenant}\r\n")).unwrap_or_default();
        let address = &self.root;
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{tenant}Connection: close\r\n\r\n");
        let (status, text) = testkit::request(address, &head, &[]);
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    fn query(&self, tenant: Option<&str>, query: &str) -> (u16, Value) {
        let query = percent_encode(query);
        self.ask(tenant, &format!("/api/v1/query?query={query}&time={END_SECONDS}"))
    }

    /// Returns the labels and values of a query's series.
    fn found(&self, tenant: Option<&str>, query: &str) -> Vec<(Value, String)> {
        let (status, answer) = self.query(tenant, query);
        assert_eq!(status, 200, "{query}: {answer}");
        let series = answer["data"]["result"].as_array().unwrap().iter();
        series.map(|s| (s["metric"].clone(), s["value"][1].as_str().unwrap().into())).collect()
    }
}

fn write(node: &Node, tenant: &str, body: &[u8]) {
    let address = &node.server.address;
    let head = format!(
        "POST /api/v1/write HTTP/1.1\r\nHost: {address}\r\n{HEADER}: {tenant}\r\n\
         Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let (status, text) = testkit::request(address, &head, body);
    assert_eq!(status, 204, "{text}");
}

#[test]
fn a_tenant_at_the_root_sees_its_own_series() {
    let Some(tenants) = Tenants::start("tenants", &["--tenancy.trust-root"]) else { return };
    let own = |tenant: &str| serde_json::json!({"tenant_id": tenant});
    let targets = TARGETS.to_string();
    for tenant in ["team-a", "team-b"] {
        let other = if tenant == "team-a" { "team-b" } else { "team-a" };
        // Pushed down, joined at the root, and in another engine over raw series.
        for query in [
            "count by (tenant_id) (up)".to_owned(),
            "count by (tenant_id) ({__name__=~\"up\"})".to_owned(),
            format!(
                "count by (tenant_id) (up{{tenant_id=~\".*\"}} or up{{tenant_id=\"{other}\"}})"
            ),
            "count by (tenant_id) (up * on (job, instance) group_left (version) target_info)"
                .to_owned(),
            "count by (tenant_id) (quantile_over_time(scalar(vector(0.5)), up[5m]))".to_owned(),
            "count by (tenant_id) (max_over_time(up[5m:1m] @ end()))".to_owned(),
        ] {
            assert_eq!(
                tenants.found(Some(tenant), &query),
                [(own(tenant), targets.clone())],
                "{query}"
            );
        }
        let has_native = !tenants.found(Some(tenant), "count(native_seconds)").is_empty();
        assert_eq!(has_native, tenant == "team-a");
        let times = format!("start={}&end={END_SECONDS}", END_SECONDS - 3_600);
        let values = format!("/api/v1/label/tenant_id/values?{times}");
        assert_eq!(tenants.ask(Some(tenant), &values).1["data"], serde_json::json!([tenant]));
        for path in [
            format!("/api/v1/series?match[]=up&{times}"),
            format!("/api/v1/labels?{times}"),
            format!("/api/v1/label/__name__/values?{times}"),
            format!("/api/v1/query_exemplars?query=native_seconds&{times}"),
            "/api/v1/metadata".to_owned(),
            "/api/v1/status/tsdb".to_owned(),
        ] {
            let (_, answer) = tenants.ask(Some(tenant), &path);
            assert!(!answer.to_string().contains(other), "{path}: {answer}");
            if tenant == "team-b" {
                let text = answer.to_string();
                assert!(
                    !text.contains("native_seconds") && !text.contains("trace-"),
                    "{path}: {text}"
                );
            }
        }
    }
    // A request without a header has the default tenant of the root.
    assert_eq!(tenants.found(None, "count(up)"), []);
    assert_eq!(tenants.found(Some("other"), "count(up)"), []);
    assert!(tenants.nodes[0].calls("/thanos.Query/Query") > 0.0);
}

#[test]
fn a_root_is_refused_unless_it_is_trusted() {
    let Some(tenants) = Tenants::start("untrusted-root", &[]) else { return };
    for query in ["count(up)", "up", "count(quantile_over_time(scalar(vector(0.5)), up[5m]))"] {
        let (status, answer) = tenants.query(Some("team-a"), query);
        assert!(status >= 400, "{query}: {answer}");
        assert!(answer.to_string().contains("no tenant: the request has no header"), "{answer}");
    }
    let path = format!("/api/v1/series?match[]=up&end={END_SECONDS}");
    let (status, answer) = tenants.ask(Some("team-a"), &path);
    assert!(status >= 400, "{answer}");
}
