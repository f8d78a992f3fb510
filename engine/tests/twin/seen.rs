//! Steps of a subquery that no range sees change no answer, annotation or error, whether they are
//! computed or not. With counts of samples for each step, all are computed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::tile::TileShape;
use engine::{Engine, EngineOptions, QueryOptions, Value};
use futures::executor::block_on;
use model::memory::MemorySource;
use model::{
    Advance, Cursor, FilledWindows, Labels, SampleBatch, Source, SourceError, WantedFact,
    WindowFacts, Windows,
};
use proptest::prelude::*;

use crate::data::{Case, LOOKBACK_MS, cases, data};
use crate::facts::knowing;
use crate::wrapped::Wrapped;

/// Returns the rows with the bits of their values and the annotations, or the error; all NaN are
/// one.
fn answer(case: &Case, source: &Arc<dyn Source>, query: &str, computes_all: bool) -> String {
    let engine = Engine::new(EngineOptions {
        // Each function then compares the labels of all series.
        delayed_name_removal: false,
        threads: case.threads,
        tile_shape: TileShape { series: case.shape.0, steps: case.shape.1 },
        ..EngineOptions::default()
    });
    let options = QueryOptions {
        lookback_ms: LOOKBACK_MS,
        per_step_stats: computes_all,
        ..QueryOptions::default()
    };
    let end_ms = case.time(case.count - 1);
    let asked = engine.range(source.clone(), query, case.start_ms, end_ms, case.step_ms, &options);
    let output = match block_on(asked) {
        Ok(output) => output,
        Err(error) => return error.to_string(),
    };
    let Value::Grid { rows, .. } = output.value else { panic!("no grid") };
    let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let cell = |step| row.is_present(step).then(|| bits(row.values[step]));
            (&row.labels, (0..case.count).map(cell).collect::<Vec<_>>())
        })
        .collect();
    format!("{rows:?} {:?}", output.annotations.to_strings(query, 0))
}

/// Returns a source that knows facts of windows, except for every n-th.
fn knowing_source(source: &Arc<MemorySource>, unknown: u64) -> Arc<dyn Source> {
    Arc::new(Wrapped::new(source.clone(), Arc::new(move |inner| knowing(inner, unknown))))
}

/// Counters of the name `m_total`, of which the first are also of the name `n_total`.
fn source(seed: u64, series_count: usize) -> Arc<MemorySource> {
    let mut source = MemorySource::new();
    for (index, (labels, samples)) in data(seed, series_count).into_iter().enumerate() {
        let names = if index < 2 { &["m_total", "n_total"][..] } else { &["m_total"] };
        for name in names {
            let pairs = [("__name__", *name), ("g", labels.get("g")), ("i", labels.get("i"))];
            let labels = Labels::from_pairs(pairs);
            // The two names have no sample in common.
            let is_of = |at: i64| names.len() == 1 || (at < 50_000) == (*name == "m_total");
            for (at, value) in samples.iter().filter(|(at, _)| is_of(*at)) {
                source.append(&labels, *at, *value);
            }
        }
    }
    Arc::new(source)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn steps_that_no_range_sees_change_no_answer(
        case in cases(),
        range_ms in 1_i64..20_000,
        gap_ms in 1_i64..200_000,
        steps_ms in prop_oneof![Just(500_i64), Just(1_000), 1_i64..3_000],
        offset_ms in -9_000_i64..9_000,
        unknown in prop_oneof![Just(None), Just(Some(50_u64)), Just(Some(1_000_003))],
    ) {
        let case = Case { step_ms: range_ms + gap_ms, count: case.count.min(9), ..case };
        let source = source(case.seed, case.series_count);
        let source = match unknown {
            Some(unknown) => knowing_source(&source, unknown),
            None => source,
        };
        for inner in [
            "m_total",
            "sum by (g) (m_total)",
            "rate(m_total[9s])",
            "sum by (g) (increase(m_total[9s] offset 3s))",
            "max(sum by (g) (m_total offset -5s))",
            "min_over_time(m_total[4s])",
            "absent_over_time(m_total[4s])",
            "quantile_over_time(0.4, m_total[8s])",
            "rate(m_total[9s] @ 40)",
            "predict_linear(m_total[9s] @ 40, 60)",
            "sum_over_time(m_total[7s] offset 2s)",
            "avg(avg_over_time(m_total[5s]))",
            "changes(m_total[9s])",
            "topk(2, rate(m_total[9s]))",
            "rate({__name__=~'[mn]_total'}[9s])",
            "max_over_time(sum(m_total)[7s:1s])",
            "rate(m_total[5s]) / rate(m_total[9s])",
            "sum(m_total) / ignoring (g) max(n_total)",
        ] {
            for offset in [String::new(), format!(" offset {offset_ms}ms")] {
                let range = format!("({inner})[{range_ms}ms:{steps_ms}ms]{offset}");
                for query in [format!("max_over_time({range})"), format!("increase({range})")] {
                    let found = answer(&case, &source, &query, false);
                    prop_assert_eq!(found, answer(&case, &source, &query, true), "{}", query);
                }
            }
        }
    }
}

/// Ten ranges of 5 s, 100 s apart.
fn apart() -> Case {
    let (start_ms, step_ms, count, range_ms) = (99_000, 100_000, 10, 5_000);
    let (seed, series_count, shape, threads) = (0, 1, (512, 8), 1);
    Case { seed, series_count, start_ms, step_ms, count, range_ms, shape, threads }
}

/// Counts calls that read.
struct CountedCursor<'a> {
    inner: Box<dyn Cursor + 'a>,
    calls: Arc<AtomicUsize>,
}

impl Cursor for CountedCursor<'_> {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.inner.next_batch(until_ms, batch)
    }

    fn fill_windows(
        &mut self,
        windows: Windows,
        wanted: WantedFact,
        facts: &mut WindowFacts,
    ) -> Result<FilledWindows, SourceError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.inner.fill_windows(windows, wanted, facts)
    }
}

/// Of the 905 steps, 50 are in ranges. A tile has eight.
#[test]
fn tiles_that_no_range_sees_are_not_read() {
    let mut source = MemorySource::new();
    let labels = Labels::from_pairs([("__name__", "m_total")]);
    (0..1_000).for_each(|at| source.append(&labels, at * 1_000, at as f64));
    let source = Arc::new(source);
    for inner in ["m_total", "rate(m_total[3s])"] {
        let query = format!("max_over_time({inner}[5s:1s])");
        let [seen, all] = [false, true].map(|computes_all| {
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&calls);
            let wrapped = Wrapped::new(
                source.clone(),
                Arc::new(move |inner| {
                    let (inner, calls) = (knowing(inner, u64::MAX), Arc::clone(&counted));
                    Box::new(CountedCursor { inner, calls })
                }),
            );
            let text = answer(&apart(), &(Arc::new(wrapped) as _), &query, computes_all);
            (text, calls.load(Ordering::Relaxed))
        });
        assert_eq!(seen.0.matches("Some").count(), 10, "{query}: {}", seen.0);
        assert_eq!(seen.0, all.0, "{query}");
        assert!(seen.1 <= 40, "{query}: {}", seen.1);
        assert!(all.1 >= 113, "{query}: {}", all.1);
    }
}

/// A range at one time is read whole, wherever the steps are that a range sees.
#[test]
fn ranges_at_one_time_are_read_whole() {
    let mut source = MemorySource::new();
    let labels = Labels::from_pairs([("__name__", "m_total")]);
    (0..100).for_each(|at| source.append(&labels, at * 1_000, (at * at) as f64));
    let source: Arc<dyn Source> = Arc::new(source);
    let case = Case { start_ms: 3_000, step_ms: 20_000, count: 4, ..apart() };
    let query = "max_over_time(predict_linear(m_total[9s] @ 40, 60)[1s:7s])";
    let found = answer(&case, &source, query, false);
    assert_eq!(found, answer(&case, &source, query, true));
    assert_eq!(found.matches("Some").count(), 1, "{found}");
}

/// Annotations and errors of steps outside of all ranges are reported.
#[test]
fn steps_that_no_range_sees_have_annotations_and_errors() {
    let mut source = MemorySource::new();
    let between = (140..160).map(|second| second * 1_000);
    let labels = |name| Labels::from_pairs([("__name__", name)]);
    for name in ["gauge", "one_total"] {
        between.clone().for_each(|at| source.append(&labels(name), at, 1.0));
    }
    (0..1_000).for_each(|second| source.append(&labels("other_total"), second * 1_000, 1.0));
    for (of, is_histogram) in [("one", true), ("other", false)] {
        let labels = Labels::from_pairs([("__name__", "mixed"), ("of", of)]);
        for at in between.clone() {
            match is_histogram {
                true => source.append_histogram(&labels, at, Arc::default(), 0),
                false => source.append(&labels, at, 1.0),
            }
        }
    }
    let source = Arc::new(source);
    let knowing = knowing_source(&source, u64::MAX);
    let reading: Arc<dyn Source> = source;
    for (source, inner, expected) in [
        (&knowing, "rate(gauge[9s])", "not be a counter"),
        (&reading, "sum(mixed)", "mix of"),
        (&knowing, "rate({__name__=~'.*_total'}[9s])", "same labelset"),
    ] {
        let query = format!("max_over_time({inner}[5s:1s])");
        let found = answer(&apart(), source, &query, false);
        assert!(found.contains(expected), "{query}: {found}");
        assert_eq!(found, answer(&apart(), source, &query, true), "{query}");
    }
}
