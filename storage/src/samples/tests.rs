//! Facts of windows over parts of every kind, against facts computed from the samples.

use std::sync::Arc;

use model::{
    Advance, Cursor, FilledWindows, Labels, SampleBatch, WantedFact, WindowFacts, WindowSamples,
    Windows, is_stale, stale_nan,
};
use proptest::prelude::*;

use super::columns::{Column, ColumnCache, ColumnSlot};
use super::cursor::PartsCursor;
use super::part::{Floats, Part, Parts, TailRoom};
use super::series_parts::SeriesParts;
use crate::summary::edges::Edges;

const START_MS: i64 = 1_000_000;
const WANTED: [WantedFact; 6] = [
    WantedFact::Ends,
    WantedFact::Difference,
    WantedFact::Increase,
    WantedFact::Min,
    WantedFact::Max,
    WantedFact::Sum,
];

type Samples = Vec<(i64, f64)>;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Column,
    Tail,
    /// Read in batches only.
    Floats,
}

/// Part that begins some intervals after the end of the previous one, or before it.
#[derive(Debug, Clone)]
struct PartData {
    kind: Kind,
    after: i64,
    samples: Samples,
}

fn values(len: usize) -> impl Strategy<Value = Vec<f64>> {
    let counter = (prop_oneof![Just(0_u32), Just(40), Just(3)], 0_u32..3).prop_flat_map(
        move |(resets, digits)| {
            proptest::collection::vec(0_u32..200, len).prop_map(move |steps| {
                let mut value = 1_000_000;
                let next = |step: u32| {
                    value = if resets > 0 && step % resets == 1 { step } else { value + step };
                    f64::from(value) / 10_f64.powi(digits as i32)
                };
                steps.into_iter().map(next).collect::<Vec<f64>>()
            })
        },
    );
    let special = prop_oneof![
        20 => (-5_i32..5).prop_map(f64::from),
        4 => any::<f64>(),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(-0.0),
    ];
    let markers = proptest::collection::vec(0..len, 1..12);
    let stale = (counter.clone(), markers).prop_map(|(mut values, markers)| {
        markers.into_iter().for_each(|at| values[at] = stale_nan());
        values
    });
    prop_oneof![
        6 => counter,
        1 => proptest::collection::vec(special, len),
        2 => stale,
    ]
}

fn part() -> impl Strategy<Value = PartData> {
    let kind = prop_oneof![6 => Just(Kind::Column), 3 => Just(Kind::Tail), 1 => Just(Kind::Floats)];
    let len = prop_oneof![1 => Just(1_usize), 6 => 2_usize..200];
    let after = prop_oneof![12 => Just(1_i64), 3 => 2_i64..40, 1 => -10_i64..1];
    let jitter = prop_oneof![3 => Just(0_i64), 1 => 1_i64..30];
    (kind, len, after, jitter).prop_flat_map(|(kind, len, after, jitter)| {
        let noise = proptest::collection::vec(0..=jitter, len);
        let gaps = proptest::collection::vec((0..len, 1_usize..20), 0..4);
        let gaps = prop_oneof![2 => Just(Vec::new()).boxed(), 1 => gaps.boxed()];
        (values(len), noise, gaps).prop_map(move |(values, noise, gaps)| {
            let times = (0..).zip(noise).map(|(at, noise): (i64, _)| at * 100 + noise);
            let mut samples: Samples = times.zip(values).collect();
            for (start, count) in gaps {
                let start = start.min(samples.len() - 1);
                let end = (start + count).min(samples.len() - 1);
                samples.drain(start..end);
            }
            PartData { kind, after, samples }
        })
    })
}

/// The parts, and the samples that they have together, without staleness markers.
fn built(parts: &[PartData], cache: &ColumnCache) -> (SeriesParts, Samples, bool) {
    let (mut built, mut room) = (Parts::new(), TailRoom::default());
    let mut all = std::collections::BTreeMap::new();
    let (mut end_ms, mut are_known) = (START_MS, true);
    for PartData { kind, after, samples } in parts {
        let samples: Samples =
            samples.iter().map(|(time, value)| (end_ms + after * 100 + time, *value)).collect();
        are_known &= *after > 0;
        // A column of few stretches is divided, however short it is.
        let marker_count = samples.iter().filter(|(_, value)| is_stale(*value)).count();
        are_known &= marker_count < 4 || *kind != Kind::Column;
        built.push(match kind {
            Kind::Column => {
                let (times, values): (Vec<i64>, Vec<f64>) = samples.iter().copied().unzip();
                let slot = ColumnSlot::Frames(Arc::default());
                let starts = &vec![7; times.len() % 3];
                Part::Column(cache.put(&slot, Column::new(&times, &values, starts)))
            }
            Kind::Tail => Part::Tail(room.copy(&samples)),
            Kind::Floats => {
                Part::Floats(Box::new(Floats { samples: samples.clone(), starts: vec![7] }))
            }
        });
        // Steps of 100 ms from one begin, however late the last sample was.
        end_ms = samples.last().expect("parts have samples").0 / 100 * 100;
        all.extend(samples);
    }
    room.settle(built.iter_mut().filter_map(Part::tail_mut));
    let parts = SeriesParts::new(built, i64::MIN, i64::MAX, &Labels::default()).unwrap();
    are_known &= parts.is_chain();
    (parts, all.into_iter().filter(|(_, value)| !is_stale(*value)).collect(), are_known)
}

/// Checks the facts of one window.
fn check(samples: &[(i64, f64)], wanted: WantedFact, window: WindowSamples, first: f64, fact: f64) {
    assert_eq!(window.count, samples.len(), "{wanted:?} {window:?} {samples:?}");
    let ([(first_ms, first_value), ..], [.., (last_ms, last_value)]) = (samples, samples) else {
        return;
    };
    assert_eq!((window.first_ms, window.last_ms), (*first_ms, *last_ms));
    let is_same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    let reads_first =
        matches!(wanted, WantedFact::Ends | WantedFact::Difference | WantedFact::Increase);
    assert!(!reads_first || is_same(first, *first_value), "{first} is not {first_value}");
    let pairs = samples.windows(2).filter(|pair| pair[1].1 < pair[0].1);
    let numbers = || samples.iter().map(|(_, value)| *value).filter(|value| !value.is_nan());
    let extreme = |beats: fn(f64, f64) -> bool| {
        numbers().reduce(|best, v| if beats(v, best) { v } else { best }).unwrap_or(*last_value)
    };
    let expected = match wanted {
        WantedFact::Ends => *last_value,
        WantedFact::Difference => last_value - first_value,
        WantedFact::Increase => pairs.fold(last_value - first_value, |sum, pair| sum + pair[0].1),
        WantedFact::Min => extreme(|a, b| a < b),
        WantedFact::Max => extreme(|a, b| a > b),
        WantedFact::Sum => {
            let sum = samples.iter().fold(0.0, |sum, (_, value)| sum + value);
            assert_eq!(sum, samples.iter().rev().fold(0.0, |sum, (_, value)| sum + value));
            sum
        }
    };
    assert!(is_same(fact, expected), "{wanted:?}: {fact} is not {expected} of {samples:?}");
}

/// Reads windows as a range function does: facts in tiles, then batches. Returns the number of
/// windows whose facts were known.
fn read(
    cursor: &mut PartsCursor<'_>,
    samples: &[(i64, f64)],
    windows: Windows,
    tile: usize,
    wanted: WantedFact,
) -> usize {
    let seen = |window: usize| {
        let until = |time_ms: i64| samples.partition_point(|(time, _)| *time <= time_ms);
        &samples[until(windows.after_ms(window))..until(windows.end_ms(window))]
    };
    let mut facts = WindowFacts::new();
    let (mut done, mut counted) = (0, 0);
    while done < windows.count {
        let count = tile - done % tile;
        let asked = Windows { count: count.min(windows.count - done), ..windows.from(done) };
        let filled = cursor.fill_windows(asked, wanted, &mut facts).unwrap();
        let FilledWindows { windows: count, period, new_samples, .. } = filled;
        assert!(count <= asked.count);
        counted += new_samples;
        if count == 0 {
            break;
        }
        for window in 0..count {
            let mut of = facts.samples(window % period);
            let moved_ms = (window - window % period) as i64 * windows.step_ms;
            of.first_ms += moved_ms;
            of.last_ms += moved_ms;
            check(seen(done + window), wanted, of, facts.first[window], facts.fact[window]);
        }
        done += count;
    }
    let in_windows = |time: i64| {
        (0..done).any(|window| windows.after_ms(window) < time && time <= windows.end_ms(window))
    };
    let least = samples.iter().filter(|(time, _)| in_windows(*time)).count();
    assert!((least..=samples.len()).contains(&counted), "{counted} of {least}");
    if done < windows.count {
        let mut batch = SampleBatch::new();
        let mut rest = Vec::new();
        while {
            batch.clear();
            let advance = cursor.next_batch(windows.end_ms(windows.count - 1), &mut batch).unwrap();
            let (times, values) = batch.samples();
            rest.extend(times.iter().copied().zip(values.iter().copied()));
            advance == Advance::Full
        } {}
        rest.retain(|(time, value)| *time > windows.after_ms(done) && !is_stale(*value));
        let end_ms = windows.end_ms(windows.count - 1);
        let all = samples.iter();
        let expected = all.filter(|(time, _)| *time > windows.after_ms(done) && *time <= end_ms);
        let bits = |(time, value): &(i64, f64)| (*time, value.to_bits());
        assert!(rest.iter().map(bits).eq(expected.map(bits)), "after {done} windows");
    }
    done
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn facts_of_windows_are_those_of_their_samples(
        parts in proptest::collection::vec(part(), 1..6),
        (first, step, span) in (-30_i64..300, prop_oneof![1_i64..3, 1_i64..30], prop_oneof![1_i64..3, 1_i64..120]),
        (off_ms, is_even) in (prop_oneof![-99_i64..99, (-4_i64..4).prop_map(|n| n * 20), Just(50)], any::<bool>()),
        count in 1_usize..200,
        tile in prop_oneof![Just(64_usize), Just(512), 1_usize..70],
    ) {
        let cache = ColumnCache::new(1 << 24);
        let (parts, samples, are_known) = built(&parts, &cache);
        let off_ms = if is_even { 0 } else { off_ms };
        let windows = Windows {
            first_end_ms: START_MS + first * 100 + off_ms,
            step_ms: (step * 100 + off_ms).max(1),
            span_ms: (span * 100 + off_ms / 2).max(1),
            count,
        };
        for wanted in WANTED {
            let labels = Labels::default();
            let mut cursor =
                PartsCursor::new(&labels, &parts, i64::MIN, i64::MAX, Some(cache.for_selection(0)));
            let done = read(&mut cursor, &samples, windows, tile, wanted);
            // Of overlapping windows, samples may cost less.
            let is_of_ends = matches!(wanted, WantedFact::Ends | WantedFact::Difference);
            let must_be_known = is_of_ends && are_known && windows.step_ms >= windows.span_ms;
            prop_assert!(done == count || !must_be_known, "{} windows", done);
            // Summaries have sums that depend on the order of additions.
            let is_whole = |(_, value): &(i64, f64)| value.trunc() == *value && value.abs() < 1e9;
            if wanted == WantedFact::Sum && !samples.iter().all(is_whole) {
                continue;
            }
            let edges = Edges::of_any(windows);
            let cursor =
                PartsCursor::new(&labels, &parts, i64::MIN, i64::MAX, Some(cache.for_selection(0)));
            let mut cursor = cursor.over_summaries(&edges);
            prop_assert_eq!(read(&mut cursor, &samples, windows, tile, wanted), count);
        }
    }
}

#[test]
fn facts_of_even_columns_are_known_across_parts() {
    let cache = ColumnCache::new(1 << 24);
    // Values decrease inside of parts, and from the first part to the second one.
    let part = |kind, from: i64, len: i64| PartData {
        kind,
        after: 1,
        samples: (0..len).map(|at| (at * 100, ((from + at) % 160) as f64)).collect(),
    };
    let parts =
        [part(Kind::Column, 0, 480), part(Kind::Tail, 480, 20), part(Kind::Column, 500, 480)];
    let (parts, samples, _) = built(&parts, &cache);
    for (step_ms, tile) in
        [(200, 64), (100, 64), (100, 512), (50, 512), (150, 64), (70, 64), (20, 512), (160, 13)]
    {
        let count = 40_000 / step_ms as usize;
        let windows = Windows { first_end_ms: START_MS + 40_050, step_ms, span_ms: 2_000, count };
        for wanted in WANTED {
            let labels = Labels::default();
            let mut cursor =
                PartsCursor::new(&labels, &parts, i64::MIN, i64::MAX, Some(cache.for_selection(0)));
            let known = read(&mut cursor, &samples, windows, tile, wanted);
            assert_eq!(known, count, "{wanted:?} {step_ms}");
        }
    }
}

#[test]
fn windows_between_samples_are_empty() {
    let cache = ColumnCache::new(1 << 24);
    let samples = (0..480).map(|at| (at * 100, (at % 160) as f64)).collect();
    let (parts, samples, _) = built(&[PartData { kind: Kind::Column, after: 1, samples }], &cache);
    for (step_ms, span_ms) in [(50, 50), (50, 60), (20, 90), (20, 10), (150, 99), (100, 50)] {
        for first_ms in (0..100).step_by(10) {
            let first_end_ms = START_MS + 10_000 + first_ms;
            let windows = Windows { first_end_ms, step_ms, span_ms, count: 200 };
            for wanted in WANTED {
                let labels = Labels::default();
                let mut cursor = PartsCursor::new(
                    &labels,
                    &parts,
                    i64::MIN,
                    i64::MAX,
                    Some(cache.for_selection(0)),
                );
                read(&mut cursor, &samples, windows, 64, wanted);
            }
        }
    }
}

#[test]
fn a_missing_scrape_hides_no_ends_of_windows() {
    let cache = ColumnCache::new(1 << 24);
    let part = |after, value| PartData {
        kind: Kind::Column,
        after,
        samples: (0..300).map(|at| (at * 100, value + at as f64)).collect(),
    };
    let (parts, samples, _) = built(&[part(1, 0.0), part(2, 250.0)], &cache);
    // The last windows end after the last sample.
    let windows =
        Windows { first_end_ms: START_MS + 2_050, step_ms: 100, span_ms: 2_000, count: 590 };
    for wanted in [WantedFact::Ends, WantedFact::Difference, WantedFact::Increase] {
        let labels = Labels::default();
        let mut cursor =
            PartsCursor::new(&labels, &parts, i64::MIN, i64::MAX, Some(cache.for_selection(0)));
        assert_eq!(read(&mut cursor, &samples, windows, 512, wanted), 590, "{wanted:?}");
    }
}
