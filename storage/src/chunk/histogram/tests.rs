//! The codec of histograms: round trips, bounds, sizes and damage.

use std::sync::Arc;

use model::{
    Advance, HISTOGRAM_BATCH_LEN, Histogram, HistogramSample, ResetHint, SampleBatch, Span,
};
use proptest::prelude::*;

use super::layout::{HISTOGRAM_BUCKETS_MAX, canonical_spans};
use super::*;
use crate::chunk::{self, ChunkError, Decoder, FrameHeader, frames};

/// Change of a random series from one sample to the next.
#[derive(Debug, Clone)]
enum Step {
    Grow(Vec<u32>),
    Same,
    NewBucket(bool, i32),
    LoseBucket,
    Reset(ResetHint),
    Hint(ResetHint),
    Gauge(Vec<i32>),
    Floats(Vec<u64>),
    Stale,
    Schema(i8),
    Threshold(f64),
    Custom(Vec<u16>),
    Excess(i32),
    Huge,
}

fn hint() -> impl Strategy<Value = ResetHint> {
    (0_u8..4).prop_map(|number| ResetHint::from_number(number).unwrap())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => prop::collection::vec(prop_oneof![Just(0_u32), 0_u32..20, 0_u32..100_000], 1..6)
            .prop_map(Step::Grow),
        6 => Just(Step::Same),
        6 => (any::<bool>(), -30_i32..30).prop_map(|(side, at)| Step::NewBucket(side, at)),
        2 => Just(Step::LoseBucket),
        2 => hint().prop_map(Step::Reset),
        2 => hint().prop_map(Step::Hint),
        3 => prop::collection::vec(-500_i32..500, 1..6).prop_map(Step::Gauge),
        3 => prop::collection::vec(any::<u64>(), 1..6).prop_map(Step::Floats),
        2 => Just(Step::Stale),
        1 => (-4_i8..9).prop_map(Step::Schema),
        1 => prop::sample::select(vec![0.0, 2.0_f64.powi(-128), 0.5, 0.1, -1.0, f64::NAN])
            .prop_map(Step::Threshold),
        1 => prop::collection::vec(any::<u16>(), 0..6).prop_map(Step::Custom),
        1 => any::<i32>().prop_map(Step::Excess),
        1 => Just(Step::Huge),
    ]
}

/// Counts of both sides by bucket index, from which spans are built.
#[derive(Debug, Clone, Default)]
struct Model {
    sides: [std::collections::BTreeMap<i32, f64>; 2],
    histogram: Histogram,
    excess: f64,
}

impl Model {
    fn apply(&mut self, step: &Step) {
        let all = |sides: &mut [std::collections::BTreeMap<i32, f64>; 2],
                   change: &mut dyn FnMut(usize, &mut f64)| {
            let counts = sides.iter_mut().flat_map(|side| side.values_mut());
            counts.enumerate().for_each(|(at, count)| change(at, count));
        };
        match step {
            Step::Grow(by) => {
                all(&mut self.sides, &mut |at, count| *count += f64::from(by[at % by.len()]));
                self.histogram.sum += f64::from(by[0]) * 0.1;
            }
            Step::Same => {}
            Step::NewBucket(side, at) => {
                self.sides[usize::from(*side)].entry(*at).or_insert(0.0);
            }
            Step::LoseBucket => {
                self.sides[0].pop_first();
            }
            Step::Reset(hint) => {
                all(&mut self.sides, &mut |at, count| *count = (at % 3) as f64);
                self.histogram.zero_count = 0.0;
                self.histogram.reset_hint = *hint;
            }
            Step::Hint(hint) => self.histogram.reset_hint = *hint,
            Step::Gauge(by) => {
                self.histogram.reset_hint = ResetHint::Gauge;
                all(&mut self.sides, &mut |at, count| {
                    *count = (*count + f64::from(by[at % by.len()])).max(0.0);
                });
            }
            Step::Floats(bits) => {
                all(&mut self.sides, &mut |at, count| {
                    *count = f64::from_bits(bits[at % bits.len()]);
                });
                self.histogram.zero_count = f64::from_bits(bits[0]);
            }
            Step::Stale => self.histogram.sum = model::stale_nan(),
            Step::Schema(schema) => self.histogram.schema = *schema,
            Step::Threshold(threshold) => self.histogram.zero_threshold = *threshold,
            Step::Custom(bounds) => {
                self.histogram.schema = model::histogram::CUSTOM_BUCKETS_SCHEMA;
                self.histogram.custom_bounds = bounds.iter().map(|b| f64::from(*b) / 7.0).collect();
            }
            Step::Excess(excess) => self.excess = f64::from(*excess),
            Step::Huge => {
                let huge = ((1_u64 << 53) - 1) as f64;
                all(&mut self.sides, &mut |at, count| {
                    *count = if at % 2 == 0 { huge } else { 0.0 }
                });
                self.histogram.count = huge;
            }
        }
    }

    fn build(&self, step: &Step) -> Histogram {
        if matches!(step, Step::Stale) {
            return Histogram { reset_hint: self.histogram.reset_hint, ..Histogram::stale() };
        }
        let spans = |side: &std::collections::BTreeMap<i32, f64>| {
            let mut spans: Vec<Span> = Vec::new();
            let mut next = 0;
            for index in side.keys() {
                match spans.last_mut() {
                    Some(last) if *index == next => last.length += 1,
                    _ => spans.push(Span { offset: index - next, length: 1 }),
                }
                next = index + 1;
            }
            spans
        };
        let total: f64 = self.sides.iter().flat_map(|side| side.values()).sum();
        Histogram {
            count: total + self.histogram.zero_count + self.excess,
            positive_spans: spans(&self.sides[0]),
            negative_spans: spans(&self.sides[1]),
            positive_counts: self.sides[0].values().copied().collect(),
            negative_counts: self.sides[1].values().copied().collect(),
            ..self.histogram.clone()
        }
    }
}

fn samples(len_max: usize) -> impl Strategy<Value = Vec<HistogramSample>> {
    let delta = prop_oneof![
        8 => Just(15_000_i64),
        4 => 14_990_i64..15_010,
        2 => 1_i64..40_000,
        1 => 1_i64..(1 << 40),
    ];
    let start = 0_u8..6;
    let first = prop_oneof![Just(0_i64), Just(1_700_000_000_000), -1_i64 << 50..1 << 50];
    (first, prop::collection::vec((step(), delta, start), 1..len_max)).prop_map(|(first, steps)| {
        let mut model = Model::default();
        let mut timestamp_ms = first;
        let mut samples: Vec<HistogramSample> = Vec::new();
        for (step, delta, start) in &steps {
            model.apply(step);
            let start_ms = match start {
                0 => 0,
                1 => timestamp_ms,
                2 => timestamp_ms + 1,
                3 => i64::MIN,
                _ => samples.last().map_or(0, |s| s.start_ms),
            };
            timestamp_ms += delta;
            let histogram = Arc::new(model.build(step));
            samples.push(HistogramSample { timestamp_ms, start_ms, histogram });
        }
        samples
    })
}

fn assert_same(found: &[HistogramSample], expected: &[HistogramSample]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(
            (found.timestamp_ms, found.start_ms),
            (expected.timestamp_ms, expected.start_ms)
        );
        assert_eq!(found.histogram, expected.histogram);
    }
}

fn read_all(decoder: &mut HistogramDecoder<'_>) -> Result<Vec<HistogramSample>, ChunkError> {
    let mut batch = SampleBatch::new();
    let mut samples = Vec::new();
    loop {
        let advance = decoder.next_batch(i64::MAX, &mut batch)?;
        assert!(batch.histograms.len() <= HISTOGRAM_BATCH_LEN && batch.len == 0);
        samples.append(&mut batch.histograms);
        match advance {
            Advance::Full => {}
            Advance::End => return Ok(samples),
            Advance::Reached => panic!("no bound was set"),
        }
    }
}

fn encoded(samples: &[HistogramSample], before: Option<HistogramBefore>) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert_eq!(encode_histograms(samples, before, &mut bytes), 1);
    bytes
}

proptest! {
    #[test]
    fn histograms_come_back_as_they_were_written(
        samples in samples(90),
        before in prop::option::of((1_i64..1 << 40, any::<u32>())),
        behind in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let before = before.map(|(distance, fingerprint)| {
            HistogramBefore { timestamp_ms: samples[0].timestamp_ms - distance, fingerprint }
        });
        let mut bytes = encoded(&samples, before);
        let header = FrameHeader::read(&bytes).unwrap();
        prop_assert_eq!(header.frame_len(), bytes.len());
        prop_assert_eq!(header.min_ms, samples[0].timestamp_ms);
        prop_assert_eq!(header.max_ms, samples.last().unwrap().timestamp_ms);
        bytes.extend(behind);
        let mut decoder = HistogramDecoder::open(&bytes).unwrap();
        prop_assert_eq!(decoder.before(), before);
        assert_same(&read_all(&mut decoder).unwrap(), &samples);
    }

    #[test]
    fn bounds_and_skips_lose_nothing(
        samples in samples(90),
        bounds in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        from in any::<prop::sample::Index>(),
        by in -1_i64..2,
    ) {
        let bytes = encoded(&samples, None);
        let start_ms = samples[from.index(samples.len())].timestamp_ms + by;
        let first = samples.partition_point(|s| s.timestamp_ms < start_ms);
        let mut decoder = HistogramDecoder::open(&bytes).unwrap();
        prop_assert_eq!(decoder.skip_before(start_ms).unwrap(), first > 0);
        prop_assert!(!decoder.skip_before(start_ms).unwrap());
        prop_assert_eq!(decoder.remaining(), samples.len() - first);
        let mut bounds: Vec<i64> =
            bounds.iter().map(|at| samples[at.index(samples.len())].timestamp_ms + by).collect();
        bounds.sort_unstable();
        bounds.push(i64::MAX);
        let mut found = Vec::new();
        let mut batch = SampleBatch::new();
        for until_ms in bounds {
            loop {
                let advance = decoder.next_batch(until_ms, &mut batch).unwrap();
                prop_assert!(batch.histograms.iter().all(|s| s.timestamp_ms <= until_ms));
                found.append(&mut batch.histograms);
                if advance != Advance::Full {
                    break;
                }
            }
            let end = samples.partition_point(|s| s.timestamp_ms <= until_ms).max(first);
            assert_same(&found, &samples[first..end]);
        }
    }

    #[test]
    fn any_changed_or_missing_byte_is_an_error(
        samples in samples(20),
        at in any::<prop::sample::Index>(),
        change in 1_u8..,
    ) {
        let bytes = encoded(&samples, None);
        let at = at.index(bytes.len());
        prop_assert!(HistogramDecoder::open(&bytes[..at]).is_err());
        let mut damaged = bytes.clone();
        damaged[at] ^= change;
        damaged.extend_from_slice(&[0xa5; 40]);
        prop_assert!(HistogramDecoder::open(&damaged).is_err());
    }

    /// With a valid checksum, damage causes an error or the announced number of samples.
    #[test]
    fn damage_under_a_good_checksum_stays_bounded(
        samples in samples(60),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = encoded(&samples, None);
        let body_len = bytes.len() - 4;
        for (at, byte) in changes {
            bytes[at.index(body_len)] = byte;
        }
        let checksum = crc32c::crc32c(&bytes[..body_len]);
        bytes[body_len..].copy_from_slice(&checksum.to_le_bytes());
        check_hostile(&bytes);
    }

    #[test]
    fn random_payloads_are_never_a_panic(
        payload in prop::collection::vec(any::<u8>(), 10..200),
        count in 1_usize..300,
        span_ms in 0_u64..1_000_000,
    ) {
        let mut payload = payload;
        payload[0] = 0x80;
        check_hostile(&framed(&payload, count, span_ms.max(count as u64 - 1)));
    }

    #[test]
    fn starts_of_floats_come_back(
        deltas in prop::collection::vec((1_i64..20_000, 0_u8..8), 1..300),
        until in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        from in any::<prop::sample::Index>(),
        encode in encoder_with_starts(),
    ) {
        let mut timestamps = Vec::new();
        let mut starts: Vec<i64> = Vec::new();
        let mut time_ms = 1_700_000_000_000;
        for (delta, start) in deltas {
            starts.push(match start {
                0 => 0,
                1 => time_ms,
                2 => time_ms + 1,
                3 => i64::MIN,
                _ => starts.last().copied().unwrap_or(77),
            });
            time_ms += delta;
            timestamps.push(time_ms);
        }
        let values: Vec<f64> = timestamps.iter().map(|t| *t as f64).collect();
        let mut bytes = Vec::new();
        encode(&timestamps, &values, &starts, &mut bytes);
        let header = chunk::FrameHeader::read(&bytes).unwrap();
        timestamps.truncate(header.count as usize);
        let mut decoder = Decoder::open(&bytes).unwrap();
        let first = from.index(timestamps.len());
        decoder.skip_before(timestamps[first]).unwrap();
        let mut until: Vec<i64> =
            until.iter().map(|at| timestamps[at.index(timestamps.len())]).collect();
        until.sort_unstable();
        until.push(i64::MAX);
        let mut batch = SampleBatch::new();
        let mut found = Vec::new();
        for until_ms in until {
            decoder.next_batch(until_ms, &mut batch).unwrap();
            found.extend((0..batch.len).map(|at| (batch.timestamps[at], batch.start(at))));
            batch.clear();
        }
        let expected: Vec<_> = timestamps.into_iter().zip(starts).skip(first).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn damaged_starts_stay_bounded(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        encode in encoder_with_starts(),
    ) {
        let timestamps: Vec<i64> = (0..100).map(|i| i * 1000).collect();
        let starts: Vec<i64> = timestamps.iter().map(|t| t / 9000 * 9000 + t % 3000 / 1000).collect();
        let mut bytes = Vec::new();
        encode(&timestamps, &[1.0; 100], &starts, &mut bytes);
        let body_len = bytes.len() - 4;
        let payload_len = body_len - chunk::FrameHeader::read(&bytes).unwrap().payload_start();
        for (at, byte) in changes {
            // Not the min time at the start of the payload.
            bytes[body_len - 1 - at.index((payload_len - 8).min(60))] = byte;
        }
        let checksum = crc32c::crc32c(&bytes[..body_len]);
        bytes[body_len..].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(mut decoder) = Decoder::open(&bytes) {
            let mut batch = SampleBatch::new();
            match decoder.next_batch(i64::MAX, &mut batch) {
                Ok(_) => prop_assert_eq!((batch.len, batch.starts.len()), (100, 100)),
                Err(error) => {
                    prop_assert_eq!((batch.len, batch.starts.len()), (0, 0));
                    prop_assert_eq!(decoder.next_batch(i64::MAX, &mut batch), Err(error));
                }
            }
        }
    }
}

type EncoderWithStarts = fn(&[i64], &[f64], &[i64], &mut Vec<u8>) -> usize;

/// Returns Gorilla or packed.
fn encoder_with_starts() -> impl Strategy<Value = EncoderWithStarts> {
    let packed: EncoderWithStarts = |timestamps, values, starts, out| {
        chunk::PackedEncoder::default().encode(timestamps, values, starts, out)
    };
    prop_oneof![Just(chunk::encode_with_starts as EncoderWithStarts), Just(packed)]
}

/// Builds a frame with a valid checksum around any payload.
fn framed(payload: &[u8], count: usize, span_ms: u64) -> Vec<u8> {
    let mut header = [0; chunk::frame::HEADER_BYTES_MAX];
    let encoding = chunk::Encoding::Histograms;
    let len = chunk::frame::write_header(&mut header, encoding, count, span_ms, payload.len());
    let mut bytes = [&header[..len], payload].concat();
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Reads arbitrary bytes: a permanent error, or the announced samples.
fn check_hostile(bytes: &[u8]) {
    let Ok(mut decoder) = HistogramDecoder::open(bytes) else { return };
    let header = FrameHeader::read(bytes).unwrap();
    let payload_len = header.payload_end() - header.payload_start();
    match read_all(&mut decoder) {
        Ok(samples) => {
            assert_eq!(samples.len(), header.count as usize);
            assert!(samples.is_sorted_by(|a, b| a.timestamp_ms < b.timestamp_ms));
            assert_eq!(samples.last().map(|s| s.timestamp_ms), Some(header.max_ms));
            assert!(samples.iter().all(|s| is_storable(&s.histogram)));
            let mut last: Option<&Arc<Histogram>> = None;
            let mut held = 0;
            for sample in &samples {
                // Unchanged samples share the histogram before.
                if !last.is_some_and(|last| Arc::ptr_eq(last, &sample.histogram)) {
                    held += sample.histogram.heap_bytes();
                }
                last = Some(&sample.histogram);
            }
            assert!(held <= payload_len * 8 * 16, "{held} bytes from {payload_len}");
        }
        Err(error) => {
            let mut batch = SampleBatch::new();
            assert_eq!(decoder.next_batch(i64::MAX, &mut batch), Err(error));
            assert_eq!(batch.sample_count(), 0);
        }
    }
}

fn histogram(counts: &[f64]) -> Histogram {
    Histogram {
        count: counts.iter().sum(),
        sum: 1.0,
        positive_spans: vec![Span { offset: 0, length: counts.len() as u32 }],
        positive_counts: counts.to_vec(),
        ..Histogram::default()
    }
}

fn at(timestamp_ms: i64, histogram: Histogram) -> HistogramSample {
    HistogramSample { timestamp_ms, start_ms: 0, histogram: Arc::new(histogram) }
}

#[test]
fn frame_has_the_bits_of_its_description() {
    let first = histogram(&[3.0, 1.0]);
    let second = Histogram { reset_hint: ResetHint::NotReset, sum: 2.0, ..histogram(&[5.0, 1.0]) };
    let third = HistogramSample { timestamp_ms: 31_000, ..at(0, second.clone()) };
    let before = HistogramBefore { timestamp_ms: 900, fingerprint: 0x1234_5678 };
    let bytes = encoded(&[at(1000, first), at(16_000, second), third], Some(before));
    let (body, checksum) = bytes.split_at(bytes.len() - 4);
    assert_eq!(checksum, crc32c::crc32c(body).to_le_bytes());
    let number = |number: u64| {
        let bits = (64 - number.leading_zeros()).max(1) as usize;
        format!("{:06b}{number:0bits$b}", bits - 1)
    };
    let text = [
        // 1000 with its sign bit flipped, and what is 100 ms before it.
        format!("{:064b}", 1000_u64 | 1 << 63),
        format!("1{}{:032b}", number(100), 0x1234_5678),
        // Unknown, rising, a new layout, no excess, no start.
        "11 00 00 1 0 00".to_owned(),
        // Integers, schema 0, threshold 0, one span of 2 at 0, none below, no bounds.
        format!("1 {:08b} {:08b}", 0, 0),
        format!("{} {} {}", number(1), number(0), number(2)),
        number(0) + &number(0),
        // The sum 1.0: leading 2, significant 10; then the three counts.
        "11 000010 001001 1111111111".to_owned(),
        number(0) + &number(3) + &number(1),
        // 15 s later: a delta of deltas of 15,000.
        format!("1111 {:064b}", 15_000),
        // Not reset, rising, no layout, no excess, no start; the xor of 1.0 and 2.0.
        "11 10 00 0 0 00".to_owned(),
        "11 000001 001010 11111111111".to_owned(),
        // Growth 0, k = 0; growth 2, k = 0; growth 0, k = 0.
        "1 001 1".to_owned(),
        // 15 s later, the same again.
        "0 10".to_owned(),
    ]
    .concat()
    .replace(' ', "");
    let payload: Vec<u8> = text
        .as_bytes()
        .chunks(8)
        .map(|bits| {
            let byte = bits.iter().fold(0, |byte, bit| byte << 1 | (bit - b'0'));
            byte << (8 - bits.len())
        })
        .collect();
    let header = [16, 3, 0xb0, 0xea, 0x01, payload.len() as u8];
    assert_eq!(body, [&header[..], &payload[..]].concat());
}

#[test]
fn spans_come_back_in_their_fewest_form() {
    let spans = |pairs: &[(i32, u32)]| {
        pairs.iter().map(|(offset, length)| Span { offset: *offset, length: *length }).collect()
    };
    let check = |given: &[(i32, u32)], expected: &[(i32, u32)]| {
        let given: Vec<Span> = spans(given);
        let expected: Vec<Span> = spans(expected);
        assert_eq!(canonical_spans(&given).into_owned(), expected);
        let len: u32 = given.iter().map(|span| span.length).sum();
        let counts: Vec<f64> = (0..len).map(f64::from).collect();
        let written = Histogram { positive_spans: given, ..histogram(&counts) };
        let bytes = encoded(&[at(0, written.clone())], None);
        let found = read_all(&mut HistogramDecoder::open(&bytes).unwrap()).unwrap();
        assert_eq!(*found[0].histogram, Histogram { positive_spans: expected, ..written });
    };
    check(&[], &[]);
    check(&[(5, 0)], &[]);
    check(&[(5, 0), (2, 3)], &[(7, 3)]);
    check(&[(1, 2), (0, 3), (4, 1)], &[(1, 5), (4, 1)]);
    check(&[(1, 2), (3, 0), (0, 1), (2, 0)], &[(1, 2), (3, 1)]);
    check(&[(-3, 1), (0, 0), (0, 1)], &[(-3, 2)]);
}

#[test]
fn widest_histograms_cut_frames_and_come_back() {
    let wide = |seed: u64| {
        let counts: Vec<f64> = (0..HISTOGRAM_BUCKETS_MAX as u64)
            .map(|i| f64::from_bits((i ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        let spans = (0..counts.len()).map(|_| Span { offset: 1 << 30, length: 1 }).collect();
        let custom_bounds = counts.iter().map(|c| c.abs()).collect();
        Histogram { positive_spans: spans, custom_bounds, ..histogram(&counts) }
    };
    let samples: Vec<HistogramSample> = (0..5).map(|i| at(i * 10, wide(i as u64))).collect();
    let mut bytes = Vec::new();
    assert!(encode_histograms(&samples, None, &mut bytes) > 1);
    let mut found = Vec::new();
    let mut before = None;
    for frame in frames(&bytes) {
        let (offset, header) = frame.unwrap();
        let mut decoder = HistogramDecoder::open(&bytes[offset..]).unwrap();
        assert_eq!(decoder.before(), before);
        found.extend(read_all(&mut decoder).unwrap());
        before = found.last().map(HistogramBefore::of);
        assert_eq!(before.unwrap().timestamp_ms, header.max_ms);
    }
    assert_same(&found, &samples);
}

#[test]
fn histograms_that_do_not_add_up_are_not_storable() {
    assert!(is_storable(&histogram(&[1.0, 2.0])));
    assert!(is_storable(&Histogram::stale()));
    let short = Histogram { positive_counts: vec![1.0], ..histogram(&[1.0, 2.0]) };
    assert!(!is_storable(&short));
    let endless = [Span { offset: 0, length: u32::MAX }; 3].to_vec();
    assert!(!is_storable(&Histogram { negative_spans: endless, ..Histogram::default() }));
    assert!(!is_storable(&histogram(&vec![1.0; HISTOGRAM_BUCKETS_MAX + 1])));
}

#[test]
fn unchanged_samples_take_three_bits_and_are_shared() {
    let one = Histogram { reset_hint: ResetHint::Gauge, ..histogram(&[7.0; 40]) };
    let samples: Vec<_> = (0..1000).map(|i| at(i * 15_000, one.clone())).collect();
    let bytes = encoded(&samples, None);
    let single = encoded(&samples[..1], None);
    assert!(bytes.len() - single.len() < 1000 * 3 / 8 + 20, "{}", bytes.len());
    let found = read_all(&mut HistogramDecoder::open(&bytes).unwrap()).unwrap();
    assert!(found.iter().all(|s| Arc::ptr_eq(&s.histogram, &found[0].histogram)));
}

#[test]
fn decoders_refuse_the_frames_of_others() {
    let bytes = encoded(&[at(0, histogram(&[1.0]))], None);
    assert_eq!(Decoder::open(&bytes).unwrap_err(), ChunkError::UnknownEncoding { tag: 16 });
    let mut floats = Vec::new();
    chunk::encode(&[1], &[1.0], &mut floats);
    let error = HistogramDecoder::open(&floats).unwrap_err();
    assert_eq!(error, ChunkError::UnknownEncoding { tag: 1 });
}

#[test]
fn floats_without_starts_keep_their_bytes() {
    let (timestamps, values) = ([1000, 16_000, 31_000], [1.0, 1.0, 2.0]);
    let (mut plain, mut with_starts) = (Vec::new(), Vec::new());
    chunk::encode(&timestamps, &values, &mut plain);
    chunk::encode_with_starts(&timestamps, &values, &[0, 0], &mut with_starts);
    assert_eq!(plain, with_starts);
    with_starts.clear();
    chunk::encode_with_starts(&timestamps, &values, &[500, 500, 16_000], &mut with_starts);
    // The header but for tag and length, the Gorilla payload, two runs and their length.
    assert_eq!((with_starts[0], with_starts[5]), (2, plain[5] + 4 + 3));
    let end = plain.len() - 4;
    assert_eq!(with_starts[6..end], plain[6..end]);
    // 2 × 4 + 1, zigzag(500); 1 × 4 + 2.
    assert_eq!(with_starts[end..end + 7], [9, 0xe8, 0x07, 6, 4, 0, 0]);
}
