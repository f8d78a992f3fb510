//! Responses are read by prost, requests are written by it.

use model::histogram::Span;
use model::{
    Exemplar, Histogram, KnownMetric, Labels, MetricKind, MetricMetadata, SeriesExemplars,
    TimeRange,
};
use prost::Message;
use testkit::prompb;

use super::*;
use crate::read::ChunkRef;
use crate::{LabelMatcher, MatcherError, WireError};

#[derive(Clone, PartialEq, Message)]
struct QueryResponse {
    #[prost(string, tag = "1")]
    warnings: String,
    #[prost(message, tag = "2")]
    timeseries: Option<prompb::TimeSeries>,
    #[prost(message, tag = "3")]
    stats: Option<QueryStats>,
    #[prost(message, tag = "4")]
    timeseries_batch: Option<prompb::WriteRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct QueryStats {
    #[prost(int64, tag = "1")]
    samples_total: i64,
}

fn labels(job: &str) -> Labels {
    Labels::from_pairs([("__name__", "up"), ("job", job), ("shard", "0")])
}

fn decode<M: Message + Default>(message: &[u8]) -> M {
    M::decode(message).unwrap()
}

#[test]
fn series_are_sent_in_batches_or_one_by_one() {
    for (batch_series_max, expected) in [(0, vec![1, 1, 1]), (1, vec![1, 1, 1]), (2, vec![2, 1])] {
        let mut encoder = QueryResponses::new(batch_series_max);
        let mut messages = Vec::new();
        for job in ["a", "b", "c"] {
            encoder.begin(&labels(job));
            encoder.push_float(1_000, 1.5);
            encoder.push_float(0, 0.0);
            messages.extend(encoder.end());
        }
        messages.extend(encoder.finish());
        let mut counts = Vec::new();
        for message in &messages {
            let response: QueryResponse = decode(message);
            let series = match (response.timeseries, response.timeseries_batch) {
                (Some(series), None) => vec![series],
                (None, Some(batch)) => batch.timeseries,
                other => panic!("{other:?}"),
            };
            counts.push(series.len());
            for series in series {
                let names = series.labels.iter().map(|label| &label.name[..]);
                assert!(names.eq([&b"__name__"[..], b"job", b"shard"]));
                let first = prompb::Sample { value: 1.5, timestamp: 1_000 };
                let second = prompb::Sample { value: 0.0, timestamp: 0 };
                assert_eq!(series.samples, [first, second]);
            }
        }
        assert_eq!(counts, expected);
    }
}

#[test]
fn a_series_without_samples_is_omitted() {
    let mut encoder = QueryResponses::new(64);
    encoder.begin(&labels("a"));
    assert_eq!(encoder.end(), None);
    assert_eq!(encoder.finish(), None);
}

#[test]
fn a_large_batch_is_split_by_bytes() {
    let mut encoder = QueryResponses::new(1_000);
    let mut largest = 0;
    for _ in 0..100 {
        encoder.begin(&labels("a"));
        (0..1_000).for_each(|time_ms| encoder.push_float(time_ms, 1.5));
        largest = largest.max(encoder.end().map_or(0, |message| message.len()));
    }
    assert!((256 << 10..320 << 10).contains(&largest), "{largest}");
}

#[test]
fn histograms_have_counts_as_floats() {
    let histogram = Histogram {
        schema: 3,
        count: 3.0,
        sum: 4.5,
        positive_spans: vec![Span { offset: -2, length: 2 }],
        positive_counts: vec![1.0, 2.0],
        ..Histogram::default()
    };
    let mut encoder = QueryResponses::new(64);
    encoder.begin(&labels("a"));
    encoder.push_histogram(1_000, &histogram);
    assert_eq!(encoder.end(), None);
    let response: QueryResponse = decode(&encoder.finish().unwrap());
    let series = &response.timeseries_batch.unwrap().timeseries[0];
    let found = &series.histograms[0];
    assert_eq!(found.count, Some(prompb::Count::Float(3.0)));
    assert_eq!(found.zero_count, Some(prompb::ZeroCount::Float(0.0)));
    assert_eq!(
        (found.positive_counts.as_slice(), found.positive_deltas.len()),
        (&[1.0, 2.0][..], 0)
    );
    assert_eq!((found.schema, found.timestamp, found.sum), (3, 1_000, 4.5));
}

#[test]
fn warnings_and_statistics_have_fields_of_their_own() {
    let response: QueryResponse = decode(&warning(1, "PromQL info: x"));
    assert_eq!(response.warnings, "PromQL info: x");
    let response: QueryResponse = decode(&QueryResponses::stats(300));
    assert_eq!(response.stats, Some(QueryStats { samples_total: 300 }));
}

#[derive(Clone, PartialEq, Message)]
struct SeriesResponse {
    #[prost(message, tag = "1")]
    series: Option<Series>,
    #[prost(message, tag = "4")]
    batch: Option<SeriesBatch>,
}

#[derive(Clone, PartialEq, Message)]
struct SeriesBatch {
    #[prost(message, repeated, tag = "1")]
    series: Vec<Series>,
}

#[derive(Clone, PartialEq, Message)]
struct Series {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<prompb::Label>,
    #[prost(message, repeated, tag = "2")]
    chunks: Vec<AggrChunk>,
}

#[derive(Clone, PartialEq, Message)]
struct AggrChunk {
    #[prost(int64, tag = "1")]
    min_time: i64,
    #[prost(int64, tag = "2")]
    max_time: i64,
    #[prost(message, tag = "3")]
    raw: Option<Chunk>,
}

#[derive(Clone, PartialEq, Message)]
struct Chunk {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    data: Vec<u8>,
}

#[test]
fn chunks_have_the_encodings_of_thanos() {
    let mut encoder = SeriesResponses::new(64);
    encoder.begin(&labels("a"));
    for encoding in 1..=3 {
        let data = &[encoding; 3];
        encoder.push_chunk(ChunkRef { min_ms: -5, max_ms: 7, encoding, data });
    }
    assert_eq!(encoder.end(), None);
    let response: SeriesResponse = decode(&encoder.finish().unwrap());
    let series = &response.batch.unwrap().series[0];
    assert_eq!(series.labels.len(), 3);
    let chunk = |kind: i32| AggrChunk {
        min_time: -5,
        max_time: 7,
        raw: Some(Chunk { kind, data: vec![kind as u8 + 1; 3] }),
    };
    assert_eq!(series.chunks, [chunk(0), chunk(1), chunk(2)]);
}

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    query: String,
    #[prost(int64, tag = "2")]
    start: i64,
    #[prost(int64, tag = "3")]
    end: i64,
    #[prost(int64, tag = "4")]
    interval: i64,
    #[prost(int64, tag = "5")]
    timeout: i64,
    #[prost(string, repeated, tag = "7")]
    replica_labels: Vec<String>,
    #[prost(bool, tag = "9")]
    dedup: bool,
    #[prost(int64, tag = "14")]
    lookback: i64,
    #[prost(bytes = "vec", tag = "16")]
    plan: Vec<u8>,
    #[prost(int64, tag = "17")]
    batch: i64,
}

#[test]
fn requests_are_decoded_and_plans_skipped() {
    let message = Request {
        query: "sum by (shard) (up)".to_owned(),
        start: -60,
        end: 120,
        interval: 15,
        timeout: 30,
        replica_labels: vec!["replica".to_owned(), "prometheus".to_owned()],
        dedup: true,
        lookback: 60,
        plan: vec![1; 100],
        batch: 64,
    }
    .encode_to_vec();
    let expected = QueryRequest {
        text: "sum by (shard) (up)".to_owned(),
        times: QueryTimes::Range { start_seconds: -60, end_seconds: 120, interval_seconds: 15 },
        timeout_seconds: 30,
        lookback_delta_seconds: 60,
        replica_labels: vec!["replica".to_owned(), "prometheus".to_owned()],
        batch_series_max: 64,
    };
    assert_eq!(QueryRequest::decode_range(&message), Ok(expected));
    let empty = QueryRequest::decode_instant(&[]).unwrap();
    assert_eq!(empty.times, QueryTimes::Instant { time_seconds: 0 });
    for cut in 1..message.len() {
        // No prefix panics; some are valid.
        let _ = QueryRequest::decode_range(&message[..cut]);
        let _ = QueryRequest::decode_instant(&message[..cut]);
    }
}

#[test]
fn malformed_requests_are_errors() {
    assert_eq!(QueryRequest::decode_instant(&[0x0a, 1, 0xff]), Err(RequestError::NotUtf8(1)));
    let truncated = QueryRequest::decode_instant(&[0x0a, 9]);
    let past_end = WireError::LengthPastEnd { length: 9, rest: 0 };
    assert_eq!(truncated, Err(RequestError::Malformed(past_end)));
    // A matcher of type 4.
    let unknown = SeriesRequest::decode(&[0x1a, 2, 0x08, 4]);
    assert_eq!(unknown, Err(RequestError::Matcher(MatcherError::Type(4))));
    let many = [0x1a, 0].repeat(10_001);
    let too_many = RequestError::TooMany { what: "matchers", limit: 10_000 };
    assert_eq!(SeriesRequest::decode(&many), Err(too_many));
    let many = [0x3a, 0].repeat(257);
    let too_many = RequestError::TooMany { what: "replica labels", limit: 256 };
    assert_eq!(QueryRequest::decode_range(&many), Err(too_many));
}

#[test]
fn label_requests_differ_by_one_field() {
    // matchers { name: "a", value: "b" }, without_replica_labels "r", limit 5.
    let names = [0x18, 1, 0x20, 2, 0x32, 6, 0x12, 1, b'a', 0x1a, 1, b'b', 0x3a, 1, b'r', 0x40, 5];
    let matcher =
        LabelMatcher { op: model::MatchOp::Equal, name: "a".to_owned(), value: "b".to_owned() };
    let expected = LabelsRequest {
        label: String::new(),
        start_ms: 1,
        end_ms: 2,
        matchers: vec![matcher],
        replica_labels: vec!["r".to_owned()],
        limit: 5,
    };
    assert_eq!(LabelsRequest::decode_names(&names), Ok(expected.clone()));
    let values = [
        0x0a, 1, b'x', 0x20, 1, 0x28, 2, 0x3a, 6, 0x12, 1, b'a', 0x1a, 1, b'b', 0x42, 1, b'r',
        0x48, 5,
    ];
    let expected = LabelsRequest { label: "x".to_owned(), ..expected };
    assert_eq!(LabelsRequest::decode_values(&values), Ok(expected));
}

#[derive(Clone, PartialEq, Message)]
struct LabelSet {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<prompb::Label>,
}

#[derive(Clone, PartialEq, Message)]
struct TsdbInfo {
    #[prost(message, tag = "1")]
    labels: Option<LabelSet>,
    #[prost(int64, tag = "2")]
    min_time: i64,
    #[prost(int64, tag = "3")]
    max_time: i64,
}

#[derive(Clone, PartialEq, Message)]
struct StoreInfo {
    #[prost(int64, tag = "1")]
    min_time: i64,
    #[prost(int64, tag = "2")]
    max_time: i64,
    #[prost(bool, tag = "5")]
    without_replica_labels: bool,
    #[prost(message, repeated, tag = "6")]
    tsdb_infos: Vec<TsdbInfo>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
struct InfoResponse {
    #[prost(message, repeated, tag = "1")]
    label_sets: Vec<LabelSet>,
    #[prost(string, tag = "2")]
    component_type: String,
    #[prost(message, tag = "3")]
    store: Option<StoreInfo>,
    #[prost(message, tag = "4")]
    rules: Option<Empty>,
    #[prost(message, tag = "8")]
    query: Option<Empty>,
}

#[test]
fn a_node_names_its_labels_and_all_times() {
    let external = Labels::from_pairs([("shard", "0"), ("region", "eu")]);
    let found: InfoResponse = decode(&info(&external));
    let label = |name: &str, value: &str| prompb::Label { name: name.into(), value: value.into() };
    let set = LabelSet { labels: vec![label("region", "eu"), label("shard", "0")] };
    let tsdb = TsdbInfo { labels: Some(set.clone()), min_time: 0, max_time: i64::MAX };
    let store = StoreInfo {
        min_time: 0,
        max_time: i64::MAX,
        without_replica_labels: false,
        tsdb_infos: vec![tsdb],
    };
    let expected = InfoResponse {
        label_sets: vec![set],
        component_type: "query".to_owned(),
        store: Some(store),
        rules: None,
        query: Some(Empty {}),
    };
    assert_eq!(found, expected);
}

#[derive(Clone, PartialEq, Message)]
struct ExemplarsResponse {
    #[prost(message, tag = "1")]
    data: Option<ExemplarData>,
}

#[derive(Clone, PartialEq, Message)]
struct ExemplarData {
    #[prost(message, tag = "1")]
    series_labels: Option<LabelSet>,
    #[prost(message, repeated, tag = "2")]
    exemplars: Vec<FoundExemplar>,
}

#[derive(Clone, PartialEq, Message)]
struct FoundExemplar {
    #[prost(message, tag = "1")]
    labels: Option<LabelSet>,
    #[prost(double, tag = "2")]
    value: f64,
    #[prost(int64, tag = "3")]
    ts: i64,
}

#[test]
fn exemplars_metadata_and_statistics_are_read_by_prost() {
    let exemplar =
        Exemplar { labels: Labels::from_pairs([("trace_id", "x")]), timestamp_ms: 5, value: 0.5 };
    let series = SeriesExemplars { labels: labels("a"), exemplars: vec![exemplar] };
    let found: ExemplarsResponse = decode(&exemplars(&series));
    let data = found.data.unwrap();
    assert_eq!(data.series_labels.unwrap().labels.len(), 3);
    assert_eq!((data.exemplars[0].value, data.exemplars[0].ts), (0.5, 5));

    let metadata =
        MetricMetadata { kind: MetricKind::Counter, help: "Help.".to_owned(), unit: String::new() };
    let known = KnownMetric { metric: "up".into(), entries: vec![metadata].into() };
    let message = metric_metadata(&[known]);
    let text = String::from_utf8_lossy(&message);
    assert!(text.contains("up") && text.contains("Help."), "{text}");

    let list = [("up".to_owned(), 3)];
    let found = BlockStatistics {
        series: 3,
        label_pairs: 4,
        chunks: 5,
        times: Some(TimeRange::new(1, 2)),
        lists: [&list, &[], &[], &[]],
    };
    let message = statistics("default-tenant", &found);
    // statistics { key, value { head_statistics { 3, 4, 5, 1, 2 } … } }
    let head = [0x0a, 10, 0x08, 3, 0x10, 4, 0x18, 5, 0x20, 1, 0x28, 2];
    assert!(message.windows(head.len()).any(|window| window == head), "{message:?}");
    assert_eq!(health_service(&[0x0a, 1, b'x']), Ok("x".to_owned()));
}
