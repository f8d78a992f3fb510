//! Hostile clients of gRPC against the real binary: none ends the process, takes memory without
//! bound, or keeps other clients waiting.

use std::io;

use axum::body::Bytes;
use futures::{StreamExt as _, stream};
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use hyper::body::Frame;
use testkit::grpc::{CallBody, GrpcClient, body, framed};
use testkit::random::Random;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, free_port, get, temporary_directory};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::hostile::{GROWTH_BYTES_MAX, PATIENCE, begin_peak, memory};

const METHODS: [&str; 11] = [
    "/thanos.info.Info/Info",
    "/thanos.Query/Query",
    "/thanos.Query/QueryRange",
    "/thanos.Store/Series",
    "/thanos.Store/LabelNames",
    "/thanos.Store/LabelValues",
    "/thanos.Exemplars/Exemplars",
    "/thanos.Metadata/MetricMetadata",
    "/thanos.Status/TSDBStatistics",
    "/grpc.health.v1.Health/Check",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
];
/// Number of random messages of each method.
const ROUNDS: u64 = 60;

struct Target {
    server: Server,
    grpc: String,
    _directory: testkit::TemporaryDirectory,
}

impl Target {
    fn start(name: &str) -> Target {
        let directory = temporary_directory(name);
        let grpc = format!("127.0.0.1:{}", free_port());
        let listen = format!("--grpc.listen-address={grpc}");
        let args = [
            "--self-metrics=false",
            "--web.enable-otlp-receiver",
            "--external-label=shard=0",
            // More than any test sends at once, so that another client is never refused.
            "--query.max-queue=4000",
            &listen,
        ];
        let server = Server::start(&directory.path().join("store"), &args);
        let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
        for series in 0..1_000 {
            let labels = encode_labels([("__name__", "up"), ("series", &series.to_string())]);
            encoder.push(&labels, (0..100).map(|step| (1_700_000_000_000 + step * 1_000, 1.0)));
        }
        encoder.compress(&mut body);
        let (status, text) = Connection::open(&server.address).unwrap().write(&body).unwrap();
        assert!(status < 300, "{status} {text}");
        Target { server, grpc, _directory: directory }
    }

    async fn connect(&self, window: Option<u32>) -> GrpcClient {
        GrpcClient::with_window(&self.grpc, window).await
    }

    /// Checks that another client is served, and that memory is bounded.
    async fn is_well(&self, bytes_before: u64) {
        let reply = self.connect(None).await.call(METHODS[1], &query("count(up)")).await;
        assert_eq!(reply.code, Some(0), "{reply:?}");
        let address = self.server.address.clone();
        let (status, text) = tokio::task::spawn_blocking(move || {
            get(&address, "/api/v1/query?query=count(up)&time=1700000050")
        })
        .await
        .unwrap();
        assert_eq!(status, 200, "{text}");
        let grown = memory(&self.server, "VmHWM").saturating_sub(bytes_before);
        assert!(grown <= GROWTH_BYTES_MAX, "{} MiB more", grown >> 20);
        assert!(!self.server.log().contains("panicked"), "{}", self.server.log());
    }
}

/// Returns a query at a time with samples.
fn query(text: &str) -> Vec<u8> {
    let head = [0x0a, u8::try_from(text.len()).unwrap()];
    // time_seconds = 1700000050
    let time = [0x10, 0xb2, 0xe2, 0xcf, 0xaa, 0x06];
    [&head[..], text.as_bytes(), &time].concat()
}

/// Returns a body of parts.
fn parts(
    parts: impl futures::Stream<Item = io::Result<Bytes>> + Send + Sync + 'static,
) -> CallBody {
    BoxBody::new(StreamBody::new(parts.map(|part| part.map(Frame::data))))
}

#[tokio::test]
async fn random_messages_get_a_status() {
    let target = Target::start("hostile-grpc-random");
    let before = begin_peak(&target.server);
    let mut random = Random(20);
    let seeds = [
        query("sum by (shard) (rate(up[1m]))"),
        vec![0x08, 0, 0x10, 0xff, 0x7f, 0x1a, 6, 0x12, 1, b'a', 0x1a, 1, b'b', 0x80, 1, 64],
        vec![0x0a, 2, b'u', b'p', 0x10, 1, 0x18, 9, 0x20, 1, 0x88, 1, 64],
    ];
    let mut sender = target.connect(None).await;
    for round in 0..ROUNDS {
        for method in METHODS {
            let mut message = seeds[(round % 3) as usize].clone();
            for _ in 0..random.below(6) {
                let at = random.below(message.len() as u64) as usize;
                message[at] = random.any() as u8;
            }
            let mut frame = framed(&message);
            if random.below(4) == 0 {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] = random.any() as u8;
            }
            frame.truncate(frame.len() - random.below(2) as usize);
            let calling = sender.send(method, &[], body(frame));
            let reply = tokio::time::timeout(PATIENCE, calling).await.expect("a call ends");
            let code = reply.unwrap_or_else(|| panic!("{method}: no status")).code;
            assert!(code.is_some_and(|code| code <= 16), "{method}: {code:?}");
        }
    }
    target.is_well(before).await;
}

#[tokio::test]
async fn unread_and_cut_streams_block_nobody() {
    let target = Target::start("hostile-grpc-streams");
    let before = begin_peak(&target.server);
    let mut unread = Vec::new();
    for _ in 0..20 {
        let sender = target.connect(Some(0)).await;
        for _ in 0..90 {
            let mut sender = sender.clone();
            // Each waits, or has a response of which nothing is read.
            unread.push(tokio::spawn(async move {
                sender.start(METHODS[1], &[], body(framed(&query("up")))).await
            }));
        }
    }
    target.is_well(before).await;
    unread.iter().for_each(tokio::task::JoinHandle::abort);
    // Requests that end in the middle, and connections that end at once.
    for _ in 0..50 {
        let sender = target.connect(None).await;
        for _ in 0..20 {
            let mut sender = sender.clone();
            let start = stream::iter([Ok(Bytes::from_static(&[0, 0]))]);
            let body = parts(start.chain(stream::pending()));
            let call = tokio::spawn(async move { sender.start(METHODS[2], &[], body).await });
            call.abort();
        }
    }
    target.is_well(before).await;
}

#[tokio::test]
async fn bytes_that_are_not_http2_end_a_connection() {
    let target = Target::start("hostile-grpc-bytes");
    let before = begin_peak(&target.server);
    let mut random = Random(7);
    for round in 0..100 {
        let mut stream = TcpStream::connect(&target.grpc).await.unwrap();
        let mut bytes = random.bytes(4_096);
        if round % 2 == 0 {
            bytes.splice(0..0, *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        }
        // The server may close before all is written.
        let _ = stream.write_all(&bytes).await;
    }
    let mut stream = TcpStream::connect(&target.grpc).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    target.is_well(before).await;
}

#[tokio::test]
async fn a_giant_message_is_refused_before_it_is_read() {
    let target = Target::start("hostile-grpc-giant");
    let before = begin_peak(&target.server);
    for method in METHODS {
        let mut sender = target.connect(None).await;
        let part = Bytes::from(vec![0; 1 << 20]);
        let rest = (0..200).map(move |_| Ok(part.clone()));
        let head = std::iter::once(Ok(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff])));
        let calling = sender.send(method, &[], parts(stream::iter(head.chain(rest))));
        let reply = tokio::time::timeout(PATIENCE, calling).await.expect("a response");
        // The stream may be reset, as its rest is not read.
        if let Some(reply) = reply {
            assert!(reply.code.is_some_and(|code| code != 0), "{method}: {reply:?}");
        }
    }
    target.is_well(before).await;
}
