//! What the tests of the store share.

use std::sync::Arc;

use model::{
    Advance, Batch, Budget, Labels, Matcher, SampleBatch, Selection, SeriesSet, Source, SourceError,
};
use slatedb::object_store::ObjectStore;
use slatedb::object_store::memory::InMemory;

use crate::lsm::Location;
use crate::{ManualClock, Store, StoreError, StoreOptions};

/// Samples of each series, to the bit.
pub(crate) type Contents = Vec<(Labels, Vec<(i64, u64)>)>;

/// Runs a test on a runtime of its own.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime can be built")
        .block_on(test)
}

/// Options without a background task, at a time that makes every window of the tests closed.
pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        background: false,
        clock: Arc::new(ManualClock::new(1 << 42)),
        object_store_retries_max: Some(0),
        ..StoreOptions::default()
    }
}

/// An object store in memory.
pub(crate) fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

/// Opens the store that lies on an object store.
pub(crate) async fn open(objects: &Arc<dyn ObjectStore>) -> Result<Store, StoreError> {
    open_with(objects, options()).await
}

/// The same with options.
pub(crate) async fn open_with(
    objects: &Arc<dyn ObjectStore>,
    options: StoreOptions,
) -> Result<Store, StoreError> {
    Store::open_at(&Location::on(Arc::clone(objects)), options).await
}

/// A label set.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::from_pairs(pairs.iter().copied())
}

/// A write of one series.
pub(crate) fn batch(labels: &Labels, samples: &[(i64, f64)]) -> Batch {
    let mut batch = Batch::default();
    batch.push(labels, samples);
    batch
}

/// Everything that a source holds in a range of the series that match.
pub(crate) async fn read(
    source: &dyn Source,
    matchers: Vec<Matcher>,
    start_ms: i64,
    end_ms: i64,
) -> Result<Contents, SourceError> {
    let budget = Budget::unlimited();
    let set = source.select(&Selection { matchers, start_ms, end_ms }, &budget).await?;
    let mut contents = Vec::new();
    for index in 0..set.len() {
        let samples = read_series(set.as_ref(), index, end_ms)?;
        if !samples.is_empty() {
            contents.push((set.labels(index).clone(), samples));
        }
    }
    assert!(contents.is_sorted_by(|a, b| a.0 < b.0), "sorted, each label set once");
    Ok(contents)
}

/// Reads one series in steps, so that bounds are met in the middle of frames.
fn read_series(
    set: &dyn SeriesSet,
    index: usize,
    end_ms: i64,
) -> Result<Vec<(i64, u64)>, SourceError> {
    let mut cursor = set.cursor(index);
    let mut batch = SampleBatch::new();
    let mut samples = Vec::new();
    let mut until_ms = i64::MIN;
    let mut step_ms = 4321_i64;
    loop {
        let advance = cursor.next_batch(until_ms, &mut batch)?;
        let (timestamps, values) = batch.samples();
        assert!(timestamps.iter().all(|t| *t <= until_ms), "no sample beyond the bound");
        samples.extend(timestamps.iter().zip(values).map(|(t, v)| (*t, v.to_bits())));
        batch.clear();
        match advance {
            Advance::Full => {}
            Advance::End => break,
            Advance::Reached if until_ms >= end_ms => break,
            Advance::Reached => {
                step_ms = step_ms.saturating_mul(3);
                let last_ms = samples.last().map_or(-(1 << 40), |(t, _)| *t);
                until_ms = last_ms.max(until_ms).saturating_add(step_ms).min(end_ms);
            }
        }
    }
    assert!(samples.is_sorted_by(|a, b| a.0 < b.0), "each time once, ascending: {samples:?}");
    assert!(samples.len() <= set.sample_count_estimate(index), "the estimate is an upper bound");
    Ok(samples)
}

/// Everything that a source holds.
pub(crate) async fn read_all(source: &dyn Source) -> Result<Contents, SourceError> {
    read(source, Vec::new(), i64::MIN, i64::MAX).await
}
