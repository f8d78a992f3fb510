//! Limits of the head: active series and bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Batch, HistogramSample, Labels, RejectReason, Selection, TimeRange};

use super::harness::{self, at, batch, histogram, labels, memory, open, open_with, read_all};
use crate::epoch::Epoch;
use crate::head::series::HeadSeries;
use crate::window::Window;
use crate::{ManualClock, SampleKind, Store, StoreError, StoreOptions, TenantSeriesLimits};

const HOUR_MS: i64 = 3_600_000;

/// Returns a write of one sample each for some series of a metric.
fn of_metric(metric: &str, series: std::ops::Range<usize>, timestamp_ms: i64) -> Batch {
    let mut batch = Batch::default();
    for number in series {
        let labels = labels(&[("__name__", metric), ("series", &number.to_string())]);
        batch.push(&labels, &[(timestamp_ms, 1.0)]);
    }
    batch
}

async fn open_limited(limit: impl FnOnce(&mut StoreOptions)) -> Store {
    let mut options = harness::options();
    limit(&mut options);
    open_with(&memory(), options).await.unwrap()
}

/// Returns the accounted and the actual size of the head.
fn accounts(store: &Store) -> [(usize, usize); 2] {
    let core = store.core();
    let (mut active, mut bytes) = (0, 0);
    core.head.for_each(|_, series: &mut HeadSeries| {
        assert_eq!(series.is_active, !series.is_empty());
        active += usize::from(series.is_active);
        bytes += series.bytes();
    });
    let stats = store.stats();
    [(stats.active_series, active), (stats.head_bytes - core.head.index_bytes(), bytes)]
}

/// Returns a write of one sample each for some series of a tenant.
fn of_tenant(tenant: &str, series: std::ops::Range<usize>, timestamp_ms: i64) -> Batch {
    let mut batch = Batch::default();
    for number in series {
        let number = number.to_string();
        let labels = labels(&[("__name__", "x"), ("series", &number), ("tenant", tenant)]);
        batch.push(&labels, &[(timestamp_ms, 1.0)]);
    }
    batch
}

#[test]
fn tenants_are_counted_and_limited_over_seals_and_restarts() {
    harness::run(async {
        let options =
            || StoreOptions { tenant_label: Some("tenant".to_owned()), ..harness::options() };
        let limits = || TenantSeriesLimits {
            default_max: 3,
            overrides: [("large".into(), 5)].into_iter().collect(),
        };
        let counts = |store: &Store| store.tenant_series().into_iter().collect::<BTreeMap<_, _>>();
        let of = |small: usize, large: usize| {
            let all = [("large".to_owned(), large), ("small".to_owned(), small)];
            all.into_iter().filter(|(_, count)| *count > 0).collect::<BTreeMap<_, _>>()
        };
        let objects = memory();
        let store = open_with(&objects, options()).await.unwrap();
        store.set_tenant_limits(limits());
        for (tenant, accepted) in [("small", 3), ("large", 5), ("", 9)] {
            let outcome = store.append(of_tenant(tenant, 0..9, 1)).await.unwrap();
            assert_eq!((outcome.accepted, outcome.rejected.total()), (accepted, 9 - accepted));
            let reason = RejectReason::ActiveSeriesOfTenant;
            assert_eq!(outcome.rejected.of(reason, SampleKind::Float), 9 - accepted);
            if let Some(rejection) = outcome.rejections.first() {
                let overflow = rejection.overflow.clone().unwrap();
                assert_eq!((overflow.found, overflow.limit), (accepted, accepted));
            }
        }
        assert_eq!(counts(&store), of(3, 5));
        drop(store);
        let store = open_with(&objects, options()).await.unwrap();
        store.set_tenant_limits(limits());
        assert_eq!(counts(&store), of(3, 5));
        assert_eq!(store.append(of_tenant("small", 2..4, 2)).await.unwrap().accepted, 1);
        store.seal_all().await.unwrap();
        assert_eq!(counts(&store), of(0, 0));
        assert_eq!(store.append(of_tenant("small", 4..8, 3)).await.unwrap().accepted, 3);
        assert_eq!(counts(&store), of(3, 0));
        // A tenant over a lowered limit keeps its series.
        store.set_tenant_limits(TenantSeriesLimits { default_max: 1, ..limits() });
        assert_eq!(store.append(of_tenant("small", 4..8, 4)).await.unwrap().accepted, 3);
    });
}

#[test]
fn series_beyond_a_limit_are_refused_and_known_ones_accepted() {
    for (all, per_metric, reason, metric) in [
        (5, 0, RejectReason::ActiveSeries, "known"),
        (0, 3, RejectReason::ActiveSeriesOfMetric, "bomb"),
    ] {
        harness::run(async {
            let store = open_limited(|options| {
                options.active_series_max = all;
                options.active_series_per_metric_max = per_metric;
            })
            .await;
            assert_eq!(store.append(of_metric("known", 0..3, 1)).await.unwrap().accepted, 3);
            let mut mixed = of_metric("bomb", 0..10, 2);
            for number in 0..3 {
                let number = number.to_string();
                let known = labels(&[("__name__", "known"), ("series", &number)]);
                mixed.push(&known, &[(2, 2.0), (3, 3.0)]);
            }
            let outcome = store.append(mixed.clone()).await.unwrap();
            let bomb = if all > 0 { 2 } else { 3 };
            assert_eq!((outcome.accepted, outcome.rejected.total()), (6 + bomb, 10 - bomb));
            assert_eq!(outcome.rejected.of(reason, SampleKind::Float), 10 - bomb);
            let overflow = outcome.rejections[0].overflow.clone().unwrap();
            assert_eq!((overflow.metric.as_str(), overflow.metric_series), (metric, 3));
            assert_eq!(overflow.found, overflow.limit);
            let refused = store.refused_series();
            assert_eq!((refused.len(), refused[0].samples), (1, 10 - bomb as u64));
            assert_eq!(store.stats().active_series, 3 + bomb);

            // Sealed series make room; afterwards only the new ones are active.
            store.seal_all().await.unwrap();
            assert_eq!(store.stats().active_series, 0);
            let outcome = store.append(of_metric("bomb", bomb..bomb + 3, 4)).await.unwrap();
            assert_eq!((outcome.accepted, outcome.rejected.total()), (3, 0));
            let samples: usize =
                read_all(&store).await.unwrap().iter().map(|(_, samples)| samples.len()).sum();
            assert_eq!(samples, 3 + 6 + bomb + 3);
        });
    }
}

#[test]
fn a_sealed_series_needs_room_again() {
    harness::run(async {
        let store = open_limited(|options| options.active_series_max = 1).await;
        store.append(of_metric("a", 0..1, 1)).await.unwrap();
        store.seal_all().await.unwrap();
        store.append(of_metric("b", 0..1, 1)).await.unwrap();
        let outcome = store.append(of_metric("a", 0..1, 2)).await.unwrap();
        assert_eq!((outcome.accepted, outcome.rejected.total()), (0, 1));
        store.seal_all().await.unwrap();
        assert_eq!(store.append(of_metric("a", 0..1, 2)).await.unwrap().accepted, 1);
    });
}

#[test]
fn memory_is_bounded_and_freed_by_sealing() {
    harness::run(async {
        let store = open_limited(|options| options.head_bytes_max = 80_000).await;
        let (mut acknowledged, mut refused_series) = (0, 0);
        for series in 0..1_000 {
            let outcome = store.append(of_metric("bomb", series..series + 1, 1)).await.unwrap();
            acknowledged += outcome.accepted;
            refused_series += outcome.rejected.of(RejectReason::HeadSize, SampleKind::Float);
        }
        assert_eq!(store.write_refusal(), None);
        assert!(acknowledged > 50 && refused_series > 500, "{acknowledged} {refused_series}");
        let stats = store.stats();
        assert!((70_000..71_000).contains(&stats.head_bytes), "{}", stats.head_bytes);

        // Known series accept samples until nothing more fits.
        let mut time_ms = 2;
        let full = loop {
            match store.append(of_metric("bomb", 0..50, time_ms)).await {
                Ok(outcome) => acknowledged += outcome.accepted,
                Err(error) => break error,
            }
            time_ms += 1;
        };
        assert!(matches!(full, StoreError::HeadFull { limit: 80_000, .. }), "{full:?}");
        assert!(time_ms > 5);
        assert_eq!(store.stats().writes_head_full, 1);
        assert_eq!(store.write_refusal(), Some(full));

        store.maintain().await.unwrap();
        assert_eq!(store.write_refusal(), None);
        let stats = store.stats();
        assert_eq!((stats.active_series, stats.head_series, stats.head_bytes), (0, 0, 0));
        assert_eq!(store.append(of_metric("bomb", 0..50, time_ms)).await.unwrap().accepted, 50);
        let samples: usize =
            read_all(&store).await.unwrap().iter().map(|(_, samples)| samples.len()).sum();
        assert_eq!(samples, acknowledged + 50);
    });
}

#[test]
fn accounts_equal_the_memory_held() {
    harness::run(async {
        let objects = memory();
        let store = open(&objects).await.unwrap();
        let check = |store: &Store, at: &str| {
            let [active, bytes] = accounts(store);
            assert_eq!(active.0, active.1, "{at}");
            // Capacity of vectors may be noticed late.
            let difference = bytes.0.abs_diff(bytes.1);
            assert!(difference * 20 <= bytes.1, "{at}: {bytes:?}");
        };
        for scrape in 0..400 {
            let time_ms = scrape * 15_000;
            store.append(of_metric("floats", 0..20, time_ms)).await.unwrap();
            let late = of_metric("floats", 0..3, (time_ms - HOUR_MS).max(0) + 7);
            store.append(late).await.unwrap();
            let of_histograms = labels(&[("__name__", "histograms")]);
            let sample: HistogramSample = at(time_ms, histogram(&[1, 2, scrape as u32 % 100 + 1]));
            let batch = harness::histogram_batch(&of_histograms, &[sample]);
            store.append(batch).await.unwrap();
            if scrape % 40 == 0 {
                check(&store, &format!("scrape {scrape}"));
            }
        }
        let matcher = model::Matcher::new(model::MatchOp::Equal, "series", "7").unwrap();
        store.delete(vec![vec![matcher]], i64::MIN, i64::MAX).await.unwrap();
        check(&store, "deleted");
        assert_eq!(store.stats().active_series, 20);
        drop(store);
        let store = open(&objects).await.unwrap();
        check(&store, "restarted");
        assert_eq!(store.stats().active_series, 20);
        store.seal_all().await.unwrap();
        check(&store, "sealed");
        assert_eq!(store.stats().active_series, 0);
        store.append(batch(&labels(&[("n", "new")]), &[(400 * 15_000, 1.0)])).await.unwrap();
        assert_eq!(store.stats().active_series, 1);
        drop(store);
        let store = open(&objects).await.unwrap();
        check(&store, "restarted after a seal");
        assert_eq!(store.stats().active_series, 1);
    });
}

#[test]
fn open_windows_shrink_when_their_log_epoch_ends_and_read_the_same() {
    harness::run(async {
        let objects = memory();
        let clock = Arc::new(ManualClock::new(3 * HOUR_MS));
        let options = || StoreOptions { clock: Arc::clone(&clock) as _, ..harness::options() };
        let store = open_with(&objects, options()).await.unwrap();
        let name = |kind: &str| labels(&[("__name__", kind)]);
        let mut expected: BTreeMap<Labels, BTreeMap<i64, u64>> = BTreeMap::new();
        let mut append = async |store: &Store, kind: &str, time_ms: i64, value: f64| {
            let outcome = store.append(batch(&name(kind), &[(time_ms, value)])).await.unwrap();
            assert_eq!(outcome.accepted, 1, "{kind} at {time_ms}");
            expected.entry(name(kind)).or_default().insert(time_ms, value.to_bits());
            expected.clone()
        };
        // The first window is due; the second has frames and a tail.
        append(&store, "gauge", HOUR_MS, 1.5).await;
        for scrape in 0..150 {
            let time_ms = 2 * HOUR_MS + scrape * 15_000;
            append(&store, "gauge", time_ms, (scrape * 7919 % 1000) as f64 / 100.0).await;
            append(&store, "noise", time_ms, (scrape as f64).sin()).await;
            append(&store, "late", time_ms, 1.0).await;
        }
        let mut all = append(&store, "late", 2 * HOUR_MS + 1, 2.0).await;
        let check = async |store: &Store, all: &BTreeMap<Labels, BTreeMap<i64, u64>>, at: &str| {
            let samples = |(l, s): (&Labels, &BTreeMap<i64, u64>)| {
                (l.clone(), s.iter().map(|(t, v)| (*t, *v)).collect())
            };
            let all: harness::Contents = all.iter().map(samples).collect();
            assert_eq!(read_all(store).await.unwrap(), all, "{at}");
            // Query the newest samples now, and before.
            for end_ms in [3 * HOUR_MS, 2 * HOUR_MS + 100 * 15_000 + 1] {
                let (matchers, start_ms) = (Vec::new(), end_ms - 2 * HOUR_MS);
                let selection = Selection {
                    matchers,
                    times: TimeRange::new(start_ms, end_ms),
                    only_newest: true,
                    windows: None,
                };
                let found = harness::read_selection(store, &selection).await.unwrap();
                let newest = |samples: &Vec<harness::Read>| samples.last().map(|s| s.timestamp_ms);
                let found: Vec<_> = found.iter().map(|(_, samples)| newest(samples)).collect();
                let before_end = |(t, _): &&(i64, u64)| *t <= end_ms;
                let wanted = |(_, s): &(Labels, Vec<(i64, u64)>)| {
                    s.iter().rev().find(before_end).map(|(t, _)| *t)
                };
                assert_eq!(found, all.iter().map(wanted).collect::<Vec<_>>(), "{at}");
            }
        };
        check(&store, &all, "open").await;
        let before = store.stats().head_bytes;
        store.maintain().await.unwrap();
        let after = store.stats().head_bytes;
        // Two tails with room for 8 raw samples are parts of frames now.
        assert!(before - after > 8 * 16, "{before} {after}");
        check(&store, &all, "ended").await;
        // As if the second window were due and its seal took a while.
        let head = &store.core().head;
        head.condense(0..head.slot_count(), &BTreeSet::from([Window::new(1)]), Epoch::NEVER);
        assert!(store.stats().head_bytes < after - 256, "{after} {}", store.stats().head_bytes);
        check(&store, &all, "condensed").await;
        let [_, bytes] = accounts(&store);
        assert_eq!(bytes.0, bytes.1);

        for scrape in 150..170 {
            append(&store, "gauge", 2 * HOUR_MS + scrape * 15_000, 0.25).await;
        }
        all = append(&store, "gauge", 2 * HOUR_MS + 2, 0.5).await;
        check(&store, &all, "went on").await;
        let matcher = model::Matcher::equal("__name__", "gauge");
        let deleted = 2 * HOUR_MS + 10 * 15_000..=2 * HOUR_MS + 160 * 15_000;
        store.delete(vec![vec![matcher]], *deleted.start(), *deleted.end()).await.unwrap();
        all.get_mut(&name("gauge")).unwrap().retain(|time_ms, _| !deleted.contains(time_ms));
        check(&store, &all, "partly deleted").await;
        drop(store);
        let store = open_with(&objects, options()).await.unwrap();
        check(&store, &all, "restarted").await;
        store.seal_all().await.unwrap();
        check(&store, &all, "sealed").await;
    });
}
