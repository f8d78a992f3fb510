//! Remote write requests of both protocols from their compressed bytes to a batch, and by prost's
//! owned types.

use std::hint::black_box;

use benches::data::{Kind, labels, samples};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use model::Batch;
use prost::Message;
use testkit::prompb::{BucketSpan, Count, v2};
use wire::{Decoder, Limits, Version, decompress};

/// As many series of one sample as Prometheus sends in a request.
const SERIES: usize = 2_000;

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

/// What the series of a request hold.
#[derive(Clone, Copy, PartialEq)]
enum Content {
    Floats,
    FloatsWithStarts,
    Histograms,
}

fn request() -> Vec<u8> {
    let series = |index| {
        let (timestamps, values) = samples(index, 1, Kind::Counter);
        let label = |(name, value): (&str, &str)| Label { name: name.into(), value: value.into() };
        TimeSeries {
            labels: labels(index, 32).iter().map(label).collect(),
            samples: vec![Sample { value: values[0], timestamp: timestamps[0] }],
        }
    };
    compressed(&WriteRequest { timeseries: (0..SERIES).map(series).collect() })
}

/// Series as Prometheus sends them: metadata with every one.
fn request_v2(content: Content) -> Vec<u8> {
    let mut table = v2::SymbolTable::default();
    let help_ref = table.add(b"What is counted here, and in which unit.");
    let mut series = |index| {
        let (timestamps, values) = samples(index, 1, Kind::Counter);
        let labels = labels(index, 32);
        let refs = labels.iter().flat_map(|(name, value)| [name, value]);
        let (timestamp, value) = (timestamps[0], values[0]);
        let mut made = v2::TimeSeries {
            labels_refs: refs.map(|text| table.add(text.as_bytes())).collect(),
            metadata: Some(v2::Metadata { r#type: 1, help_ref, unit_ref: 0 }),
            ..v2::TimeSeries::default()
        };
        if content == Content::Histograms {
            made.histograms = vec![histogram(index as i64, timestamp)];
        } else {
            let has_start = content == Content::FloatsWithStarts;
            let start_timestamp = if has_start { timestamp - 3_600_000 } else { 0 };
            made.samples = vec![v2::Sample { value, timestamp, start_timestamp }];
        }
        made
    };
    let timeseries = (0..SERIES).map(&mut series).collect();
    compressed(&v2::Request { symbols: table.symbols, timeseries })
}

/// A histogram of 20 buckets in three spans.
fn histogram(index: i64, timestamp: i64) -> v2::Histogram {
    let deltas: Vec<i64> = (0..20).map(|bucket| (bucket * 7 + index) % 5 - 1 + index % 3).collect();
    let counts = deltas.iter().scan(100, |count, delta| {
        *count += delta;
        Some(*count as u64)
    });
    let count = counts.sum();
    let mut positive_deltas = deltas;
    positive_deltas[0] += 100;
    let span = |offset, length| BucketSpan { offset, length };
    let positive_spans = vec![span(-5, 10), span(2, 4), span(3, 6)];
    v2::Histogram {
        count: Some(Count::Integer(count)),
        sum: 1.5,
        schema: 3,
        positive_spans,
        positive_deltas,
        timestamp,
        ..v2::Histogram::default()
    }
}

fn compressed(message: &impl Message) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(&message.encode_to_vec()).expect("it is small")
}

fn bench(criterion: &mut Criterion) {
    let body = request();
    let limits = Limits::default();
    let mut message = Vec::new();
    let length = decompress(&body, &limits, &mut message).expect("just compressed");

    let mut group = criterion.benchmark_group("ingest");
    group.throughput(Throughput::Elements(SERIES as u64));
    for (name, version, body) in [
        ("decode in place", Version::V1, &body),
        ("decode in place, v2", Version::V2, &request_v2(Content::Floats)),
        ("decode in place, v2 with starts", Version::V2, &request_v2(Content::FloatsWithStarts)),
        ("decode in place, v2 histograms", Version::V2, &request_v2(Content::Histograms)),
    ] {
        let mut message = Vec::new();
        let length = decompress(body, &limits, &mut message).expect("just compressed");
        let (mut decoder, mut batch) = (Decoder::default(), Batch::default());
        let mut grant = |_| Ok(());
        let mut decode = || {
            let decoded =
                decoder.decode(version, &message, length, &limits, &mut grant, &mut batch);
            assert!(black_box(decoded).expect("it is good").rejects.is_empty());
            batch.sample_count()
        };
        assert_eq!(decode(), SERIES);
        group.bench_function(name, |b| b.iter(&mut decode));
    }
    group.bench_function("decompress", |b| {
        let mut out = Vec::new();
        b.iter(|| black_box(decompress(&body, &limits, &mut out)).expect("it is good"));
    });
    group.bench_function("decode by prost", |b| {
        b.iter(|| black_box(WriteRequest::decode(&message[..length])).expect("it is good"));
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
