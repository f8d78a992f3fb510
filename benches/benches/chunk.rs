//! The chunk codec: nanoseconds a sample to encode and to decode.

use std::hint::black_box;

use benches::data::{self, Kind, Random};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use model::SampleBatch;
use storage::chunk::{self, CHUNK_PADDING_BYTES, Decoder, FrameHeader};

/// So many different chunks that the CPU cannot learn them by heart.
const CHUNK_COUNT: usize = 1_000;
const CHUNK_SAMPLES: usize = 120;

fn series(kind: Kind) -> Vec<(Vec<i64>, Vec<f64>)> {
    let mut random = Random::new(1);
    let mut next = || random.below(1 << 32) as usize;
    (0..CHUNK_COUNT).map(|_| data::samples(next(), CHUNK_SAMPLES, kind)).collect()
}

fn encode_all(series: &[(Vec<i64>, Vec<f64>)], out: &mut Vec<u8>) {
    out.clear();
    for (timestamps, values) in series {
        chunk::encode(timestamps, values, out);
    }
}

fn bench(criterion: &mut Criterion) {
    for (kind, name) in
        [(Kind::Counter, "counter"), (Kind::Noise, "noise"), (Kind::Constant, "constant")]
    {
        let series = series(kind);
        let mut bytes = Vec::new();
        encode_all(&series, &mut bytes);
        let offsets: Vec<usize> =
            chunk::frames(&bytes).map(|frame| frame.expect("just encoded").0).collect();
        let bytes_per_sample = bytes.len() as f64 / (CHUNK_COUNT * CHUNK_SAMPLES) as f64;
        eprintln!("{name}: {bytes_per_sample:.2} bytes a sample in chunks of {CHUNK_SAMPLES}");

        let mut group = criterion.benchmark_group(format!("chunk/{name}"));
        group.throughput(Throughput::Elements((CHUNK_COUNT * CHUNK_SAMPLES) as u64));
        group.bench_function("encode", |b| {
            let mut out = Vec::with_capacity(bytes.len() + 64);
            b.iter(|| encode_all(black_box(&series), &mut out));
        });
        bytes.resize(bytes.len() + CHUNK_PADDING_BYTES, 0);
        let mut batch = SampleBatch::new();
        group.bench_function("decode", |b| {
            b.iter(|| {
                for offset in &offsets {
                    let mut decoder = Decoder::open(&bytes[*offset..]).expect("just encoded");
                    batch.clear();
                    black_box(decoder.next_batch(i64::MAX, &mut batch)).expect("just encoded");
                }
            });
        });
        group.bench_function("header", |b| {
            b.iter(|| {
                for offset in &offsets {
                    black_box(FrameHeader::read(&bytes[*offset..])).expect("just encoded");
                }
            });
        });
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
