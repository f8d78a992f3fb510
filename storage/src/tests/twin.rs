//! The store against a naive twin: whatever is written, sealed and reopened in whatever order,
//! every sample is read once, and of two of one time the later write.

use std::sync::Arc;

use model::memory::MemorySource;
use model::{Batch, Labels, MatchOp, Matcher, MetadataQuery, Source};
use proptest::prelude::*;

use super::harness::{self, labels, open_with, read, read_all};
use crate::outcome::RejectReason;
use crate::window::WINDOW_MS;
use crate::{ManualClock, Store, StoreOptions};

#[derive(Debug, Clone)]
enum Op {
    /// Samples as series, time, value.
    Append(Vec<(u8, i64, u8)>),
    /// A run of samples in order: series, first time, how many, how far apart.
    Run(u8, i64, u16, i64),
    SealAll,
    SealClosed(i64),
    Close,
    Crash,
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![
        // Few times, so that they meet again.
        (0_i64..40).prop_map(|t| t * 15_000),
        (-40_i64..40).prop_map(|t| t * WINDOW_MS / 8),
        -(1_i64 << 36)..(1_i64 << 36),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let samples = proptest::collection::vec((0_u8..12, time(), 0_u8..3), 1..30);
    prop_oneof![
        6 => samples.prop_map(Op::Append),
        4 => (0_u8..12, time(), 1_u16..700, 1_i64..30_000).prop_map(|(s, t, n, d)| Op::Run(s, t, n, d)),
        1 => Just(Op::SealAll),
        1 => (-20_i64..20).prop_map(|w| Op::SealClosed(w * WINDOW_MS)),
        1 => Just(Op::Close),
        1 => Just(Op::Crash),
    ]
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

/// Appends to both; what the store refuses, the twin does not get.
async fn append(store: &Store, twin: &mut MemorySource, samples: &[(u8, i64, f64)]) {
    let mut batch = Batch::default();
    let mut seen = std::collections::HashSet::new();
    let samples: Vec<_> = samples.iter().filter(|(s, t, _)| seen.insert((*s, *t))).collect();
    for (number, timestamp_ms, value) in &samples {
        batch.push(&series(*number), &[(*timestamp_ms, *value)]);
    }
    let outcome = store.append(batch).await.unwrap();
    assert_eq!(outcome.accepted + outcome.duplicates + outcome.rejected, samples.len());
    assert_eq!(outcome.rejected, outcome.rejections.len());
    for (number, timestamp_ms, value) in samples {
        let labels = series(*number);
        let is_rejected = outcome
            .rejections
            .iter()
            .any(|r| r.labels == labels && r.timestamp_ms == *timestamp_ms);
        if !is_rejected {
            twin.append(&labels, *timestamp_ms, *value);
        }
    }
    assert!(outcome.rejections.iter().all(|r| r.reason == RejectReason::DuplicateSample));
}

async fn check_reads(store: &Store, twin: &MemorySource, around_ms: i64) {
    assert_eq!(read_all(store).await.unwrap(), read_all(twin).await.unwrap());
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
            let found = read(store, matchers.clone(), start_ms, end_ms).await.unwrap();
            let expected = read(twin, matchers.clone(), start_ms, end_ms).await.unwrap();
            assert_eq!(found, expected, "{matchers:?} {start_ms}..={end_ms}");
        }
    }
}

async fn run(ops: Vec<Op>) {
    let objects = harness::memory();
    let clock = Arc::new(ManualClock::new(0));
    let options =
        StoreOptions { clock: Arc::clone(&clock) as _, ahead_max_ms: None, ..harness::options() };
    let mut store = open_with(&objects, options.clone()).await.unwrap();
    let mut twin = MemorySource::new();
    let mut last_ms = 0;
    for op in ops {
        match op {
            Op::Append(samples) => {
                last_ms = samples[0].1;
                let samples: Vec<_> =
                    samples.iter().map(|(s, t, v)| (*s, *t, f64::from(*v))).collect();
                append(&store, &mut twin, &samples).await;
            }
            Op::Run(number, start_ms, count, step_ms) => {
                let mut samples: Vec<_> = (0..i64::from(count))
                    .map(|i| (number, start_ms + i * step_ms, i as f64))
                    .collect();
                last_ms = samples[samples.len() / 2].1;
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
    check_reads(&store, &twin, last_ms).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_sample_is_read_once_and_the_later_write_wins(
        ops in proptest::collection::vec(op(), 1..14),
    ) {
        harness::run(run(ops));
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
    ) {
        harness::run(async {
            let store = harness::open(&harness::memory()).await.unwrap();
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
                    store.seal_all().await.unwrap();
                }
            }
            for matchers in selectors {
                let found = read(&store, matchers.clone(), 0, 100).await.unwrap();
                let expected = read(&twin, matchers.clone(), 0, 100).await.unwrap();
                assert_eq!(found, expected, "{matchers:?}");
                let query =
                    MetadataQuery { selectors: vec![matchers], start_ms: 0, end_ms: 100, limit: 3 };
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
