//! Stores of floats and histograms of two days, sealed and in the log.

use std::sync::Arc;
use std::time::Duration;

use model::{
    Batch, Budget, Histogram, HistogramSample, Labels, Selection, Source, Span, TimeRange,
};
use storage::{ManualClock, Store, StoreOptions};

use crate::{DAY_MS, each_batch, each_store, run};

/// Times between samples, in ms.
const STEP_MS: i64 = 15_000;

/// Times and the bits of values, or sums, of each series.
pub(super) type Contents = Vec<(Labels, Vec<(i64, u64)>)>;

pub(super) fn options() -> StoreOptions {
    StoreOptions {
        background: false,
        clock: Arc::new(ManualClock::new(3 * DAY_MS)),
        ..StoreOptions::default()
    }
}

fn series(number: i64) -> Labels {
    let number = number.to_string();
    Labels::from_pairs([("__name__", "requests_total"), ("instance", number.as_str())])
}

fn histogram(count: i64) -> Histogram {
    Histogram {
        count: count as f64 * 2.0,
        sum: count as f64 * 0.5,
        positive_spans: vec![Span { offset: 1, length: 2 }],
        positive_counts: vec![count as f64; 2],
        ..Histogram::default()
    }
}

/// The samples of a series from a time on.
fn samples(number: i64, start_ms: i64) -> Vec<(i64, f64)> {
    (0..50).map(|i| (start_ms + i * STEP_MS, (i * i * (number + 1)) as f64 / 8.0)).collect()
}

fn batch(start_ms: i64) -> Batch {
    let mut batch = Batch::default();
    for number in 0..4 {
        batch.push(&series(number), &samples(number, start_ms));
    }
    batch.push(&Labels::from_pairs([("__name__", "latency")]), &[]);
    let at = |i: i64| HistogramSample {
        timestamp_ms: start_ms + i * STEP_MS,
        start_ms: 0,
        histogram: Arc::new(histogram(i)),
    };
    batch.push_histograms(&(0..20).map(at).collect::<Vec<_>>());
    batch
}

/// Start times of batches: two days are sealed, one of them twice; the last is in the log.
const STARTS_MS: [i64; 4] = [1000, DAY_MS + 1000, 500, DAY_MS + 8000];

/// Makes the store.
async fn write(url: &str) {
    let store = Store::open(url, options()).await.unwrap();
    for (at, start_ms) in STARTS_MS.into_iter().enumerate() {
        store.append(batch(start_ms)).await.unwrap();
        if at + 1 < STARTS_MS.len() {
            store.seal_all().await.unwrap();
        }
    }
    store.close().await.unwrap();
}

fn expected() -> Contents {
    let mut contents = Vec::new();
    let mut of_histograms: Vec<(i64, u64)> = STARTS_MS
        .iter()
        .flat_map(|start_ms| {
            (0..20).map(move |i| (start_ms + i * STEP_MS, histogram(i).sum.to_bits()))
        })
        .collect();
    of_histograms.sort_unstable();
    contents.push((Labels::from_pairs([("__name__", "latency")]), of_histograms));
    for number in 0..4 {
        let all = STARTS_MS.iter().flat_map(|start_ms| samples(number, *start_ms));
        let mut all: Vec<(i64, u64)> = all.map(|(t, v)| (t, v.to_bits())).collect();
        all.sort_unstable();
        contents.push((series(number), all));
    }
    contents
}

pub(super) async fn read(store: &Store) -> Contents {
    let selection = Selection {
        matchers: Vec::new(),
        times: TimeRange::ALL,
        only_newest: false,
        windows: None,
    };
    let set = store.select(&selection, &Budget::unlimited()).await.unwrap();
    let mut contents = Vec::new();
    for index in 0..set.len() {
        let mut samples = Vec::new();
        each_batch(&*set, index, |batch| {
            let (timestamps, values) = batch.samples();
            samples.extend(timestamps.iter().zip(values).map(|(t, v)| (*t, v.to_bits())));
            let sums = batch.histograms.iter();
            samples.extend(sums.map(|s| (s.timestamp_ms, s.histogram.sum.to_bits())));
        });
        contents.push((set.labels(index).clone(), samples));
    }
    contents
}

#[test]
fn stores_of_every_format_are_opened() {
    each_store("format", |url| run(write(url)), |url, name| run(check(url, name)));
}

async fn check(url: &str, name: &str) {
    for round in 0..2 {
        let opening = Store::open(url, options());
        let opened = tokio::time::timeout(Duration::from_secs(60), opening).await.unwrap();
        let opened = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read(&opened).await, expected(), "{name} {round}");
        opened.seal_all().await.unwrap();
        opened.close().await.unwrap();
    }
}
