//! Sizes and bytes of packed series.

use model::{STALE_NAN_BITS, SampleBatch};
use proptest::prelude::*;

use crate::chunk::tests::{bits_of, read_all};
use crate::chunk::{Decoder, Encoding, PackedEncoder, encode, encode_with_starts, frames};

/// Returns packed frames, which an encoder writes the same after other samples.
fn packed(times: &[i64], values: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = PackedEncoder::default();
    encoder.encode(times, values, &[], &mut bytes);
    let mut again = Vec::new();
    encoder.encode(&[1, 2, 4, 9, 10], &[7.0, 1.5e9, -3.25, 0.0, 8.0], &[], &mut again);
    encoder.encode(&[1, 3], &[f64::NAN, f64::NAN], &[], &mut again);
    again.clear();
    encoder.encode(times, values, &[], &mut again);
    assert_eq!(bytes, again);
    bytes
}

fn read(bytes: &[u8]) -> (Vec<i64>, Vec<u64>) {
    let (mut times, mut values) = (Vec::new(), Vec::new());
    for frame in frames(bytes) {
        let (offset, header) = frame.unwrap();
        assert_eq!(header.encoding, Encoding::Packed);
        let found = read_all(&mut Decoder::open(&bytes[offset..]).unwrap()).unwrap();
        times.extend(found.0);
        values.extend(found.1);
    }
    (times, values)
}

/// Asserts that samples survive a round trip; returns the bytes of each as packed and as Gorilla.
fn check(times: &[i64], values: &[f64]) -> (f64, f64) {
    let bytes = packed(times, values);
    assert_eq!(read(&bytes), (times.to_vec(), bits_of(values)));
    let mut gorilla = Vec::new();
    encode(times, values, &mut gorilla);
    let each = |bytes: &[u8]| bytes.len() as f64 / times.len() as f64;
    (each(&bytes), each(&gorilla))
}

/// Returns a pseudorandom number from 0 to below a limit.
fn noise(at: usize, limit: i64) -> i64 {
    ((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as i64 % limit
}

fn scrapes(count: usize, off: impl Fn(usize) -> i64) -> Vec<i64> {
    (0..count).map(|at| 1_700_000_000_000 + at as i64 * 15_000 + off(at)).collect()
}

#[test]
fn regular_samples_take_the_bits_of_what_is_not_regular() {
    let regular = scrapes(480, |_| 0);
    let one_in_ten = scrapes(480, |at| if at % 10 == 3 { noise(at, 21) - 10 } else { 0 });
    let all = scrapes(480, |at| noise(at, 101) - 50);
    let counter = |limit: i64| {
        let mut sum = 123_456;
        let value = move |at| {
            sum += noise(at, limit);
            sum as f64
        };
        (0..480).map(value).collect::<Vec<f64>>()
    };
    let resets: Vec<f64> =
        (0..480).map(|at| (at % 200 * 50) as f64 + noise(at, 50) as f64).collect();
    let decimals: Vec<f64> = (0..480)
        .map(|at| format!("2{}.{:02}", noise(at, 10), noise(at + 7, 100)).parse())
        .map(Result::unwrap)
        .collect();
    let floats: Vec<f64> = (0..480).map(|at| 1.0 + noise(at, 1 << 30) as f64 / 7.0e9).collect();
    let pages: Vec<f64> = (0..480).map(|at| (1_000_001 + noise(at, 2048) * 4096) as f64).collect();
    let short = |value: &f64| f64::from(*value as f32);
    let short_floats: Vec<f64> = floats.iter().map(short).collect();
    for (name, times, values, bytes_max) in [
        ("constant", &regular, vec![0.1; 480], 0.1),
        ("counter", &regular, counter(100), 0.95),
        ("counter, times one in ten off", &one_in_ten, counter(100), 1.2),
        ("counter, times off", &all, counter(100), 1.85),
        ("counter with resets", &regular, resets, 1.0),
        ("decimals", &regular, decimals, 1.4),
        ("multiples of a page", &regular, pages, 1.45),
        ("floats", &regular, floats, 6.6),
        ("floats of 32 bits", &regular, short_floats, 3.0),
    ] {
        let (bytes, of_gorilla) = check(times, &values);
        assert!(bytes <= bytes_max && bytes < of_gorilla, "{name}: {bytes} against {of_gorilla}");
    }
}

#[test]
fn gaps_and_staleness_begin_new_frames() {
    let mut times = scrapes(100, |at| if at < 40 { 0 } else { 60_000 });
    let mut values: Vec<f64> = (0..100).map(f64::from).collect();
    values[99] = f64::from_bits(STALE_NAN_BITS);
    let bytes = packed(&times, &values);
    let counts: Vec<u32> = frames(&bytes).map(|frame| frame.unwrap().1.count).collect();
    assert_eq!(counts, [40, 60]);
    check(&times, &values);
    times.truncate(41);
    check(&times, &values[..41]);
}

#[test]
fn a_single_staleness_marker_ends_a_frame() {
    let stale = f64::from_bits(STALE_NAN_BITS);
    let times = scrapes(60, |at| if at < 59 { 0 } else { 600_000 });
    let mut values: Vec<f64> = (0..60).map(|at| f64::from(at * at)).collect();
    // Two in a row, one after another NaN, one before the next sample, one after a gap.
    for at in [10, 11, 21, 40, 59] {
        values[at] = stale;
    }
    values[20] = f64::NAN;
    let bytes = packed(&times, &values);
    let counts: Vec<u32> = frames(&bytes).map(|frame| frame.unwrap().1.count).collect();
    assert_eq!(counts, [10, 2, 8, 2, 19, 18, 1]);
    check(&times, &values);
    // A frame that is read in parts, the last one the marker alone.
    let (offset, _) = frames(&bytes).nth(4).unwrap().unwrap();
    let mut decoder = Decoder::open(&bytes[offset..]).unwrap();
    let mut found = Vec::new();
    for bound in [25, 39, 40] {
        let mut batch = SampleBatch::new();
        decoder.next_batch(times[bound], &mut batch).unwrap();
        found.push(bits_of(batch.samples().1));
    }
    assert_eq!(found, [bits_of(&values[22..26]), bits_of(&values[26..40]), vec![STALE_NAN_BITS]]);
}

#[test]
fn starts_come_back_with_the_samples() {
    let times = scrapes(700, |at| noise(at, 101) - 50);
    let values: Vec<f64> = (0..700).map(|at| f64::from(at * 3)).collect();
    // Unknown, then one start, then each its own, then unknown again: two frames have starts.
    let starts: Vec<i64> = (0..600)
        .map(|at| match at {
            0..50 => 0,
            50..530 => times[0] - 7,
            _ => times[at] - at as i64,
        })
        .collect();
    let mut bytes = Vec::new();
    PackedEncoder::default().encode(&times, &values, &starts, &mut bytes);
    let mut gorilla = Vec::new();
    encode_with_starts(&times, &values, &starts, &mut gorilla);
    assert!(bytes.len() * 3 < gorilla.len() * 2, "{} against {}", bytes.len(), gorilla.len());
    let (mut found_times, mut found_values, mut found_starts) =
        (Vec::new(), Vec::new(), Vec::new());
    for frame in frames(&bytes) {
        let (offset, header) = frame.unwrap();
        assert_eq!(header.encoding, Encoding::PackedStarts);
        let decoder = Decoder::open(&bytes[offset..]).unwrap();
        decoder.read_all(&mut found_times, &mut found_values, &mut found_starts).unwrap();
    }
    assert_eq!((&found_times, &found_values), (&times, &values));
    assert_eq!(found_starts[..600], starts);
    assert_eq!(found_starts[600..], [0; 100]);
    let mut again = Vec::new();
    PackedEncoder::default().encode(&times, &values, &[0; 700], &mut again);
    assert_eq!(again, packed(&times, &values), "frames without starts have no column of them");
}

#[test]
fn frames_have_the_bytes_of_their_description() {
    let start = 1_700_000_000_000_i64;
    let head = |payload: &[u8], count: u8, span: &[u8]| {
        let min = (start as u64 ^ 1 << 63).to_be_bytes();
        let mut frame = [&[3, count], span, &[payload.len() as u8 + 8], &min, payload].concat();
        let checksum = crc32c::crc32c(&frame);
        frame.extend_from_slice(&checksum.to_le_bytes());
        frame
    };
    // Step 1000, no width; kind 0, no places, first 5, lowest 1, 2 bits, no leap: 1, 4, 2.
    let values = [5.0, 6.0, 10.0, 12.0];
    let times = [0, 1000, 2000, 3000].map(|offset| start + offset);
    let payload = [0xe8, 0x07, 0, 0, 0, 10, 2, 2, 0, 0b00_11_01_00];
    assert_eq!(packed(&times, &values), head(&payload, 4, &[0xb8, 0x17]));
    // The same times 8 and 1 more: first 41, lowest 8, 2 bits shifted by 3.
    let values = values.map(|value| value * 8.0 + 1.0);
    let payload = [0xe8, 0x07, 0, 0, 0, 82, 16, 2 | 128, 3, 0, 0b00_11_01_00];
    assert_eq!(packed(&times, &values), head(&payload, 4, &[0xb8, 0x17]));
    // The same, and a marker.
    let values = [&values[..], &[f64::from_bits(STALE_NAN_BITS)]].concat();
    let payload = [&payload[..2], &[0, 128], &payload[4..]].concat();
    let times = [&times[..], &[start + 4000]].concat();
    assert_eq!(packed(&times, &values), head(&payload, 5, &[0xa0, 0x1f]));
    // One sample: step 0; kind 1, one place, 15, no width.
    assert_eq!(packed(&times[..1], &[1.5]), head(&[0, 0, 1, 1, 30, 0], 1, &[0]));
    // No number: kind 2, its bits.
    let nan = f64::from_bits(STALE_NAN_BITS);
    let bits = STALE_NAN_BITS.to_le_bytes();
    assert_eq!(packed(&times[..1], &[nan]), head(&[&[0, 0, 2][..], &bits, &[0]].concat(), 1, &[0]));
}

proptest! {
    #[test]
    fn counters_and_gauges_come_back(
        scale in 0i32..14,
        shift in prop_oneof![Just(0), 1u32..24],
        mut number in -1_000_000_000i64..1_000_000_000,
        steps in prop::collection::vec(prop_oneof![
            8 => 0i64..100,
            2 => -100i64..100,
            1 => -1_000_000_000i64..1_000_000_000,
        ], 1..1100),
        stale_every in prop_oneof![Just(usize::MAX), 1usize..60],
        jitter in prop::collection::vec(prop_oneof![8 => Just(0i64), 1 => -20i64..20], 1..50),
    ) {
        let times = scrapes(steps.len(), |at| jitter[at % jitter.len()]);
        let values: Vec<f64> = steps
            .iter()
            .enumerate()
            .map(|(at, step)| {
                if at % stale_every == stale_every - 1 {
                    return f64::from_bits(STALE_NAN_BITS);
                }
                number += step;
                (number << shift) as f64 / 10f64.powi(scale)
            })
            .collect();
        check(&times, &values);
    }
}
