//! A remote write request from its compressed bytes to a batch, and by prost's owned types.

use std::hint::black_box;

use benches::data::{Kind, labels, samples};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use model::Batch;
use prost::Message;
use tessella::ingest::{Decoder, Limits, decode::decompress};

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

fn request() -> Vec<u8> {
    let series = |index| {
        let (timestamps, values) = samples(index, 1, Kind::Counter);
        let label = |(name, value): (&str, &str)| Label { name: name.into(), value: value.into() };
        TimeSeries {
            labels: labels(index, 32).iter().map(label).collect(),
            samples: vec![Sample { value: values[0], timestamp: timestamps[0] }],
        }
    };
    let message = WriteRequest { timeseries: (0..SERIES).map(series).collect() };
    snap::raw::Encoder::new().compress_vec(&message.encode_to_vec()).expect("it is small")
}

fn bench(criterion: &mut Criterion) {
    let body = request();
    let limits = Limits::default();
    let mut message = Vec::new();
    let length = decompress(&body, &limits, &mut message).expect("just compressed");
    let mut decoder = Decoder::default();
    let mut batch = Batch::default();

    let mut group = criterion.benchmark_group("ingest");
    group.throughput(Throughput::Elements(SERIES as u64));
    group.bench_function("decode in place", |b| {
        b.iter(|| {
            black_box(decoder.decode(&message, length, &limits, &mut batch)).expect("it is good");
        });
    });
    assert_eq!(batch.sample_count(), SERIES);
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
