//! `thanos query-frontend` in front of the readers of one store returns what the node returns.

use std::process::Command;

use testkit::remote_write::Connection;
use testkit::{Server, free_port, get, spawn_listening, temporary_directory};

use super::data::{Selected, request};
use super::queries::QUERIES;
use super::root::thanos_binary;
use super::{compare_addresses, paths};

#[test]
fn a_query_frontend_returns_what_its_node_returns() {
    let Some(thanos) = thanos_binary() else { return };
    let directory = temporary_directory("scale-out-frontend");
    let node = Server::start(&directory.path().join("store"), &["--self-metrics=false"]);
    let body = request(&Selected::ALL);
    assert!(Connection::open(&node.address).unwrap().write(&body).unwrap().0 < 300);
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(thanos);
    command.args(["query-frontend", "--no-query-range.align-range-with-step"]);
    command.arg("--enable-feature=promql-experimental-functions");
    command.arg(format!("--http-address={address}"));
    command.arg(format!("--query-frontend.downstream-url=http://{}", node.address));
    // The half hour of a range query is three queries and more.
    command.arg("--query-range.split-interval=10m");
    let _frontend = spawn_listening(&mut command, &address);
    let mut wrong = Vec::new();
    for query in QUERIES.lines().filter(|line| !line.is_empty()) {
        for path in paths(query) {
            if let Err(error) = compare_addresses(&node.address, &address, &path) {
                wrong.push(format!("{query}\n{error}").chars().take(1_500).collect::<String>());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let (_, metrics) = get(&node.address, "/metrics");
    let prefix = "tessella_http_requests_total{code=\"200\",handler=\"/api/v1/query_range\"} ";
    let calls = metrics.lines().find_map(|line| line.strip_prefix(prefix)?.parse::<usize>().ok());
    let queries = QUERIES.lines().filter(|line| !line.is_empty()).count();
    // The comparison asks the node once for each; half of the others cannot be split.
    assert!(
        calls.is_some_and(|calls| calls > 3 * queries),
        "{calls:?} calls for {queries} queries"
    );
}
