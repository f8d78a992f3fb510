//! Samples that a source leaves out between the ranges of the steps change no bit of an answer: a
//! source that leaves out all it may, against one that leaves out nothing.

use std::sync::Arc;

use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryOptions, Value};
use futures::executor::block_on;
use model::memory::MemorySource;
use model::{Advance, Cursor, Labels, SampleBatch, Source, SourceError};
use proptest::prelude::*;

use crate::data::{Case, LOOKBACK_MS, cases, data, source};
use crate::ranges::{FUNCTIONS, call};
use crate::wrapped::Wrapped;

/// Leaves out nothing.
struct WholeCursor<'a>(Box<dyn Cursor + 'a>);

impl Cursor for WholeCursor<'_> {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        self.0.next_batch(until_ms, batch)
    }
}

/// The labels of each series, its bits at each step, and how many samples each step saw; all NaN
/// are one.
pub(crate) type Answer = (Vec<(Labels, Vec<Option<u64>>)>, Vec<u64>);

pub(crate) fn answer(case: &Case, source: Arc<dyn Source>, query: &str) -> (Answer, u64) {
    answer_with(&EngineOptions::default(), case, source, query)
}

/// Returns the answer of an engine with `options`, except for threads and tiles.
pub(crate) fn answer_with(
    options: &EngineOptions,
    case: &Case,
    source: Arc<dyn Source>,
    query: &str,
) -> (Answer, u64) {
    let engine = Engine::new(EngineOptions {
        threads: case.threads,
        tile_shape: TileShape { series: case.shape.0, steps: case.shape.1 },
        ..options.clone()
    });
    let options =
        QueryOptions { lookback_ms: LOOKBACK_MS, per_step_stats: true, ..QueryOptions::default() };
    let end_ms = case.time(case.count - 1);
    let asked = engine.range(source, query, case.start_ms, end_ms, case.step_ms, &options);
    let output = block_on(asked).unwrap_or_else(|error| panic!("{query}: {error}"));
    let Value::Grid { rows, .. } = output.value else { panic!("no grid") };
    let bits = |value: f64| if value.is_nan() { 0x7ff8 << 48 } else { value.to_bits() };
    let cells = |row: &engine::result::Row| {
        let cell = |step| row.is_present(step).then(|| bits(row.values[step]));
        (0..case.count).map(cell).collect()
    };
    let rows = rows.iter().map(|row| (row.labels.clone(), cells(row))).collect();
    let seen = output.step_stats.expect("asked for").counts;
    ((rows, seen), output.stats.sample_count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_no_step_sees_changes_no_answer(
        case in cases(),
        step_ms in 10_000_i64..120_000,
        is_even in any::<bool>(),
        offset_ms in -5_000_i64..5_000,
    ) {
        // Even steps meet the samples of even series again and again.
        let step_ms = if is_even { step_ms / 3_000 * 3_000 } else { step_ms };
        let case = Case { step_ms, range_ms: case.range_ms.min(step_ms * 2), ..case };
        let source = source(&data(case.seed, case.series_count));
        let range = format!("m[{}ms]", case.range_ms);
        let mut queries: Vec<String> =
            FUNCTIONS.iter().map(|(name, _)| call(name, &format!("{range} offset {offset_ms}ms")))
                .collect();
        let extended = ["rate", "increase", "delta"]
            .map(|name| ["anchored", "smoothed"].map(|mode| format!("{name}({range} {mode})")));
        queries.extend(extended.into_iter().flatten());
        queries.extend(["resets", "changes"].map(|name| format!("{name}({range} anchored)")));
        queries.extend(
            ["m", "timestamp(m)", "m smoothed", "sum by (g) (m)", "m @ end()", "rate(m[9s]) / m"]
                .map(str::to_owned),
        );
        queries.push(format!("max_over_time(rate(m[4s])[{}ms:1s])", case.range_ms));
        for query in queries {
            let (found, found_count) = answer(&case, source.clone(), &query);
            let whole =
                Wrapped::new(source.clone(), Arc::new(|inner| Box::new(WholeCursor(inner))));
            let (expected, count) = answer(&case, Arc::new(whole), &query);
            prop_assert_eq!(found, expected, "{}", query);
            prop_assert!(found_count <= count, "{}: {} of {}", query, found_count, count);
        }
    }
}

/// A case whose steps lie far apart does leave out samples.
#[test]
fn samples_between_ranges_are_not_read() {
    let mut source = MemorySource::new();
    let labels = Labels::from_pairs([("__name__", "m")]);
    (0..1_000).for_each(|at| source.append(&labels, at * 1_000, at as f64));
    let (start_ms, step_ms, count, range_ms) = (99_000, 100_000, 10, 5_000);
    let (seed, series_count, shape, threads) = (0, 1, (512, 64), 1);
    let case = Case { seed, series_count, start_ms, step_ms, count, range_ms, shape, threads };
    let source = Arc::new(source);
    for (query, read_count) in [("increase(m[5s])", 50), ("m", 10), ("increase(m[2m])", 1_000)] {
        let ((rows, seen), sample_count) = answer(&case, source.clone(), query);
        assert!(rows[0].1.iter().all(Option::is_some), "{query}");
        assert!(seen.iter().sum::<u64>() <= 1_200, "{query}: {seen:?}");
        // Once for the answer, and for what each step saw once or twice.
        assert!(sample_count <= read_count * 3, "{query}: {sample_count}");
    }
}
