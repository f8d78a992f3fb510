//! The encoder against the decoder, and the decoder against a naive encoder.

mod naive_encoder;

use std::sync::Arc;

use model::histogram::CUSTOM_BUCKETS_SCHEMA;
use model::{Histogram, ResetHint, Span, stale_nan};
use proptest::prelude::*;

use super::*;
use naive_encoder::{Float, float_histograms, integer_histograms, xor, xor2};

/// A sample for comparison: timestamp, start timestamp, and bits or histogram.
#[derive(Debug, Clone, PartialEq)]
enum Read {
    Float(i64, i64, u64),
    Histogram(i64, i64, Arc<Histogram>),
    Invalid(i64),
}

fn comparable(sample: ChunkSample) -> Read {
    match sample {
        ChunkSample::Float { timestamp_ms, start_ms, value } => {
            Read::Float(timestamp_ms, start_ms, value.to_bits())
        }
        ChunkSample::Histogram(sample) => {
            Read::Histogram(sample.timestamp_ms, sample.start_ms, sample.histogram)
        }
        ChunkSample::Invalid { timestamp_ms, .. } => Read::Invalid(timestamp_ms),
    }
}

fn read_chunk(encoding: u8, bytes: &[u8]) -> Result<Vec<Read>, ChunkError> {
    let mut reader = ChunkDecoder::new(encoding, bytes)?;
    let mut samples = Vec::new();
    while let Some(sample) = reader.next_sample()? {
        samples.push(comparable(sample));
    }
    Ok(samples)
}

fn expected(samples: &[Float]) -> Vec<Read> {
    samples.iter().map(|s| Read::Float(s.time_ms, s.start_ms, s.value.to_bits())).collect()
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => (-20_i64..20).prop_map(|value| value as f64),
        1 => any::<f64>(),
        1 => Just(stale_nan()),
    ]
}

/// Ascending timestamps, mostly at even distances.
fn any_times(count: usize) -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![4 => Just(15_000_i64), 2 => 14_900_i64..15_100, 1 => 1_i64..1 << 40];
    (-1_i64 << 40..1 << 40, proptest::collection::vec(step, count)).prop_map(|(first, steps)| {
        let add = |time: &mut i64, step| {
            *time += step;
            Some(*time)
        };
        steps.into_iter().scan(first, add).collect()
    })
}

fn any_floats(has_starts: bool) -> impl Strategy<Value = Vec<Float>> {
    (1_usize..200).prop_flat_map(move |count| {
        let start = prop_oneof![3 => Just(None), 1 => (1_i64..100_000).prop_map(Some)];
        let values = proptest::collection::vec((any_value(), start), count);
        (any_times(count), values).prop_map(move |(times, values)| {
            let mut start_ms = 0;
            let float = |(time_ms, (value, start)): (i64, (f64, Option<i64>))| {
                if let Some(before) = start.filter(|_| has_starts) {
                    start_ms = time_ms - before;
                }
                Float { time_ms, start_ms, value }
            };
            times.into_iter().zip(values).map(float).collect()
        })
    })
}

/// Histograms of one layout.
fn any_histograms() -> impl Strategy<Value = (bool, Vec<(i64, Histogram)>)> {
    let layout = (
        prop_oneof![Just(-53_i8), -4_i8..=8],
        prop_oneof![Just(0.0), Just(2.0_f64.powi(-128)), Just(0.001)],
        proptest::collection::vec((0_i32..5, 1_u32..4), 0..3),
        proptest::collection::vec((0_i32..5, 1_u32..4), 0..3),
    );
    (layout, any::<bool>(), 1_usize..20).prop_flat_map(|(layout, is_gauge, count)| {
        let (schema, zero_threshold, above, below) = layout;
        let is_custom = schema == -53;
        let spans = |spans: &[(i32, u32)]| -> Vec<Span> {
            spans.iter().map(|&(offset, length)| Span { offset, length }).collect()
        };
        let len = |spans: &[Span]| spans.iter().map(|s| s.length as usize).sum::<usize>();
        let (above, below) = (spans(&above), if is_custom { Vec::new() } else { spans(&below) });
        let numbers = (
            proptest::collection::vec(0_u32..1 << 20, len(&above)),
            proptest::collection::vec(0_u32..1 << 20, len(&below)),
            if is_custom { 0_u32..1 } else { 0..1 << 10 },
            any_value(),
        );
        let bounds: Arc<[f64]> = match is_custom {
            true => (0..40).map(|bound| f64::from(bound) * 0.25 - 1.5).collect(),
            false => Arc::default(),
        };
        (any_times(count), proptest::collection::vec(numbers, count)).prop_map(
            move |(times, numbers)| {
                let histogram =
                    |(positive, negative, zero, sum): (Vec<u32>, Vec<u32>, u32, f64)| {
                        let floats = |counts: Vec<u32>| -> Vec<f64> {
                            counts.into_iter().map(f64::from).collect()
                        };
                        let (positive_counts, negative_counts) =
                            (floats(positive), floats(negative));
                        let counts = positive_counts.iter().chain(&negative_counts);
                        Histogram {
                            reset_hint: if is_gauge {
                                ResetHint::Gauge
                            } else {
                                ResetHint::NotReset
                            },
                            schema,
                            zero_threshold: if is_custom { 0.0 } else { zero_threshold },
                            zero_count: zero.into(),
                            count: counts.sum::<f64>() + f64::from(zero),
                            sum: if sum.is_nan() && !model::is_stale(sum) { 1.0 } else { sum },
                            positive_spans: above.clone(),
                            negative_spans: below.clone(),
                            positive_counts,
                            negative_counts,
                            custom_bounds: Arc::clone(&bounds),
                        }
                    };
                (is_gauge, times.into_iter().zip(numbers.into_iter().map(histogram)).collect())
            },
        )
    })
}

fn expected_histograms(histograms: &[(i64, Histogram)], start_ms: i64) -> Vec<Read> {
    let read = |(index, (time_ms, histogram)): (usize, &(i64, Histogram))| {
        let histogram = match histogram.is_stale() {
            true => Histogram::stale(),
            false if index == 0 && histogram.reset_hint == ResetHint::NotReset => {
                Histogram { reset_hint: ResetHint::Unknown, ..histogram.clone() }
            }
            false => histogram.clone(),
        };
        Read::Histogram(*time_ms, start_ms, Arc::new(histogram))
    };
    histograms.iter().enumerate().map(read).collect()
}

proptest! {
    #[test]
    fn floats_decode_to_what_the_naive_encoder_wrote(floats in any_floats(false)) {
        prop_assert_eq!(read_chunk(1, &xor(&floats)).unwrap(), expected(&floats));
        prop_assert_eq!(read_chunk(4, &xor2(&floats)).unwrap(), expected(&floats));
    }

    #[test]
    fn start_timestamps_of_floats_decode(floats in any_floats(true)) {
        prop_assert_eq!(read_chunk(4, &xor2(&floats)).unwrap(), expected(&floats));
    }

    #[test]
    fn histograms_decode_to_what_the_naive_encoder_wrote(
        (is_gauge, histograms) in any_histograms(),
        start_ms in prop_oneof![Just(0_i64), 1_i64..1000],
    ) {
        let known = expected_histograms(&histograms, 0);
        let integers = integer_histograms(&histograms, is_gauge, 0);
        prop_assert_eq!(read_chunk(2, &integers).unwrap(), known.clone());
        let floats = float_histograms(&histograms, is_gauge, 0);
        prop_assert_eq!(read_chunk(3, &floats).unwrap(), known);
        let with_starts = expected_histograms(&histograms, start_ms);
        let integers = integer_histograms(&histograms, is_gauge, start_ms);
        if start_ms != 0 {
            prop_assert_eq!(read_chunk(5, &integers).unwrap(), with_starts.clone());
            let floats = float_histograms(&histograms, is_gauge, start_ms);
            prop_assert_eq!(read_chunk(6, &floats).unwrap(), with_starts);
        }
    }

    #[test]
    fn any_bytes_decode_or_fail_without_a_panic(
        encoding in 0_u8..9,
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = read_chunk(encoding, &bytes);
    }

    #[test]
    fn mutated_chunks_decode_or_fail_without_a_panic(
        floats in any_floats(true),
        (is_gauge, histograms) in any_histograms(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for (encoding, bytes) in [
            (1, xor(&floats)),
            (4, xor2(&floats)),
            (2, integer_histograms(&histograms, is_gauge, 0)),
            (3, float_histograms(&histograms, is_gauge, 0)),
        ] {
            let mut changed = bytes.clone();
            for (at, byte) in &changes {
                let at = at.index(changed.len());
                changed[at] = *byte;
            }
            let _ = read_chunk(encoding, &changed);
            let shorter = &bytes[..cut.index(bytes.len())];
            if shorter.len() + 1 < bytes.len() {
                prop_assert!(read_chunk(encoding, shorter).is_err());
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Sample {
    Float(u64),
    Histogram(Histogram),
}

fn encode(samples: &[(i64, Sample)]) -> Vec<EncodedChunk> {
    let mut encoder = ChunkEncoder::default();
    let mut chunks = Vec::new();
    for (time_ms, sample) in samples {
        let sample = match sample {
            Sample::Float(bits) => SampleRef::Float(f64::from_bits(*bits)),
            Sample::Histogram(histogram) => SampleRef::Histogram(histogram),
        };
        chunks.extend(encoder.push(*time_ms, sample));
    }
    chunks.extend(encoder.finish());
    chunks
}

/// Decodes chunks; the reset hint of a first histogram is in the flags, which the decoder ignores.
fn decode(chunks: &[EncodedChunk]) -> Vec<(i64, Sample)> {
    let hints = [ResetHint::Unknown, ResetHint::NotReset, ResetHint::Reset, ResetHint::Gauge];
    let one = |chunk: &EncodedChunk| {
        let mut samples: Vec<_> = read_chunk(chunk.encoding as u8, &chunk.data)
            .unwrap()
            .into_iter()
            .map(|sample| match sample {
                Read::Float(time_ms, 0, bits) => (time_ms, Sample::Float(bits)),
                Read::Histogram(time_ms, 0, histogram) => {
                    (time_ms, Sample::Histogram((*histogram).clone()))
                }
                other => panic!("{other:?} was not encoded"),
            })
            .collect();
        assert!(samples.len() <= 120);
        assert_eq!((samples[0].0, samples[samples.len() - 1].0), (chunk.min_ms, chunk.max_ms));
        if let Sample::Histogram(histogram) = &mut samples[0].1 {
            histogram.reset_hint = hints[usize::from(chunk.data[2] >> 6)];
        }
        samples
    };
    chunks.iter().flat_map(one).collect()
}

fn histogram(number: u64, layout: u8, is_whole: bool, hint: ResetHint) -> Histogram {
    let fraction = if is_whole { 0.0 } else { 0.25 };
    let count = |at: u64| (number * (at + 1)) as f64 + fraction;
    let mut histogram = Histogram {
        reset_hint: hint,
        schema: layout as i8 - 2,
        zero_threshold: [0.0, 1e-3, 0.5, 2.0_f64.powi(-128)][usize::from(layout % 4)],
        zero_count: count(1),
        count: 0.0,
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
        histogram.positive_spans =
            vec![Span { offset: 1, length: 2 }, Span { offset: 2, length: 1 }];
        (histogram.negative_spans, histogram.negative_counts) = (vec![], vec![]);
        (histogram.zero_threshold, histogram.zero_count) = (0.0, 0.0);
    }
    let buckets = histogram.positive_counts.iter().chain(&histogram.negative_counts);
    histogram.count = histogram.zero_count + buckets.sum::<f64>();
    histogram
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let float = prop_oneof![
        any::<u64>().prop_map(Sample::Float),
        (0..50_u32).prop_map(|value| Sample::Float(f64::from(value).to_bits())),
        Just(Sample::Float(model::STALE_NAN_BITS)),
    ];
    let hint = prop_oneof![
        5 => Just(ResetHint::NotReset),
        1 => Just(ResetHint::Unknown),
        1 => Just(ResetHint::Reset),
        2 => Just(ResetHint::Gauge)
    ];
    let native = (0..1_u64 << 40, 0..3_u8, prop::bool::weighted(0.7), hint).prop_map(
        |(number, layout, whole, hint)| Sample::Histogram(histogram(number, layout, whole, hint)),
    );
    let stale = Just(Sample::Histogram(Histogram::stale()));
    prop_oneof![10 => float, 10 => native, 1 => stale]
}

proptest! {
    #[test]
    fn encoded_samples_decode_to_the_bit(
        start in -1_i64 << 50..1 << 50,
        steps in prop::collection::vec(
            (prop_oneof![
                Just(15_000_i64), 1..100_i64, 1..1_i64 << 20, 1..1_i64 << 45
            ], any_sample(), 1..20_usize),
            1..30,
        ),
    ) {
        let mut time = start;
        let mut samples = Vec::new();
        for (step, sample, times) in steps {
            // Runs of one kind, so that chunks have more than one sample.
            for index in 0..times {
                time += step;
                let sample = match &sample {
                    Sample::Float(bits) => Sample::Float(bits ^ (index as u64) << 30),
                    Sample::Histogram(h) if h.is_stale() => sample.clone(),
                    Sample::Histogram(h) => {
                        let mut h = h.clone();
                        h.count += index as f64;
                        h.positive_counts[0] += index as f64;
                        h.sum *= 1.5;
                        Sample::Histogram(h)
                    }
                };
                samples.push((time, sample));
            }
        }
        prop_assert_eq!(decode(&encode(&samples)), samples);
    }
}

#[test]
fn chunks_have_the_length_of_those_of_prometheus() {
    let floats: Vec<_> =
        (0..300).map(|i| (i * 15_000, Sample::Float((i as f64).to_bits()))).collect();
    let counts: Vec<_> =
        encode(&floats).iter().map(|chunk| decode(std::slice::from_ref(chunk)).len()).collect();
    assert_eq!(counts, [120, 120, 60]);
    // Histograms without a reset share a chunk of integer counts.
    let grown = |i: u64| Sample::Histogram(histogram(i, 1, true, ResetHint::NotReset));
    let growing: Vec<_> = (1..100).map(|i| (i as i64 * 15_000, grown(i))).collect();
    let chunks = encode(&growing);
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].encoding, ChunkEncoding::Histogram);
    assert!(chunks[0].data.len() < 99 * 16, "{}", chunks[0].data.len());
    // A reset starts a chunk.
    let mut cut = growing;
    if let Sample::Histogram(h) = &mut cut[50].1 {
        h.reset_hint = ResetHint::Reset;
    }
    assert_eq!(encode(&cut).len(), 2);
}
