use std::sync::Arc;

use model::{Advance, LookupSteps, SampleBatch, StepRanges, TimeRange, is_stale, stale_nan};
use proptest::prelude::*;

use super::{BlockKey, Column, ColumnCache, ColumnSlot, FoundSamples};
use crate::epoch::Epoch;
use crate::window::Window;

/// Values that use every kind of packing, or nearly fit one.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => (0_u32..100_000).prop_map(f64::from),
        4 => (-3_000_i32..3_000).prop_map(|v| f64::from(v) / 100.0),
        2 => (0_u64..1 << 54).prop_map(|v| v as f64),
        1 => any::<f64>(),
        1 => prop_oneof![
            Just(-0.0),
            Just(f64::INFINITY),
            Just(f64::from_bits(model::STALE_NAN_BITS)),
            Just(0.1 + 0.2),
            Just(1e-7),
            Just(f64::MIN_POSITIVE),
        ],
    ]
}

/// Replaces some values by staleness markers.
fn with_markers(values: impl Strategy<Value = Vec<f64>>) -> impl Strategy<Value = Vec<f64>> {
    (values, proptest::collection::vec(0_usize..700, 0..20)).prop_map(|(mut values, markers)| {
        let len = values.len();
        markers.into_iter().for_each(|at| values[at % len] = stale_nan());
        values
    })
}

fn values(len: usize) -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![
        2 => plain_values(len),
        1 => with_markers(plain_values(len)),
    ]
}

fn plain_values(len: usize) -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![
        // Of one kind, as in most series.
        (0_u32..9, proptest::collection::vec(0_u32..70_000, len)).prop_map(|(digits, above)| {
            above.iter().map(|v| f64::from(*v) / 10_f64.powi(digits as i32)).collect()
        }),
        proptest::collection::vec(value(), len),
        (value(), Just(len)).prop_map(|(value, len)| vec![value; len]),
    ]
}

fn times(len: usize) -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![Just(15_000_i64), 1_i64..100_000, Just(1_i64 << 33)];
    let jitter = prop_oneof![Just(0_i64), Just(20), Just(9_000), Just(70_000)];
    (any::<i32>(), step, jitter, proptest::collection::vec(0_i64..1 << 20, len)).prop_map(
        |(first, step, jitter, noise)| {
            let mut before = i64::from(first) * 1000;
            let times = noise.iter().zip(0..).map(|(noise, at): (_, i64)| {
                let off = if jitter == 0 { 0 } else { noise % jitter };
                before = (i64::from(first) * 1000 + at * step + off).max(before + 1);
                before
            });
            times.collect()
        },
    )
}

/// Moves the times from some samples on, as after a gap.
fn with_gaps(times: impl Strategy<Value = Vec<i64>>) -> impl Strategy<Value = Vec<i64>> {
    let gaps = proptest::collection::vec((0_usize..700, 1_i64..200_000), 0..12);
    (times, gaps).prop_map(|(mut times, gaps)| {
        for (at, gap_ms) in gaps {
            let at = at % times.len();
            times[at..].iter_mut().for_each(|time_ms| *time_ms += gap_ms / 1_000 * 1_000 + 15_000);
        }
        times
    })
}

fn samples() -> impl Strategy<Value = (Vec<i64>, Vec<f64>)> {
    (1_usize..700).prop_flat_map(|len| {
        (prop_oneof![2 => times(len).boxed(), 1 => with_gaps(times(len)).boxed()], values(len))
    })
}

/// Start timestamps of at most all samples: none, or runs of them.
fn starts() -> impl Strategy<Value = Vec<i64>> {
    let start_ms = prop_oneof![1 => Just(0_i64), 2 => 1_i64..5];
    let runs = proptest::collection::vec((start_ms, 1_usize..200), 0..4);
    runs.prop_map(|runs| runs.iter().flat_map(|(start_ms, len)| vec![*start_ms; *len]).collect())
}

/// Returns a column, and the start timestamp of each sample.
fn with_starts(times: &[i64], values: &[f64], mut starts: Vec<i64>) -> (Column, Vec<i64>) {
    starts.truncate(times.len());
    let column = Column::new(times, values, &starts);
    starts.resize(times.len(), 0);
    (column, starts)
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #[test]
    fn a_column_gives_every_bit_back((times, values) in samples(), starts in starts()) {
        let (column, starts) = with_starts(&times, &values, starts);
        let (mut read_times, mut read_values, mut read_starts) = (vec![7], vec![7.0], vec![]);
        column.unpack(&mut read_times, &mut read_values, &mut read_starts);
        prop_assert_eq!(&read_times[1..], times);
        prop_assert_eq!(bits(&read_values[1..]), bits(&values));
        prop_assert_eq!(read_starts.is_empty(), starts.iter().all(|start_ms| *start_ms == 0));
        read_starts.resize(read_times.len(), 0);
        prop_assert_eq!(&read_starts[1..], starts);
    }

    #[test]
    fn reading_up_to_bounds_gives_what_a_scan_gives(
        (times, values) in samples(),
        starts in starts(),
        bounds in proptest::collection::vec((0_usize..700, -2_i64..=2), 0..12),
        filled in 0_usize..=512,
    ) {
        let (column, starts) = with_starts(&times, &values, starts);
        let mut bounds: Vec<i64> =
            bounds.iter().map(|(at, off)| times[at % times.len()].saturating_add(*off)).collect();
        bounds.sort_unstable();
        bounds.push(i64::MAX);
        let mut batch = SampleBatch::new();
        batch.len = filled;
        let (mut at, mut read, mut read_starts) = (0, Vec::new(), Vec::new());
        for bound in bounds {
            loop {
                let expected = times[at..].iter().filter(|time| **time <= bound).count();
                prop_assert_eq!(column.count_until(at, bound), expected);
                let before = batch.len;
                let count = column.read(at, bound, &mut batch);
                prop_assert_eq!(count, expected.min(512 - before));
                at += count;
                read.extend(batch.values[before..before + count].iter().map(|v| v.to_bits()));
                read_starts.extend((before..before + count).map(|at| batch.start(at)));
                let advance = column.advance(at, &batch);
                batch.clear();
                if advance != Advance::Full {
                    prop_assert_eq!(advance == Advance::End, at == times.len());
                    break;
                }
            }
        }
        prop_assert_eq!(read, bits(&values));
        prop_assert_eq!(read_starts, starts);
    }

    #[test]
    fn filled_steps_have_the_newest_samples(
        (times, values) in samples(),
        from in 0_usize..700,
        (offset, step, lookback) in (-50_i64..400, 1_i64..20, 1_i64..40),
        unit in prop_oneof![Just(15_000_i64), Just(5_000), Just(1_000), Just(7_777)],
        phase_ms in prop_oneof![Just(0_i64), 0_i64..15_000],
        (limit, len) in (0_i64..3_000, prop_oneof![1_usize..100, Just(1_000)]),
    ) {
        let column = Column::new(&times, &values, &[]);
        let steps = LookupSteps {
            first_ms: times[0] + offset * unit + phase_ms,
            step_ms: step * unit,
            lookback_ms: lookback * unit,
        };
        // No step sees samples before the last one that was read.
        let from = from.min(times.partition_point(|time_ms| *time_ms <= steps.first_ms));
        let until_ms = times[0] + limit * unit;
        let mut out = vec![f64::NAN; len];
        let filled = column.fill_steps(from, steps, until_ms, &mut out);
        let (count, end) = (filled.steps, from + filled.samples);
        let newest = |step: usize| {
            let time_ms = steps.time(step);
            times.partition_point(|sample_ms| *sample_ms <= time_ms).checked_sub(1)
        };
        let has_first = newest(0).is_some();
        let until = (0..out.len()).take_while(|step| steps.time(*step) <= until_ms).count();
        prop_assert_eq!(count, if has_first { until } else { 0 });
        let mut are_all_seen = true;
        for (step, value) in out[..count].iter().enumerate() {
            let at = newest(step).unwrap();
            let is_old = steps.time(step) - times[at] >= steps.lookback_ms;
            let expected = if is_old { stale_nan() } else { values[at] };
            prop_assert_eq!(expected.to_bits(), value.to_bits(), "{}", step);
            are_all_seen &= !is_stale(expected);
        }
        if let Some(last) = count.checked_sub(1) {
            let at = newest(last).unwrap();
            prop_assert_eq!(end, at + 1);
            prop_assert_eq!(filled.newest_ms, times[at]);
            prop_assert_eq!(filled.newest.to_bits(), values[at].to_bits());
            // Markers may be among the samples between two steps.
            prop_assert!(are_all_seen || !filled.are_all_seen);
        }
    }

    #[test]
    fn found_samples_are_the_newest_of_their_stretch_or_those_after_them(
        (times, values) in samples(),
        (offset, step) in (0_i64..400, 0_i64..20),
        unit in prop_oneof![Just(15_000_i64), Just(5_000), Just(1_000), Just(7_777)],
        phase_ms in prop_oneof![Just(0_i64), 0_i64..15_000],
        (ahead, len) in (0_usize..2, prop_oneof![1_usize..100, Just(1_000)]),
    ) {
        let column = Column::new(&times, &values, &[]);
        let mut stretches = Vec::new();
        let all = TimeRange::new(i64::MIN, i64::MAX);
        column.each_stretch(all, |stretch| stretches.push(stretch));
        for stretch in stretches {
            let of_stretch = &times[stretch.start..stretch.end];
            let steps = LookupSteps {
                first_ms: of_stretch[0] + offset * unit / 100 + phase_ms,
                step_ms: step * unit,
                lookback_ms: i64::MAX,
            };
            let sample = |step: usize| {
                let passed = of_stretch.partition_point(|time_ms| *time_ms <= steps.time(step));
                stretch.start + passed - 1 + ahead
            };
            let samples: Vec<usize> =
                (0..len).map(sample).take_while(|at| *at < stretch.end).collect();
            let (mut at, mut times_ms) = (vec![0; samples.len()], vec![0; samples.len()]);
            let mut found = vec![0.0; samples.len()];
            let (at, times_ms, found) = (&mut at, &mut times_ms, &mut found);
            column.find(stretch, steps, ahead, &mut FoundSamples { at, times_ms, values: found });
            prop_assert_eq!(&*at, &samples);
            let expected_ms: Vec<i64> = samples.iter().map(|at| times[*at]).collect();
            prop_assert_eq!(&*times_ms, &expected_ms);
            let expected: Vec<f64> = samples.iter().map(|at| values[*at]).collect();
            prop_assert_eq!(bits(found), bits(&expected));
        }
    }

    #[test]
    fn reading_windows_leaves_out_only_what_none_sees(
        (times, values) in samples(),
        starts in starts(),
        (first, span, gap) in (-3_i64..20, 1_i64..30, 1_i64..90),
        off_ms in -2_i64..=2,
        only_newest in any::<bool>(),
        bounds in proptest::collection::vec((0_usize..700, -2_i64..=2), 0..12),
        filled in 0_usize..=512,
    ) {
        let (column, starts) = with_starts(&times, &values, starts);
        let distance_ms = ((times[times.len() - 1] - times[0]) / times.len() as i64).max(1);
        let after_ms = times[0] + first * distance_ms + off_ms;
        let step_ms = (span + gap) * distance_ms;
        let windows = StepRanges::new(after_ms, span * distance_ms, step_ms, only_newest).unwrap();
        let mut bounds: Vec<i64> =
            bounds.iter().map(|(at, off)| times[at % times.len()].saturating_add(*off)).collect();
        bounds.sort_unstable();
        bounds.push(i64::MAX);
        let mut batch = SampleBatch::new();
        batch.len = filled;
        let (mut at, mut before_ms) = (0, i64::MIN);
        for bound in bounds {
            let mut read: Vec<(i64, u64, i64)> = Vec::new();
            loop {
                let start = batch.len;
                at += column.read_windows(at, bound, &windows, &mut batch);
                let (read_times, read_values) = batch.samples();
                let read_bits = bits(read_values);
                read.extend((start..batch.len).map(|at| {
                    (read_times[at], read_bits[at], batch.start(at))
                }));
                if let Some(step_ms) = batch.even_step_ms().filter(|_| start == 0) {
                    prop_assert!(read_times.windows(2).all(|pair| pair[1] - pair[0] == step_ms));
                }
                let advance = column.advance(at, &batch);
                batch.clear();
                if advance != Advance::Full {
                    break;
                }
            }
            let all_bits = bits(&values);
            let in_call: Vec<(i64, u64, i64)> = (0..times.len())
                .map(|at| (times[at], all_bits[at], starts[at]))
                .filter(|(time, ..)| *time > before_ms && *time <= bound).collect();
            let is_seen = |time: i64| windows.from(time).0 < time;
            let is_newest = |at: usize| in_call.get(at + 1).is_none_or(|(next, ..)| {
                windows.from(*next) != windows.from(in_call[at].0)
            });
            for (at, sample) in in_call.iter().enumerate() {
                let is_wanted = is_seen(sample.0) && (!only_newest || is_newest(at));
                prop_assert!(!is_wanted || read.contains(sample), "{:?} is missing", sample);
            }
            prop_assert!(read.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert!(read.iter().all(|sample| in_call.contains(sample)));
            before_ms = bound;
        }
        prop_assert_eq!(at, times.len());
    }
}

#[test]
fn long_gaps_are_leapt_over() {
    let times: Vec<i64> = (0..480).map(|at| at * 15_000).collect();
    let late: Vec<i64> = times.iter().map(|time| time + time / 15_000 % 7).collect();
    let values: Vec<f64> = (0..480).map(f64::from).collect();
    for times in [times, late] {
        let column = Column::new(&times, &values, &[]);
        let read = |only_newest: bool| {
            let mut batch = SampleBatch::new();
            let windows = StepRanges::new(600_000, 300_010, 3_000_000, only_newest).unwrap();
            assert_eq!(column.read_windows(0, i64::MAX, &windows, &mut batch), 480);
            batch.samples().1.to_vec()
        };
        assert_eq!(read(true), [60.0, 260.0, 460.0]);
        assert_eq!(read(false).len(), 3 * 20 + usize::from(times[40] > 600_000) * 3);
    }
}

#[test]
fn counters_and_short_decimals_take_few_bytes() {
    let times: Vec<i64> = (0..480).map(|at| 1_700_000_000_000 + at * 15_000).collect();
    let late: Vec<i64> = times.iter().map(|time| time + time / 15_000 % 7).collect();
    let counter: Vec<f64> = (0..480).map(|at| 9e9 + f64::from(at * 100)).collect();
    let wide: Vec<f64> = (0..480).map(|at| f64::from(at * 1_000)).collect();
    let decimals: Vec<f64> = (0..480).map(|at| f64::from(at * 37 % 101) / 100.0).collect();
    let noise: Vec<f64> = (0..480).map(|at| f64::from(at).sin()).collect();
    let bytes = |times: &[i64], values: &[f64]| Column::new(times, values, &[]).bytes();
    let beside = size_of::<Column>();
    assert_eq!(bytes(&times, &counter), beside + 480 * 2);
    assert_eq!(bytes(&times, &wide), beside + 480 * 4);
    assert_eq!(bytes(&times, &decimals), beside + 480 * 2);
    assert_eq!(bytes(&late, &noise), beside + 480 * (2 + 8));
}

fn key(first_id: u32) -> BlockKey {
    BlockKey { metric: 1, window: Window::new(2), epoch: Epoch::new(3), first_id }
}

fn column() -> Column {
    let times: Vec<i64> = (0..100).collect();
    Column::new(&times, &vec![0.1 + 0.2; 100], &[])
}

#[test]
fn the_cache_stays_within_its_limit_and_evicts_unread_columns() {
    let cache = ColumnCache::new(20_000);
    let frame = ColumnSlot::Frames(Arc::default());
    cache.put(&frame, column());
    for number in 0..200 {
        let block = cache.add_block(key(number), [number * 10, number * 10 + 5].into_iter());
        assert_eq!(block.ids(), [number * 10, number * 10 + 5]);
        cache.put(&ColumnSlot::Sealed(Arc::clone(&block), 1), column());
        assert!(block.column(0).is_none());
        // Columns that are read repeatedly stay.
        assert!(frame.column().is_some(), "{number}");
        assert!(cache.stats().bytes <= 20_000 + 2 * column().bytes(), "{:?}", cache.stats());
    }
    assert!(cache.stats().evictions > 100);
    assert!(cache.block(&key(0)).is_none());
    assert!(cache.block(&key(199)).is_some());
}

#[test]
fn what_is_put_twice_is_kept_once_and_all_bytes_are_given_back() {
    let cache = ColumnCache::new(1 << 20);
    {
        let block = cache.add_block(key(0), [7].into_iter());
        assert!(Arc::ptr_eq(&block, &cache.add_block(key(0), [7].into_iter())));
        let slot = ColumnSlot::Sealed(block, 0);
        let first = cache.put(&slot, column());
        let second = cache.put(&slot, column());
        assert!(Arc::ptr_eq(&first, &second));
    }
    let frame = ColumnSlot::Frames(Arc::default());
    let held = cache.put(&frame, column());
    let bytes = cache.stats().bytes;
    drop(frame);
    assert_eq!(cache.stats().bytes, bytes, "its readers still hold it");
    drop(held);
    assert!(cache.stats().bytes < bytes);
}

#[test]
fn all_of_many_steps_between_samples_are_filled() {
    for (step_ms, off_ms) in [(5_000, 0), (20_000, 0), (5_000, 900), (7_000, 0)] {
        let time = |at: i64| at * 15_000 + if at % 3 == 1 { off_ms } else { 0 };
        let times: Vec<i64> = (0..1_400).map(time).collect();
        let values: Vec<f64> = (0..1_400).map(f64::from).collect();
        let column = Column::new(&times, &values, &[]);
        let steps = LookupSteps { first_ms: 2_000, step_ms, lookback_ms: 60_000 };
        let mut out = vec![f64::NAN; 1_000];
        assert_eq!(column.fill_steps(0, steps, i64::MAX, &mut out).steps, 1_000);
        for (step, value) in out.iter().enumerate() {
            let newest = times.partition_point(|time_ms| *time_ms <= steps.time(step)) - 1;
            assert_eq!(*value, values[newest], "{step_ms} {off_ms} {step}");
        }
    }
}

#[test]
fn a_selection_with_more_columns_than_the_cache_fills_it_and_evicts_none() {
    let one = ColumnCache::new(usize::MAX);
    let _kept = one.for_selection(0).add(&ColumnSlot::Frames(Arc::default()), column());
    let bytes = one.stats().bytes;
    let cache = ColumnCache::new(2 * bytes);
    let slots: Vec<ColumnSlot> = (0..3).map(|_| ColumnSlot::Frames(Arc::default())).collect();
    let (small, large) = (cache.for_selection(2 * bytes), cache.for_selection(2 * bytes + 1));
    drop(small.add(&slots[0], column()));
    drop(large.add(&slots[1], column()));
    for _ in 0..100 {
        let lent = large.add(&slots[2], column());
        assert_eq!(cache.stats().bytes, 3 * bytes, "it counts while it is held");
        drop(lent);
    }
    let are_kept = || slots.iter().map(|slot| slot.column().is_some()).collect::<Vec<_>>();
    assert_eq!(are_kept(), [true, true, false]);
    assert_eq!((cache.stats().bytes, cache.stats().evictions), (2 * bytes, 0));
    drop(small.add(&slots[2], column()));
    assert!(slots[2].column().is_some());
    assert_eq!(cache.stats().evictions, 1);
}
