//! Samples of a window in any order of arrival are read back as from a map, with and without cached
//! columns, in between and at the end.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Advance, Cursor, Histogram, HistogramSample, Labels, LookupSteps, SampleBatch, SourceError,
    TimeRange, is_stale,
};
use proptest::prelude::*;

use super::pack::{LooseFrames, pack};
use super::series::HeadSeries;
use super::window::OpenWindow;
use crate::epoch::Epoch;
use crate::samples::columns::ColumnCache;
use crate::samples::cursor::PartsCursor;
use crate::samples::decided::DecidedHistogram;
use crate::samples::part::{Part, Parts, TailRoom};
use crate::samples::scratch::Scratch;
use crate::samples::series_parts::SeriesParts;
use crate::window::{WINDOW_MS, Window};

/// Value and start of a float, or the count of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Found {
    Float(f64, i64),
    Histogram(f64),
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Float so many intervals after the newest one (or before it, if negative), with a start.
    Float {
        after: i64,
        value: u32,
        start_ms: i64,
    },
    Histogram {
        after: i64,
    },
    Read {
        start: i64,
        end: i64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let float = |after| {
        (after, any::<u16>(), Just(0_i64)).prop_map(|(after, value, start_ms)| Step::Float {
            after,
            value: value.into(),
            start_ms,
        })
    };
    let read = (-300_i64..10, 0_i64..300)
        .prop_map(|(start, length)| Step::Read { start, end: start + length });
    let plain = prop_oneof![
        20 => float(Just(1_i64).boxed()),
        4 => float((-50_i64..1).boxed()),
        1 => float((-400_i64..1).boxed()),
        1 => read.clone(),
    ];
    let all = prop_oneof![
        30 => plain.clone(),
        1 => (-50_i64..2, any::<u16>()).prop_map(|(after, value)| Step::Float {
            after,
            value: value.into(),
            start_ms: 7,
        }),
        1 => (-50_i64..2).prop_map(|after| Step::Histogram { after }),
    ];
    prop_oneof![
        3 => proptest::collection::vec(plain, 1..600),
        1 => proptest::collection::vec(all, 1..600),
    ]
}

const INTERVAL_MS: i64 = 10;

/// A window, and the samples that it must have.
struct Twin {
    window: OpenWindow,
    expected: BTreeMap<i64, Found>,
    newest_ms: i64,
    scratch: Scratch,
    columns: ColumnCache,
}

impl Twin {
    fn new() -> Twin {
        Twin {
            window: OpenWindow::new(Window::of(0), Epoch::default()),
            expected: BTreeMap::new(),
            newest_ms: 1_000 * INTERVAL_MS,
            scratch: Scratch::new(),
            columns: ColumnCache::new(1 << 20),
        }
    }

    fn take(&mut self, step: Step) {
        let time_ms = |after: i64| (self.newest_ms + after * INTERVAL_MS).max(0);
        match step {
            Step::Float { after, value, start_ms } => {
                let (timestamp_ms, value) = (time_ms(after), f64::from(value));
                self.window.append(timestamp_ms, value, start_ms, &mut self.scratch);
                self.expected.insert(timestamp_ms, Found::Float(value, start_ms));
                self.newest_ms = self.newest_ms.max(timestamp_ms);
            }
            Step::Histogram { after } => {
                let timestamp_ms = time_ms(after);
                let count = self.expected.len() as f64;
                let histogram = Histogram { count, ..Histogram::default() };
                let sample =
                    HistogramSample { timestamp_ms, start_ms: 0, histogram: histogram.into() };
                self.window.append_histogram(&DecidedHistogram { sample, before: None });
                self.expected.insert(timestamp_ms, Found::Histogram(count));
                self.newest_ms = self.newest_ms.max(timestamp_ms);
            }
            Step::Read { start, end } => {
                let (start_ms, end_ms) = (time_ms(start), time_ms(end));
                self.check(start_ms, end_ms);
            }
        }
    }

    fn check(&self, start_ms: i64, end_ms: i64) {
        for are_columns_kept in [true, false] {
            let found = self.read(start_ms, end_ms, are_columns_kept);
            let expected: Vec<(i64, Found)> =
                self.expected.range(start_ms..=end_ms).map(|(t, found)| (*t, *found)).collect();
            assert_eq!(found, expected, "columns: {are_columns_kept}");
        }
    }

    /// Calls `visit` with a cursor over a range.
    fn with_cursor<T>(
        &self,
        start_ms: i64,
        end_ms: i64,
        are_columns_kept: bool,
        visit: impl FnOnce(&mut PartsCursor<'_>) -> Result<T, SourceError>,
    ) -> T {
        let (mut parts, mut room) = (Parts::new(), TailRoom::default());
        self.window.parts(start_ms, end_ms, are_columns_kept, &mut parts, &mut room);
        room.settle(parts.iter_mut().filter_map(Part::tail_mut));
        let labels = Labels::default();
        let parts = SeriesParts::new(parts, start_ms, end_ms, &labels).unwrap();
        let columns = are_columns_kept.then(|| self.columns.for_selection(0));
        visit(&mut PartsCursor::new(&labels, &parts, start_ms, end_ms, columns)).unwrap()
    }

    fn read(&self, start_ms: i64, end_ms: i64, are_columns_kept: bool) -> Vec<(i64, Found)> {
        let mut found = self.with_cursor(start_ms, end_ms, are_columns_kept, read_all);
        // Floats and histograms of a batch are apart, and a range begins inside a frame.
        found.retain(|(timestamp_ms, _)| (start_ms..=end_ms).contains(timestamp_ms));
        found.sort_by_key(|(timestamp_ms, _)| *timestamp_ms);
        found
    }

    /// Checks lookups in tiles of eight steps, of a window with floats alone.
    fn check_lookups(&self, step_ms: i64) {
        let Some((&first_ms, _)) = self.expected.first_key_value() else { return };
        let count = usize::try_from((self.newest_ms - first_ms) / step_ms + 3).unwrap();
        let steps = LookupSteps { first_ms: first_ms - 1, step_ms, lookback_ms: 5 * step_ms };
        let newest_at = |step: usize| self.expected.range(..=steps.time(step)).next_back();
        let end_ms = steps.time(count - 1);
        self.with_cursor(i64::MIN, end_ms, true, |cursor| {
            let mut newest = None;
            for first in (0..count).step_by(8) {
                let mut out = vec![f64::NAN; 8.min(count - first)];
                let filled = cursor.fill_steps(steps.from(first), &mut out)?;
                for (step, value) in (first..).zip(&out[..filled.steps]) {
                    let oldest_ms = steps.time(step) - steps.lookback_ms;
                    newest = newest_at(step).map(|(_, found)| *found);
                    let seen = newest_at(step).filter(|(time_ms, _)| **time_ms > oldest_ms);
                    match seen {
                        Some((_, Found::Float(seen, 0))) => {
                            assert_eq!(seen.to_bits(), value.to_bits(), "step {step}");
                        }
                        Some((_, found)) => panic!("step {step} sees {found:?}"),
                        None => assert!(is_stale(*value), "step {step}"),
                    }
                    assert!(!(filled.are_all_seen && is_stale(*value)), "step {step}");
                }
                let last_ms = steps.time(first + out.len() - 1);
                let mut batch = SampleBatch::new();
                let mut rest = Vec::new();
                if filled.steps < out.len() {
                    while {
                        batch.clear();
                        let advance = cursor.next_batch(last_ms, &mut batch)?;
                        let (timestamps, values) = batch.samples();
                        rest.extend(timestamps.iter().copied().zip(values.iter().copied()));
                        advance == Advance::Full
                    } {}
                }
                for step in first + filled.steps..first + out.len() {
                    let seen = rest.iter().rfind(|(time_ms, _)| *time_ms <= steps.time(step));
                    newest = seen.map(|(_, value)| Found::Float(*value, 0)).or(newest);
                    assert_eq!(newest, newest_at(step).map(|(_, found)| *found), "step {step}");
                }
            }
            Ok(())
        });
    }
}

/// Reads all samples of a cursor.
fn read_all(cursor: &mut PartsCursor<'_>) -> Result<Vec<(i64, Found)>, SourceError> {
    let (mut batch, mut found) = (SampleBatch::new(), Vec::new());
    loop {
        batch.clear();
        let advance = cursor.next_batch(i64::MAX, &mut batch)?;
        let (timestamps, values) = batch.samples();
        for (at, (timestamp_ms, value)) in timestamps.iter().zip(values).enumerate() {
            let start_ms = batch.starts.get(at).copied().unwrap_or(0);
            found.push((*timestamp_ms, Found::Float(*value, start_ms)));
        }
        for sample in &batch.histograms {
            found.push((sample.timestamp_ms, Found::Histogram(sample.histogram.count)));
        }
        if advance == Advance::End {
            return Ok(found);
        }
    }
}

proptest! {
    #[test]
    fn a_window_returns_what_arrived_in_any_order(steps in steps()) {
        let mut twin = Twin::new();
        for step in steps {
            twin.take(step);
        }
        twin.check(i64::MIN, i64::MAX);
        let (start_ms, end_ms) = (twin.newest_ms - 100 * INTERVAL_MS, twin.newest_ms - 5);
        twin.check(start_ms, end_ms);
        let are_plain = |found: &Found| matches!(found, Found::Float(_, 0));
        if twin.expected.values().all(are_plain) {
            twin.check_lookups(INTERVAL_MS);
            twin.check_lookups(3 * INTERVAL_MS);
            twin.check_lookups(INTERVAL_MS / 3);
        }
    }
}

/// Returns a series with a start timestamp whose first window has ended, and its frames.
fn ended_series(start_ms: i64, scratch: &mut Scratch) -> (HeadSeries, LooseFrames) {
    let mut series = HeadSeries::new(Labels::default());
    for scrape in 0..240 {
        series.append(Epoch::NEVER, scrape * 15_000, scrape as f64, start_ms, scratch);
    }
    let mut all_loose = Vec::new();
    series.end(&BTreeSet::from([Window::new(0)]), Epoch::NEVER, &mut all_loose, scratch);
    assert_eq!(all_loose.len(), 1);
    (series, all_loose.swap_remove(0))
}

#[test]
fn frames_that_changed_while_they_were_packed_are_kept() {
    let (window, mut scratch) = (Window::new(0), Scratch::new());
    let (mut series, loose) = ended_series(0, &mut scratch);
    let packed = pack(&loose.frames, &mut scratch).unwrap();
    let mut other = HeadSeries::new(Labels::default());
    other.append(Epoch::NEVER, 0, 1.0, 0, &mut scratch);
    other.end(&BTreeSet::from([window]), Epoch::NEVER, &mut Vec::new(), &mut scratch);
    let mut copied = Vec::new();
    assert_eq!(other.condense(&loose, packed.clone()), 0);
    assert_eq!(other.copy_condensed(window, Epoch::NEVER, &mut copied), None);
    let before = series.bytes();
    let freed = series.condense(&loose, packed.clone());
    assert!(freed > 100, "{freed}");
    assert_eq!(series.bytes(), before - freed);
    let times = series.copy_condensed(window, Epoch::NEVER, &mut copied);
    assert_eq!(times, Some(TimeRange::new(0, 239 * 15_000)));
    // Once.
    assert_eq!(series.condense(&loose, packed.clone()), 0);
}

#[test]
fn frames_with_starts_are_packed_too() {
    let (window, mut scratch) = (Window::new(0), Scratch::new());
    let (mut series, loose) = ended_series(7, &mut scratch);
    let packed = pack(&loose.frames, &mut scratch).unwrap();
    assert!(series.condense(&loose, packed) > 100);
    let mut copied = Vec::new();
    series.copy_condensed(window, Epoch::NEVER, &mut copied).unwrap();
    let encodings = crate::chunk::frames(&copied).map(|frame| frame.unwrap().1.encoding);
    assert_eq!(encodings.collect::<Vec<_>>(), [crate::chunk::Encoding::PackedStarts]);
}

#[test]
fn a_window_has_no_raw_samples_once_the_next_one_begins() {
    let mut scratch = Scratch::new();
    let mut series = HeadSeries::new(Labels::default());
    let before = series.bytes();
    // The last two are late.
    let all = [1, 2, 3, 4, 5, 6, 7, WINDOW_MS + 1, 9, 8];
    for (at, timestamp_ms) in all.into_iter().enumerate() {
        series.append(Epoch::FIRST, timestamp_ms, at as f64, 0, &mut scratch);
        let is_raw = series.holds(1, 0.0_f64.to_bits());
        assert_eq!(is_raw, (at < 7).then_some(true), "{at}");
        let bytes = before + scratch.grown_bytes - scratch.shrunk_bytes;
        assert_eq!(series.bytes(), bytes, "{at}");
    }
    let parts = series.parts_of_window(Window::new(0), Epoch::FIRST);
    let labels = Labels::default();
    let parts = SeriesParts::new(parts, 0, WINDOW_MS, &labels).unwrap();
    let mut cursor = PartsCursor::new(&labels, &parts, 0, WINDOW_MS, None);
    let values = [0, 1, 2, 3, 4, 5, 6, 9, 8].map(|value| Found::Float(f64::from(value), 0));
    let expected: Vec<_> = [1, 2, 3, 4, 5, 6, 7, 8, 9].into_iter().zip(values).collect();
    assert_eq!(read_all(&mut cursor).unwrap(), expected);
}
