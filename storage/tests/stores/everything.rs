//! Stores with all kinds of content, left by a killed process: floats with start timestamps,
//! histograms of both kinds, exemplars, metadata, a note; series that have been deleted and cleaned
//! up, a delete that still masks, samples that a rule of the retention has expired, and a log with
//! days that are no longer stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::{
    Batch, BatchExemplar, BatchMetadata, Budget, Exemplar, ExemplarQuery, Histogram,
    HistogramSample, Labels, Matcher, MetricKind, MetricMetadata, ResetHint, Selection, Source,
    Span, TimeRange,
};
use storage::audit::{self, PartitionSurvey};
use storage::{DayBlocks, ManualClock, RetentionRule, Store, StoreOptions};

use crate::{DAY_MS, each_batch, each_store, run};

const MINUTE_MS: i64 = 60_000;
/// Times between samples, in ms, and samples of a series in a write.
const STEP_MS: i64 = 15_000;
const SAMPLES: i64 = 40;
/// Retention of all samples, and of those of the rule.
const KEPT_MS: i64 = 4 * DAY_MS;
const DEBUG_KEPT_MS: i64 = DAY_MS;
/// Time after all writes.
const END_MS: i64 = 8 * DAY_MS;
/// Custom bounds of buckets.
const BOUNDS: [f64; 3] = [0.1, 0.5, 2.5];
const NOTE: (&str, &[u8]) = ("import/text/0123456789abcdef", b"{\"position\":7}");

/// A sample, to the bit.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    /// With its start timestamp, 0 if unknown.
    Float(u64, i64),
    Histogram(Histogram),
}

/// Samples by series and time.
type Contents = BTreeMap<Labels, BTreeMap<i64, Value>>;

/// An operation on a store.
enum Step {
    /// The clock is set.
    Clock(i64),
    /// Samples of all series are written, from each of some times on.
    Write(&'static [i64]),
    Seal,
    /// Samples of one instance are deleted in a range of times.
    Delete(&'static str, i64, i64),
    Clean,
    Maintain,
    Note,
}

const STEPS: [Step; 16] = [
    Step::Clock(6 * DAY_MS),
    Step::Write(&[3 * DAY_MS + 1000, 4 * DAY_MS + 1000, 5 * DAY_MS + 1000]),
    Step::Seal,
    // Removed from the SSTs, with its ids.
    Step::Delete("1", i64::MIN, i64::MAX),
    Step::Clean,
    // A second run of a window, between the samples of the first.
    Step::Write(&[4 * DAY_MS + 5000, 5 * DAY_MS + 9 * MINUTE_MS]),
    Step::Seal,
    Step::Note,
    // One record with an expiring day and with an open window.
    Step::Clock(END_MS - 10 * MINUTE_MS),
    Step::Write(&[4 * DAY_MS - 595_000, END_MS - 20 * MINUTE_MS]),
    Step::Clock(END_MS),
    Step::Maintain,
    // Masked in SSTs and removed from the head, except later writes.
    Step::Delete("2", 5 * DAY_MS, END_MS - 18 * MINUTE_MS),
    Step::Write(&[5 * DAY_MS + 20_000]),
    Step::Delete("3", 5 * DAY_MS + 20_000, 5 * DAY_MS + 60_000),
    Step::Write(&[END_MS - 9 * MINUTE_MS]),
];

fn named(metric: &str, instance: &str) -> Labels {
    Labels::from_pairs([("__name__", metric), ("instance", instance)])
}

fn rule() -> RetentionRule {
    RetentionRule { matchers: vec![Matcher::equal("__name__", "debug")], time_ms: DEBUG_KEPT_MS }
}

fn options(clock: &Arc<ManualClock>) -> StoreOptions {
    StoreOptions {
        background: false,
        // The newest sample is a little older than the clock.
        retention_ms: Some(KEPT_MS - 15 * MINUTE_MS),
        retention_confirmation: Duration::ZERO,
        retention_rules: vec![rule()],
        clock: Arc::clone(clock) as _,
        ..StoreOptions::default()
    }
}

/// Counts that grow with time.
fn histogram(metric: &str, time_ms: i64) -> Histogram {
    let count = (time_ms / STEP_MS % 100_000) as f64;
    let of_both = Histogram {
        count: count * 3.0,
        sum: count / 8.0,
        positive_spans: vec![Span { offset: 0, length: 2 }],
        positive_counts: vec![count, count * 2.0],
        ..Histogram::default()
    };
    match metric {
        "sizes" => Histogram {
            schema: model::histogram::CUSTOM_BUCKETS_SCHEMA,
            custom_bounds: BOUNDS.into(),
            ..of_both
        },
        _ => Histogram {
            reset_hint: ResetHint::Gauge,
            schema: 3,
            zero_threshold: 0.001,
            zero_count: 1.5,
            count: count * 3.0 + 2.0,
            negative_spans: vec![Span { offset: 2, length: 1 }],
            negative_counts: vec![0.5],
            ..of_both
        },
    }
}

/// Returns the samples of the series from a time on.
fn samples(start_ms: i64) -> Vec<(Labels, Vec<(i64, Value)>)> {
    let times: Vec<i64> = (0..SAMPLES).map(|n| start_ms + n * STEP_MS).collect();
    let of = |value: &dyn Fn(i64) -> Value| times.iter().map(|t| (*t, value(*t))).collect();
    let mut all = Vec::new();
    for (metric, since_ms) in [("requests_total", 0), ("starts_total", 1000), ("debug", 0)] {
        for instance in ["0", "1", "2", "3"] {
            let number = instance.parse::<i64>().unwrap();
            let float = |time_ms: i64| {
                let value = (time_ms / 1000 * (number + 1)) as f64 / 4.0;
                let start_ms = if since_ms == 0 { 0 } else { time_ms - time_ms % since_ms - 1 };
                Value::Float(value.to_bits(), start_ms)
            };
            all.push((named(metric, instance), of(&float)));
        }
    }
    for (metric, instance) in [("latency", "3"), ("sizes", "0")] {
        let value = |time_ms| Value::Histogram(histogram(metric, time_ms));
        all.push((named(metric, instance), of(&value)));
    }
    all
}

fn batch(starts_ms: &[i64]) -> Batch {
    let mut batch = Batch::default();
    for (labels, samples) in starts_ms.iter().flat_map(|start_ms| samples(*start_ms)) {
        let (mut floats, mut histograms) = (Vec::new(), Vec::new());
        for (timestamp_ms, value) in samples {
            match value {
                Value::Float(bits, start_ms) => {
                    floats.push((timestamp_ms, f64::from_bits(bits)));
                    batch.starts.push(start_ms);
                }
                Value::Histogram(histogram) => {
                    let histogram = Arc::new(histogram);
                    histograms.push(HistogramSample { timestamp_ms, start_ms: 0, histogram });
                }
            }
        }
        let series_index = batch.series.len() as u32;
        let newest_ms = floats.last().map(|(time_ms, _)| *time_ms);
        batch.push(&labels, &floats);
        batch.push_histograms(&histograms);
        batch.exemplars.extend(newest_ms.map(|timestamp_ms| BatchExemplar {
            series_index,
            labels: trace(timestamp_ms),
            timestamp_ms,
            value: 0.25,
        }));
    }
    let last_ms = starts_ms.last().unwrap();
    batch.metadata = vec![
        about("requests_total", MetricKind::Counter, "All requests.", ""),
        about("latency", MetricKind::GaugeHistogram, &format!("As of {last_ms}."), "seconds"),
    ];
    batch
}

fn about(metric: &str, kind: MetricKind, help: &str, unit: &str) -> BatchMetadata {
    let (metric, help, unit) = (metric.to_owned(), help.to_owned(), unit.to_owned());
    BatchMetadata { metric, kind, help, unit }
}

/// Makes a store, and ends without closing it.
async fn write(url: &str) {
    let clock = Arc::new(ManualClock::new(0));
    let mut store = None;
    for step in &STEPS {
        if let Step::Clock(now_ms) = step {
            clock.set(*now_ms);
        }
        let store = match &store {
            Some(store) => store,
            None => store.insert(Store::open(url, options(&clock)).await.unwrap()),
        };
        match step {
            Step::Clock(_) => {}
            Step::Write(starts_ms) => {
                let outcome = store.append(batch(starts_ms)).await.unwrap();
                // Samples that the rule has expired.
                let has_expired = |labels: &Labels| labels.metric_name() == "debug";
                let others = outcome.rejections.iter().find(|r| !has_expired(&r.labels));
                assert!(others.is_none(), "{others:?}");
            }
            Step::Seal => store.seal_all().await.unwrap(),
            Step::Delete(instance, start_ms, end_ms) => {
                let selector = vec![Matcher::equal("instance", *instance)];
                store.delete(vec![selector], *start_ms, *end_ms).await.unwrap();
            }
            Step::Clean => store.clean_tombstones().await.unwrap(),
            Step::Maintain => store.maintain().await.unwrap(),
            Step::Note => store.set_note(NOTE.0, NOTE.1).await.unwrap(),
        }
    }
}

/// Returns the content of a store after all operations.
fn expected() -> Contents {
    let (mut contents, mut now_ms) = (Contents::new(), 0);
    let kept = |now_ms: i64, labels: &Labels, time_ms: i64| {
        let is_debug = labels.metric_name() == "debug";
        time_ms >= now_ms - KEPT_MS && (!is_debug || time_ms >= now_ms - DEBUG_KEPT_MS)
    };
    for step in &STEPS {
        match step {
            Step::Clock(to_ms) => now_ms = *to_ms,
            Step::Write(starts_ms) => {
                for (labels, samples) in starts_ms.iter().flat_map(|start_ms| samples(*start_ms)) {
                    contents.entry(labels).or_default().extend(samples);
                }
            }
            Step::Delete(instance, start_ms, end_ms) => {
                for (_, samples) in
                    contents.iter_mut().filter(|(l, _)| l.get("instance") == *instance)
                {
                    samples.retain(|time_ms, _| time_ms < start_ms || time_ms > end_ms);
                }
            }
            Step::Seal | Step::Clean | Step::Maintain | Step::Note => {}
        }
    }
    for (labels, samples) in &mut contents {
        samples.retain(|time_ms, _| kept(now_ms, labels, *time_ms));
    }
    contents.retain(|_, samples| !samples.is_empty());
    contents
}

async fn read(store: &Store) -> Contents {
    let (start_ms, end_ms) = (i64::MIN, i64::MAX);
    let selection = Selection {
        matchers: Vec::new(),
        times: TimeRange::new(start_ms, end_ms),
        only_newest: false,
        windows: None,
    };
    let set = store.select(&selection, &Budget::unlimited()).await.unwrap();
    let mut contents = Contents::new();
    for index in 0..set.len() {
        let mut samples = BTreeMap::new();
        each_batch(&*set, index, |batch| {
            let (timestamps, values) = batch.samples();
            for (at, (time_ms, value)) in timestamps.iter().zip(values).enumerate() {
                let start_ms = batch.starts.get(at).copied().unwrap_or(0);
                samples.insert(*time_ms, Value::Float(value.to_bits(), start_ms));
            }
            for sample in &batch.histograms {
                let mut histogram = (*sample.histogram).clone();
                if histogram.reset_hint != ResetHint::Gauge {
                    histogram.reset_hint = ResetHint::default();
                }
                samples.insert(sample.timestamp_ms, Value::Histogram(histogram));
            }
        });
        contents.insert(set.labels(index).clone(), samples);
    }
    contents
}

/// Checks exemplars of one metric, metadata, and the note.
async fn check_side_data(store: &Store, name: &str) {
    let selectors = vec![vec![Matcher::equal("__name__", "requests_total")]];
    let query = ExemplarQuery { selectors, times: TimeRange::ALL };
    let exemplars = store.exemplars(&query, &Budget::unlimited()).unwrap();
    let metadata = store.metadata(None, usize::MAX);
    assert!(exemplars.warnings.is_empty() && metadata.warnings.is_empty());
    let instances = exemplars.found.iter().map(|series| series.labels.get("instance"));
    assert_eq!(instances.collect::<Vec<_>>(), ["0", "1", "2", "3"], "{name}");
    for series in &exemplars.found {
        let times: Vec<i64> = series.exemplars.iter().map(|e| e.timestamp_ms).collect();
        assert_eq!(times, exemplar_times(), "{name}");
        let is_right = |e: &Exemplar| e.value == 0.25 && e.labels == trace(e.timestamp_ms);
        assert!(series.exemplars.iter().all(is_right), "{name}: {series:?}");
    }
    let entry = |kind, help: String, unit: &str| MetricMetadata { kind, help, unit: unit.into() };
    let latency = last_times()
        .map(|last_ms| entry(MetricKind::GaugeHistogram, format!("As of {last_ms}."), "seconds"));
    let requests = entry(MetricKind::Counter, "All requests.".into(), "");
    let known: Vec<_> = metadata.found.iter().map(|k| (&*k.metric, k.entries.to_vec())).collect();
    assert_eq!(
        known,
        [("latency", latency.collect()), ("requests_total", vec![requests])],
        "{name}"
    );
    assert_eq!(store.note(NOTE.0).await.unwrap().as_deref(), Some(NOTE.1), "{name}");
}

/// The last start of each write.
fn last_times() -> impl Iterator<Item = i64> {
    STEPS.iter().filter_map(|step| match step {
        Step::Write(starts_ms) => starts_ms.last().copied(),
        _ => None,
    })
}

/// Returns the timestamps of the exemplars of a series with floats, which are not deleted.
fn exemplar_times() -> Vec<i64> {
    let writes = STEPS.iter().filter_map(|step| match step {
        Step::Write(starts_ms) => Some(*starts_ms),
        _ => None,
    });
    let mut times: Vec<i64> =
        writes.flatten().map(|start| start + (SAMPLES - 1) * STEP_MS).collect();
    times.sort_unstable();
    times
}

fn trace(time_ms: i64) -> Labels {
    Labels::from_pairs([("trace_id", format!("{time_ms:x}").as_str())])
}

#[test]
fn stores_with_everything_are_opened() {
    each_store("everything", |url| run(write(url)), |url, name| run(check(url, name)));
}

/// Checks that the store has all this, as nothing was cleaned up at its end. Returns the blocks of
/// its days, the newest day first.
async fn check_survey(url: &str, options: &StoreOptions, name: &str) -> Vec<DayBlocks> {
    let survey = audit::survey(url, options, &mut |_, _| {}).await.unwrap();
    assert!(survey.owner.is_some(), "{name}: it was closed");
    let masking = survey.tombstones.iter().filter(|tombstone| !tombstone.is_cleaned);
    assert_eq!(masking.count(), 2, "{name}: {:?}", survey.tombstones);
    let days: Vec<i64> = survey.partitions.iter().map(|p| p.start_ms / DAY_MS).collect();
    assert_eq!(days, [4, 5], "{name}");
    assert!(survey.partitions.iter().all(|p| p.series_gone > 0 && p.runs > 1), "{name}");
    let first_ms = survey.log.times_ms.unwrap().start_ms;
    assert!(first_ms < END_MS - KEPT_MS, "{name}: the log has nothing of days that are gone");
    let blocks = |day: &PartitionSurvey| {
        let PartitionSurvey { start_ms, blocks, block_bytes, blocks_summarized, .. } = *day;
        DayBlocks { start_ms, blocks, block_bytes, blocks_summarized }
    };
    survey.partitions.iter().rev().map(blocks).collect()
}

/// Checks that no samples are written that are beyond the retention or that a rule has expired.
async fn check_expired(store: &Store, name: &str) {
    for (labels, time_ms) in [
        (named("requests_total", "0"), END_MS - KEPT_MS - 1),
        (named("debug", "0"), END_MS - DEBUG_KEPT_MS - 1),
    ] {
        let mut batch = Batch::default();
        batch.push(&labels, &[(time_ms, 1.0)]);
        let outcome = store.append(batch).await.unwrap();
        assert_eq!((outcome.accepted, outcome.rejected.total()), (0, 1), "{name}: {labels}");
    }
}

async fn check(url: &str, name: &str) {
    let clock = Arc::new(ManualClock::new(END_MS));
    let blocks = check_survey(url, &options(&clock), name).await;
    let open = || async {
        let opening = Store::open(url, options(&clock));
        let opened = tokio::time::timeout(Duration::from_secs(60), opening).await.unwrap();
        opened.unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    for round in 0..3 {
        let store = open().await;
        if round == 0 {
            let counted = store.day_blocks(10, &Budget::unlimited()).await.unwrap();
            assert_eq!(counted, blocks, "{name}");
        }
        let found = read(&store).await;
        for (labels, samples) in expected() {
            assert_eq!(found.get(&labels), Some(&samples), "{name} {round} {labels}");
        }
        assert_eq!(found.len(), expected().len(), "{name} {round}");
        check_side_data(&store, &format!("{name} {round}")).await;
        check_expired(&store, name).await;
        store.maintain().await.unwrap();
        if round == 1 {
            store.clean_tombstones().await.unwrap();
            store.seal_all().await.unwrap();
        }
        assert_eq!(read(&store).await, found, "{name} {round}");
        store.close().await.unwrap();
    }
}
