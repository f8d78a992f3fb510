//! Cardinality of a day equals that of the listed series.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{
    Batch, Budget, BudgetError, BudgetLimits, Labels, MatchOp, Matcher, MetadataQuery, Source,
    SourceError, TimeRange,
};
use slatedb::object_store::ObjectStore;

use super::harness::{self, labels, open_with};
use crate::sizes::Sizes;
use crate::window::{PARTITION_MS, WINDOW_MS};
use crate::{CardinalityQuery, Clock, CountChange, ManualClock, Store, StoreOptions};

const DAY: i64 = 20_000;

/// Counts by name, of a day and of the day before.
type Counts = BTreeMap<String, (u64, u64)>;

fn series(number: usize) -> Labels {
    let (metric, job, pod) =
        (format!("m{}", number % 5), format!("j{}", number % 3), format!("p{number}"));
    let pairs = [("__name__", &*metric), ("job", &job), ("pod", &pod)];
    // Some series have a label more.
    if number.is_multiple_of(7) {
        labels(&[&pairs[..], &[("zone", "a")]].concat())
    } else {
        labels(&pairs)
    }
}

async fn write(store: &Store, day: i64, window: i64, numbers: impl Iterator<Item = usize>) {
    let time_ms = day * PARTITION_MS + window * WINDOW_MS + 1000;
    let mut batch = Batch::default();
    numbers.for_each(|number| batch.push(&series(number), &[(time_ms, 1.0)]));
    store.append(batch).await.unwrap();
}

/// Counts the listed series of a day by what `names` returns of each.
async fn listed(
    store: &Store,
    day: i64,
    matchers: &[Matcher],
    names: impl Fn(&Labels) -> Vec<(String, String)>,
) -> BTreeMap<String, BTreeSet<String>> {
    let start_ms = day * PARTITION_MS;
    let query = MetadataQuery {
        selectors: vec![matchers.to_vec()],
        times: TimeRange::new(start_ms, start_ms + PARTITION_MS - 1),
        limit: 0,
    };
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for labels in store.series(&query, &Budget::unlimited()).await.unwrap() {
        for (name, distinct) in names(&labels) {
            found.entry(name).or_default().insert(distinct);
        }
    }
    found
}

async fn expected(
    store: &Store,
    matchers: &[Matcher],
    names: impl Fn(&Labels) -> Vec<(String, String)>,
) -> Counts {
    let of_day = listed(store, DAY, matchers, &names).await;
    let before = listed(store, DAY - 1, matchers, &names).await;
    let count = |found: &BTreeMap<String, BTreeSet<String>>, name: &str| {
        found.get(name).map_or(0, |distinct| distinct.len() as u64)
    };
    of_day.keys().map(|name| (name.clone(), (count(&of_day, name), count(&before, name)))).collect()
}

fn counts(list: &[CountChange]) -> Counts {
    assert!(list.is_sorted_by(|a, b| a.count >= b.count), "{list:?}");
    list.iter().map(|change| (change.name.clone(), (change.count, change.before))).collect()
}

/// Compares all lists with the series that lookups return.
async fn check(store: &Store, matchers: &[Matcher], case: &str) {
    let query = |limit| CardinalityQuery {
        time_ms: DAY * PARTITION_MS + 5,
        matchers: matchers.to_vec(),
        label: Some("job".to_owned()),
        limit,
    };
    let budget = Budget::unlimited();
    let found = store.day_cardinality(&query(10_000), &budget).await.unwrap();
    assert_eq!(found.start_ms, DAY * PARTITION_MS, "{case}");
    let id = |labels: &Labels| format!("{labels:?}");
    let all = expected(store, matchers, |labels| vec![(String::new(), id(labels))]).await;
    let (series, before) = all.get("").copied().unwrap_or_default();
    assert_eq!(found.series, series, "{case}");
    if series > 0 {
        assert_eq!(found.series_before, before, "{case}");
    }
    let of_label = |name: &'static str| {
        move |labels: &Labels| match labels.get(name) {
            "" => vec![],
            value => vec![(value.to_owned(), format!("{labels:?}"))],
        }
    };
    let metrics = expected(store, matchers, of_label("__name__")).await;
    assert_eq!(counts(&found.series_by_metric), metrics, "{case}");
    let jobs = expected(store, matchers, of_label("job")).await;
    assert_eq!(counts(&found.series_by_value), jobs, "{case}");
    let with_label =
        |labels: &Labels| labels.iter().map(|(name, _)| (name.to_owned(), id(labels))).collect();
    let with_labels = expected(store, matchers, with_label).await;
    assert_eq!(counts(&found.series_by_label), with_labels, "{case}");
    let values =
        |labels: &Labels| labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    let values = expected(store, matchers, values).await;
    assert_eq!(counts(&found.values_by_label), values, "{case}");
    let pairs =
        |labels: &Labels| labels.iter().map(|(n, v)| (format!("{n}={v}"), id(labels))).collect();
    let pairs = expected(store, matchers, pairs).await;
    let as_text = |pair: &crate::PairChange| CountChange {
        name: format!("{}={}", pair.label, pair.value),
        count: pair.count,
        before: pair.before,
    };
    let listed: Vec<CountChange> = found.series_by_pair.iter().map(as_text).collect();
    assert_eq!((counts(&listed), found.label_pairs), (pairs.clone(), pairs.len() as u64), "{case}");
    let first = store.day_cardinality(&query(1), &budget).await.unwrap();
    assert_eq!(
        first.series_by_metric,
        found.series_by_metric.iter().take(1).cloned().collect::<Vec<_>>()
    );
    assert_eq!(first.series, found.series);
}

async fn check_all(store: &Store, case: &str) {
    let job = Matcher::equal("job", "j1");
    let pods = Matcher::new(MatchOp::Regex, "pod", "p1?[0-9]".to_owned()).unwrap();
    let none = Matcher::equal("job", "none");
    for matchers in [vec![], vec![job.clone()], vec![job, pods], vec![none]] {
        check(store, &matchers, &format!("{case}: {matchers:?}")).await;
    }
}

async fn compare(objects: &Arc<dyn ObjectStore>, options: StoreOptions, count: usize) {
    let store = open_with(objects, options.clone()).await.unwrap();
    check_all(&store, "empty").await;
    write(&store, DAY - 1, 3, (0..count).step_by(2)).await;
    write(&store, DAY, 3, 0..count).await;
    check_all(&store, "head").await;
    store.seal_all().await.unwrap();
    check_all(&store, "sealed").await;
    // Known and new series, also of the day before, whose ids the head does not have.
    write(&store, DAY, 4, count - 4..count + 4).await;
    write(&store, DAY - 1, 4, count - 4..count + 2).await;
    check_all(&store, "sealed and head").await;
    store.close().await.unwrap();
    let store = open_with(objects, options).await.unwrap();
    check_all(&store, "after a restart").await;
    store.seal_all().await.unwrap();
    check_all(&store, "all sealed").await;
    store.close().await.unwrap();
}

#[test]
fn counts_of_few_series_are_those_of_lookups() {
    harness::run(async { compare(&harness::memory(), harness::options(), 40).await });
}

/// More series than those whose labels are read one by one.
#[test]
fn counts_of_many_series_are_those_of_lookups() {
    let options = StoreOptions { sizes: Sizes::default(), ..harness::options() };
    harness::run(async { compare(&harness::memory(), options, 1100).await });
}

#[test]
fn only_the_newest_days_are_counted() {
    harness::run(async {
        let store = harness::open(&harness::memory()).await.unwrap();
        for day in DAY..DAY + 3 {
            write(&store, day, 3, 0..10).await;
        }
        store.seal_all().await.unwrap();
        let counted = async |days_max| {
            let days = store.day_blocks(days_max, &Budget::unlimited()).await.unwrap();
            days.iter().map(|of_day| of_day.start_ms / PARTITION_MS - DAY).collect::<Vec<_>>()
        };
        assert_eq!(counted(2).await, [2, 1]);
        assert_eq!(counted(10).await, [2, 1, 0]);
        // Five metrics of two series each, so a block for each.
        let newest = store.day_blocks(1, &Budget::unlimited()).await.unwrap()[0];
        assert_eq!(newest.blocks, 5);
    });
}

#[test]
fn series_are_counted_as_created_by_commits_alone() {
    const HOUR_MS: i64 = 3_600_000;
    harness::run(async {
        let clock = Arc::new(ManualClock::new(DAY * PARTITION_MS + 5 * WINDOW_MS));
        let options = StoreOptions { clock: Arc::clone(&clock) as _, ..harness::options() };
        let objects = harness::memory();
        let store = open_with(&objects, options.clone()).await.unwrap();
        assert_eq!(store.created_series(None, 10).since_ms, None);
        write(&store, DAY, 3, 0..10).await;
        clock.set(clock.now_ms() + HOUR_MS);
        // Five of them are known.
        write(&store, DAY, 4, 5..16).await;
        let counts = |store: &Store, metric: Option<&str>| {
            let hours = store.created_series(metric, 10).hours;
            hours.iter().rev().take(2).map(|(_, count)| *count).collect::<Vec<_>>()
        };
        assert_eq!((counts(&store, None), counts(&store, Some("m0"))), (vec![6, 10], vec![2, 2]));
        let metrics = store.created_series(None, 2).metrics;
        assert_eq!(metrics, [("m0".to_owned(), 4), ("m1".to_owned(), 3)]);
        store.close().await.unwrap();
        // A replay creates no series.
        let store = open_with(&objects, options).await.unwrap();
        write(&store, DAY, 4, 15..17).await;
        assert_eq!(counts(&store, None), [1, 0]);
        assert_eq!(store.created_series(None, 10).since_ms, Some(clock.now_ms()));
    });
}

#[test]
fn a_canceled_count_ends() {
    harness::run(async {
        let store = harness::open(&harness::memory()).await.unwrap();
        write(&store, DAY, 3, 0..10).await;
        store.seal_all().await.unwrap();
        let budget = Budget::new(BudgetLimits::default());
        budget.cancel();
        let query = CardinalityQuery {
            time_ms: DAY * PARTITION_MS,
            matchers: Vec::new(),
            label: None,
            limit: 10,
        };
        let found = store.day_cardinality(&query, &budget).await;
        assert!(matches!(found, Err(SourceError::Budget(BudgetError::Canceled))), "{found:?}");
        let found = store.day_blocks(10, &budget).await;
        assert!(matches!(found, Err(SourceError::Budget(BudgetError::Canceled))), "{found:?}");
    });
}
