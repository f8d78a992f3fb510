//! Stores of which the samples of the oldest day have been replaced by summaries of its hours.

use std::sync::Arc;
use std::time::Duration;

use model::{
    Batch, Budget, Labels, Selection, Source, SourceError, TimeRange, WantedWindows, WindowPart,
    Windows,
};
use storage::{ManualClock, Store, StoreOptions};

use crate::{DAY_MS, each_batch, each_store, run};

const HOUR_MS: i64 = DAY_MS / 24;
const START_MS: i64 = 100 * DAY_MS;
/// Time of all work on a store: of three days and a half, samples of the first are replaced.
const NOW_MS: i64 = START_MS + 3 * DAY_MS + DAY_MS / 2;
/// Times between samples, in ms.
const STEP_MS: i64 = 30_000;

/// Times and the bits of values of each series.
type Contents = Vec<(Labels, Vec<(i64, u64)>)>;

fn options(samples_ms: Option<i64>) -> StoreOptions {
    StoreOptions {
        background: false,
        clock: Arc::new(ManualClock::new(NOW_MS)),
        retention_confirmation: Duration::ZERO,
        retention_samples_ms: samples_ms,
        ..StoreOptions::default()
    }
}

fn series(number: i64) -> Labels {
    let number = number.to_string();
    Labels::from_pairs([("__name__", "requests_total"), ("instance", number.as_str())])
}

fn samples(number: i64) -> impl Iterator<Item = (i64, f64)> {
    let count = (NOW_MS - START_MS) / STEP_MS;
    (0..=count).map(move |at| (START_MS + at * STEP_MS, (at * 31 % 97 + number) as f64))
}

/// Makes the store.
async fn write(url: &str) {
    let store = Store::open(url, options(None)).await.unwrap();
    for number in 0..2 {
        let mut batch = Batch::default();
        batch.push(&series(number), &samples(number).collect::<Vec<_>>());
        store.append(batch).await.unwrap();
    }
    store.seal_all().await.unwrap();
    store.close().await.unwrap();
    let store = Store::open(url, options(Some(2 * DAY_MS + 2 * HOUR_MS))).await.unwrap();
    // A new sample confirms the clock.
    let mut again = Batch::default();
    again.push(&series(0), &samples(0).last().into_iter().collect::<Vec<_>>());
    store.append(again).await.unwrap();
    store.maintain().await.unwrap();
    store.close().await.unwrap();
}

/// Returns the hour of a sample, by the time of its end.
fn hour(time_ms: i64) -> i64 {
    (time_ms + HOUR_MS - 1).div_euclid(HOUR_MS)
}

/// Returns the last sample of each hour.
fn last_of_hours(samples: impl Iterator<Item = (i64, u64)>) -> Vec<(i64, u64)> {
    let mut last: Vec<(i64, u64)> = Vec::new();
    for (time_ms, bits) in samples {
        last.pop_if(|(before_ms, _)| hour(*before_ms) == hour(time_ms));
        last.push((time_ms, bits));
    }
    last
}

/// Reads the last sample of each hour.
async fn read(store: &Store) -> Contents {
    let count = ((NOW_MS - START_MS) / HOUR_MS) as usize + 1;
    let windows = Windows { first_end_ms: START_MS, step_ms: HOUR_MS, span_ms: HOUR_MS, count };
    let selection = Selection {
        matchers: Vec::new(),
        times: TimeRange::new(START_MS - HOUR_MS + 1, NOW_MS),
        only_newest: false,
        windows: Some(WantedWindows { windows, part: WindowPart::Newest }),
    };
    let set = store.select(&selection, &Budget::unlimited()).await.unwrap();
    let mut contents = Vec::new();
    for index in 0..set.len() {
        let mut samples = Vec::new();
        each_batch(&*set, index, |batch| {
            let (times, values) = batch.samples();
            samples.extend(times.iter().zip(values).map(|(time, value)| (*time, value.to_bits())));
        });
        contents.push((set.labels(index).clone(), last_of_hours(samples.into_iter())));
    }
    contents
}

#[test]
fn hours_of_replaced_samples_are_answered() {
    each_store("summarized", |url| run(write(url)), |url, name| run(check(url, name)));
}

async fn check(url: &str, name: &str) {
    let of_hours = |number| last_of_hours(samples(number).map(|(t, v)| (t, v.to_bits())));
    let expected: Contents = (0..2).map(|number| (series(number), of_hours(number))).collect();
    for round in 0..2 {
        let store = Store::open(url, options(None)).await.unwrap();
        assert_eq!(read(&store).await, expected, "{name} {round}");
        let replaced = Selection {
            matchers: Vec::new(),
            times: TimeRange::new(START_MS, START_MS + DAY_MS - 1),
            only_newest: false,
            windows: None,
        };
        let samples = store.select(&replaced, &Budget::unlimited()).await;
        assert!(
            matches!(samples, Err(SourceError::OnlySummaries { .. })),
            "{name}: the samples of the first day are there"
        );
        store.maintain().await.unwrap();
        store.close().await.unwrap();
    }
}
