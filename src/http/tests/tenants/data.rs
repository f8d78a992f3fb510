//! Series of two tenants with overlapping names. All texts of the second that the first does not
//! have contain a marker.

use prost::Message as _;
use testkit::otlppb;
use testkit::prompb::{
    BucketSpan, Count, Exemplar, Histogram, Label, MetricMetadata, Sample, TimeSeries,
    WriteRequest, ZeroCount, v2,
};

use super::Node;

/// The first tenant, whose answers are checked.
pub const A: &str = "team-a";
/// The second tenant.
pub const B: &str = "team-b";
/// Part of all texts of the second tenant.
pub const MARKER: &str = "bsecret";
/// Time of the first sample before now, in seconds.
const SPAN_SECONDS: i64 = 1_800;
const INTERVAL_SECONDS: i64 = 30;

/// Time of the last samples, in seconds since the epoch.
pub fn end_seconds() -> i64 {
    crate::ingest::now_ms() / 1_000 - 30
}

fn label(name: &str, value: &str) -> Label {
    Label { name: name.into(), value: value.into() }
}

fn text(tenant: &str, text: &str) -> String {
    if tenant == B { format!("{text}_{MARKER}") } else { text.to_owned() }
}

/// Labels that the tenants share, and some that only one has.
fn series(tenant: &str) -> Vec<Vec<Label>> {
    let mut all = Vec::new();
    for metric in ["up", "http_requests_total", &text(tenant, "own_metric")] {
        for instance in 0..3 {
            let mut labels = vec![label("__name__", metric), label("job", "api")];
            labels.push(label("instance", &format!("host{instance}")));
            if instance == 2 {
                labels.push(label("zone", &text(tenant, "zone")));
                labels.push(label(&text(tenant, "color"), "red"));
            }
            // A sender cannot choose its tenant.
            if instance == 1 {
                labels.push(label("tenant_id", if tenant == B { A } else { B }));
            }
            all.push(labels);
        }
    }
    let owner = text(tenant, "owner");
    for (metric, more) in [("target_info", "version"), ("only_here", "owner")] {
        let mut labels = vec![label("__name__", metric), label("job", "api")];
        labels.extend([label("instance", "host0"), label(more, &owner)]);
        all.push(labels);
    }
    all.iter_mut().for_each(|labels| labels.sort_by(|a, b| a.name.cmp(&b.name)));
    all
}

/// Returns a remote write request of a tenant.
fn request(tenant: &str, end_seconds: i64) -> WriteRequest {
    let scale = if tenant == B { 1_000.0 } else { 1.0 };
    let mut request = WriteRequest::default();
    for (number, labels) in series(tenant).into_iter().enumerate() {
        let times = (0..=SPAN_SECONDS / INTERVAL_SECONDS).rev();
        let sample = |step: i64| Sample {
            value: scale * (step + 1) as f64 * (number + 1) as f64,
            timestamp: (end_seconds - step * INTERVAL_SECONDS) * 1_000,
        };
        let exemplar = Exemplar {
            labels: vec![label("trace_id", &text(tenant, "trace"))],
            value: 0.5,
            timestamp: end_seconds * 1_000,
        };
        request.timeseries.push(TimeSeries {
            labels,
            samples: times.map(sample).collect(),
            exemplars: vec![exemplar],
            ..TimeSeries::default()
        });
    }
    let buckets = Histogram {
        count: Some(Count::Integer(3)),
        sum: scale,
        zero_count: Some(ZeroCount::Integer(0)),
        positive_spans: vec![BucketSpan { offset: 0, length: 2 }],
        positive_deltas: vec![1, 1],
        timestamp: end_seconds * 1_000,
        ..Histogram::default()
    };
    request.timeseries.push(TimeSeries {
        labels: vec![label("__name__", "native_seconds"), label("zone", &text(tenant, "zone"))],
        histograms: vec![buckets],
        ..TimeSeries::default()
    });
    for metric in ["up", "http_requests_total", &text(tenant, "own_metric")] {
        request.metadata.push(MetricMetadata {
            r#type: if tenant == B { 2 } else { 1 },
            metric_family_name: metric.into(),
            help: text(tenant, "Help.").into(),
            unit: Vec::new(),
        });
    }
    request
}

/// Returns a request of OTLP of a tenant.
pub fn otlp(tenant: &str, end_seconds: i64) -> Vec<u8> {
    let value = |text: &str| otlppb::AnyValue { value: Some(otlppb::Value::Text(text.to_owned())) };
    let attribute = |name: &str, text: &str| otlppb::KeyValue {
        key: name.to_owned(),
        value: Some(value(text)),
    };
    let point = otlppb::NumberPoint {
        attributes: vec![attribute("tenant_id", "other"), attribute("owner", &text(tenant, "o"))],
        time_ns: end_seconds as u64 * 1_000_000_000,
        value: Some(otlppb::Number::Double(4.0)),
        ..Default::default()
    };
    let data_points = vec![point];
    let metric = otlppb::Metric {
        name: text(tenant, "otlp_metric"),
        description: text(tenant, "OTLP."),
        data: Some(otlppb::Data::Gauge(otlppb::Numbers { data_points, ..Default::default() })),
        ..Default::default()
    };
    let scope = otlppb::ScopeMetrics { metrics: vec![metric], ..Default::default() };
    let resource = otlppb::Resource {
        attributes: vec![
            attribute("service.name", &text(tenant, "service")),
            attribute("service.instance.id", "1"),
            attribute("extra", "x"),
        ],
    };
    let metrics = otlppb::ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![scope],
        ..Default::default()
    };
    otlppb::Request { resource_metrics: vec![metrics] }.encode_to_vec()
}

/// Writes the series of a tenant, by all protocols over HTTP.
pub async fn write(node: &Node, tenant: &str, end_seconds: i64) {
    let compressed = |message: &[u8]| snap::raw::Encoder::new().compress_vec(message).unwrap();
    let first = request(tenant, end_seconds);
    let mut second = WriteRequest::default();
    let mut labels = vec![label("__name__", "second_version"), label("tenant_id", "other")];
    labels.push(label("zone", &text(tenant, "zone")));
    let sample = Sample { value: 2.0, timestamp: end_seconds * 1_000 };
    let series = TimeSeries { labels, samples: vec![sample], ..TimeSeries::default() };
    second.timeseries.push(series);
    let second = v2::Request::of(&second).encode_to_vec();
    for (path, kind, body) in [
        ("/api/v1/write", "application/x-protobuf", compressed(&first.encode_to_vec())),
        (
            "/api/v1/write",
            "application/x-protobuf;proto=io.prometheus.write.v2.Request",
            compressed(&second),
        ),
        ("/api/v1/otlp/v1/metrics", "application/x-protobuf", otlp(tenant, end_seconds)),
    ] {
        let mut headers = vec![("content-type", kind)];
        if path == "/api/v1/write" {
            headers.push(("content-encoding", "snappy"));
        }
        let answer = node.send(tenant, "POST", path, &headers, body).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text);
    }
}
