//! A reader that lags behind its store answers UNAVAILABLE before the first message and ends the
//! connection, so that a root repeats the call at another reader behind the same address.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::grpc::GrpcClient;
use testkit::proxy::Proxy;
use testkit::s3::{BUCKET, S3Server};
use testkit::{Server, free_port, get, temporary_directory};

use super::data::{Selected, request};
use super::paths;
use super::root::{Node, start_root, thanos_binary, write};

/// Timeout for what takes a moment, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(180);
const QUERY: &str = "/thanos.Query/Query";
/// Code of UNAVAILABLE.
const UNAVAILABLE: u8 = 14;

/// Starts a node of the shard on a store that it reaches at an endpoint.
fn start(s3: &S3Server, endpoint: &str, grpc: &str, args: &[&str]) -> Node {
    let mut variables = s3.variables();
    variables[0].1 = format!("http://{endpoint}");
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, &value[..])).collect();
    let listen = format!("--grpc.listen-address={grpc}");
    let args = [&["--self-metrics=false", "--external-label=shard=0", &listen], args].concat();
    let server = Server::start_on(&format!("s3://{BUCKET}/shard-0"), &args, &variables);
    Node { server, grpc: grpc.to_owned() }
}

/// Returns the code and the bytes of messages of an instant query without a root.
fn call(node: &Node) -> (Option<u8>, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = GrpcClient::connect(&node.grpc).await;
        // query = 1.
        let reply = client.call(QUERY, b"\x0a\x02up").await;
        (reply.code, reply.bytes.len())
    })
}

#[test]
fn a_root_repeats_the_call_of_a_lagging_reader_at_another() {
    let Some(thanos) = thanos_binary() else { return };
    let Some(s3) = S3Server::versitygw("scale-out-lagging") else { return };
    let directory = temporary_directory("scale-out-lagging");
    let grpc = || format!("127.0.0.1:{}", free_port());
    let writer = start(&s3, &s3.address, &grpc(), &[]);
    write(&writer.server.address, &request(&Selected::of_shard(0)));
    let stores = [Proxy::start(&s3.address), Proxy::start(&s3.address)];
    let readers = stores
        .each_ref()
        .map(|store| start(&s3, &store.address, &grpc(), &["--mode=reader", "--reader.lag=400ms"]));
    let balancer = Proxy::balance(&readers.each_ref().map(|reader| &reader.grpc[..]));
    let (root, _child) = start_root(Command::new(thanos), &directory, &[&balancer.address]);
    let count = || {
        let (status, text) = get(&root, &paths("count(up)")[0]);
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["data"]["result"][0]["value"][1], "12", "{text}");
    };
    (0..10).for_each(|_| count());

    // The reader to which the root is connected.
    let calls = || readers.each_ref().map(|reader| reader.calls(QUERY));
    let before = calls();
    let lagging = usize::from(before[1] > before[0]);
    stores[lagging].drop_all(true);
    let started = Instant::now();
    while get(&readers[lagging].server.address, "/-/ready").0 != 503 {
        assert!(started.elapsed() < WAIT_MAX, "the reader is ready without its store");
        std::thread::sleep(Duration::from_millis(50));
    }
    (0..20).for_each(|_| count());
    let asked = calls()[1 - lagging] - before[1 - lagging];
    assert!(asked >= 20.0, "{asked} calls of the other reader");
    assert_eq!(call(&readers[lagging]), (Some(UNAVAILABLE), 0));
    assert_eq!(call(&readers[1 - lagging]).0, Some(0));
}
