use proptest::prelude::*;

use model::TimeRange;

use super::codec::{StoredSummaries, SummaryBuilder};
use super::*;
use crate::block::{BlockBuilder, BuiltBlock};
use crate::chunk;
use crate::epoch::Epoch;
use crate::keys;

/// Samples of a window: gaps of times, and steps of values.
fn samples() -> impl Strategy<Value = Vec<(i64, f64)>> {
    let value = prop_oneof![
        4 => (0u32..1000).prop_map(f64::from),
        2 => (-500i32..500).prop_map(|number| f64::from(number) / 100.0),
        1 => prop_oneof![Just(0.0), Just(-0.0), Just(1e300), Just(0.1), Just(-7.25)],
        1 => any::<f64>().prop_filter("finite", |value| value.is_finite()),
        1 => Just(model::stale_nan()),
    ];
    let gap = prop_oneof![4 => Just(15_000i64), 2 => 1i64..60_000, 1 => 1i64..4_000_000];
    (prop_oneof![Just(0i64), 0i64..7_200_000], prop::collection::vec((gap, value), 1..60)).prop_map(
        |(start_ms, steps)| {
            let mut time_ms = start_ms;
            let mut samples = Vec::new();
            for (gap_ms, value) in steps {
                samples.push((time_ms, value));
                time_ms += gap_ms;
            }
            samples.retain(|(time_ms, _)| *time_ms < 7_200_000);
            samples
        },
    )
}

/// Returns the value of some series, written and opened again.
fn stored(series: &[Vec<(i64, f64)>]) -> Option<Vec<u8>> {
    let mut builder = SummaryBuilder::default();
    for (id, samples) in series.iter().enumerate() {
        let (times, values): (Vec<i64>, Vec<f64>) = samples.iter().copied().unzip();
        let mut frames = Vec::new();
        chunk::encode_with_starts(&times, &values, &[], &mut frames);
        builder.push(id as u32 * 3, &frames);
    }
    builder.finish(b"key")
}

/// Returns the bits of all fields.
fn bits(summary: &Summary) -> ([i64; 4], [u64; 7], bool) {
    let Summary { first_ms, last_ms, before_last_ms, count, first, last, min, max, .. } = *summary;
    let values = [first, last, min, max, summary.sum, summary.sum_rest, summary.resets];
    let times = [first_ms, last_ms, before_last_ms, count as i64];
    (times, values.map(f64::to_bits), summary.is_ended)
}

proptest! {
    #[test]
    fn summaries_are_read_as_written(series in prop::collection::vec(samples(), 1..6)) {
        let series: Vec<_> = series.into_iter().filter(|samples| !samples.is_empty()).collect();
        let Some(bytes) = stored(&series) else { return Ok(()) };
        let window = Window::new(0);
        let opened = StoredSummaries::open(b"key", &bytes, window).unwrap();
        prop_assert_eq!(opened.len(), series.len());
        for (index, samples) in series.iter().enumerate() {
            for from in 0..series.len() {
                prop_assert_eq!(opened.find(index as u32 * 3, from), Some(index));
            }
            let (times, values): (Vec<i64>, Vec<f64>) = samples.iter().copied().unzip();
            let mut found = Vec::new();
            let has_any = opened.decode(index, &mut found).unwrap();
            let expected = of_window(window, &times, &values);
            prop_assert_eq!(has_any, expected.is_some());
            let expected: Vec<_> = expected.iter().flatten().flatten().map(bits).collect();
            prop_assert_eq!(found.iter().map(bits).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn damaged_summaries_are_errors(
        series in prop::collection::vec(samples(), 1..4),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let series: Vec<_> = series.into_iter().filter(|samples| !samples.is_empty()).collect();
        let Some(mut bytes) = stored(&series) else { return Ok(()) };
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(StoredSummaries::open(b"key", &bytes, Window::new(0)).is_err());
        // Also with a matching checksum: no panic, and nothing outside of the window.
        let body = bytes[4..].to_vec();
        let bytes = crate::value::encode(b"key", &body);
        let Ok(opened) = StoredSummaries::open(b"key", &bytes, Window::new(0)) else { return Ok(()) };
        for index in 0..opened.len() {
            let mut found = Vec::new();
            if opened.decode(index, &mut found).is_ok() {
                prop_assert!(found.iter().all(|s| s.first_ms >= 0 && s.last_ms < 7_200_000));
            }
        }
    }

    #[test]
    fn any_bytes_are_summaries_or_an_error(body in prop::collection::vec(any::<u8>(), 0..60)) {
        let bytes = crate::value::encode(b"key", &[&[1], &body[..]].concat());
        let Ok(opened) = StoredSummaries::open(b"key", &bytes, Window::new(0)) else { return Ok(()) };
        for index in 0..opened.len() {
            let _ = opened.decode(index, &mut Vec::new());
        }
    }

    #[test]
    fn sums_of_summaries_keep_their_precision_where_values_cancel(
        values in prop::collection::vec(-500i32..500, 1..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let values: Vec<f64> = values.into_iter().map(|value| f64::from(value) / 7.0).collect();
        // The negated values cancel all but one last value.
        let negated = values.iter().map(|value| -value);
        let all: Vec<f64> = values.iter().copied().chain(negated).chain([1e-9]).collect();
        let times: Vec<i64> = (0..all.len() as i64).collect();
        let cut = cut.index(all.len());
        let mut sum = CompensatedSum::default();
        let halves = [(&times[..cut], &all[..cut]), (&times[cut..], &all[cut..])];
        let halves = halves.map(|(times, values)| Summary::of_any(times, values));
        halves.iter().flatten().for_each(|half| sum.add_sum(half));
        prop_assert!((sum.total() - 1e-9).abs() <= 1e-21, "{}", sum.total());
    }

    #[test]
    fn a_merged_summary_is_that_of_all_samples(
        values in prop::collection::vec((0u32..50).prop_map(f64::from), 2..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let times: Vec<i64> = (0..values.len() as i64).map(|at| at * 7).collect();
        let cut = 1 + cut.index(values.len() - 1);
        let first = Summary::of(&times[..cut], &values[..cut]).unwrap();
        let second = Summary::of(&times[cut..], &values[cut..]).unwrap();
        let merged = first.merged(&second).unwrap();
        prop_assert_eq!(bits(&merged), bits(&Summary::of(&times, &values).unwrap()));
    }
}

#[test]
fn summaries_that_are_large_next_to_their_block_are_not_written() {
    let build = |count: i64| {
        let times: Vec<i64> = (0..count).map(|at| at * 15_000).collect();
        let values: Vec<f64> = times.iter().map(|time_ms| (*time_ms as f64).sqrt()).collect();
        let mut frames = Vec::new();
        chunk::encode_with_starts(&times, &values, &[], &mut frames);
        let mut builder = BlockBuilder::new(64);
        builder.push(0, &frames, TimeRange::new(times[0], times[times.len() - 1]));
        builder
    };
    let key = keys::block(0, Window::new(0), Epoch::FIRST, 0);
    assert_eq!(build(20).finish(key.clone()).values.len(), 1);
    let [(_, block), (_, summaries)] = &build(480).finish(key.clone()).values[..] else {
        panic!("no summaries of many samples");
    };
    assert!(summaries.len() * 12 <= block.len());
    // Without samples next to them, they have any size.
    let BuiltBlock { entry, values } = build(20).finish_summarized(&key);
    assert!(entry.is_summarized());
    assert_eq!(values[0].0, keys::summaries_of_block(&key));
}
