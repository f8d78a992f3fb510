//! Families as encoded by Prometheus.

use std::sync::Arc;

use model::histogram::CUSTOM_BUCKETS_SCHEMA;
use model::{Histogram, Labels, ResetHint, Span};
use prost::Message;

use super::{Escaping, ExposedValue, ExpositionEncoder, ExpositionFormat};

fn custom() -> ExposedValue {
    ExposedValue::Histogram(Box::new(Histogram {
        schema: CUSTOM_BUCKETS_SCHEMA,
        count: 9.0,
        sum: 1.5,
        positive_spans: vec![Span { offset: 1, length: 1 }, Span { offset: 0, length: 2 }],
        positive_counts: vec![2.0, 3.0, 4.0],
        custom_bounds: Arc::from([0.5, 1.0, 1e6]),
        ..Histogram::default()
    }))
}

fn native(hint: ResetHint) -> ExposedValue {
    ExposedValue::Histogram(Box::new(Histogram {
        reset_hint: hint,
        schema: -1,
        zero_threshold: 0.25,
        zero_count: 1.0,
        count: 6.0,
        sum: -3.5,
        positive_spans: vec![Span { offset: -2, length: 2 }],
        positive_counts: vec![2.0, 0.5],
        negative_spans: vec![Span { offset: 3, length: 1 }],
        negative_counts: vec![2.5],
        ..Histogram::default()
    }))
}

fn samples() -> Vec<(Labels, i64, ExposedValue)> {
    let labels = |pairs: &[(&str, &str)]| Labels::from_pairs(pairs.iter().copied());
    vec![
        (labels(&[("a", "nameless")]), 1, ExposedValue::Float(1.0)),
        (
            labels(&[("__name__", "a.b"), ("x y", "1"), ("instance", "i")]),
            2,
            ExposedValue::Float(-0.0),
        ),
        (labels(&[("__name__", "b"), ("l", "\"\\\n")]), 3, ExposedValue::Float(1e6)),
        (labels(&[("__name__", "b"), ("m", "")]), -4, ExposedValue::Float(f64::NEG_INFINITY)),
        (labels(&[("__name__", "b")]), 5, custom()),
        (labels(&[("__name__", "n")]), 6, native(ResetHint::Reset)),
        (labels(&[("__name__", "n"), ("k", "v")]), 7, native(ResetHint::Gauge)),
        (labels(&[("__name__", "z:\u{e4}_")]), 8, ExposedValue::Float(0.1)),
    ]
}

fn encode(format: ExpositionFormat, escaping: Escaping) -> Vec<u8> {
    let mut encoder = ExpositionEncoder::new(format, escaping);
    for (labels, time_ms, value) in &samples() {
        encoder.push(labels, *time_ms, value);
    }
    encoder.finish()
}

#[test]
fn text_equals_that_of_prometheus() {
    let expected = concat!(
        "# TYPE \"a.b\" untyped\n",
        "{\"a.b\",instance=\"i\",\"x y\"=\"1\"} 0 2\n",
        "# TYPE b untyped\n",
        "b{l=\"\\\"\\\\\\n\",instance=\"\"} 1e+06 3\n",
        "b{instance=\"\"} -Inf -4\n",
        "# TYPE b histogram\n",
        "b_bucket{instance=\"\",le=\"0.5\"} 0 5\n",
        "b_bucket{instance=\"\",le=\"1\"} 2 5\n",
        "b_bucket{instance=\"\",le=\"1e+06\"} 5 5\n",
        "b_bucket{instance=\"\",le=\"+Inf\"} 9 5\n",
        "b_sum{instance=\"\"} 1.5 5\n",
        "b_count{instance=\"\"} 9 5\n",
        "# TYPE \"z:ä_\" untyped\n",
        "{\"z:ä_\",instance=\"\"} 0.1 8\n",
    );
    let text = |escaping| String::from_utf8(encode(ExpositionFormat::Text, escaping)).unwrap();
    assert_eq!(text(Escaping::AllowUtf8), expected);
    for (escaping, [dotted, spaced, wide]) in [
        (Escaping::Underscores, ["a_b", "x_y", "z:__"]),
        (Escaping::Dots, ["a_dot_b", "x__y", "z:____"]),
        (Escaping::Values, ["U__a_2e_b", "U__x_20_y", "U__z:_e4___"]),
    ] {
        let text = text(escaping);
        assert!(
            text.contains(&format!("\n{dotted}{{instance=\"i\",{spaced}=\"1\"}} 0 2\n")),
            "{text}"
        );
        assert!(
            text.ends_with(&format!("# TYPE {wide} untyped\n{wide}{{instance=\"\"}} 0.1 8\n")),
            "{text}"
        );
    }
}

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, optional, tag = "5")]
    untyped: Option<Untyped>,
    #[prost(int64, tag = "6")]
    time_ms: i64,
    #[prost(message, optional, tag = "7")]
    histogram: Option<HistogramMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Untyped {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct HistogramMessage {
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    buckets: Vec<Bucket>,
    #[prost(double, tag = "4")]
    count: f64,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(double, tag = "8")]
    zero_count: f64,
    #[prost(message, repeated, tag = "9")]
    negative_spans: Vec<testkit::prompb::BucketSpan>,
    #[prost(double, repeated, packed = "false", tag = "11")]
    negative_counts: Vec<f64>,
    #[prost(message, repeated, tag = "12")]
    positive_spans: Vec<testkit::prompb::BucketSpan>,
    #[prost(double, repeated, packed = "false", tag = "14")]
    positive_counts: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Bucket {
    #[prost(double, tag = "2")]
    bound: f64,
    #[prost(double, tag = "4")]
    count: f64,
}

#[test]
fn protobuf_has_native_histograms() {
    let bytes = encode(ExpositionFormat::Protobuf, Escaping::Underscores);
    let mut rest = &bytes[..];
    let mut families = Vec::new();
    while !rest.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut rest).unwrap());
    }
    let kinds: Vec<_> = families.iter().map(|f| (&f.name[..], f.kind, f.metrics.len())).collect();
    let expected =
        [("a_b", 3, 1), ("b", 3, 2), ("b", 4, 1), ("n", 4, 1), ("n", 5, 1), ("z:__", 3, 1)];
    assert_eq!(kinds, expected);
    let float = &families[1].metrics[1];
    assert_eq!((float.untyped.unwrap().value, float.time_ms), (Some(f64::NEG_INFINITY), -4));
    let instance = LabelPair { name: "instance".to_owned(), value: String::new() };
    assert_eq!(float.labels, [instance]);
    let classic = families[2].metrics[0].histogram.clone().unwrap();
    let buckets: Vec<_> = classic.buckets.iter().map(|b| (b.bound, b.count)).collect();
    assert_eq!(buckets, [(0.5, 0.0), (1.0, 2.0), (1e6, 5.0)]);
    assert_eq!((classic.sum, classic.count, classic.schema), (1.5, 9.0, None));
    let native = families[3].metrics[0].histogram.clone().unwrap();
    assert_eq!((native.sum, native.count, native.schema), (-3.5, 6.0, Some(-1)));
    assert_eq!((native.zero_threshold, native.zero_count), (0.25, 1.0));
    assert_eq!(native.positive_counts, [2.0, 0.5]);
    assert_eq!(native.negative_counts, [2.5]);
    let span = native.positive_spans[0];
    assert_eq!((span.offset, span.length), (-2, 2));
}

#[test]
fn protobuf_text_equals_that_of_prometheus() {
    let mut encoder = ExpositionEncoder::new(ExpositionFormat::ProtobufText, Escaping::Underscores);
    let labels = |pairs: &[(&str, &str)]| Labels::from_pairs(pairs.iter().copied());
    encoder.push(
        &labels(&[("__name__", "a.b"), ("l", "\"\\\n\u{1}\u{7f}\u{85}ä'")]),
        2,
        &ExposedValue::Float(1e6),
    );
    encoder.push(&labels(&[("__name__", "n"), ("instance", "i")]), -6, &native(ResetHint::Gauge));
    let expected = concat!(
        "name: \"a_b\"\ntype: UNTYPED\nmetric: {\n",
        "  label: {\n    name: \"l\"\n    value: \"\\\"\\\\\\n\\x01\\x7f\\u0085ä'\"\n  }\n",
        "  label: {\n    name: \"instance\"\n    value: \"\"\n  }\n",
        "  untyped: {\n    value: 1e+06\n  }\n  timestamp_ms: 2\n}\n\n",
        "name: \"n\"\ntype: GAUGE_HISTOGRAM\nmetric: {\n",
        "  label: {\n    name: \"instance\"\n    value: \"i\"\n  }\n",
        "  histogram: {\n    sample_count_float: 6\n    sample_sum: -3.5\n    schema: -1\n",
        "    zero_threshold: 0.25\n    zero_count_float: 1\n",
        "    negative_span: {\n      offset: 3\n      length: 1\n    }\n    negative_count: 2.5\n",
        "    positive_span: {\n      offset: -2\n      length: 2\n    }\n",
        "    positive_count: 2\n    positive_count: 0.5\n  }\n  timestamp_ms: -6\n}\n\n",
    );
    assert_eq!(String::from_utf8(encoder.finish()).unwrap(), expected);
}

#[test]
fn compact_protobuf_text_has_a_line_for_each_family() {
    let text = encode(ExpositionFormat::ProtobufCompactText, Escaping::AllowUtf8);
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "name:\"a.b\" type:UNTYPED metric:{label:{name:\"instance\" value:\"i\"} \
         label:{name:\"x y\" value:\"1\"} untyped:{value:-0} timestamp_ms:2}"
    );
    assert!(lines[1].contains("} metric:{"), "{}", lines[1]);
    assert!(lines[1].ends_with("untyped:{value:-inf} timestamp_ms:-4}"), "{}", lines[1]);
    assert!(lines[2].contains("bucket:{cumulative_count_float:0 upper_bound:0.5}"), "{}", lines[2]);
    assert_eq!(lines.len(), 6);
}
