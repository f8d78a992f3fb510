//! The fuzz targets on seeded random input, a bounded number of times.
//!
//! The environment variables `FUZZ_SEED` and `FUZZ_COUNT` set the seed and the number of inputs.

mod targets;

use std::sync::Arc;

use model::{Histogram, HistogramSample, ResetHint, Span};
use storage::chunk::histogram::encode_histograms;
use storage::chunk::{FrameHeader, HistogramBefore};

const SEED: u64 = 1;
const READ: u64 = 20_000;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A chunk in the form that the target takes, of histograms that grow, fall, change, end.
fn chunk(state: &mut u64) -> Vec<u8> {
    let mut counts = vec![0.0; 1 + next(state) as usize % 12];
    let mut histogram = Histogram::default();
    let mut samples = Vec::new();
    for index in 0..1 + (next(state) % 40) as i64 {
        let change = next(state);
        match change % 16 {
            0 => counts.push(1.0),
            1 => counts.fill(0.0),
            2 => counts[0] += 0.25,
            3 => histogram.sum = f64::from_bits(next(state)),
            4 => {
                histogram.reset_hint = ResetHint::from_number(change as u8 >> 6).expect("two bits");
            }
            5 => histogram.schema = [3, -53][(change >> 8) as usize % 2],
            _ => counts.iter_mut().for_each(|count| *count += (next(state) % 9) as f64),
        }
        let length = counts.len() as u32;
        let offset = (change >> 32) as i32 % 3 / 2;
        histogram.positive_spans = vec![Span { offset, length }];
        histogram.positive_counts.clone_from(&counts);
        histogram.count = counts.iter().sum();
        let histogram =
            if change.is_multiple_of(17) { Histogram::stale() } else { histogram.clone() };
        let start_ms = [0, 0, 500, index * 15_000 - 15_000][(change >> 16) as usize % 4];
        let histogram = Arc::new(histogram);
        samples.push(HistogramSample { timestamp_ms: index * 15_000, start_ms, histogram });
    }
    let before = HistogramBefore { timestamp_ms: -7, fingerprint: 7 };
    let mut frame = Vec::new();
    encode_histograms(&samples, Some(before), &mut frame);
    let header = FrameHeader::read(&frame).expect("just encoded");
    let span_ms = (header.max_ms - header.min_ms) as u32;
    let payload = &frame[header.payload_start()..header.payload_end()];
    [&(header.count as u16).to_le_bytes()[..], &span_ms.to_le_bytes(), payload].concat()
}

#[test]
fn any_bytes_are_a_chunk_of_histograms_or_an_error() {
    let mut state = setting("FUZZ_SEED", SEED);
    for round in 0..setting("FUZZ_COUNT", READ) {
        let mut bytes = chunk(&mut state);
        if round % 8 == 0 {
            bytes = (0..next(&mut state) % 200).map(|_| next(&mut state) as u8).collect();
        }
        for _ in 0..next(&mut state) % 4 {
            let bit = next(&mut state) as usize % (bytes.len() * 8 + 1);
            match bytes.get_mut(bit / 8) {
                Some(byte) => *byte ^= 1 << (bit % 8),
                None => bytes.truncate(bit / 16),
            }
        }
        targets::read_histogram_chunk(&bytes);
    }
}
