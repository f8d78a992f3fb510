//! Hostile requests.

use super::*;
use crate::limits::LimitNames;
use crate::{InflightFull, WireError, gunzip};
use model::RejectReason;

const LIMITS: LimitNames = LimitNames::FIELDS;

fn varint(mut number: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// A field of bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [vec![number << 3 | 2], varint(content.len()), content.to_vec()].concat()
}

/// Encodes a request of one gauge with these data points.
fn of_points(points: &[u8]) -> Vec<u8> {
    let metric = [field(1, b"a"), field(5, points)].concat();
    field(1, &field(2, &field(2, &metric)))
}

/// Decodes a request, and returns the bytes reserved in addition to its length.
fn reserved(encoding: Encoding, bytes: &[u8]) -> (Result<Decoded, DecodeError>, usize) {
    let mut batch = Batch::default();
    let mut reserved = 0;
    let mut reserve = |more| {
        reserved += more;
        Ok(())
    };
    let limits = Limits { decompressed_bytes_max: 1 << 20, ..Limits::default() };
    let decoded = decode(encoding, bytes, &Settings::default(), &limits, &mut reserve, &mut batch);
    (decoded, reserved)
}

fn is_over(error: &DecodeError, expected: &str) -> bool {
    matches!(error, DecodeError::TooLarge { name, .. } if *name == expected)
}

#[test]
fn small_fields_that_unfold_end_at_the_budget() {
    let points = field(1, &[]).repeat(400_000);
    // After a timestamp, without which the attributes are not decoded.
    let attributes = [&[0x19, 1, 0, 0, 0, 0, 0, 0, 0][..], &field(7, &[]).repeat(400_000)].concat();
    let buckets = field(8, &field(2, &vec![0; 900_000]));
    let exponential = field(1, &field(2, &field(2, &field(10, &field(1, &buckets)))));
    for message in [
        of_points(&points),
        of_points(&field(1, &attributes)),
        field(1, &field(2, &field(2, &[]).repeat(400_000))),
        field(1, &[]).repeat(500_000),
        exponential,
    ] {
        let (decoded, reserved) = reserved(Encoding::Protobuf, &message);
        assert!(is_over(&decoded.unwrap_err(), LIMITS.decompressed_bytes_max));
        assert!(reserved <= 4 << 20, "{reserved}");
    }
    for (item, closes) in [
        ("{},", "]}}]}]}]}"),
        ("{\"attributes\":[{},{},{}]},", "]}}]}]}]}"),
        ("{\"exemplars\":[{},{}]},", "]}}]}]}]}"),
    ] {
        let mut text = "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"gauge\":\
                        {\"dataPoints\":["
            .to_owned();
        text.push_str(&item.repeat(900_000 / item.len()));
        text.push_str("{}");
        text.push_str(closes);
        let (decoded, reserved) = reserved(Encoding::Json, text.as_bytes());
        assert!(is_over(&decoded.unwrap_err(), LIMITS.decompressed_bytes_max));
        assert!(reserved <= 4 << 20, "{reserved}");
    }
}

#[test]
fn a_refused_reservation_ends_the_request() {
    let points = field(1, &[]).repeat(10_000);
    let full = InflightFull { reached: 7, limit: 6, name: "inflight_bytes_max" };
    let mut batch = Batch::default();
    let decoded = decode(
        Encoding::Protobuf,
        &of_points(&points),
        &Settings::default(),
        &Limits::default(),
        &mut |_| Err(full.clone()),
        &mut batch,
    );
    assert_eq!(decoded, Err(DecodeError::InflightFull(full.clone())));
}

/// A value of nested lists.
fn nested_value(depth: usize) -> AnyValue {
    let mut value = AnyValue::default();
    for _ in 0..depth {
        let list = otlppb::ArrayValue { values: vec![value] };
        value = AnyValue { value: Some(Value::List(list)) };
    }
    value
}

#[test]
fn values_nest_up_to_the_limit() {
    let of_depth = |depth| {
        let attribute = otlppb::KeyValue { key: "k".to_owned(), value: Some(nested_value(depth)) };
        let point = NumberPoint { attributes: vec![attribute], ..number(5, 1.0) };
        request(vec![], vec![gauge("a", vec![point])])
    };
    let (batch, _) = decode_both(&of_depth(64), &settings());
    let expected = ["[".repeat(64), "null".to_owned(), "]".repeat(64)].concat();
    assert_eq!(batch.labels(0).get("k"), expected);
    let limits = Limits::default();
    let deep = of_depth(65);
    let error = decode_with(Encoding::Protobuf, &deep.encode_to_vec(), &settings(), &limits);
    let error = error.unwrap_err();
    assert!(
        matches!(error, DecodeError::Malformed { error: WireError::TooDeep(64), .. }),
        "{error}"
    );
    let json = deep.to_json().to_string();
    let error = decode_with(Encoding::Json, json.as_bytes(), &settings(), &limits).unwrap_err();
    assert!(error.to_string().ends_with(": nested deeper than 64 levels"), "{error}");
    for text in ["[".repeat(1 << 20), "{\"a\":".repeat(200_000), "[{\"a\":".repeat(100_000)] {
        let text = format!("{{\"unknown\":{text}");
        let error = decode_with(Encoding::Json, text.as_bytes(), &settings(), &limits).unwrap_err();
        assert!(error.to_string().ends_with(": nested deeper than 512 levels"), "{error}");
    }
}

#[test]
fn limits_of_a_request_are_those_of_remote_write() {
    let limits = Limits { series_max: 3, samples_max: 5, ..Limits::default() };
    let decode = |request: &Request| {
        let bytes = request.encode_to_vec();
        decode_with(Encoding::Protobuf, &bytes, &settings(), &limits).map(|(batch, _)| batch)
    };
    let points = |count| (1..=count).map(|n| number(n, 1.0)).collect();
    assert_eq!(decode(&request(vec![], vec![gauge("a", points(3))])).unwrap().series.len(), 3);
    let error = decode(&request(vec![], vec![gauge("a", points(4))])).unwrap_err();
    assert_eq!(error.to_string(), "request of 4 data points is over the limit of 3 (series_max)");
    assert!(is_over(&error, LIMITS.series_max));
    // A histogram has more samples than data points, and so has a resource of long duration.
    let two = request(vec![], vec![metric("h", "", histograms(vec![histogram(), histogram()]))]);
    assert!(is_over(&decode(&two).unwrap_err(), LIMITS.samples_max));
    let named = vec![text("service.name", "a"), text("region", "b")];
    let long = request(named, vec![gauge("a", vec![number(1, 1.0), number(1 << 40, 1.0)])]);
    assert!(is_over(&decode(&long).unwrap_err(), LIMITS.samples_max));
}

#[test]
fn a_wrong_clock_costs_neither_data_points_nor_time() {
    let named = || vec![text("service.name", "a"), text("region", "b")];
    let of_years = || vec![gauge("a", vec![number(5_000, 1.0), number(1 << 40, 2.0)])];
    let limits = Limits { samples_max: 10_000, ..Limits::default() };
    let decode = |request: &Request| {
        decode_with(Encoding::Protobuf, &request.encode_to_vec(), &settings(), &limits).unwrap()
    };
    let mut request = request(named(), of_years());
    let (batch, decoded) = decode(&request);
    assert_eq!(batch.sample_count(), 2 + 4096);
    let rejected = decoded.rejects.to_text();
    assert!(rejected.contains("days apart: only the newest 4096 samples are kept"), "{rejected}");
    // Repeating the resource adds nothing.
    request.resource_metrics = vec![request.resource_metrics[0].clone(); 100];
    let (batch, decoded) = decode(&request);
    assert_eq!(batch.sample_count(), 200 + 4096);
    let rejected = decoded.rejects.to_text();
    assert!(rejected.contains("target_info: 10000 samples of one request"), "{rejected}");
}

#[test]
fn job_and_instance_are_limited_in_length() {
    let long = "x".repeat(17_000);
    for key in ["service.name", "service.namespace", "service.instance.id"] {
        let resource = [key, "service.name"].map(|key| text(key, &long)).to_vec();
        let (batch, decoded) =
            decode_both(&request(resource, vec![gauge("a", vec![number(5, 1.0)])]), &settings());
        assert!(batch.series.is_empty());
        let rejected = decoded.rejects.to_text();
        assert!(rejected.contains("is over the limit of 16384 bytes"), "{rejected}");
    }
}

#[test]
fn extreme_numbers_are_accepted_or_rejected() {
    let hostile = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -0.0];
    let mut points = Vec::new();
    for value in hostile {
        for time_ns in [1, u64::MAX, i64::MAX as u64, 1 << 63] {
            let number = NumberPoint { time_ns, start_ns: u64::MAX - time_ns, ..number(0, value) };
            points.push(number);
        }
    }
    let mut all = vec![gauge("a", points)];
    for count in [0, 1, u64::MAX, 1 << 63] {
        for offset in [i32::MIN, -1, i32::MAX - 3] {
            for scale in [i32::MIN, -4, 8, 9, i32::MAX] {
                let counts = Some(Buckets { offset, bucket_counts: vec![count, 0, count] });
                let point = ExponentialPoint {
                    scale,
                    count,
                    sum: Some(f64::NAN),
                    positive: counts.clone(),
                    negative: counts,
                    zero_count: count,
                    ..exponential()
                };
                all.push(metric("e", "", exponentials(point)));
            }
        }
        let mut point = histogram();
        (point.count, point.bucket_counts, point.explicit_bounds) =
            (count, vec![count; 7], hostile.to_vec());
        all.push(metric("h", "", histograms(vec![point])));
    }
    let request = request(vec![text("service.name", "a"), text("x", "y")], all);
    for to_custom_buckets in [false, true] {
        let limits = Limits { samples_max: 10_000, ..Limits::default() };
        let settings = Settings { to_custom_buckets, lookback_ns: u64::MAX, ..settings() };
        let bytes = request.encode_to_vec();
        let (batch, decoded) = decode_with(Encoding::Protobuf, &bytes, &settings, &limits).unwrap();
        assert!(!decoded.rejects.is_empty() && !batch.series.is_empty());
        for sample in &batch.histograms {
            sample.histogram.validate().unwrap();
        }
    }
}

#[test]
fn many_attributes_of_one_name_are_joined_in_linear_time() {
    let attributes = (0..100).map(|n| text(&"._"[n % 2..=n % 2].repeat(n + 1), "v"));
    let mut point = number(5, 1.0);
    point.attributes = attributes.map(|a| text(&format!("{}a", a.key), "v")).collect();
    let collapsing = Settings { preserve_multiple_underscores: false, ..settings() };
    let (batch, decoded) =
        decode_both(&request(vec![], vec![gauge("a", vec![point])]), &collapsing);
    assert!(decoded.rejects.is_empty(), "{}", decoded.rejects.to_text());
    assert_eq!(batch.labels(0).get("key_a").len(), 199);
}

#[test]
fn errors_name_the_position_of_malformed_messages() {
    for (bytes, expected) in [
        (&b"\x0a\x05\x12"[..], "malformed write request at byte 0, request: length 5"),
        (
            &[0x0a, 3, 0x12, 1, 0xff],
            "malformed write request at byte 4, scope_metrics: the message",
        ),
        (&[0x0a, 2, 0x10, 1], "malformed write request at byte 2, resource_metrics: field 2 has"),
        (
            &of_points(&field(1, &field(5, &field(5, b"short")))),
            "exemplars: field 5 has 5 bytes, expected 16",
        ),
    ] {
        let error = decode_with(Encoding::Protobuf, bytes, &settings(), &Limits::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for (text, expected) in [
        ("", "malformed JSON at byte 0: the text ends inside a value"),
        ("[]", "malformed JSON at byte 0: expected an object"),
        ("{\"a\" 1}", "malformed JSON at byte 5: expected a colon"),
        ("{\"a\":1 \"b\":2}", "malformed JSON at byte 7: expected a comma or the end of an object"),
        ("{\"a\":1}}", "malformed JSON at byte 7: something follows the value"),
        ("{\"a\":\"\u{1}\"}", "malformed JSON at byte 6: invalid character in a string"),
        ("{\"a\":\"\\x\"}", "malformed JSON at byte 8: invalid escape"),
        ("{\"a\":\"\\ud800\"}", "malformed JSON at byte 12: invalid escape"),
        ("{\"a\":\"\\ud800\\u0041\"}", "malformed JSON at byte 18: invalid escape"),
        ("{\"a\":nul}", "malformed JSON at byte 5: expected null"),
        ("{\"a\":+1}", "malformed JSON at byte 5: expected a number"),
        ("{\"resourceMetrics\":{}}", "malformed JSON at byte 19: expected a list"),
        (
            "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"gauge\":{\"dataPoints\":[{\
             \"timeUnixNano\":\"-1\"}]}}]}]}]}",
            "not a number that fits: an unsigned 64-bit integer",
        ),
        (
            "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"gauge\":{\"dataPoints\":[{\
             \"asDouble\":1.0.0}]}}]}]}]}",
            "not a number that fits: a 64-bit float",
        ),
        (
            "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"sum\":{\
             \"aggregationTemporality\":\"SOME\"}}]}]}]}",
            "not a name of a temporality",
        ),
        (
            "{\"resourceMetrics\":[{\"resource\":{\"attributes\":[{\"key\":\"k\",\"value\":{\
             \"bytesValue\":\"?\"}}]}}]}",
            "not base64",
        ),
        (
            "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"gauge\":{\"dataPoints\":[{\
             \"exemplars\":[{\"spanId\":\"0g00000000000000\"}]}]}}]}]}]}",
            "not 16 hexadecimal digits",
        ),
    ] {
        let error = decode_with(Encoding::Json, text.as_bytes(), &settings(), &Limits::default());
        let error = error.unwrap_err().to_string();
        assert!(error.ends_with(expected), "{text}: {error}");
    }
}

#[test]
fn gzip_unpacks_to_the_limit_and_no_further() {
    use std::io::Write as _;
    let packed = |len: usize| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&vec![b' '; len]).unwrap();
        encoder.finish().unwrap()
    };
    let limits = Limits { decompressed_bytes_max: 1 << 20, ..Limits::default() };
    let unpack = |body: &[u8]| {
        let (mut message, mut reserved) = (Vec::new(), 0);
        let mut reserve = |more| {
            reserved += more;
            Ok(())
        };
        let result = gunzip(body, &limits, &mut reserve, &mut message);
        (result.map(|()| message.len()), reserved)
    };
    for len in [0, 1, 100_000, 1 << 20] {
        let (unpacked, reserved) = unpack(&packed(len));
        assert_eq!(unpacked, Ok(len));
        assert!(reserved >= len && reserved <= 4 << 20, "{reserved}");
    }
    let (unpacked, reserved) = unpack(&packed(1 << 24));
    assert!(is_over(&unpacked.unwrap_err(), LIMITS.decompressed_bytes_max));
    assert!(reserved <= 4 << 20, "{reserved}");
    let two = [packed(3), packed(4)].concat();
    assert_eq!(unpack(&two).0, Ok(7));
    for broken in [&b""[..], b"plain", &packed(1000)[..20], &[packed(3), b"x".to_vec()].concat()] {
        assert!(matches!(unpack(broken).0, Err(DecodeError::Gzip(_))), "{broken:?}");
    }
}

#[test]
fn names_that_are_too_long_are_rejected_before_their_translation() {
    let long = "a.\u{1}".repeat(300_000);
    let time = [&[3 << 3 | 1][..], &1_000_000u64.to_le_bytes()].concat();
    let of_metric = |name: &str, unit: &str, attribute: &str| {
        let attribute = field(7, &[field(1, attribute.as_bytes()), field(2, &[])].concat());
        let point = field(1, &[time.clone(), attribute].concat());
        let metric = [field(1, name.as_bytes()), field(3, unit.as_bytes()), field(5, &point)];
        field(1, &field(2, &field(2, &metric.concat())))
    };
    for (message, expected) in [
        (of_metric(&long, "", "b"), "label_value_bytes_max) for the name of metric"),
        (of_metric("a", &long, "b"), "label_value_bytes_max) for the unit of metric"),
        (of_metric("a", "", &long), "label_name_bytes_max) for a data point of"),
    ] {
        let (decoded, _) = reserved(Encoding::Protobuf, &message);
        let decoded = decoded.unwrap();
        let refused: Vec<RejectReason> = decoded
            .rejects
            .counts()
            .filter(|(_, counts)| *counts != Counts::default())
            .map(|(reason, _)| reason)
            .collect();
        assert_eq!(refused, [RejectReason::LabelLimit]);
        let rejected = decoded.rejects.to_text();
        assert!(rejected.contains(expected), "{rejected}");
        assert!(rejected.len() < 8 << 10, "{} bytes are reported", rejected.len());
    }
}
