//! The store against a naive twin: in any order of writes, seals and restarts, every sample is read
//! once, and the later write wins.

use std::sync::Arc;

use model::histogram::decide_hint;
use model::memory::MemorySource;
use model::{
    Batch, Histogram, HistogramSample, Labels, MatchOp, Matcher, MetadataQuery, RejectReason,
    ResetHint, Selection, Source, Span, TimeRange, WantedWindows, WindowPart, Windows,
};
use proptest::prelude::*;

use super::follow;
use super::harness::{self, FullContents, Read, ReadValue, labels, open_with, read, read_full};
use crate::lsm;
use crate::outcome::REJECTIONS_MAX;
use crate::sizes::Sizes;
use crate::window::WINDOW_MS;
use crate::{ManualClock, Store, StoreOptions};

#[derive(Debug, Clone)]
enum Op {
    /// Samples as series, time, value.
    Append(Vec<(u8, i64, u8)>),
    /// Appends samples in order: series, first time, count, distance, and number of consecutive
    /// samples of a kind: floats first, or only floats.
    Run(u8, i64, u16, i64, Option<u16>),
    SealAll,
    SealClosed(i64),
    /// Deletes a range of time of some series.
    Delete(u8, i64, i64),
    Clean,
    /// Reads, which fills the caches.
    Read,
    Close,
    Crash,
    /// Deletes unused SSTs at once, while readers hold earlier views.
    Garbage,
}

/// Returns the bytes of the index cache: none, a few, all.
fn index_cache() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 1_usize..5000, Just(StoreOptions::default().index_cache_bytes_max)]
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![
        // Few distinct times, so that they collide.
        (0_i64..40).prop_map(|t| t * 15_000),
        (-40_i64..40).prop_map(|t| t * WINDOW_MS / 8),
        -(1_i64 << 36)..(1_i64 << 36),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let samples = proptest::collection::vec((0_u8..12, time(), 0_u8..9), 1..30);
    let step = prop_oneof![Just(15_000_i64), 1_i64..30_000];
    let kinds = prop_oneof![Just(None), (1_u16..4).prop_map(Some), (30_u16..300).prop_map(Some)];
    prop_oneof![
        6 => samples.prop_map(Op::Append),
        5 => (0_u8..12, time(), 1_u16..700, step, kinds)
            .prop_map(|(s, t, n, d, k)| Op::Run(s, t, n, d, k)),
        1 => Just(Op::SealAll),
        1 => (-20_i64..20).prop_map(|w| Op::SealClosed(w * WINDOW_MS)),
        2 => (0_u8..5, time(), 0_i64..3 * WINDOW_MS).prop_map(|(m, t, n)| Op::Delete(m, t, n)),
        1 => Just(Op::Clean),
        2 => Just(Op::Read),
        1 => Just(Op::Close),
        1 => Just(Op::Crash),
    ]
}

fn op_with_readers() -> impl Strategy<Value = Op> {
    prop_oneof![8 => op(), 3 => Just(Op::Read), 1 => Just(Op::Garbage)]
}

fn series(number: u8) -> Labels {
    let metric = ["a", "b", "c"][usize::from(number % 3)];
    let instance = number.to_string();
    let mut pairs = vec![("__name__", metric), ("instance", instance.as_str())];
    if number.is_multiple_of(2) {
        pairs.push(("even", "yes"));
    }
    labels(&pairs)
}

/// A sample of a series.
#[derive(Debug, Clone)]
struct Sample {
    number: u8,
    timestamp_ms: i64,
    start_ms: i64,
    value: Value,
}

#[derive(Debug, Clone)]
enum Value {
    Float(f64),
    Histogram(Arc<Histogram>),
}

/// Returns the sample of a time for a small number, always the same one.
fn sample(number: u8, timestamp_ms: i64, value: u8) -> Sample {
    let counts = |count: i64| histogram_of(timestamp_ms.unsigned_abs() / 15_000, count);
    let value_of = |value: u8| match value {
        0..3 => Value::Float(f64::from(value)),
        3 => Value::Histogram(Histogram { reset_hint: ResetHint::Gauge, ..counts(11) }.into()),
        4 => Value::Histogram(Histogram::stale().into()),
        5 => Value::Histogram(Histogram { zero_count: 0.5, ..counts(3) }.into()),
        _ => Value::Histogram(counts(i64::from(value)).into()),
    };
    let start_ms = start_of(number, timestamp_ms);
    Sample { number, timestamp_ms, start_ms, value: value_of(value) }
}

/// Returns no start timestamp, a constant one, or the time of the sample before.
fn start_of(number: u8, timestamp_ms: i64) -> i64 {
    [0, 777, timestamp_ms - 15_000][usize::from(number % 3)]
}

/// Returns a histogram in one of a few layouts, which grows with a count.
fn histogram_of(layout: u64, count: i64) -> Histogram {
    let count = count as f64;
    let spans = match layout % 3 {
        0 => vec![Span { offset: -2, length: 2 }],
        1 => vec![Span { offset: -2, length: 3 }, Span { offset: 2, length: 1 }],
        _ => vec![Span { offset: -2, length: 2 }, Span { offset: 3, length: 1 }],
    };
    let len: u32 = spans.iter().map(|span| span.length).sum();
    Histogram {
        count: count * f64::from(len) + 1.0,
        sum: count * 0.3,
        zero_count: 1.0,
        positive_spans: spans,
        positive_counts: vec![count; len as usize],
        ..Histogram::default()
    }
}

/// Appends to both; samples refused by the store are not added to the twin.
async fn append(store: &Store, twin: &mut MemorySource, samples: &[Sample]) {
    let mut seen = std::collections::HashSet::new();
    let samples: Vec<_> =
        samples.iter().filter(|s| seen.insert((s.number, s.timestamp_ms))).collect();
    for samples in samples.chunks(REJECTIONS_MAX) {
        append_some(store, twin, samples).await;
    }
}

async fn append_some(store: &Store, twin: &mut MemorySource, samples: &[&Sample]) {
    let mut batch = Batch::default();
    for Sample { number, timestamp_ms, start_ms, value } in samples {
        match value {
            Value::Float(value) => {
                batch.push(&series(*number), &[(*timestamp_ms, *value)]);
                if *start_ms != 0 {
                    batch.starts.resize(batch.timestamps.len() - 1, 0);
                    batch.starts.push(*start_ms);
                }
            }
            Value::Histogram(histogram) => {
                batch.push(&series(*number), &[]);
                batch.push_histograms(&[HistogramSample {
                    timestamp_ms: *timestamp_ms,
                    start_ms: *start_ms,
                    histogram: Arc::clone(histogram),
                }]);
            }
        }
    }
    let outcome = store.append(batch).await.unwrap();
    assert_eq!(outcome.accepted + outcome.duplicates + outcome.rejected.total(), samples.len());
    assert_eq!(outcome.rejected.total(), outcome.rejections.len(), "all are listed: there are few");
    for Sample { number, timestamp_ms, start_ms, value } in samples {
        let labels = series(*number);
        let is_rejected = outcome
            .rejections
            .iter()
            .any(|r| r.labels == labels && r.timestamp_ms == *timestamp_ms);
        if is_rejected {
            continue;
        }
        match value {
            Value::Float(value) => {
                twin.append_with_start(&labels, *timestamp_ms, *value, *start_ms);
            }
            Value::Histogram(histogram) => {
                let histogram = Arc::clone(histogram);
                twin.append_histogram(&labels, *timestamp_ms, histogram, *start_ms);
            }
        }
    }
    assert!(outcome.rejections.iter().all(|r| r.reason == RejectReason::DuplicateTimestamp));
}

/// Checks reset hints against the histogram before, and removes them.
fn checked(contents: FullContents) -> FullContents {
    let mut contents = contents;
    for (labels, reads) in &mut contents {
        let mut before: Option<Arc<Histogram>> = None;
        for read in reads {
            let ReadValue::Histogram(histogram) = &mut read.value else { continue };
            let hint = histogram.reset_hint;
            if hint == ResetHint::NotReset
                && let Some(before) = &before
            {
                let decided = decide_hint(Some(before), histogram);
                assert_eq!(decided, hint, "{labels} {} after {before:?}", read.timestamp_ms);
            }
            before = Some(Arc::clone(histogram));
            if hint != ResetHint::Gauge {
                Arc::make_mut(histogram).reset_hint = ResetHint::Unknown;
            }
        }
    }
    contents
}

async fn read_checked(
    source: &dyn Source,
    matchers: Vec<Matcher>,
    start_ms: i64,
    end_ms: i64,
) -> FullContents {
    checked(read_full(source, matchers, start_ms, end_ms).await.unwrap())
}

/// Returns the newest sample of each series, read as the only one requested, without its start
/// timestamp.
async fn newest(
    store: &Store,
    matchers: Vec<Matcher>,
    start_ms: i64,
    end_ms: i64,
) -> Vec<(Labels, Read)> {
    let selection = Selection {
        matchers,
        times: TimeRange::new(start_ms, end_ms),
        only_newest: true,
        windows: None,
    };
    let contents = harness::read_selection(store, &selection).await.unwrap();
    let last = |(labels, mut reads): (Labels, Vec<Read>)| Some((labels, vec![reads.pop()?]));
    let contents = checked(contents.into_iter().filter_map(last).collect());
    contents.into_iter().filter_map(|(labels, reads)| last_without_start(&labels, &reads)).collect()
}

fn last_without_start(labels: &Labels, reads: &[Read]) -> Option<(Labels, Read)> {
    let read = reads.last()?.clone();
    Some((labels.clone(), Read { start_ms: 0, ..read }))
}

async fn check_reads(store: &Store, twin: &MemorySource, around_ms: i64) {
    check_windows(store, twin, around_ms).await;
    let all = (i64::MIN, i64::MAX);
    assert_eq!(
        read_checked(store, Vec::new(), all.0, all.1).await,
        read_checked(twin, Vec::new(), all.0, all.1).await
    );
    let matchers = [
        vec![Matcher::equal("__name__", "b")],
        vec![Matcher::equal("even", "")],
        vec![Matcher::new(MatchOp::Regex, "instance", "1.*").unwrap()],
        vec![Matcher::equal("__name__", "a"), Matcher::equal("instance", "3")],
    ];
    for matchers in matchers {
        for (start_ms, end_ms) in [
            (around_ms, around_ms),
            (around_ms - WINDOW_MS / 3, around_ms + WINDOW_MS),
            (around_ms, i64::MAX),
            (around_ms, around_ms - 1),
        ] {
            let found = read_checked(store, matchers.clone(), start_ms, end_ms).await;
            let expected = read_checked(twin, matchers.clone(), start_ms, end_ms).await;
            assert_eq!(found, expected, "{matchers:?} {start_ms}..={end_ms}");
            let newest = newest(store, matchers.clone(), start_ms, end_ms).await;
            let last = expected.iter().filter_map(|(l, reads)| last_without_start(l, reads));
            assert_eq!(newest, last.collect::<Vec<_>>());
        }
    }
}

/// Checks that all samples are read that windows of a query see, if floats between them may be missing.
async fn check_windows(store: &Store, twin: &MemorySource, around_ms: i64) {
    let step_ms = 5 * WINDOW_MS / 2;
    let (first_end_ms, span_ms, count) = (around_ms - 2 * step_ms, WINDOW_MS / 2, 4);
    let windows = Windows { first_end_ms, step_ms, span_ms, count };
    let times = TimeRange::new(windows.after_ms(0) + 1, windows.end_ms(count - 1));
    let is_seen = |read: &Read| {
        let mut windows = (0..count).map(|at| windows.after_ms(at)..windows.end_ms(at));
        windows.any(|window| window.contains(&(read.timestamp_ms - 1)))
    };
    let seen = async |source: &dyn Source, windows: Option<WantedWindows>| {
        let selection = Selection { matchers: Vec::new(), times, only_newest: false, windows };
        let mut contents = checked(harness::read_selection(source, &selection).await.unwrap());
        contents.iter_mut().for_each(|(_, reads)| reads.retain(is_seen));
        contents.retain(|(_, reads)| !reads.is_empty());
        contents
    };
    let wanted = Some(WantedWindows { windows, part: WindowPart::Samples });
    assert_eq!(seen(store, wanted).await, seen(twin, None).await);
}

/// Returns the selectors of a delete for a small number.
fn selectors(number: u8) -> Vec<Vec<Matcher>> {
    let one = |number: &str| vec![Matcher::equal("instance", number)];
    match number {
        0 => vec![vec![Matcher::equal("__name__", "a")]],
        1 => vec![one("3"), one("4")],
        2 => vec![vec![Matcher::new(MatchOp::Regex, "instance", "1.*").unwrap()]],
        3 => vec![vec![Matcher::new(MatchOp::NotEqual, "even", "yes").unwrap()]],
        _ => vec![vec![Matcher::new(MatchOp::Regex, "__name__", ".+").unwrap()]],
    }
}

async fn run(
    ops: Vec<Op>,
    index_cache_bytes_max: usize,
    columns_bytes_max: usize,
    kept_sets_max: usize,
    reader_count: usize,
) {
    let objects = harness::memory();
    let clock = Arc::new(ManualClock::new(0));
    let options = harness::options();
    let options = StoreOptions {
        clock: Arc::clone(&clock) as _,
        ahead_max_ms: None,
        index_cache_bytes_max,
        columns_bytes_max,
        sizes: Sizes { kept_sets_max, ..options.sizes },
        ..options
    };
    let mut store = open_with(&objects, options.clone()).await.unwrap();
    let mut twin = MemorySource::new();
    let mut readers = Vec::new();
    for _ in 0..reader_count {
        readers.push(follow::reader(&objects, options.clone()).await.unwrap());
    }
    let mut last_ms = 0;
    for (at, op) in ops.into_iter().enumerate() {
        match op {
            Op::Append(samples) => {
                last_ms = samples[0].1;
                let samples: Vec<_> = samples.iter().map(|(s, t, v)| sample(*s, *t, *v)).collect();
                append(&store, &mut twin, &samples).await;
            }
            Op::Run(number, start_ms, count, step_ms, kinds) => {
                let mut samples: Vec<_> = (0..i64::from(count))
                    .map(|i| {
                        let timestamp_ms = start_ms + i * step_ms;
                        let is_float = kinds.is_none_or(|len| i / i64::from(len) % 2 == 0);
                        let value = if is_float {
                            Value::Float(i as f64)
                        } else {
                            Value::Histogram(histogram_of(i as u64 / 40, i).into())
                        };
                        let start_ms = start_of(number, timestamp_ms);
                        Sample { number, timestamp_ms, start_ms, value }
                    })
                    .collect();
                last_ms = samples[samples.len() / 2].timestamp_ms;
                // In two writes, so that the second finds the first.
                let second = samples.split_off(samples.len() / 2);
                append(&store, &mut twin, &samples).await;
                append(&store, &mut twin, &second).await;
            }
            Op::SealAll => store.seal_all().await.unwrap(),
            Op::SealClosed(now_ms) => {
                clock.set(now_ms);
                store.maintain().await.unwrap();
            }
            Op::Delete(number, start_ms, length_ms) => {
                let selectors = selectors(number);
                let end_ms = start_ms + length_ms;
                for matchers in &selectors {
                    twin.delete(matchers, start_ms, end_ms);
                }
                store.delete(selectors, start_ms, end_ms).await.unwrap();
                last_ms = end_ms;
            }
            Op::Clean => store.clean_tombstones().await.unwrap(),
            Op::Read => {
                check_reads(&store, &twin, last_ms).await;
                // One after the other, so that each lags for a while.
                if let Some(reader) = readers.get(at % reader_count.max(1)) {
                    reader.catch_up().await.unwrap();
                    check_reads(reader, &twin, last_ms).await;
                }
            }
            Op::Garbage => {
                crate::seal::write_out(store.core()).await.unwrap();
                lsm::collect_garbage(&lsm::Location::on(Arc::clone(&objects))).await;
                for reader in &readers {
                    // The contents before the deletions.
                    read_full(reader, Vec::new(), i64::MIN, i64::MAX).await.unwrap();
                }
            }
            Op::Close => {
                store.close().await.unwrap();
                store = open_with(&objects, options.clone()).await.unwrap();
            }
            Op::Crash => {
                drop(store);
                store = open_with(&objects, options.clone()).await.unwrap();
            }
        }
    }
    // From the encoded bytes, from the columns that this fills, and from the kept selections.
    for _ in 0..3 {
        check_reads(&store, &twin, last_ms).await;
    }
    for reader in &readers {
        reader.catch_up().await.unwrap();
        check_reads(reader, &twin, last_ms).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_sample_is_read_once_and_the_later_write_wins(
        ops in proptest::collection::vec(op(), 1..14),
        cache in index_cache(),
        columns_bytes_max in prop_oneof![Just(0_usize), Just(8 << 10), Just(1 << 30)],
        kept_sets_max in prop_oneof![Just(0_usize), Just(100)],
    ) {
        harness::run(run(ops, cache, columns_bytes_max, kept_sets_max, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn readers_that_have_caught_up_answer_as_the_writer(
        ops in proptest::collection::vec(op_with_readers(), 1..18),
        cache in index_cache(),
        columns_bytes_max in prop_oneof![Just(0_usize), Just(1 << 30)],
        kept_sets_max in prop_oneof![Just(0_usize), Just(100)],
    ) {
        harness::run(run(ops, cache, columns_bytes_max, kept_sets_max, 2));
    }
}

fn matcher() -> impl Strategy<Value = Matcher> {
    let op = prop_oneof![
        Just(MatchOp::Equal),
        Just(MatchOp::NotEqual),
        Just(MatchOp::Regex),
        Just(MatchOp::NotRegex)
    ];
    let name = prop_oneof![Just("__name__"), Just("x"), Just("y"), Just("absent")];
    (op, name, "(|a|b|ab|a.*|.*|.+|a\\||[ab]+|b?|\u{1})")
        .prop_filter_map("not an expression", |(op, name, value)| {
            Matcher::new(op, name, value).ok()
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn matchers_select_what_the_naive_source_selects(
        all in proptest::collection::vec(("[ab]?", "[ab\0]{0,2}", "[ab]?"), 1..20),
        selectors in proptest::collection::vec(proptest::collection::vec(matcher(), 0..4), 30),
        index_cache_bytes_max in index_cache(),
    ) {
        harness::run(async {
            let options = StoreOptions { index_cache_bytes_max, ..harness::options() };
            let store = open_with(&harness::memory(), options).await.unwrap();
            let mut twin = MemorySource::new();
            for (at, (name, x, y)) in all.iter().enumerate() {
                let labels = labels(&[("__name__", name), ("x", x), ("y", y)]);
                if labels.is_empty() {
                    continue;
                }
                twin.append(&labels, at as i64, 1.0);
                store.append(harness::batch(&labels, &[(at as i64, 1.0)])).await.unwrap();
                // Some sealed, some sealed into a second run, some open.
                if at == all.len() / 3 || at == all.len() / 2 {
                    // The caches of the first run lack later samples.
                    let _ = read(&store, selectors[0].clone(), 0, 100).await.unwrap();
                    store.seal_all().await.unwrap();
                }
            }
            for matchers in selectors {
                let found = read(&store, matchers.clone(), 0, 100).await.unwrap();
                let expected = read(&twin, matchers.clone(), 0, 100).await.unwrap();
                assert_eq!(found, expected, "{matchers:?}");
                let query =
                    MetadataQuery { selectors: vec![matchers], times: TimeRange::new(0, 100), limit: 3  };
                let budget = model::Budget::unlimited();
                assert_eq!(
                    store.series(&query, &budget).await.unwrap(),
                    twin.series(&query, &budget).await.unwrap()
                );
                assert_eq!(
                    store.label_names(&query, &budget).await.unwrap(),
                    twin.label_names(&query, &budget).await.unwrap()
                );
                assert_eq!(
                    store.label_values("x", &query, &budget).await.unwrap(),
                    twin.label_values("x", &query, &budget).await.unwrap()
                );
            }
        });
    }
}
