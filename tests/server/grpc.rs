//! OTLP over gRPC, read back as PromQL over gRPC.

use std::io::Write as _;

use prost::Message as _;
use testkit::grpc::{GrpcClient, body, framed};
use testkit::otlppb::{Data, Number, NumberPoint, Numbers, metric, request, text};
use testkit::{Server, free_port, get, temporary_directory};

const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const TIME_SECONDS: u64 = 1_700_000_000;

fn gauge(instance: &str, time_seconds: u64) -> Vec<u8> {
    let point = NumberPoint {
        time_ns: time_seconds * 1_000_000_000,
        value: Some(Number::Double(7.0)),
        ..NumberPoint::default()
    };
    let data = Data::Gauge(Numbers { data_points: vec![point], ..Numbers::default() });
    let attributes = vec![text("service.name", "job"), text("service.instance.id", instance)];
    request(attributes, vec![metric("sent", "", data)]).encode_to_vec()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn otlp_is_stored_and_cut_messages_are_not() {
    let directory = temporary_directory("grpc-otlp");
    let address = format!("127.0.0.1:{}", free_port());
    let listen = format!("--grpc.listen-address={address}");
    let args =
        ["--self-metrics=false", "--web.enable-otlp-receiver", "--external-label=shard=0", &listen];
    let server = Server::start(directory.path(), &args);
    let mut client = GrpcClient::connect(&address).await;
    let reply = client.call(EXPORT, &gauge("plain", TIME_SECONDS)).await;
    assert_eq!((reply.code, &reply.bytes[..]), (Some(0), &framed(&[])[..]), "{}", reply.message);

    let mut compressed = framed(&gzip(&gauge("gzip", TIME_SECONDS)));
    compressed[0] = 1;
    let headers = [("grpc-encoding", "gzip")];
    let reply = client.send(EXPORT, &headers, body(compressed.clone())).await.unwrap();
    assert_eq!(reply.code, Some(0), "{}", reply.message);
    let reply = client.send(EXPORT, &[("grpc-encoding", "snappy")], body(compressed)).await;
    assert_eq!(reply.unwrap().code, Some(12));

    // A message that ends early, and one that goes on.
    let whole = framed(&gauge("cut", TIME_SECONDS));
    for bytes in [&whole[..3], &whole[..5], &whole[..whole.len() - 1], &[&whole[..], &[0]].concat()]
    {
        let reply = client.send(EXPORT, &[], body(bytes.to_vec())).await.unwrap();
        assert_eq!(reply.code, Some(3), "{} bytes: {}", bytes.len(), reply.message);
    }
    // A sample without a time is rejected, and the response says so.
    let reply = client.call(EXPORT, &gauge("late", 0)).await;
    assert_eq!(reply.code, Some(0), "{}", reply.message);
    assert!(String::from_utf8_lossy(&reply.bytes).contains("time"), "{:?}", reply.bytes);

    let path = format!("/api/v1/query?query=count(sent)&time={TIME_SECONDS}");
    let (status, answer) = get(&server.address, &path);
    assert!(status == 200 && answer.contains("\"2\"]"), "{answer}");
    // query = 1, time_seconds = 2: 1700000000.
    let query = [&[0x0a, 4][..], b"sent", &[0x10, 0x80, 0xe2, 0xcf, 0xaa, 0x06]].concat();
    let reply = client.call("/thanos.Query/Query", &query).await;
    assert_eq!(reply.code, Some(0), "{}", reply.message);
    let found = String::from_utf8_lossy(&reply.bytes);
    assert!(found.contains("shard") && found.contains("gzip") && found.contains("plain"));
    assert!(!answer.contains("shard"));
}
