//! Requests as prost encodes them, and responses as prost decodes them.

use std::sync::Arc;

use model::histogram::CUSTOM_BUCKETS_SCHEMA;
use model::{Histogram, Labels, MatchOp, ResetHint, Span};
use prost::Message;

use super::*;
use crate::MatcherError;

#[derive(Clone, PartialEq, Message)]
struct ReadRequestMessage {
    #[prost(message, repeated, tag = "1")]
    queries: Vec<QueryMessage>,
    #[prost(int32, repeated, tag = "2")]
    accepted: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct QueryMessage {
    #[prost(int64, tag = "1")]
    start: i64,
    #[prost(int64, tag = "2")]
    end: i64,
    #[prost(message, repeated, tag = "3")]
    matchers: Vec<MatcherMessage>,
    #[prost(message, optional, tag = "4")]
    hints: Option<HintsMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct MatcherMessage {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct HintsMessage {
    #[prost(int64, tag = "1")]
    step: i64,
    #[prost(string, tag = "2")]
    function: String,
    #[prost(int64, tag = "3")]
    start: i64,
    #[prost(int64, tag = "4")]
    end: i64,
    #[prost(string, repeated, tag = "5")]
    grouping: Vec<String>,
    #[prost(bool, tag = "6")]
    by: bool,
    #[prost(int64, tag = "7")]
    range: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ReadResponse {
    #[prost(message, repeated, tag = "1")]
    results: Vec<QueryResult>,
}

#[derive(Clone, PartialEq, Message)]
struct QueryResult {
    #[prost(message, repeated, tag = "1")]
    series: Vec<testkit::prompb::TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkedReadResponse {
    #[prost(message, repeated, tag = "1")]
    series: Vec<ChunkedSeries>,
    #[prost(int64, tag = "2")]
    query_index: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkedSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<testkit::prompb::Label>,
    #[prost(message, repeated, tag = "2")]
    chunks: Vec<ChunkMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkMessage {
    #[prost(int64, tag = "1")]
    min: i64,
    #[prost(int64, tag = "2")]
    max: i64,
    #[prost(int32, tag = "3")]
    encoding: i32,
    #[prost(bytes = "vec", tag = "4")]
    data: Vec<u8>,
}

const LIMITS: ReadLimits =
    ReadLimits { message_bytes_max: 1 << 20, queries_max: 3, matchers_max: 5 };

fn matcher(kind: i32, name: &str, value: &str) -> MatcherMessage {
    MatcherMessage { kind, name: name.into(), value: value.into() }
}

fn decode(message: &ReadRequestMessage) -> Result<ReadRequest, ReadError> {
    let body = snap::raw::Encoder::new().compress_vec(&message.encode_to_vec()).unwrap();
    ReadRequest::decode(&body, &LIMITS)
}

#[test]
fn requests_of_prost_decode() {
    let hints = HintsMessage {
        step: 15_000,
        function: "rate".to_owned(),
        start: -5,
        end: 70,
        grouping: vec!["a".to_owned()],
        by: true,
        range: 60,
    };
    let first = QueryMessage {
        start: -7,
        end: i64::MAX,
        matchers: (0..4).map(|kind| matcher(kind, "name", "välue")).collect(),
        hints: Some(hints),
    };
    let message = ReadRequestMessage {
        queries: vec![first, QueryMessage::default()],
        accepted: vec![7, 1, 0],
    };
    let request = decode(&message).unwrap();
    assert_eq!(request.response, ResponseType::StreamedXorChunks);
    let [first, second] = &request.queries[..] else { panic!("two queries") };
    assert_eq!((first.start_ms, first.end_ms), (-7, i64::MAX));
    let ops: Vec<_> = first.matchers.iter().map(|m| m.op).collect();
    use MatchOp::{Equal, NotEqual, NotRegex, Regex};
    assert_eq!(ops, [Equal, NotEqual, Regex, NotRegex]);
    assert!(first.matchers.iter().all(|m| m.name == "name" && m.value == "välue"));
    let hints = ReadHints { start_ms: -5, end_ms: 70, function: "rate".to_owned() };
    assert_eq!(first.hints, Some(hints));
    assert_eq!(*second, ReadQuery::default());
    let of = |accepted| decode(&ReadRequestMessage { accepted, ..Default::default() });
    assert_eq!(of(vec![]).unwrap().response, ResponseType::Samples);
    assert_eq!(of(vec![0, 1]).unwrap().response, ResponseType::Samples);
    assert_eq!(of(vec![5]), Err(ReadError::NoResponseType(vec![5])));
}

#[test]
fn invalid_requests_are_errors() {
    let too_large =
        |what, limit, reached| Err::<ReadRequest, _>(ReadError::TooLarge { what, limit, reached });
    let queries = |count: usize, matchers: usize| {
        let query = QueryMessage {
            matchers: vec![matcher(0, "a", "b"); matchers],
            ..QueryMessage::default()
        };
        decode(&ReadRequestMessage { queries: vec![query; count], accepted: vec![] })
    };
    assert!(queries(3, 1).is_ok());
    assert_eq!(queries(4, 0), too_large("queries", 3, 4));
    assert_eq!(queries(2, 3), too_large("matchers", 5, 6));
    let one = |matcher| {
        let query = QueryMessage { matchers: vec![matcher], ..QueryMessage::default() };
        decode(&ReadRequestMessage { queries: vec![query], accepted: vec![] })
    };
    assert_eq!(one(matcher(4, "a", "b")), Err(ReadError::Matcher(MatcherError::Type(4))));
    let bad = MatcherMessage { value: vec![0xff], ..matcher(0, "a", "") };
    assert_eq!(one(bad), Err(ReadError::Matcher(MatcherError::NotUtf8)));
    assert!(matches!(ReadRequest::decode(b"", &LIMITS), Err(ReadError::Snappy(_))));
    assert!(matches!(ReadRequest::decode(b"\x05abc", &LIMITS), Err(ReadError::Snappy(_))));
    let body = snap::raw::Encoder::new().compress_vec(&[0x0a, 0x05, 1]).unwrap();
    assert!(matches!(ReadRequest::decode(&body, &LIMITS), Err(ReadError::Malformed(_))));
    let claims = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    assert_eq!(
        ReadRequest::decode(&claims, &LIMITS),
        too_large("bytes", 1 << 20, u32::MAX as usize)
    );
}

fn histogram(number: u64, layout: u8, is_whole: bool, hint: ResetHint) -> Histogram {
    let fraction = if is_whole { 0.0 } else { 0.25 };
    let count = |at: u64| (number * (at + 1)) as f64 + fraction;
    let mut histogram = Histogram {
        reset_hint: hint,
        schema: layout as i8 - 2,
        zero_threshold: [0.0, 1e-3, 0.5, 2.0_f64.powi(-128)][usize::from(layout % 4)],
        zero_count: count(1),
        count: count(9),
        sum: number as f64 * 0.3,
        positive_spans: vec![Span { offset: -3, length: 2 }, Span { offset: 400, length: 1 }],
        negative_spans: vec![Span { offset: i32::from(layout), length: 2 }],
        positive_counts: vec![count(2), count(0), count(3)],
        negative_counts: vec![count(7), 0.0],
        custom_bounds: Arc::from([]),
    };
    if layout == 0 {
        histogram.schema = CUSTOM_BUCKETS_SCHEMA;
        histogram.custom_bounds = Arc::from([-1.5, 0.001, 0.1, 33_554.43, 33_554.431, 1e9]);
        (histogram.negative_spans, histogram.negative_counts) = (vec![], vec![]);
        (histogram.zero_threshold, histogram.zero_count) = (0.0, 0.0);
    }
    histogram
}

#[test]
fn encoded_samples_decode_with_prost() {
    let labels = Labels::from_pairs([("__name__", "up"), ("job", "ä")]);
    let mut series = SeriesEncoder::default();
    series.begin(&labels);
    series.push_float(-5, -0.0);
    series.push_float(0, 0.0);
    series.push_histogram(7, &histogram(3, 1, true, ResetHint::Gauge));
    series.push_histogram(8, &histogram(3, 0, false, ResetHint::NotReset));
    let mut encoder = ResultEncoder::default();
    encoder.end_query();
    encoder.push_series(&series);
    encoder.end_query();
    let message = snap::raw::Decoder::new().decompress_vec(&encoder.compress().unwrap()).unwrap();
    let read = ReadResponse::decode(&message[..]).unwrap();
    assert_eq!(read.results.len(), 2);
    assert!(read.results[0].series.is_empty());
    let [series] = &read.results[1].series[..] else { panic!("one series") };
    let names: Vec<_> = series.labels.iter().map(|l| (&l.name[..], &l.value[..])).collect();
    assert_eq!(names, [(&b"__name__"[..], &b"up"[..]), (b"job", "ä".as_bytes())]);
    let floats: Vec<_> = series.samples.iter().map(|s| (s.timestamp, s.value.to_bits())).collect();
    assert_eq!(floats, [(-5, (-0.0_f64).to_bits()), (0, 0)]);
    let [whole, float] = &series.histograms[..] else { panic!("two histograms") };
    use testkit::prompb::{Count, ZeroCount};
    assert_eq!((whole.timestamp, whole.schema, whole.reset_hint), (7, -1, 3));
    assert_eq!(
        (whole.count, whole.zero_count),
        (Some(Count::Integer(30)), Some(ZeroCount::Integer(6)))
    );
    assert_eq!(whole.positive_deltas, [9, -6, 9]);
    assert_eq!(whole.negative_deltas, [24, -24]);
    assert!(whole.positive_counts.is_empty() && whole.custom_values.is_empty());
    let spans: Vec<_> = whole.positive_spans.iter().map(|s| (s.offset, s.length)).collect();
    assert_eq!(spans, [(-3, 2), (400, 1)]);
    assert_eq!((float.timestamp, float.schema, float.reset_hint), (8, -53, 2));
    assert_eq!(
        (float.count, float.zero_count),
        (Some(Count::Float(30.25)), Some(ZeroCount::Float(0.0)))
    );
    assert_eq!(float.positive_counts, [9.25, 3.25, 12.25]);
    assert_eq!(float.custom_values.len(), 6);
}

/// Decodes the frames of a stream and checks their checksums.
fn frames(mut bytes: &[u8]) -> Vec<ChunkedReadResponse> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let length = prost::decode_length_delimiter(&mut bytes).unwrap();
        let (crc, rest) = bytes.split_first_chunk::<4>().unwrap();
        let (frame, rest) = rest.split_at(length);
        assert_eq!(u32::from_be_bytes(*crc), crc32c::crc32c(frame));
        frames.push(ChunkedReadResponse::decode(frame).unwrap());
        bytes = rest;
    }
    frames
}

#[test]
fn frames_hold_one_series_and_end_at_their_limit() {
    let labels = |job: &str| Labels::from_pairs([("__name__", "up"), ("job", job)]);
    let chunk_bytes = 1000;
    let data: Vec<Vec<u8>> = (0..10_u8).map(|number| vec![number; chunk_bytes]).collect();
    let min_ms = |number: usize| 120 * number as i64 - 5;
    let mut out = Vec::new();
    let mut encoder = FrameEncoder::new(2, 3 * chunk_bytes);
    for job in ["a", "b"] {
        encoder.begin(&labels(job));
        for (number, data) in data.iter().enumerate() {
            let min_ms = min_ms(number);
            let chunk = ChunkRef { min_ms, max_ms: min_ms + 119, encoding: 1, data };
            encoder.push(chunk, &mut out);
        }
        encoder.end(&mut out);
    }
    encoder.begin(&labels("c"));
    encoder.end(&mut out);
    encoder.push_labels_alone(&mut out);
    let frames = frames(&out);
    for (index, job) in ["a", "b"].into_iter().enumerate() {
        let of: Vec<_> =
            frames.iter().filter(|f| f.series[0].labels[1].value == job.as_bytes()).collect();
        assert_eq!(of.len(), 4);
        assert!(of.iter().all(|f| f.series.len() == 1 && f.query_index == 2));
        assert!(of[..3].iter().all(|f| f.series[0].chunks.len() == 3), "{index}");
        let chunks = of.iter().flat_map(|f| &f.series[0].chunks).enumerate();
        for (number, chunk) in chunks {
            let times = (chunk.min, chunk.max, chunk.encoding);
            assert_eq!(times, (min_ms(number), min_ms(number) + 119, 1));
            assert_eq!(chunk.data, data[number]);
        }
    }
    let last = frames.last().unwrap();
    assert_eq!((&last.series[0].labels[1].value[..], last.series[0].chunks.len()), (&b"c"[..], 0));
    assert_eq!(frames.len(), 9);
}
