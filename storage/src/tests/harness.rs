//! Shared code of the store's tests.

use std::sync::Arc;
use std::time::Duration;

use model::{
    Advance, Batch, Budget, HISTOGRAM_BATCH_LEN, Histogram, HistogramSample, Labels, Matcher,
    SampleBatch, Selection, SeriesSet, Source, SourceError, Span, TimeRange,
};
use slatedb::object_store::ObjectStore;
use slatedb::object_store::memory::InMemory;

use crate::lsm::Location;
use crate::sizes::Sizes;
use crate::{ManualClock, Store, StoreError, StoreOptions};

/// Samples of each series, bit by bit.
pub(crate) type Contents = Vec<(Labels, Vec<(i64, u64)>)>;

/// A sample of either kind, bit by bit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Read {
    pub(crate) timestamp_ms: i64,
    pub(crate) start_ms: i64,
    pub(crate) value: ReadValue,
}

/// The value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ReadValue {
    Float(u64),
    Histogram(Arc<Histogram>),
}

impl Read {
    /// Returns the histogram, if it is one.
    pub(crate) fn histogram(&self) -> Option<&Arc<Histogram>> {
        match &self.value {
            ReadValue::Float(_) => None,
            ReadValue::Histogram(histogram) => Some(histogram),
        }
    }
}

/// Floats and histograms of each series.
pub(crate) type FullContents = Vec<(Labels, Vec<Read>)>;

/// Runs a test on a runtime of its own.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime can be built")
        .block_on(test)
}

/// Returns options without a background task, at a time when every window of the tests is closed.
pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        background: false,
        retention_confirmation: Duration::ZERO,
        clock: Arc::new(ManualClock::new(1 << 42)),
        compaction_interval: Some(Duration::from_millis(20)),
        object_store_retries_max: Some(0),
        sizes: Sizes::small(),
        orphan_age_min: Duration::ZERO,
        ..StoreOptions::default()
    }
}

impl Sizes {
    /// Returns sizes with which little data fills several blocks, pages, writes and rounds, and
    /// short intervals.
    pub(crate) fn small() -> Sizes {
        Sizes {
            block_series_max: 3,
            page_ids: 5,
            register_series_max: 7,
            write_bytes: 64,
            delete_keys: 4,
            late_samples_at_rest: 200,
            late_samples_max: 2000,
            found_samples_max: 150,
            drop_series_max: 1,
            replayed_bytes: 200,
            compared_series_max: 1,
            halved_series_min: 4,
            inline_series_max: 3,
            share_series_min: 2,
            kept_sets_max: 0,
            kept_parts_min: 1,
            metric_scans_max: 2,
            orphans_per_round: 64,
            cache_part_bytes: 64,
            follow_interval: Duration::ZERO,
            manifest_poll_interval: Duration::from_millis(20),
        }
    }
}

/// Returns an object store in memory.
pub(crate) fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

/// Opens the store on an object store.
pub(crate) async fn open(objects: &Arc<dyn ObjectStore>) -> Result<Store, StoreError> {
    open_with(objects, options()).await
}

/// Opens the store with options.
pub(crate) async fn open_with(
    objects: &Arc<dyn ObjectStore>,
    options: StoreOptions,
) -> Result<Store, StoreError> {
    Store::open_at(&Location::on(Arc::clone(objects)), options).await
}

/// Creates a store, and closes it with a sealed batch.
pub(crate) async fn seal_in(objects: &Arc<dyn ObjectStore>, options: &StoreOptions, batch: Batch) {
    let store = open_with(objects, options.clone()).await.unwrap();
    store.append(batch).await.unwrap();
    store.seal_all().await.unwrap();
    store.close().await.unwrap();
}

/// Returns a label set.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::from_pairs(pairs.iter().copied())
}

/// Returns a write of one series.
pub(crate) fn batch(labels: &Labels, samples: &[(i64, f64)]) -> Batch {
    let mut batch = Batch::default();
    batch.push(labels, samples);
    batch
}

/// Returns a write of histograms of one series.
pub(crate) fn histogram_batch(labels: &Labels, samples: &[HistogramSample]) -> Batch {
    let mut batch = Batch::default();
    batch.push(labels, &[]);
    batch.push_histograms(samples);
    batch
}

/// Returns a histogram with these counts from bucket 1 on.
pub(crate) fn histogram(counts: &[u32]) -> Histogram {
    Histogram {
        schema: 3,
        count: counts.iter().map(|count| f64::from(*count)).sum(),
        sum: counts.iter().map(|count| f64::from(*count) * 0.1).sum(),
        positive_spans: vec![Span { offset: 1, length: counts.len() as u32 }],
        positive_counts: counts.iter().map(|count| f64::from(*count)).collect(),
        ..Histogram::default()
    }
}

/// Returns a histogram as a sample.
pub(crate) fn at(timestamp_ms: i64, histogram: Histogram) -> HistogramSample {
    HistogramSample { timestamp_ms, start_ms: 0, histogram: Arc::new(histogram) }
}

/// Reads all samples of matching series in a range, which must be floats.
pub(crate) async fn read(
    source: &dyn Source,
    matchers: Vec<Matcher>,
    start_ms: i64,
    end_ms: i64,
) -> Result<Contents, SourceError> {
    let full = read_full(source, matchers, start_ms, end_ms).await?;
    let float = |read: Read| match read.value {
        ReadValue::Float(bits) => (read.timestamp_ms, bits),
        ReadValue::Histogram(_) => panic!("a histogram: {read:?}"),
    };
    let floats = |reads: Vec<Read>| reads.into_iter().map(float).collect();
    Ok(full.into_iter().map(|(labels, reads)| (labels, floats(reads))).collect())
}

/// Reads all samples of matching series in a range.
pub(crate) async fn read_full(
    source: &dyn Source,
    matchers: Vec<Matcher>,
    start_ms: i64,
    end_ms: i64,
) -> Result<FullContents, SourceError> {
    let selection = Selection {
        matchers,
        times: TimeRange::new(start_ms, end_ms),
        only_newest: false,
        windows: None,
    };
    read_selection(source, &selection).await
}

/// Reads all samples of a selection.
pub(crate) async fn read_selection(
    source: &dyn Source,
    selection: &Selection,
) -> Result<FullContents, SourceError> {
    let end_ms = selection.times.end_ms;
    let set = source.select(selection, &Budget::unlimited()).await?;
    let mut contents = Vec::new();
    for index in 0..set.len() {
        let samples = read_series(set.as_ref(), index, end_ms)?;
        if samples.iter().any(|read| read.histogram().is_some()) {
            assert!(set.has_histograms(index));
        }
        if !samples.is_empty() {
            contents.push((set.labels(index).clone(), samples));
        }
    }
    assert!(contents.is_sorted_by(|a, b| a.0 < b.0), "sorted, each label set once");
    Ok(contents)
}

/// Returns the samples of a batch, in order.
fn take_samples(batch: &mut SampleBatch) -> Vec<Read> {
    let (timestamps, values) = batch.samples();
    let floats =
        timestamps.iter().zip(values).enumerate().map(|(at, (timestamp_ms, value))| Read {
            timestamp_ms: *timestamp_ms,
            start_ms: batch.start(at),
            value: ReadValue::Float(value.to_bits()),
        });
    let histograms = batch.histograms.iter().map(|sample| Read {
        timestamp_ms: sample.timestamp_ms,
        start_ms: sample.start_ms,
        value: ReadValue::Histogram(Arc::clone(&sample.histogram)),
    });
    assert!(batch.histograms.len() <= HISTOGRAM_BATCH_LEN);
    let mut samples: Vec<Read> = floats.chain(histograms).collect();
    samples.sort_by_key(|read| read.timestamp_ms);
    batch.clear();
    samples
}

/// Reads one series in steps, so that bounds fall inside frames.
pub(crate) fn read_series(
    set: &dyn SeriesSet,
    index: usize,
    end_ms: i64,
) -> Result<Vec<Read>, SourceError> {
    let mut cursor = set.cursor(index);
    let mut batch = SampleBatch::new();
    let mut samples = Vec::new();
    let mut until_ms = i64::MIN;
    let mut step_ms = 4321_i64;
    loop {
        let advance = cursor.next_batch(until_ms, &mut batch)?;
        let taken = take_samples(&mut batch);
        assert!(taken.iter().all(|s| s.timestamp_ms <= until_ms), "no sample beyond the bound");
        samples.extend(taken);
        match advance {
            Advance::Full => {}
            Advance::End => break,
            Advance::Reached if until_ms >= end_ms => break,
            Advance::Reached => {
                step_ms = step_ms.saturating_mul(3);
                let last_ms = samples.last().map_or(-(1 << 40), |read: &Read| read.timestamp_ms);
                until_ms = last_ms.max(until_ms).saturating_add(step_ms).min(end_ms);
            }
        }
    }
    assert!(
        samples.is_sorted_by(|a, b| a.timestamp_ms < b.timestamp_ms),
        "each time once, ascending: {samples:?}"
    );
    assert!(samples.len() <= set.sample_count_estimate(index), "the estimate is an upper bound");
    Ok(samples)
}

/// Reads all samples of a source, which must be floats.
pub(crate) async fn read_all(source: &dyn Source) -> Result<Contents, SourceError> {
    read(source, Vec::new(), i64::MIN, i64::MAX).await
}
