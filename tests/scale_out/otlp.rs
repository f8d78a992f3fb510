//! OTLP over gRPC, sharded by `service.name` as the load-balancing exporter of the OpenTelemetry
//! Collector does: the root loses nothing, and joins with `target_info` stay on one shard.
//!
//! The sender is a client of these tests. The Collector itself does not run here.

use std::collections::BTreeMap;

use prost::Message as _;
use testkit::get;
use testkit::grpc::GrpcClient;
use testkit::otlppb::{Data, Number, NumberPoint, Numbers, Request, metric, request, text};

use super::data::END_SECONDS;
use super::root::Topology;
use super::{paths, result};

const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const SERVICES: usize = 6;
const INSTANCES: usize = 3;

/// The message of one service: a gauge of each instance.
fn service(number: usize) -> Request {
    let mut all = Request { resource_metrics: Vec::new() };
    for instance in 0..INSTANCES {
        let point = NumberPoint {
            time_ns: END_SECONDS as u64 * 1_000_000_000,
            value: Some(Number::Double((number * 10 + instance) as f64)),
            ..NumberPoint::default()
        };
        let data = Data::Gauge(Numbers { data_points: vec![point], ..Numbers::default() });
        let attributes = vec![
            text("service.name", &format!("service-{number}")),
            text("service.instance.id", &format!("host-{instance}")),
            text("version", &format!("1.{}", number % 2)),
        ];
        all.resource_metrics
            .extend(request(attributes, vec![metric("load", "", data)]).resource_metrics);
    }
    all
}

#[tokio::test]
async fn otlp_by_service_is_whole_at_the_root() {
    let Some(topology) = Topology::start_empty("otlp") else { return };
    let mut clients = Vec::new();
    for node in &topology.writers {
        clients.push(GrpcClient::connect(&node.grpc).await);
    }
    for number in 0..SERVICES {
        let shard = number % clients.len();
        let reply = clients[shard].call(EXPORT, &service(number).encode_to_vec()).await;
        assert_eq!(reply.code, Some(0), "{}", reply.message);
    }
    let values = |query: &str| -> BTreeMap<String, f64> {
        let found = result(&topology.root, &paths(query)[0]).unwrap();
        found.series.into_iter().map(|(labels, numbers)| (labels, numbers[1])).collect()
    };
    let count = (SERVICES * INSTANCES) as f64;
    assert_eq!(values("count(load)"), BTreeMap::from([("{}".to_owned(), count)]));
    let shards = values("count by (job) (count by (job, shard) (load))");
    assert!(shards.len() == SERVICES && shards.values().all(|shards| *shards == 1.0), "{shards:?}");
    let joined =
        "sum by (version) (load * on (job, instance, shard) group_left (version) target_info)";
    let sum = |odd: usize| -> f64 {
        let numbers = (0..SERVICES).filter(|number| number % 2 == odd);
        numbers.map(|number| (number * 10 * INSTANCES + 3) as f64).sum()
    };
    let expected = [("{\"version\":\"1.0\"}", sum(0)), ("{\"version\":\"1.1\"}", sum(1))];
    assert_eq!(values(joined), expected.map(|(labels, sum)| (labels.to_owned(), sum)).into());
    for node in &topology.writers {
        let (_, text) = get(&node.server.address, &paths("count(load)")[0]);
        assert!(text.contains("\"9\"]"), "each shard has three services: {text}");
    }
}
