use proptest::prelude::*;

use model::{TimeRange, WantedWindows, WindowPart, Windows};

use super::codec::{StoredSummaries, SummaryBuilder};
use super::edges::{Edges, Replaced};
use super::*;
use crate::block::{BlockBuilder, BuiltBlock};
use crate::chunk::{self, PackedEncoder};
use crate::epoch::Epoch;
use crate::keys;
use crate::samples::part::{Floats, Part, Parts};
use crate::samples::series_parts::SeriesParts;
use crate::samples::shared::Room;
use crate::window::WINDOW_MS;

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
        let merged = first.merged(&second);
        prop_assert_eq!(bits(&merged), bits(&Summary::of(&times, &values).unwrap()));
    }
}

/// Windows of two hours and a scrape interval, which see all times of eight hours.
fn long_edges() -> Edges {
    let step_ms = 2 * BUCKET_MS;
    let windows = Windows { first_end_ms: step_ms, step_ms, span_ms: step_ms + 15_000, count: 4 };
    let wanted = WantedWindows { windows, part: WindowPart::Facts };
    Edges::new(wanted, TimeRange::new(-14_999, 4 * step_ms)).unwrap()
}

#[test]
fn summaries_are_preferred_if_they_replace_half_of_the_samples() {
    let day_ms = 24 * BUCKET_MS;
    let preferred = |off_ms: i64, step_ms: i64, span_ms: i64| {
        let count = (30 * day_ms / step_ms) as usize;
        let windows = Windows { first_end_ms: day_ms + off_ms, step_ms, span_ms, count };
        let wanted = WantedWindows { windows, part: WindowPart::FactsWithIncrease };
        let range = TimeRange::new(windows.after_ms(0) + 1, windows.end_ms(count - 1));
        Edges::new(wanted, range).unwrap().preferred().map(|edges| edges.replaced())
    };
    let minute_ms = BUCKET_MS / 60;
    let is_whole = |off_ms, step_ms| preferred(off_ms, step_ms, step_ms);
    for hours in [1, 2, 5, 24] {
        assert_eq!(is_whole(0, hours * BUCKET_MS), Some(Replaced::ByFacts));
    }
    for minutes in [61, 84, 97, 130] {
        assert_eq!(is_whole(0, minutes * minute_ms), None);
    }
    assert_eq!(is_whole(20 * minute_ms, 3 * BUCKET_MS), None);
    assert_eq!(is_whole(20 * minute_ms, 5 * BUCKET_MS), Some(Replaced::ByFacts));
    assert_eq!(is_whole(20 * minute_ms, day_ms), Some(Replaced::ByFacts));
    let gaps = preferred(20 * minute_ms, 7 * BUCKET_MS, 3 * BUCKET_MS);
    assert_eq!(gaps, Some(Replaced::Gaps));
}

/// Returns the summaries of a counter's hours from the first to before the last window of the store.
fn hours_of(windows: std::ops::Range<i64>) -> Vec<Summary> {
    let of = |number: i64| {
        let window = Window::new(number);
        let times = (window.start_ms()..window.end_ms().min(4 * WINDOW_MS + 1)).step_by(15_000);
        let times: Vec<i64> = times.collect();
        let values: Vec<f64> = times.iter().map(|time_ms| *time_ms as f64).collect();
        of_window(window, &times, &values).unwrap()
    };
    windows.flat_map(of).flatten().collect()
}

/// Returns the first and last time of summaries.
fn ends(summaries: &[Summary]) -> Vec<(i64, i64)> {
    summaries.iter().map(|summary| (summary.first_ms, summary.last_ms)).collect()
}

/// Windows of two hours up to their end; each sees the last sample of the one before, too.
const MERGED: [(i64, i64); 4] = [
    (0, WINDOW_MS),
    (WINDOW_MS + 15_000, 2 * WINDOW_MS),
    (2 * WINDOW_MS + 15_000, 3 * WINDOW_MS),
    (3 * WINDOW_MS + 15_000, 4 * WINDOW_MS),
];

#[test]
fn summaries_are_merged_up_to_the_end_of_a_window() {
    let edges = long_edges();
    let (mut merged, mut reach) = (Vec::new(), edges.reach(0));
    let hours = hours_of(0..5);
    assert_eq!(hours.len(), 13);
    hours.iter().for_each(|hour| edges.push(&mut merged, &mut reach, hour));
    assert_eq!(ends(&merged), MERGED);
    assert!(merged.iter().all(|summary| edges.allow(summary)));
}

#[test]
fn summaries_of_adjacent_parts_are_merged_unless_samples_are_between() {
    let edges = long_edges();
    let floats = |time_ms: i64| {
        let samples = vec![(time_ms, 0.0)];
        Part::Floats(Box::new(Floats { samples, starts: Vec::new() }))
    };
    let merged = |parts: Vec<Part>| {
        let parts = Parts::from_vec(parts);
        let mut parts = SeriesParts::new(parts, 0, i64::MAX, &model::Labels::empty()).unwrap();
        let mut room = Room::default();
        parts.merge_summaries(&edges, &mut room);
        assert!(room.bytes() > 0, "slices of other allocations stay");
        room.settle(parts.summaries_mut());
        let ends_of = |part: &Part| match part {
            Part::Summaries(summaries) => ends(summaries.items()),
            part => vec![(part.times().start_ms, part.times().end_ms)],
        };
        parts.iter().map(ends_of).collect::<Vec<_>>()
    };
    let [early, late] = [0..2, 2..5].map(|windows| Part::Summaries(hours_of(windows).into()));
    // The hours of the first part are not merged again.
    let all = merged(vec![early.clone(), late.clone()]);
    assert_eq!(all.len(), 1);
    assert_eq!(
        all[0][5..],
        [&[(WINDOW_MS + BUCKET_MS + 15_000, 2 * WINDOW_MS)], &MERGED[2..]].concat()
    );
    let between = merged(vec![early.clone(), floats(2 * WINDOW_MS - 1), late.clone()]);
    assert_eq!(between.len(), 3);
    // Written later, so that the parts are no chain.
    assert_eq!(merged(vec![early, late, floats(2 * WINDOW_MS - 1)]).len(), 3);
}

#[test]
fn summaries_that_are_large_next_to_their_block_are_not_written() {
    let build_of = |count: i64, value: fn(f64) -> f64| {
        let times: Vec<i64> = (0..count).map(|at| at * 15_000).collect();
        let values: Vec<f64> = times.iter().map(|time_ms| value(*time_ms as f64)).collect();
        let mut frames = Vec::new();
        PackedEncoder::default().encode(&times, &values, &[], &mut frames);
        let mut builder = BlockBuilder::new(64);
        builder.push(0, &frames, TimeRange::new(times[0], times[times.len() - 1]));
        builder
    };
    let build = |count| build_of(count, f64::sqrt);
    let key = keys::block(0, Window::new(0), Epoch::FIRST, 0);
    assert_eq!(build(20).finish(key.clone()).values.len(), 1);
    let [(_, block), (_, summaries)] = &build(480).finish(key.clone()).values[..] else {
        panic!("no summaries of many samples");
    };
    assert!(summaries.len() * 5 <= block.len());
    // Samples that take almost no bytes.
    let constant = |count| build_of(count, |_| 1e9).finish(key.clone()).values;
    let [(_, block), (_, summaries)] = &constant(480)[..] else {
        panic!("no summaries of constant samples");
    };
    assert!(summaries.len() * 5 > block.len() && summaries.len() * 12 <= 480);
    assert_eq!(constant(120).len(), 1);
    // Without samples next to them, they have any size.
    let BuiltBlock { entry, values } = build(20).finish_summarized(&key);
    assert!(entry.is_summarized());
    assert_eq!(values[0].0, keys::summaries_of_block(&key));
}
