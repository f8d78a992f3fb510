//! The histogram codec: bytes a histogram beside classic series, nanoseconds to encode and decode.

use std::hint::black_box;
use std::sync::Arc;

use benches::data::{INTERVAL_MS, Random, START_MS};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use model::{Advance, Histogram, HistogramSample, ResetHint, SampleBatch, Span};
use storage::chunk::{self, HistogramDecoder, encode_histograms};

/// Series of each kind.
const SERIES_COUNT: usize = 50;
/// Samples of each: a window of two hours.
const SAMPLES: usize = 480;
/// Samples in a frame, as the head cuts them.
const FRAME_LEN: usize = 240;
const SCHEMA: i8 = 3;
/// The bounds that client libraries set, and some more of those that people add.
const BOUNDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0];

/// Requests of which latencies are observed.
struct Traffic {
    name: &'static str,
    /// Observations between two scrapes, about.
    rate: f64,
    /// Spread of the logarithms of the latencies.
    sigma: f64,
}

const TRAFFIC: [Traffic; 5] = [
    Traffic { name: "busy", rate: 1500.0, sigma: 0.5 },
    Traffic { name: "steady", rate: 150.0, sigma: 0.5 },
    Traffic { name: "narrow", rate: 150.0, sigma: 0.3 },
    Traffic { name: "wide", rate: 150.0, sigma: 0.9 },
    Traffic { name: "quiet", rate: 3.0, sigma: 0.7 },
];

/// A series as native histograms, and the samples of the same as classic series.
struct Series {
    native: Vec<HistogramSample>,
    /// Values of the buckets, the last one at +Inf, then sum and count.
    classic: Vec<Vec<f64>>,
    /// The same with a series for each native bucket.
    fine: Vec<Vec<f64>>,
}

fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

fn series(traffic: &Traffic, seed: u64) -> Series {
    let mut random = Random::new(seed);
    let mut counts = std::collections::BTreeMap::<i32, u64>::new();
    let mut classic_counts = [0_u64; BOUNDS.len() + 1];
    let mut sum = 0.0;
    let mut out = Series { native: Vec::new(), classic: Vec::new(), fine: Vec::new() };
    out.classic.resize(BOUNDS.len() + 3, Vec::new());
    // What has been counted before the first scrape.
    for index in 0..SAMPLES + 40 {
        let load = traffic.rate * (1.0 + 0.3 * (index as f64 / 80.0).sin());
        let observed = (load + load.sqrt() * normal(&mut random)).max(0.0) as u64;
        for _ in 0..observed {
            let latency = 0.08 * (traffic.sigma * normal(&mut random)).exp();
            sum += latency;
            let scale = f64::from(1 << SCHEMA);
            *counts.entry((latency.log2() * scale).ceil() as i32).or_default() += 1;
            classic_counts[BOUNDS.partition_point(|bound| *bound < latency)] += 1;
        }
        if index < 40 {
            continue;
        }
        let at = out.native.len();
        let timestamp_ms = START_MS + at as i64 * INTERVAL_MS;
        let histogram = Arc::new(native(&counts, sum, at));
        out.native.push(HistogramSample { timestamp_ms, start_ms: 0, histogram });
        let mut total = 0;
        for (values, count) in out.classic.iter_mut().zip(classic_counts) {
            total += count;
            values.push(total as f64);
        }
        out.classic[BOUNDS.len() + 1].push(sum);
        out.classic[BOUNDS.len() + 2].push(total as f64);
    }
    out.fine = fine(&counts, &out);
    out
}

fn native(counts: &std::collections::BTreeMap<i32, u64>, sum: f64, at: usize) -> Histogram {
    let mut histogram = Histogram {
        reset_hint: if at == 0 { ResetHint::Unknown } else { ResetHint::NotReset },
        schema: SCHEMA,
        zero_threshold: 2.0_f64.powi(-128),
        count: counts.values().sum::<u64>() as f64,
        sum,
        ..Histogram::default()
    };
    let mut next = 0;
    for (index, count) in counts {
        let gap = index - next;
        match histogram.positive_spans.last_mut() {
            // As the client library does it: small gaps are filled with empty buckets.
            Some(last) if gap <= 2 => {
                last.length += gap as u32 + 1;
                histogram
                    .positive_counts
                    .resize(histogram.positive_counts.len() + gap as usize, 0.0);
            }
            _ => histogram.positive_spans.push(Span { offset: gap, length: 1 }),
        }
        histogram.positive_counts.push(*count as f64);
        next = index + 1;
    }
    histogram
}

/// A cumulative series for each bucket that is populated in the end, with sum and count.
fn fine(counts: &std::collections::BTreeMap<i32, u64>, of: &Series) -> Vec<Vec<f64>> {
    let mut fine: Vec<Vec<f64>> = counts.keys().map(|_| Vec::new()).collect();
    for sample in &of.native {
        let histogram = &sample.histogram;
        let mut indices = Vec::new();
        let mut next = 0;
        for span in &histogram.positive_spans {
            next += span.offset;
            indices.extend(next..next + span.length as i32);
            next += span.length as i32;
        }
        let mut at = 0;
        let mut total = 0.0;
        for (key, values) in counts.keys().zip(&mut fine) {
            while at < indices.len() && indices[at] <= *key {
                total += histogram.positive_counts[at];
                at += 1;
            }
            values.push(total);
        }
    }
    fine.extend_from_slice(&of.classic[BOUNDS.len() + 1..]);
    fine
}

fn classic_bytes(series: &[Vec<f64>]) -> usize {
    let timestamps: Vec<i64> = (0..SAMPLES).map(|at| START_MS + at as i64 * INTERVAL_MS).collect();
    let mut bytes = Vec::new();
    for values in series {
        for (timestamps, values) in timestamps.chunks(FRAME_LEN).zip(values.chunks(FRAME_LEN)) {
            chunk::encode(timestamps, values, &mut bytes);
        }
    }
    bytes.len()
}

fn encode_all(series: &[Series], out: &mut Vec<u8>) {
    out.clear();
    for series in series {
        for samples in series.native.chunks(FRAME_LEN) {
            encode_histograms(samples, None, out);
        }
    }
}

fn bench(criterion: &mut Criterion) {
    for traffic in &TRAFFIC {
        let all: Vec<Series> = (0..SERIES_COUNT).map(|seed| series(traffic, seed as u64)).collect();
        let mut bytes = Vec::new();
        encode_all(&all, &mut bytes);
        let histogram_count = SERIES_COUNT * SAMPLES;
        let share = |total: usize| total as f64 / histogram_count as f64;
        let classic = share(all.iter().map(|s| classic_bytes(&s.classic)).sum());
        let fine = share(all.iter().map(|s| classic_bytes(&s.fine)).sum());
        let native = share(bytes.len());
        let buckets = all.iter().map(|s| s.fine.len() - 2).sum::<usize>() as f64;
        eprintln!(
            "{}: {:.0} buckets, {native:.1} bytes a histogram; {classic:.1} as {} classic series \
             ({:.0} %), {fine:.1} as a series for each bucket ({:.0} %)",
            traffic.name,
            buckets / SERIES_COUNT as f64,
            BOUNDS.len() + 3,
            100.0 * native / classic,
            100.0 * native / fine,
        );
        let mut group = criterion.benchmark_group(format!("histogram/{}", traffic.name));
        group.throughput(Throughput::Elements(histogram_count as u64));
        group.bench_function("encode", |b| {
            let mut out = Vec::with_capacity(bytes.len());
            b.iter(|| encode_all(black_box(&all), &mut out));
        });
        let offsets: Vec<usize> =
            chunk::frames(&bytes).map(|frame| frame.expect("just encoded").0).collect();
        let mut batch = SampleBatch::new();
        group.bench_function("decode", |b| {
            b.iter(|| {
                for offset in &offsets {
                    let mut decoder =
                        HistogramDecoder::open(&bytes[*offset..]).expect("just encoded");
                    loop {
                        batch.clear();
                        let advance = decoder.next_batch(i64::MAX, &mut batch);
                        if black_box(advance).expect("just encoded") == Advance::End {
                            break;
                        }
                    }
                }
            });
        });
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
