//! The codec against `tsz::StdDecoder`, against slices, and against damage.

use model::cursor::SliceCursor;
use model::{Advance, Cursor, SAMPLE_BATCH_LEN, STALE_NAN_BITS, SampleBatch};
use proptest::prelude::*;
use tsz::stream::{BufferedReader, BufferedWriter};
use tsz::{DataPoint, Decode, Encode, StdDecoder, StdEncoder};

use super::encode::is_held;
use super::*;

const DAY_MS: i64 = 86_400_000;

/// Times of many kinds of starts and distances.
fn timestamps(len_max: usize) -> impl Strategy<Value = Vec<i64>> {
    let start = prop_oneof![
        4 => 1_500_000_000_000i64..1_900_000_000_000,
        1 => -100 * 365 * DAY_MS..0,
        1 => Just(0i64),
        1 => Just(i64::MIN),
        1 => i64::MAX - 1_000_000..i64::MAX,
        1 => any::<i64>(),
    ];
    let delta = prop_oneof![
        6 => Just(15_000u64),
        6 => 14_990u64..15_010,
        3 => 1u64..5_000,
        2 => 10_000u64..40_000,
        1 => 1u64..400_000_000_000,
        1 => (0i64..4_097).prop_map(|d| (15_000 + d - 2_048).unsigned_abs()),
        1 => prop::sample::select(vec![
            1, 16_383, 16_384, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, 1 << 32, (1 << 32) + 1,
            1 << 33, u64::MAX, u64::MAX >> 1,
        ]),
    ];
    (start, prop::collection::vec(delta, 0..len_max)).prop_map(|(start, deltas)| {
        let mut times = vec![start];
        let mut time = start;
        for delta in deltas {
            let Some(next) = time.checked_add_unsigned(delta) else { continue };
            times.push(next);
            time = next;
        }
        times
    })
}

/// Values of every kind, as bits.
fn value_bits() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => Just(STALE_NAN_BITS),
        3 => (0u64..1 << 52).prop_map(|payload| 0x7ff0_0000_0000_0000 | payload),
        3 => 0u64..1 << 52,
        6 => prop::sample::select(vec![
            0, 1 << 63, f64::INFINITY.to_bits(), f64::NEG_INFINITY.to_bits(), u64::MAX, 1,
            f64::NAN.to_bits(), f64::MIN_POSITIVE.to_bits(), f64::MAX.to_bits(), 1.0f64.to_bits(),
        ]),
        10 => (0u32..100_000).prop_map(|n| f64::from(n).to_bits()),
        10 => (0.0f64..1.0).prop_map(f64::to_bits),
        5 => any::<u64>(),
    ]
}

/// Samples with runs of equal values.
fn samples(len_max: usize) -> impl Strategy<Value = (Vec<i64>, Vec<f64>)> {
    let runs = prop::collection::vec((value_bits(), 1usize..8), 1..len_max);
    (timestamps(len_max), runs).prop_map(|(times, runs)| {
        let mut values: Vec<f64> = runs
            .iter()
            .flat_map(|(bits, len)| std::iter::repeat_n(f64::from_bits(*bits), *len))
            .collect();
        values.resize(times.len(), 3.5);
        (times, values)
    })
}

/// Gorilla or packed.
type Encoder = fn(&[i64], &[f64], &mut Vec<u8>) -> usize;

fn encode_packed(times: &[i64], values: &[f64], out: &mut Vec<u8>) -> usize {
    PackedEncoder::default().encode(times, values, &[], out)
}

fn encoder() -> impl Strategy<Value = Encoder> {
    prop_oneof![Just(encode as Encoder), Just(encode_packed as Encoder)]
}

/// Returns the first frame of the samples.
fn first_frame(encode: Encoder, times: &[i64], values: &[f64]) -> (Vec<u8>, Vec<i64>, Vec<f64>) {
    let mut bytes = Vec::new();
    encode(times, values, &mut bytes);
    let header = FrameHeader::read(&bytes).unwrap();
    bytes.truncate(header.frame_len());
    let count = header.count as usize;
    (bytes, times[..count].to_vec(), values[..count].to_vec())
}

pub(super) fn bits_of(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

pub(super) fn read_all(decoder: &mut Decoder<'_>) -> Result<(Vec<i64>, Vec<u64>), ChunkError> {
    let mut batch = SampleBatch::new();
    let (mut times, mut values) = (Vec::new(), Vec::new());
    loop {
        let advance = decoder.next_batch(i64::MAX, &mut batch)?;
        times.extend_from_slice(batch.samples().0);
        values.extend(bits_of(batch.samples().1));
        batch.clear();
        match advance {
            Advance::Full => {}
            Advance::End => return Ok((times, values)),
            Advance::Reached => panic!("no bound was set"),
        }
    }
}

fn read_with_tsz(payload: &[u8]) -> (Vec<i64>, Vec<u64>) {
    let mut decoder = StdDecoder::new(BufferedReader::new(payload.into()));
    let (mut times, mut values) = (Vec::new(), Vec::new());
    while let Ok(point) = decoder.next() {
        times.push(from_ordered_bits(point.get_time()));
        values.push(point.get_value().to_bits());
    }
    assert_eq!(decoder.next().unwrap_err(), tsz::decode::Error::EndOfStream);
    (times, values)
}

fn write_with_tsz(times: &[i64], values: &[f64]) -> Box<[u8]> {
    let mut encoder = StdEncoder::new(ordered_bits(times[0]), BufferedWriter::new());
    for (time, value) in times.iter().zip(values) {
        encoder.encode(DataPoint::new(ordered_bits(*time), *value));
    }
    encoder.close()
}

/// Encodes, and reads back frame by frame with both decoders.
fn check_round_trip(times: &[i64], values: &[f64]) {
    let mut bytes = vec![7; 5];
    let frame_count = encode(times, values, &mut bytes);
    let bytes = &bytes[5..];
    let mut at = 0;
    let mut found = 0;
    for frame in frames(bytes) {
        let (offset, header) = frame.unwrap();
        let count = header.count as usize;
        let (times, values) = (&times[at..at + count], &values[at..at + count]);
        assert_eq!((header.min_ms, header.max_ms), (times[0], times[count - 1]));

        let frame = &bytes[offset..offset + header.frame_len()];
        let payload = &frame[header.payload_start()..header.payload_end()];
        assert_eq!(payload, &write_with_tsz(times, values)[..]);
        let expected = (times.to_vec(), bits_of(values));
        assert_eq!(read_with_tsz(payload), expected);
        assert_eq!(read_all(&mut Decoder::open(frame).unwrap()).unwrap(), expected);
        // Bytes after a frame make no difference.
        assert_eq!(read_all(&mut Decoder::open(&bytes[offset..]).unwrap()).unwrap(), expected);
        at += count;
        found += 1;
    }
    assert_eq!((at, found), (times.len(), frame_count));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_grown_frame_is_that_of_all_its_samples(
        (times, values) in samples(200),
        lengths in prop::collection::vec(1_usize..40, 1..20),
    ) {
        let samples: Vec<(i64, f64)> = times.iter().copied().zip(values).collect();
        let (mut frame, mut end, mut len) = (Vec::new(), None, 0);
        for more in lengths {
            let more = &samples[len..(len + more).min(samples.len())];
            let is_near = |pair: &[(i64, f64)]| {
                pair[1].0.checked_sub(pair[0].0).is_some_and(|delta_ms| delta_ms < 1 << 31)
            };
            let are_near = samples[len.saturating_sub(1)..len + more.len()].windows(2).all(is_near);
            let mut grown = Vec::new();
            let before = end.map(|end| (&frame[..], end));
            let grown_end = grow(before, more, &mut grown);
            if more.is_empty() || !are_near {
                prop_assert_eq!((grown_end, grown.len()), (None, 0));
                break;
            }
            let Some(grown_end) = grown_end else {
                // The span of all is too long.
                prop_assert!(samples[len].0.checked_sub(samples[0].0).is_none());
                break;
            };
            len += more.len();
            let mut expected = Vec::new();
            let (times, values): (Vec<i64>, Vec<f64>) = samples[..len].iter().copied().unzip();
            prop_assert_eq!(encode(&times, &values, &mut expected), 1);
            prop_assert_eq!(&grown, &expected);
            (frame, end) = (grown, Some(grown_end));
        }
    }

    #[test]
    fn both_decoders_give_back_what_was_encoded((times, values) in samples(200)) {
        check_round_trip(&times, &values);
    }

    #[test]
    fn decoder_resumes_as_a_slice_does(
        encoder in encoder(),
        (times, values) in samples(1500),
        mut bounds in prop::collection::vec((any::<prop::sample::Index>(), -1i64..2), 0..20),
        fill in 0usize..SAMPLE_BATCH_LEN,
    ) {
        let (bytes, times, values) = first_frame(encoder, &times, &values);
        bounds.sort_by_key(|(index, _)| index.index(times.len()));
        let mut bounds: Vec<i64> =
            bounds.iter().map(|(i, by)| times[i.index(times.len())].saturating_add(*by)).collect();
        bounds.sort_unstable();
        bounds.push(i64::MAX);

        let mut decoder = Decoder::open(&bytes).unwrap();
        let mut slice = SliceCursor::new(&times, &values);
        let (mut batch, mut expected) = (SampleBatch::new(), SampleBatch::new());
        (batch.len, expected.len) = (fill, fill);
        for bound in bounds {
            loop {
                let advance = decoder.next_batch(bound, &mut batch).unwrap();
                prop_assert_eq!(advance, slice.next_batch(bound, &mut expected).unwrap());
                prop_assert_eq!(batch.samples().0, expected.samples().0);
                prop_assert_eq!(bits_of(batch.samples().1), bits_of(expected.samples().1));
                if advance != Advance::Full {
                    break;
                }
                batch.clear();
                expected.clear();
            }
        }
        prop_assert_eq!(decoder.remaining(), 0);
    }

    #[test]
    fn skipping_leaves_what_is_not_before_the_start(
        encoder in encoder(),
        (times, values) in samples(200),
        at in any::<prop::sample::Index>(),
        by in -1i64..2,
    ) {
        let (bytes, times, values) = first_frame(encoder, &times, &values);
        let start_ms = times[at.index(times.len())].saturating_add(by);
        let first = times.partition_point(|t| *t < start_ms);
        let mut decoder = Decoder::open(&bytes).unwrap();
        decoder.skip_before(start_ms).unwrap();
        prop_assert_eq!(decoder.remaining(), times.len() - first);
        decoder.skip_before(start_ms).unwrap();
        prop_assert_eq!(
            read_all(&mut decoder).unwrap(),
            (times[first..].to_vec(), bits_of(&values[first..]))
        );
    }

    #[test]
    fn any_changed_byte_is_an_error(
        encoder in encoder(),
        (times, values) in samples(60),
        at in any::<prop::sample::Index>(),
        change in 1u8..,
    ) {
        let (mut bytes, _, _) = first_frame(encoder, &times, &values);
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        // A changed length may reach into the bytes after the frame.
        bytes.extend_from_slice(&[0xa5; 40]);
        prop_assert!(Decoder::open(&bytes).is_err());
    }

    #[test]
    fn any_missing_byte_is_an_error(
        encoder in encoder(),
        (times, values) in samples(60),
        at in any::<prop::sample::Index>(),
    ) {
        let (bytes, _, _) = first_frame(encoder, &times, &values);
        let bytes = &bytes[..at.index(bytes.len())];
        prop_assert!(FrameHeader::read(bytes).is_err());
        prop_assert!(Decoder::open(bytes).is_err());
    }

    /// With a valid checksum, damage causes an error or the announced number of samples.
    #[test]
    fn damage_under_a_good_checksum_stays_bounded(
        encoder in encoder(),
        (times, values) in samples(700),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (mut bytes, _, _) = first_frame(encoder, &times, &values);
        let body_len = bytes.len() - 4;
        for (at, byte) in changes {
            bytes[at.index(body_len)] = byte;
        }
        let checksum = crc32c::crc32c(&bytes[..body_len]);
        bytes[body_len..].copy_from_slice(&checksum.to_le_bytes());
        let Ok(mut decoder) = Decoder::open(&bytes) else { return Ok(()) };
        let header = FrameHeader::read(&bytes).unwrap();
        match read_all(&mut decoder) {
            Ok((times, _)) => {
                prop_assert_eq!(times.len(), header.count as usize);
                prop_assert!(times.is_sorted_by(|a, b| a < b));
                prop_assert_eq!(times.last(), Some(&header.max_ms));
            }
            Err(error) => {
                let mut batch = SampleBatch::new();
                prop_assert_eq!(decoder.next_batch(i64::MAX, &mut batch), Err(error));
                prop_assert_eq!(batch.len, 0);
            }
        }
    }

    #[test]
    fn random_bytes_are_never_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..80),
        tag_of in prop::sample::select(vec![
            Encoding::Gorilla,
            Encoding::GorillaStarts,
            Encoding::Packed,
            Encoding::PackedStarts,
        ]),
    ) {
        let _ = Decoder::open(&bytes);
        if let Some(tag) = bytes.first_mut() {
            *tag = tag_of as u8;
        }
        let _ = frames(&bytes).count();
        if let Ok(header) = FrameHeader::read(&bytes)
            && let Ok(mut decoder) = Decoder::new(&bytes, &header)
        {
            let _ = read_all(&mut decoder);
        }
    }

    /// Chunks are cut by the behavior of the crate, not by our assumptions.
    #[test]
    fn held_is_what_tsz_gives_back(
        delta_before in prop_oneof![1i64..1 << 31, Just(1i64), Just(1i64 << 31)],
        delta in prop_oneof![
            any::<i64>(),
            1i64..1 << 34,
            (1i64..1 << 20).prop_map(|n| n << 32),
            prop::sample::select(vec![63, 64, 65, 255, 256, 257, 2047, 2048, 2049])
                .prop_flat_map(|n| prop_oneof![Just(n), Just(-n)]),
            prop::sample::select(vec![1i64 << 31, 1 << 32, 1 << 33]).prop_flat_map(|n| n - 2..n + 3),
        ],
        relative in any::<bool>(),
    ) {
        let delta = if relative { delta_before.wrapping_add(delta) } else { delta };
        prop_assume!(delta > 0 && delta_before.checked_add(delta).is_some());
        let times = [0, delta_before, delta_before + delta];
        prop_assume!(is_held(delta_before));

        let payload = write_with_tsz(&times, &[1.0, 2.0, 3.0]);
        let mut decoder = StdDecoder::new(BufferedReader::new(payload));
        let mut found = Vec::new();
        while let Ok(point) = decoder.next() {
            found.push(from_ordered_bits(point.get_time()));
            if found.len() == 3 {
                break;
            }
        }
        prop_assert_eq!(is_held(delta - delta_before), found == times);
    }
}

#[test]
fn borders_of_every_timestamp_class_come_back() {
    let borders =
        [1, 2, 62, 63, 64, 65, 254, 255, 256, 257, 2046, 2047, 2048, 2049, (1 << 31) - 1, 1 << 31];
    for border in borders {
        for delta_of_deltas in [border, -border] {
            let delta_before = (1 << 31) - 5;
            let delta = delta_before + delta_of_deltas;
            let delta = if delta > 0 { delta } else { 1 };
            let times = [-9, -9 + delta_before, -9 + delta_before + delta];
            check_round_trip(&times, &[0.1, 0.2, 0.3]);
        }
    }
}

#[test]
fn chunk_is_cut_before_what_the_format_cannot_hold() {
    let check = |deltas: &[i64], frame_counts: &[u32]| {
        let mut times = vec![1_700_000_000_000];
        times.extend(deltas.iter().scan(times[0], |time, delta| {
            *time += delta;
            Some(*time)
        }));
        let values = vec![1.5; times.len()];
        let mut bytes = Vec::new();
        encode(&times, &values, &mut bytes);
        let found: Vec<u32> = frames(&bytes).map(|frame| frame.unwrap().1.count).collect();
        assert_eq!(found, frame_counts);
        check_round_trip(&times, &values);
    };
    check(&[], &[1]);
    check(&[1 << 31], &[2]);
    check(&[(1 << 31) + 1], &[1, 1]);
    check(&[1 << 32], &[1, 1]);
    check(&[15_000, 15_000 + (1 << 32), 15_000], &[2, 2]);
    check(&[15_000, 400 * DAY_MS, 15_000, 15_000], &[2, 3]);
    check(&[1 << 31, 1], &[3]);
    check(&[1 << 31, 1 << 31, 1], &[4]);
    // From 2³¹ + 1 down to 1 is −2³¹, which would read as 2³¹.
    check(&[2, (1 << 31) + 1, 1], &[3, 1]);
}

#[test]
fn longest_chunk_is_cut_at_its_limit_and_holds_the_widest_samples() {
    let count = CHUNK_SAMPLES_MAX + 3;
    let times: Vec<i64> = (0..count as i64).map(|i| i * 100_000 + (i % 2) * 90_000).collect();
    let values: Vec<f64> =
        (0..count as u64).map(|i| f64::from_bits((i % 2 * (1 << 63 | 1)) ^ (i % 4 / 2))).collect();
    let mut bytes = Vec::new();
    assert_eq!(encode(&times, &values, &mut bytes), 2);
    check_round_trip(&times, &values);
}

#[test]
fn extremes_of_time_come_back() {
    check_round_trip(&[i64::MIN], &[f64::from_bits(STALE_NAN_BITS)]);
    check_round_trip(&[i64::MAX], &[-0.0]);
    check_round_trip(&[i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX], &[0.0; 7]);
    check_round_trip(&[i64::MIN, i64::MAX], &[1.0, 2.0]);
}

#[test]
fn no_samples_are_no_frame() {
    let mut bytes = Vec::new();
    assert_eq!(encode(&[], &[], &mut bytes), 0);
    assert!(bytes.is_empty());
    assert_eq!(frames(&bytes).count(), 0);
}

#[test]
fn frame_has_the_bytes_of_its_description() {
    let mut bytes = Vec::new();
    encode(&[1000, 16_000, 31_000], &[1.0, 1.0, 2.0], &mut bytes);
    let (body, checksum) = bytes.split_at(bytes.len() - 4);
    let header = [1, 3, 0xb0, 0xea, 0x01, 31];
    let payload = [
        // The start, 1000 with its sign bit flipped; then 15 zero bits and 1.0.
        0x80, 0, 0, 0, 0, 0, 0x03, 0xe8, 0, 0, 0x7f, 0xe0, 0, 0, 0, 0, 0, 1,
        // 1111 15000:32, 0; 0, 11 leading 1:6, significant − 1 = 10:6, the xor; the end.
        0xe0, 0, 0x07, 0x53, 0x06, 0x09, 0x5f, 0xff, 0xc0, 0, 0, 0, 0,
    ];
    assert_eq!(body, [&header[..], &payload[..]].concat());
    assert_eq!(checksum, crc32c::crc32c(body).to_le_bytes());
}

#[test]
fn errors_name_what_was_found() {
    let mut bytes = Vec::new();
    encode(&[1000, 16_000, 31_000], &[1.0, 1.0, 2.0], &mut bytes);
    let check = |bytes: &[u8], expected: &str| {
        let error = Decoder::open(bytes).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(&[], "frame needs 1 bytes, found 0");
    check(&bytes[..bytes.len() - 1], "frame needs 41 bytes, found 40");
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        bytes
    };
    check(&with(0, 0), "unknown chunk encoding 0");
    check(&with(0, 17), "unknown chunk encoding 17");
    check(&with(1, 0), "sample count in the chunk header is invalid: 0");
    check(&with(1, 0x7f), "payload length in the chunk header is invalid: 31");
    check(&with(4, 0), "time span in the chunk header is invalid: 13616");
    check(&with(2, 0xb1), "chunk checksum 0xa9d9714f differs from the stored 0x881fe76c");
    let corrupt = ChunkError::UnknownEncoding { tag: 9 }.at("up{job=\"a\"}", "block 7");
    assert_eq!(
        corrupt.to_string(),
        "damaged data at block 7 of series up{job=\"a\"}: unknown chunk encoding 9"
    );
}

/// Builds a frame with a valid checksum around a payload that our encoder would not write.
fn framed(payload: &[u8], count: usize, span_ms: u64) -> Vec<u8> {
    let mut header = [0; frame::HEADER_BYTES_MAX];
    let len = frame::write_header(&mut header, Encoding::Gorilla, count, span_ms, payload.len());
    let mut bytes = [&header[..len], payload].concat();
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn payload_that_differs_from_its_header_is_an_error() {
    let error = |payload: &[u8], count: usize, span_ms: u64| {
        let bytes = framed(payload, count, span_ms);
        let error = Decoder::open(&bytes).and_then(|mut d| read_all(&mut d)).unwrap_err();
        error.to_string().replace(" of the chunk", "")
    };
    let three = write_with_tsz(&[5, 10, 15], &[1.0, 1.0, 1.0]);
    let mut late = StdEncoder::new(ordered_bits(5), BufferedWriter::new());
    late.encode(DataPoint::new(ordered_bits(6), 1.0));
    let found = [
        error(&three, 2, 5),
        error(&three, 4, 15),
        error(&three, 3, 9),
        error(&three, 3, 11),
        error(&[&three[..], &[0]].concat(), 3, 10),
        error(&write_with_tsz(&[5, 5, 5], &[1.0; 3]), 3, 10),
        error(&late.close(), 1, 0),
    ];
    let expected = [
        "the end is not marked at sample 2, bit 185",
        "the stream ends early at sample 3, bit 187",
        "time passes the header's at sample 2, bit 185",
        "the last time is not the header's at sample 3, bit 187",
        "bits follow the end at sample 3, bit 187",
        "time does not ascend at sample 3, bit 179",
        "the first delta is not 0 at sample 0, bit 111",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_frame_that_is_damaged_packed_or_too_long_does_not_grow() {
    let samples: Vec<(i64, f64)> = (0..700).map(|at| (at * 15_000, at as f64 * 0.1)).collect();
    let mut frame = Vec::new();
    let end = grow(None, &samples[..20], &mut frame).expect("they fit");
    let grow_more = |frame: &[u8], samples: &[(i64, f64)]| {
        let mut out = vec![1, 2, 3];
        let grown = grow(Some((frame, end)), samples, &mut out);
        assert_eq!((out.len() > 3, &out[..3]), (grown.is_some(), &[1, 2, 3][..]));
        grown
    };
    assert!(grow_more(&frame, &samples[20..40]).is_some());
    for at in 0..frame.len() {
        let mut damaged = frame.clone();
        damaged[at] ^= 0x40;
        assert_eq!(grow_more(&damaged, &samples[20..40]), None, "byte {at}");
    }
    assert_eq!(grow_more(&frame, &samples[19..40]), None, "time does not ascend");
    assert_eq!(grow_more(&frame, &samples[20..700]), None);
    let (times, values): (Vec<i64>, Vec<f64>) = samples[..20].iter().copied().unzip();
    let mut packed = Vec::new();
    assert_eq!(encode_packed(&times, &values, &mut packed), 1);
    assert_eq!(grow_more(&packed, &samples[20..40]), None);
}
