//! Translation of requests in both encodings, and rejects.

mod hostile;
mod names;

use model::{Batch, Labels, RejectReason};
use prost::Message;

use super::*;
use crate::rejects::Counts;
use testkit::otlppb::{
    self, AnyValue, Buckets, CUMULATIVE, Data, Exemplar, ExemplarValue, ExponentialPoint,
    Exponentials, Generator, HistogramPoint, Histograms, Metric, Number, NumberPoint, Numbers,
    Quantile, Request, Scope, Summaries, SummaryPoint, Value, attribute, metric, request, text,
};

const NS: u64 = 1_000_000;

fn decode_with(
    encoding: Encoding,
    bytes: &[u8],
    settings: &Settings,
    limits: &Limits,
) -> Result<(Batch, Decoded), DecodeError> {
    let mut batch = Batch::default();
    let decoded = decode(encoding, bytes, settings, limits, &mut |_| Ok(()), &mut batch)?;
    Ok((batch, decoded))
}

/// Decodes a request in both encodings and checks that the results are equal.
fn decode_both(request: &Request, settings: &Settings) -> (Batch, Decoded) {
    let protobuf = request.encode_to_vec();
    let json = request.to_json().to_string();
    let limits = Limits::default();
    let one = decode_with(Encoding::Protobuf, &protobuf, settings, &limits).unwrap();
    let other = decode_with(Encoding::Json, json.as_bytes(), settings, &limits).unwrap();
    let differing = lines(&one.0).into_iter().zip(lines(&other.0)).find(|(a, b)| a != b);
    assert_eq!(differing, None);
    assert_eq!(lines(&one.0).len(), lines(&other.0).len());
    assert_eq!(one.1, other.1);
    one
}

/// Formats a batch: series with their samples, exemplars, metadata.
fn lines(batch: &Batch) -> Vec<String> {
    let mut lines = Vec::new();
    for index in 0..batch.series.len() {
        let labels = Labels::from_bytes(batch.labels_bytes(index)).unwrap();
        for at in batch.samples(index) {
            let (value, start) = (batch.values[at], batch.start(at));
            let value = if model::is_stale(value) { "stale".to_owned() } else { value.to_string() };
            lines.push(format!("{labels} {value} @{} from {start}", batch.timestamps[at]));
        }
        for at in batch.histograms(index) {
            let sample = &batch.histograms[at];
            let h = &sample.histogram;
            lines.push(format!(
                "{labels} schema {} count {} sum {} zero {} {:?}{:?} {:?}{:?} {:?} {:?} @{} from {}",
                h.schema, h.count, h.sum, h.zero_count, h.positive_spans, h.positive_counts,
                h.negative_spans, h.negative_counts, h.custom_bounds, h.reset_hint,
                sample.timestamp_ms, sample.start_ms,
            ));
        }
        for exemplar in batch.exemplars.iter().filter(|e| e.series_index as usize == index) {
            let model::BatchExemplar { labels, timestamp_ms, value, .. } = exemplar;
            lines.push(format!("  # {labels} {value} @{timestamp_ms}"));
        }
    }
    let metadata = batch.metadata.iter();
    lines.extend(
        metadata.map(|m| format!("{} {} {:?} {:?}", m.metric, m.kind.as_str(), m.unit, m.help)),
    );
    lines
}

fn check(request: &Request, settings: &Settings, expected: &[&str]) {
    let (batch, decoded) = decode_both(request, settings);
    assert!(decoded.rejects.is_empty(), "{}", decoded.rejects.to_text());
    assert_eq!(lines(&batch), expected);
}

fn settings() -> Settings {
    Settings::default()
}

fn numbers(points: Vec<NumberPoint>) -> Numbers {
    Numbers { data_points: points, temporality: CUMULATIVE, is_monotonic: true }
}

fn number(time_ms: u64, value: f64) -> NumberPoint {
    NumberPoint {
        time_ns: time_ms * NS,
        value: Some(Number::Double(value)),
        ..NumberPoint::default()
    }
}

fn gauge(name: &str, points: Vec<NumberPoint>) -> Metric {
    metric(name, "", Data::Gauge(numbers(points)))
}

/// A histogram with three buckets.
fn histogram() -> HistogramPoint {
    let exemplar = |value, time| Exemplar {
        time_ns: time * NS,
        value: Some(ExemplarValue::Double(value)),
        ..Exemplar::default()
    };
    HistogramPoint {
        start_ns: 1000 * NS,
        time_ns: 5000 * NS,
        count: 6,
        sum: Some(4.5),
        bucket_counts: vec![1, 2, 3],
        explicit_bounds: vec![0.1, 1e21],
        exemplars: vec![exemplar(0.1, 4000), exemplar(0.2, 4001), exemplar(f64::INFINITY, 4002)],
        ..HistogramPoint::default()
    }
}

fn histograms(points: Vec<HistogramPoint>) -> Data {
    Data::Histogram(Histograms { data_points: points, temporality: CUMULATIVE })
}

fn exponential() -> ExponentialPoint {
    ExponentialPoint {
        start_ns: 1000 * NS,
        time_ns: 5000 * NS,
        count: 12,
        sum: Some(4.5),
        scale: 2,
        zero_count: 2,
        positive: Some(Buckets { offset: -1, bucket_counts: vec![1, 0, 3, 0, 0, 0, 1] }),
        negative: Some(Buckets { offset: 0, bucket_counts: vec![0, 5, 0] }),
        ..ExponentialPoint::default()
    }
}

fn exponentials(point: ExponentialPoint) -> Data {
    Data::Exponential(Exponentials { data_points: vec![point], temporality: CUMULATIVE })
}

#[test]
fn both_encodings_decode_to_the_same_batch() {
    let all = [
        settings(),
        Settings { allow_utf8: true, promote_scope: true, ..settings() },
        Settings {
            add_suffixes: false,
            to_custom_buckets: true,
            preserve_multiple_underscores: false,
            sanitize_leading_underscore: false,
            promoted: Promoted::AllBut(["a b".to_owned()].into()),
            ..settings()
        },
        Settings { add_suffixes: false, allow_utf8: true, keep_identifying: true, ..settings() },
    ];
    for (seed, settings) in (0..).zip(&all) {
        let mut generator = Generator::new(seed, 1_700_000_000_000_000_000);
        for _ in 0..60 {
            let (batch, decoded) = decode_both(&generator.request(), settings);
            assert!(decoded.rejects.is_empty(), "{}", decoded.rejects.to_text());
            assert!(!batch.series.is_empty());
        }
    }
}

/// JSON is decoded in full, so it is the twin of protobuf, whose attributes are compared with those
/// of the data point before.
#[test]
fn data_points_do_not_depend_on_those_before() {
    let all = [
        vec![text("a", "1"), text("b.c", "2")],
        vec![text("a", "1"), text("b.c", "3")],
        vec![text("a", ""), text("b.c", "3")],
        vec![text("a", "1")],
        vec![text("b.c", "2"), text("a", "1")],
        vec![attribute("a", Value::Integer(7)), text("b.c", "2")],
        vec![attribute("a", Value::Integer(8)), text("b.d", "2")],
        vec![text("b.c", "1"), text("b_c", "2")],
        vec![text("b.c", "4"), text("b_c", "5")],
        vec![text("job", "own"), text("otel_scope_name", "own")],
        vec![text("job", "other"), text("otel_scope_name", "other")],
        vec![text("region", "own"), text("a", "1")],
        vec![text("region", ""), text("a", "1")],
        vec![text("a", &"x".repeat(200)), text("b.c", "ü")],
        vec![text("a", &"y".repeat(300)), text("b.c", "longer")],
        vec![text("Zone", "before the name"), text("le", "own")],
        vec![],
    ];
    let mut metrics = Vec::new();
    for first in &all {
        for second in &all {
            let points = [first, second, first].into_iter().zip(1..).map(|(attributes, time)| {
                NumberPoint { attributes: attributes.clone(), ..number(time * 1_000, 1.0) }
            });
            metrics.push(gauge(&format!("m{}", metrics.len()), points.collect()));
            let points = [first, second, first]
                .map(|attributes| HistogramPoint { attributes: attributes.clone(), ..histogram() });
            let name = format!("h{}", metrics.len());
            metrics.push(metric(&name, "", histograms(points.into())));
        }
    }
    let resource = vec![text("service.name", "shop"), text("region", "eu")];
    let mut request = request(resource, metrics);
    let scope = Scope { name: "scope".to_owned(), ..Scope::default() };
    request.resource_metrics[0].scope_metrics[0].scope = Some(scope);
    // Attributes of another resource and scope are not followed.
    request.resource_metrics.extend(request.clone().resource_metrics);
    request.resource_metrics[1].resource = None;
    request.resource_metrics[1].scope_metrics[0].scope = None;
    let promoted = Promoted::Listed(["region".to_owned()].into());
    for promote_scope in [false, true] {
        let settings = Settings { promote_scope, promoted: promoted.clone(), ..settings() };
        let (batch, decoded) = decode_both(&request, &settings);
        assert!(decoded.rejects.is_empty(), "{}", decoded.rejects.to_text());
        assert!(batch.series.len() > 2 * 3 * 6 * all.len() * all.len());
        for series in &batch.series {
            let labels = series.labels_start as usize..series.labels_end as usize;
            model::labels::check_packed(&batch.labels_arena[labels]).unwrap();
        }
    }
}

#[test]
fn gauges_and_sums_are_series_of_one_sample() {
    let mut point = number(5000, 1.5);
    point.start_ns = 1000 * NS + 999_999;
    point.attributes = vec![text("http.method", "GET"), attribute("ok", Value::Bool(true))];
    let stale = NumberPoint { flags: 1, ..number(6000, 1.0) };
    let integer = NumberPoint { value: Some(Number::Integer(-7)), ..number(7000, 0.0) };
    let none = NumberPoint { value: None, ..number(8000, 0.0) };
    check(
        &request(
            vec![],
            vec![
                metric("a.b", "s", Data::Gauge(numbers(vec![point.clone(), stale, integer, none]))),
                metric("calls", "{call}", Data::Sum(numbers(vec![point.clone()]))),
                metric(
                    "queue",
                    "1",
                    Data::Sum(Numbers { is_monotonic: false, ..numbers(vec![number(5000, 2.0)]) }),
                ),
            ],
        ),
        &settings(),
        &[
            r#"{__name__="a_b_seconds", http_method="GET", ok="true"} 1.5 @5000 from 1000"#,
            r#"{__name__="a_b_seconds"} stale @6000 from 0"#,
            r#"{__name__="a_b_seconds"} -7 @7000 from 0"#,
            r#"{__name__="a_b_seconds"} 0 @8000 from 0"#,
            r#"{__name__="calls_total", http_method="GET", ok="true"} 1.5 @5000 from 1000"#,
            r#"{__name__="queue"} 2 @5000 from 0"#,
            r#"a_b_seconds gauge "seconds" "About a.b.""#,
            r#"calls_total counter "" "About calls.""#,
            r#"queue gauge "" "About queue.""#,
        ],
    );
}

#[test]
fn histograms_become_classic_ones() {
    let mut bare = histogram();
    (bare.sum, bare.bucket_counts, bare.explicit_bounds) = (None, vec![], vec![]);
    bare.exemplars.clear();
    bare.attributes = vec![text("le", "mine")];
    let stale = HistogramPoint { flags: 1, time_ns: 6000 * NS, ..histogram() };
    check(
        &request(vec![], vec![metric("h", "ms", histograms(vec![histogram(), bare, stale]))]),
        &settings(),
        &[
            r#"{__name__="h_milliseconds_sum"} 4.5 @5000 from 1000"#,
            r#"{__name__="h_milliseconds_count"} 6 @5000 from 1000"#,
            r#"{__name__="h_milliseconds_bucket", le="0.1"} 1 @5000 from 1000"#,
            r#"  # {} 0.1 @4000"#,
            r#"{__name__="h_milliseconds_bucket", le="1000000000000000000000"} 3 @5000 from 1000"#,
            r#"  # {} 0.2 @4001"#,
            r#"{__name__="h_milliseconds_bucket", le="+Inf"} 6 @5000 from 1000"#,
            r#"  # {} inf @4002"#,
            r#"{__name__="h_milliseconds_count", le="mine"} 6 @5000 from 1000"#,
            r#"{__name__="h_milliseconds_bucket", le="+Inf"} 6 @5000 from 1000"#,
            r#"{__name__="h_milliseconds_sum"} stale @6000 from 1000"#,
            r#"{__name__="h_milliseconds_count"} stale @6000 from 1000"#,
            r#"{__name__="h_milliseconds_bucket", le="0.1"} stale @6000 from 1000"#,
            r#"{__name__="h_milliseconds_bucket", le="1000000000000000000000"} stale @6000 from 1000"#,
            r#"{__name__="h_milliseconds_bucket", le="+Inf"} stale @6000 from 1000"#,
            r#"h_milliseconds histogram "milliseconds" "About h.""#,
        ],
    );
}

#[test]
fn histograms_get_custom_buckets_if_set() {
    let mut point = histogram();
    point.bucket_counts = vec![0, 2, 4];
    let settings = Settings { to_custom_buckets: true, ..settings() };
    let (batch, _) =
        decode_both(&request(vec![], vec![metric("h", "", histograms(vec![point]))]), &settings);
    let sample = &batch.histograms[0];
    assert_eq!((sample.timestamp_ms, sample.start_ms), (5000, 1000));
    let h = &sample.histogram;
    assert_eq!((h.schema, h.count, h.sum, &h.custom_bounds[..]), (-53, 6.0, 4.5, &[0.1, 1e21][..]));
    assert_eq!(h.positive_spans, [model::Span { offset: 1, length: 2 }]);
    assert_eq!(h.positive_counts, [2.0, 4.0]);
    assert_eq!(batch.exemplars.len(), 3);
    assert_eq!(batch.labels(0).to_string(), r#"{__name__="h"}"#);
}

/// Indexes of buckets with their counts.
type Counted = Vec<(i64, f64)>;

/// Returns the buckets of each side as index and count, without those of 0.
fn buckets(point: ExponentialPoint) -> (i8, Counted, Counted) {
    let (batch, decoded) =
        decode_both(&request(vec![], vec![metric("h", "", exponentials(point))]), &settings());
    assert!(decoded.rejects.is_empty(), "{}", decoded.rejects.to_text());
    let h = &batch.histograms[0].histogram;
    assert_eq!((h.zero_threshold, h.reset_hint), (1e-128, model::ResetHint::Unknown));
    let side = |spans: &[model::Span], counts: &[f64]| {
        let mut index = 0;
        let indexes = spans.iter().flat_map(|span| {
            let start = index + i64::from(span.offset);
            index = start + i64::from(span.length);
            start..index
        });
        let all = indexes.zip(counts.iter().copied());
        all.filter(|(_, count)| *count != 0.0).collect::<Vec<_>>()
    };
    (
        h.schema,
        side(&h.positive_spans, &h.positive_counts),
        side(&h.negative_spans, &h.negative_counts),
    )
}

#[test]
fn indexes_of_exponential_histograms_increase_by_one() {
    let positive = vec![(0, 1.0), (2, 3.0), (6, 1.0)];
    assert_eq!(buckets(exponential()), (2, positive, vec![(2, 5.0)]));
}

/// Prometheus adds the first count after empty buckets to the bucket before.
#[test]
fn buckets_of_fine_scales_are_merged_into_the_right_bucket() {
    let merged = |scale, offset, counts: &[u64]| {
        let mut point = exponential();
        point.scale = scale;
        point.count = counts.iter().sum::<u64>() + 2;
        point.positive = Some(Buckets { offset, bucket_counts: counts.to_vec() });
        point.negative = None;
        let (schema, positive, _) = buckets(point);
        assert_eq!(schema, 8);
        positive
    };
    assert_eq!(merged(8, 0, &[1, 2, 3]), [(1, 1.0), (2, 2.0), (3, 3.0)]);
    assert_eq!(merged(9, 0, &[1, 2, 3, 4, 5]), [(1, 3.0), (2, 7.0), (3, 5.0)]);
    assert_eq!(merged(9, -3, &[1, 2, 3, 4, 5]), [(-1, 1.0), (0, 5.0), (1, 9.0)]);
    assert_eq!(merged(9, 0, &[0, 0, 3, 4]), [(2, 7.0)]);
    assert_eq!(merged(i32::MAX, -2, &[1, 2, 3, 4]), [(0, 3.0), (1, 7.0)]);
}

#[test]
fn summaries_are_quantiles_with_sum_and_count() {
    let point = SummaryPoint {
        start_ns: 1000 * NS,
        time_ns: 5000 * NS,
        count: 3,
        sum: 7.5,
        quantile_values: vec![
            Quantile { quantile: 0.5, value: 1.0 },
            Quantile { quantile: 1.0, value: f64::INFINITY },
        ],
        ..SummaryPoint::default()
    };
    let summary = Data::Summary(Summaries { data_points: vec![point] });
    check(
        &request(vec![], vec![metric("s", "By", summary)]),
        &settings(),
        &[
            r#"{__name__="s_bytes_sum"} 7.5 @5000 from 1000"#,
            r#"{__name__="s_bytes_count"} 3 @5000 from 1000"#,
            r#"{__name__="s_bytes", quantile="0.5"} 1 @5000 from 1000"#,
            r#"{__name__="s_bytes", quantile="1"} inf @5000 from 1000"#,
            r#"s_bytes summary "bytes" "About s.""#,
        ],
    );
}

#[test]
fn exemplars_have_ids_and_attributes_up_to_the_limit() {
    let exemplar = |attributes, trace: u8, value| Exemplar {
        filtered_attributes: attributes,
        time_ns: 4_999_999_999,
        value: Some(value),
        trace_id: vec![trace; 16],
        span_id: vec![0; 8],
    };
    let mut point = number(5000, 1.0);
    // The trace id and its name take 40 characters.
    point.exemplars = vec![
        exemplar(vec![text("ü", "1"), text("none", "")], 0xab, ExemplarValue::Integer(3)),
        exemplar(vec![text("k", &"x".repeat(87))], 1, ExemplarValue::Double(0.5)),
        exemplar(vec![text("k", &"x".repeat(88))], 1, ExemplarValue::Double(0.25)),
        exemplar(vec![text("trace_id", "x")], 1, ExemplarValue::Double(0.125)),
    ];
    let sum = metric("a", "", Data::Sum(numbers(vec![point.clone()])));
    let gauge = gauge("b", vec![point]);
    let (batch, decoded) = decode_both(&request(vec![], vec![sum, gauge]), &settings());
    let (ones, long) = ("01".repeat(16), "x".repeat(87));
    assert_eq!(
        lines(&batch)[..5],
        [
            r#"{__name__="a_total"} 1 @5000 from 0"#.to_owned(),
            format!(r#"  # {{trace_id="{}", "ü"="1"}} 3 @4999"#, "ab".repeat(16)),
            format!(r#"  # {{k="{long}", trace_id="{ones}"}} 0.5 @4999"#),
            format!(r#"  # {{trace_id="{ones}"}} 0.25 @4999"#),
            r#"{__name__="b"} 1 @5000 from 0"#.to_owned(),
        ]
    );
    assert_eq!(decoded.exemplars_dropped, 1);
}

#[test]
fn resources_become_job_instance_and_target_info() {
    let resource = || {
        vec![
            text("service.name", "cart"),
            text("service.namespace", "shop"),
            attribute("service.instance.id", Value::Integer(7)),
            text("cloud.region", "eu"),
        ]
    };
    let series = r#"{__name__="up", instance="7", job="shop/cart"} 1"#;
    let target = r#"{__name__="target_info", cloud_region="eu", instance="7", job="shop/cart"} 1"#;
    let up = |times: &[u64]| gauge("up", times.iter().map(|time| number(*time, 1.0)).collect());
    let metadata = [r#"up gauge "" "About up.""#, r#"target_info gauge "" "Target metadata""#];
    check(
        &request(resource(), vec![up(&[500_000, 100_500])]),
        &settings(),
        &[
            &format!("{series} @500000 from 0"),
            &format!("{series} @100500 from 0"),
            &format!("{target} @100500 from 0"),
            &format!("{target} @250500 from 0"),
            &format!("{target} @400500 from 0"),
            &format!("{target} @500000 from 0"),
            metadata[0],
            metadata[1],
        ],
    );
    // Half a lookback apart, up to the last timestamp; a resource in two parts.
    let mut parts = request(resource(), vec![up(&[100, 250])]);
    parts.resource_metrics.push(parts.resource_metrics[0].clone());
    parts.resource_metrics[1].scope_metrics[0].metrics =
        vec![gauge("down", vec![number(250, 1.0)])];
    let short = Settings { lookback_ns: 100 * NS, ..settings() };
    let (batch, _) = decode_both(&parts, &short);
    let times: Vec<String> =
        lines(&batch).into_iter().filter(|line| line.contains("{__name__=\"target_info")).collect();
    assert_eq!(times, [100, 150, 200, 250].map(|time| format!("{target} @{time} from 0")));
    // Only identifying attributes, and none of them.
    let only = resource().into_iter().take(3).collect::<Vec<_>>();
    check(
        &request(only.clone(), vec![up(&[5])]),
        &settings(),
        &[&format!("{series} @5 from 0"), metadata[0]],
    );
    check(
        &request(vec![text("cloud.region", "eu")], vec![up(&[5])]),
        &settings(),
        &[r#"{__name__="up"} 1 @5 from 0"#, metadata[0]],
    );
    let keeping = Settings { keep_identifying: true, ..settings() };
    let (batch, _) = decode_both(&request(resource(), vec![up(&[5])]), &keeping);
    assert_eq!(
        lines(&batch)[1],
        "{__name__=\"target_info\", cloud_region=\"eu\", instance=\"7\", job=\"shop/cart\", \
         service_instance_id=\"7\", service_name=\"cart\", service_namespace=\"shop\"} 1 @5 from 0"
    );
}

#[test]
fn resources_and_scopes_are_promoted_if_set() {
    let resource = vec![
        text("service.name", "cart"),
        text("cloud.region", "eu"),
        text("a.b", "of the resource"),
        text("empty", ""),
    ];
    let mut point = number(5, 1.0);
    point.attributes = vec![
        text("a_b", "own"),
        text("job", "own"),
        text("otel_scope_name", "own"),
        text("otel_scope_version", "own"),
    ];
    let mut request = request(resource, vec![gauge("up", vec![point])]);
    let scope = &mut request.resource_metrics[0].scope_metrics[0];
    scope.schema_url = "http://schema".to_owned();
    scope.scope = Some(Scope {
        name: "mine".to_owned(),
        version: String::new(),
        attributes: vec![text("x.y", "1")],
    });
    let first = |settings: &Settings| lines(&decode_both(&request, settings).0)[0].clone();
    let listed = Promoted::Listed(["a.b", "cloud.region", "absent"].map(str::to_owned).into());
    let all = Promoted::AllBut(["cloud.region".to_owned()].into());
    for (settings, expected) in [
        (
            settings(),
            "{__name__=\"up\", a_b=\"own\", job=\"cart\", otel_scope_name=\"own\", \
             otel_scope_version=\"own\"}",
        ),
        (
            Settings { promoted: listed.clone(), ..settings() },
            "{__name__=\"up\", a_b=\"own\", cloud_region=\"eu\", job=\"cart\", \
             otel_scope_name=\"own\", otel_scope_version=\"own\"}",
        ),
        (
            Settings { promoted: listed, allow_utf8: true, ..settings() },
            "{__name__=\"up\", \"a.b\"=\"of the resource\", a_b=\"own\", \"cloud.region\"=\"eu\", \
             job=\"cart\", otel_scope_name=\"own\", otel_scope_version=\"own\"}",
        ),
        (
            Settings { promoted: all, promote_scope: true, ..settings() },
            "{__name__=\"up\", a_b=\"own\", job=\"cart\", otel_scope_name=\"mine\", \
             otel_scope_schema_url=\"http://schema\", otel_scope_x_y=\"1\", service_name=\"cart\"}",
        ),
    ] {
        assert_eq!(first(&settings), format!("{expected} 1 @5 from 0"));
    }
}

#[test]
fn attributes_may_come_in_any_order_and_without_a_value() {
    let attributes = [text("zone", "z"), text("app", "a"), text("empty", ""), text("code", "200")];
    let expected = r#"{__name__="up", app="a", code="200", zone="z"} 1 @5 from 0"#;
    for start in 0..attributes.len() {
        let mut point = number(5, 1.0);
        point.attributes = attributes.to_vec();
        point.attributes.rotate_left(start);
        let (batch, decoded) =
            decode_both(&request(vec![], vec![gauge("up", vec![point])]), &settings());
        assert!(decoded.rejects.is_empty(), "{}", decoded.rejects.to_text());
        assert_eq!(lines(&batch)[0], expected);
    }
}

#[test]
fn bytes_that_are_not_utf8_are_replaced() {
    let mut point = number(5, 1.0);
    point.attributes = vec![text("key", "<>")];
    let mut bytes = request(vec![], vec![gauge("up", vec![point])]).encode_to_vec();
    let at = bytes.windows(2).position(|pair| pair == b"<>").unwrap();
    bytes[at] = 0xff;
    let decoded = decode_with(Encoding::Protobuf, &bytes, &settings(), &Limits::default());
    let (batch, decoded) = decoded.unwrap();
    assert!(decoded.rejects.is_empty());
    assert_eq!(lines(&batch)[0], "{__name__=\"up\", key=\"\u{fffd}>\"} 1 @5 from 0");
}

#[test]
fn keys_that_become_one_name_are_joined_in_their_order() {
    let mut point = number(5, 1.0);
    point.attributes = vec![
        text("a_b", "2"),
        text("a.b", "1"),
        text("a-b", "0"),
        text("c.c", ""),
        text("c_c", "3"),
        text("d.d", "4"),
        text("d_d", ""),
        text("__name__", "other"),
    ];
    check(
        &request(vec![], vec![Metric { description: String::new(), ..gauge("up", vec![point]) }]),
        &settings(),
        &[r#"{__name__="up", a_b="0;1;2", c_c="3", d_d="4;"} 1 @5 from 0"#, r#"up gauge "" """#],
    );
}

/// Returns the rejects of a request, and its series.
fn refused(request: &Request, settings: &Settings) -> (String, Vec<(RejectReason, Counts)>, usize) {
    let (batch, decoded) = decode_both(request, settings);
    let counts = decoded.rejects.counts().filter(|(_, counts)| *counts != Counts::default());
    (decoded.rejects.to_text(), counts.collect(), batch.series.len())
}

#[test]
fn invalid_metrics_and_data_points_are_rejected_by_name() {
    let floats = |floats| Counts { floats, ..Counts::default() };
    let one_histogram = Counts { histograms: 1, ..Counts::default() };
    let good = || gauge("good", vec![number(5, 1.0)]);
    let sum = |temporality| {
        Data::Sum(Numbers { temporality, ..numbers(vec![number(5, 1.0), number(6, 1.0)]) })
    };
    let of = |point: NumberPoint| gauge("a", vec![point]);
    let with = |attributes| of(NumberPoint { attributes, ..number(5, 1.0) });
    let many: Vec<_> = (0..513).map(|n| text(&format!("k{n}"), "v")).collect();
    let coarse = ExponentialPoint { scale: -5, ..exponential() };
    let short = ExponentialPoint { count: 3, ..exponential() };
    let far = Some(Buckets { offset: i32::MAX, bucket_counts: vec![1] });
    let far = ExponentialPoint { positive: far, ..exponential() };
    let cases = [
        (
            metric("a", "", sum(1)),
            "invalid temporality and type combination for metric \"a\": delta temporality is not \
             taken, cumulative is (--otlp.native-delta-ingestion stores deltas as they are)",
            RejectReason::Temporality,
            floats(2),
        ),
        (
            metric("a", "", sum(0)),
            "invalid temporality and type combination for metric \"a\"",
            RejectReason::Temporality,
            floats(2),
        ),
        (
            Metric { data: None, ..good() },
            "could not get aggregation temporality for good as it has unsupported metric type Empty",
            RejectReason::DataPoint,
            floats(0),
        ),
        (gauge("a", vec![]), "empty data points. a is dropped", RejectReason::DataPoint, floats(0)),
        (
            gauge("%", vec![number(5, 1.0)]),
            "normalization for metric \"%\" resulted in empty name",
            RejectReason::InvalidLabels,
            floats(1),
        ),
        (
            of(number(0, 1.0)),
            "out of bounds: time_unix_nano is 0 for a data point of metric \"a\"",
            RejectReason::OutOfBounds,
            floats(1),
        ),
        (
            with(vec![text("", "x")]),
            "label name is empty for a data point of metric \"a\"",
            RejectReason::InvalidLabels,
            floats(1),
        ),
        (
            with(vec![text("..", "x")]),
            "normalization for label name \"..\" resulted in invalid name \"__\" for a data point \
             of metric \"a\"",
            RejectReason::InvalidLabels,
            floats(1),
        ),
        (
            with(many),
            "513 labels are over the limit of 512 (labels_per_series_max) for a \
             data point of metric \"a\"",
            RejectReason::LabelLimit,
            floats(1),
        ),
        (
            with(vec![text("k", &"x".repeat(16_385))]),
            "label value of 16385 bytes is over the limit of 16384 \
             (label_value_bytes_max) for series",
            RejectReason::LabelLimit,
            floats(1),
        ),
        (
            metric("a", "", exponentials(coarse)),
            "cannot convert exponential to native histogram. Scale must be >= -4, was -5 for a \
             data point of metric \"a\"",
            RejectReason::Histogram,
            one_histogram,
        ),
        (
            metric("a", "", exponentials(short)),
            "12 observations found in buckets, but the Count field is 3",
            RejectReason::Histogram,
            one_histogram,
        ),
        (
            metric("a", "", exponentials(far)),
            "histogram has a bucket beyond the index 2147483647 for a data point of metric \"a\"",
            RejectReason::Histogram,
            one_histogram,
        ),
    ];
    for (bad, words, reason, counts) in cases {
        let (text, refusals, series_count) =
            refused(&request(vec![], vec![bad, good()]), &settings());
        assert!(text.contains(words), "{text}");
        let expected = [(reason, counts)].into_iter().filter(|(_, c)| *c != Counts::default());
        assert_eq!(refusals, expected.collect::<Vec<_>>(), "{text}");
        assert_eq!(series_count, 1, "{text}");
    }
}

#[test]
fn custom_buckets_have_to_match_their_bounds() {
    let settings = Settings { to_custom_buckets: true, ..settings() };
    for (bounds, counts) in [
        (vec![1.0], vec![1, 2, 3]),
        (vec![2.0, 1.0], vec![1, 2, 3]),
        (vec![f64::NAN, 1.0], vec![1, 2, 3]),
        (vec![1.0, f64::INFINITY], vec![1, 2, 3]),
        (vec![1.0, 2.0], vec![]),
    ] {
        let mut point = histogram();
        (point.explicit_bounds, point.bucket_counts) = (bounds, counts);
        let request = request(vec![], vec![metric("h", "", histograms(vec![point]))]);
        let (text, refusals, series_count) = refused(&request, &settings);
        assert_eq!(series_count, 0, "{text}");
        assert_eq!(refusals[0].0, RejectReason::Histogram, "{text}");
        assert!(text.ends_with("for series {__name__=\"h\"}"), "{text}");
    }
}

#[test]
fn an_exemplar_without_a_value_is_rejected_alone() {
    let exemplar = Exemplar { time_ns: NS, ..Exemplar::default() };
    let point = NumberPoint { exemplars: vec![exemplar], ..number(5, 1.0) };
    let request = request(vec![], vec![metric("a", "", Data::Sum(numbers(vec![point])))]);
    let (text, refusals, series_count) = refused(&request, &settings());
    assert_eq!(
        text,
        "parsing exemplar for series {__name__=\"a_total\"}: unsupported exemplar value type: Empty"
    );
    let counts = Counts { exemplars: 1, ..Counts::default() };
    assert_eq!((refusals, series_count), (vec![(RejectReason::DataPoint, counts)], 1));
}

#[test]
fn deltas_are_stored_as_they_are_if_set() {
    let settings = Settings { allow_delta: true, ..settings() };
    let sum = Data::Sum(Numbers { temporality: 1, ..numbers(vec![number(5, 1.0)]) });
    let native =
        Data::Exponential(Exponentials { data_points: vec![exponential()], temporality: 1 });
    let (batch, decoded) = decode_both(
        &request(vec![], vec![metric("a", "", sum), metric("h", "", native)]),
        &settings,
    );
    assert!(decoded.rejects.is_empty());
    assert_eq!(batch.histograms[0].histogram.reset_hint, model::ResetHint::Gauge);
    assert_eq!(
        batch.metadata.iter().map(|m| (&*m.metric, m.kind.as_str())).collect::<Vec<_>>(),
        [("a_total", "unknown"), ("h", "unknown")]
    );
}

#[test]
fn scopes_of_old_senders_are_read() {
    let mut request = request(vec![], vec![gauge("up", vec![number(5, 1.0)])]);
    let resource = &mut request.resource_metrics[0];
    resource.deprecated_scope_metrics = std::mem::take(&mut resource.scope_metrics);
    let decoded =
        decode_with(Encoding::Protobuf, &request.encode_to_vec(), &settings(), &Limits::default());
    assert_eq!(lines(&decoded.unwrap().0)[0], r#"{__name__="up"} 1 @5 from 0"#);
}

#[test]
fn other_forms_of_json_are_accepted() {
    let text = r#" {"resource_metrics": [{"resource": null, "scope_metrics": [{"metrics": [
        {"name": "a\u00fc\ud83d\ude00\n", "sum": {"is_monotonic": true, "aggregation_temporality":
         "AGGREGATION_TEMPORALITY_CUMULATIVE", "data_points": [
            {"time_unix_nano": 5000000, "as_int": 3, "flags": "0", "attributes": null,
             "exemplars": [{"trace_id": "00AbcdefABCDEF000000000000000001", "as_double": "-Infinity"}]},
            {"timeUnixNano": "6000000", "asDouble": "1e3", "startTimeUnixNano": 0}
        ]}}]}]}]} "#;
    let settings = Settings { allow_utf8: true, add_suffixes: false, ..settings() };
    let (batch, _) =
        decode_with(Encoding::Json, text.as_bytes(), &settings, &Limits::default()).unwrap();
    assert_eq!(
        lines(&batch)[..3],
        [
            "{__name__=\"aü😀\\n\"} 3 @5 from 0",
            "  # {trace_id=\"00abcdefabcdef000000000000000001\"} -inf @0",
            "{__name__=\"aü😀\\n\"} 1000 @6 from 0",
        ]
    );
}
