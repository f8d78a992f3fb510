//! Eligibility, cutting and merging of cached steps, eviction.

use std::sync::Arc;

use model::Labels;
use proptest::prelude::*;

use super::cached_steps::{CachedSteps, Piece};
use super::{CacheKey, ResultCache, cacheable_reach};
use crate::parse::{ParseOptions, parse};
use crate::plan::{PlanOptions, plan};
use crate::result::Row;
use crate::steps::{Reach, Steps};
use crate::tile::set_present;

const NOWHERE: Reach = Reach { back_ms: 0, ahead_ms: 0 };

/// Returns how far back and ahead the steps of a query look.
fn reach(query: &str) -> Option<(i64, i64)> {
    let expr = parse(query, &ParseOptions::ALL).unwrap();
    let steps = Steps { start_ms: 1_000_000_007, step_ms: 15_000, count: 9 };
    let options = PlanOptions {
        steps,
        end_ms: steps.end_ms(),
        is_instant: false,
        lookback_ms: 300_000,
        subquery_step_ms: 60_000,
        steps_max: 1_000_000,
        needs_samples: false,
    };
    let plan = plan(&expr, &options).unwrap();
    cacheable_reach(&expr, &plan).map(|reach| (reach.back_ms / 1000, reach.ahead_ms / 1000))
}

#[test]
fn steps_look_as_far_as_their_selectors_do() {
    for (query, expected) in [
        ("up", (300, 0)),
        ("up smoothed", (300, 300)),
        ("up offset 1m", (360, 0)),
        ("up offset -1m", (240, 60)),
        ("rate(up[10m]) + up", (600, 0)),
        ("sum(rate(up[10m])) or up offset -7s", (600, 7)),
        ("rate(up[10m] anchored)", (900, 0)),
        ("rate(up[10m] smoothed offset 100s)", (1_000, 200)),
        ("max_over_time(rate(up[5m])[1h:1m])", (3_900, 0)),
        ("max_over_time(rate(up[5m] offset -1m)[1h:1m] offset 10m)", (4_440, 0)),
        ("max_over_time(sum(up offset -20m)[1h:1m] offset 10m)", (3_300, 600)),
        ("quantile_over_time(scalar(up offset 1h), down[1m])", (3_900, 0)),
        ("topk(scalar(up offset 1h), down)", (3_900, 0)),
        ("clamp(up, 1, scalar(down offset 1h))", (3_900, 0)),
    ] {
        assert_eq!(reach(query), Some(expected), "{query}");
    }
}

#[test]
fn queries_that_know_of_their_range_are_computed_whole() {
    for query in [
        "up @ 5",
        "up @ start()",
        "rate(up[5m] @ end())",
        "max_over_time(up[5m:1m] @ 7)",
        "up + start()",
        "up * range()",
        "up * step()",
        "rate(up[range()])",
        "up offset (range() / 2)",
        "max_over_time(up[5m:range()])",
        "sort(up)",
        "info(up)",
        "up + fill(0) up",
        "up or rate(up[5m])",
        "rate(up[5m]) or -up == 3 or up",
        "label_replace(up, '__name__', 'x', '', '')",
        "label_replace(up, '__type__', 'x', '', '')",
        "histogram_count(up)",
        "1 + 1",
        "time()",
    ] {
        assert_eq!(reach(query), None, "{query}");
    }
    for query in [
        "rate(up[5m]) or -up",
        "up or up == 3",
        "up or vector(0)",
        "sum(up) or rate(up[5m])",
        "rate(up[step() * 20])",
        "label_replace(up, 'x', 'x', '', '')",
        "max_over_time(up[5s:1s])",
        "max_over_time(max_over_time(up[1m:1s])[1m:1m])",
    ] {
        assert!(reach(query).is_some(), "{query}");
    }
}

/// A row of a run: whether there is a value at a step, which is its number and the series'.
fn row(series: usize, steps: Steps, first: usize, cells: &[bool]) -> Option<Row> {
    let mut row = Row {
        labels: Labels::from_pairs([("i", format!("{series:02}"))]),
        values: vec![0.0; steps.count],
        presence: vec![0; steps.count.div_ceil(64)],
        histograms: Vec::new(),
    };
    for step in 0..steps.count {
        if cells[(first + step) * (series + 3) % cells.len()] {
            row.values[step] = (series * 10_000 + first + step) as f64;
            set_present(&mut row.presence, step);
        }
    }
    row.presence.iter().any(|word| *word != 0).then_some(row)
}

const GRID: Steps = Steps { start_ms: -70, step_ms: 10, count: 1_000 };

fn part(range: std::ops::Range<usize>) -> Steps {
    Steps { start_ms: GRID.time(range.start), step_ms: 10, count: range.len() }
}

fn rows(range: std::ops::Range<usize>, cells: &[bool]) -> Vec<Row> {
    let steps = part(range.clone());
    (0..5).filter_map(|series| row(series, steps, range.start, cells)).collect()
}

fn text(rows: &[Row]) -> Vec<String> {
    let cells = |row: &Row| row.iter().map(|cell| format!("{cell:?}")).collect::<Vec<_>>();
    rows.iter().map(|row| format!("{} {:?}", row.labels, cells(row))).collect()
}

proptest! {
    #[test]
    fn runs_give_back_what_they_were_made_of(
        cells in prop::collection::vec(prop::bool::weighted(0.8), 1..40),
        is_dense in any::<bool>(),
        first in 300usize..400,
        lengths in prop::collection::vec((1usize..90, any::<bool>()), 1..12),
        cuts in prop::collection::vec((0usize..60, 0usize..60), 12),
    ) {
        let cells = if is_dense { vec![true] } else { cells };
        let (mut start, mut end) = (first, first + 1);
        let piece = |range: std::ops::Range<usize>| {
            Piece::pack(part(range.clone()), &rows(range, &cells)).unwrap()
        };
        let mut run = CachedSteps::new(piece(start..end), NOWHERE, 0);
        for ((length, is_before), (from, to)) in lengths.into_iter().zip(cuts) {
            if is_before && start >= length {
                run.extend(piece(start - length..start));
                start -= length;
            } else {
                run.extend(piece(end..end + length));
                end += length;
            }
            let (from, to) = (start + from, end.saturating_sub(to));
            if from < to {
                let asked = part(from..to);
                prop_assert_eq!(text(&run.rows(asked)), text(&rows(from..to, &cells)));
                if length % 2 == 0 {
                    run.keep(from - start..to - start);
                    (start, end) = (from, to);
                }
            }
            if length % 3 == 0 {
                run.tidy();
            }
            prop_assert_eq!(run.steps(), Some(part(start..end)));
        }
    }

    #[test]
    fn steps_stay_that_see_what_has_not_changed(
        from_ms in -100i64..400,
        until_ms in -100i64..400,
        back_ms in 0i64..50,
        ahead_ms in -50i64..50,
    ) {
        let piece = Piece::pack(part(0..30), &rows(0..30, &[true])).unwrap();
        let mut run = CachedSteps::new(piece, Reach { back_ms, ahead_ms }, 0);
        let is_cut = run.keep_unchanged(&(from_ms..until_ms));
        let is_kept = |step: &usize| {
            let time_ms = GRID.time(*step);
            time_ms - back_ms >= from_ms && time_ms + ahead_ms < until_ms
        };
        let kept: Vec<usize> = (0..30).filter(is_kept).collect();
        let expected = kept.first().map(|first| part(*first..first + kept.len()));
        prop_assert_eq!(run.steps(), expected);
        prop_assert_eq!(is_cut, !kept.contains(&29));
    }
}

fn key(query: usize) -> CacheKey {
    let query = format!("query {query}");
    CacheKey {
        query,
        scope: Arc::from(""),
        step_ms: 1,
        phase_ms: 0,
        lookback_ms: 1,
        subquery_step_ms: 1,
    }
}

#[test]
fn what_was_not_asked_for_the_longest_makes_room() {
    let run = |count: usize| {
        CachedSteps::new(Piece::pack(part(0..count), &rows(0..count, &[true])).unwrap(), NOWHERE, 0)
    };
    let results = ResultCache::new(1 << 20);
    results.put(key(0), run(64));
    let bytes = results.stats().bytes;
    let results = ResultCache::new(bytes * 3);
    (0..3).for_each(|query| results.put(key(query), run(64)));
    assert!(results.get(&key(0)).is_some());
    results.put(key(3), run(64));
    let is_kept = |query| results.get(&key(query)).is_some();
    assert_eq!([0, 1, 2, 3].map(is_kept), [true, false, true, true]);
    // In its own place it needs no other's.
    results.put(key(3), run(64));
    assert_eq!(results.stats().entries, 3);
    // A result larger than the cache is not kept, and evicts none.
    results.put(key(4), run(900));
    assert_eq!((results.stats().entries, results.stats().evictions), (3, 1));
    results.remove(&key(3));
    assert_eq!((results.stats().entries, results.stats().bytes), (2, bytes * 2));
}
