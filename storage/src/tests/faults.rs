//! Crashes at any write to the object store: acknowledged samples survive, and no samples appear
//! that were never sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use model::{Batch, Labels, Matcher};
use proptest::prelude::*;
use slatedb::object_store::path::Path;
use slatedb::object_store::{
    Error, MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, UploadPart,
};

use super::harness::{self, batch, labels, open, open_with, read, read_all};
use crate::lsm::{Layer, Layered};
use crate::window::{PARTITION_MS, WINDOW_MS};
use crate::{Store, StoreError, StoreOptions};

/// An object store that accepts a number of writes, as if the machine then died.
#[derive(Debug)]
pub(super) struct Faulty {
    objects: Arc<dyn ObjectStore>,
    writes_left: Arc<AtomicI64>,
    /// True if the failing write is carried out all the same.
    last_lands: bool,
}

/// Outcome of a write.
#[derive(PartialEq)]
enum Fate {
    Done,
    DoneButFails,
    Fails,
}

impl Faulty {
    /// Returns an object store that accepts a number of further writes.
    pub(super) fn on(
        objects: &Arc<dyn ObjectStore>,
        writes: i64,
        last_lands: bool,
    ) -> Arc<dyn ObjectStore> {
        Faulty::counted_on(objects, writes, last_lands).0
    }

    /// Returns also the number of writes left, negative once one was refused.
    pub(super) fn counted_on(
        objects: &Arc<dyn ObjectStore>,
        writes: i64,
        last_lands: bool,
    ) -> (Arc<dyn ObjectStore>, Arc<AtomicI64>) {
        let writes_left = Arc::new(AtomicI64::new(writes));
        let told = Arc::clone(&writes_left);
        let objects = Arc::clone(objects);
        (Arc::new(Layered(Faulty { objects, writes_left, last_lands })), told)
    }

    fn fate(&self) -> Fate {
        match self.writes_left.fetch_sub(1, Ordering::SeqCst) {
            1.. => Fate::Done,
            0 if self.last_lands => Fate::DoneButFails,
            _ => Fate::Fails,
        }
    }
}

fn gone() -> Error {
    Error::Generic { store: "faulty", source: "the machine has gone".into() }
}

#[async_trait]
impl Layer for Faulty {
    fn below(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        let fate = self.fate();
        if fate == Fate::Fails {
            return Err(gone());
        }
        let result = self.objects.put_opts(to, bytes, how).await;
        if fate == Fate::DoneButFails { Err(gone()) } else { result }
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if self.fate() == Fate::Fails {
            return Err(gone());
        }
        let upload = self.objects.put_multipart_opts(to, how).await?;
        Ok(Box::new(FaultyUpload { upload, writes_left: Arc::clone(&self.writes_left) }))
    }
}

#[derive(Debug)]
struct FaultyUpload {
    upload: Box<dyn MultipartUpload>,
    writes_left: Arc<AtomicI64>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if self.writes_left.load(Ordering::SeqCst) < 0 {
            return Err(gone());
        }
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

/// Sent samples by series and time, which determine the value.
#[derive(Default)]
struct Sent(BTreeMap<(Labels, i64), Known>);

/// Knowledge of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It was acknowledged.
    There,
    /// It was deleted, and that was acknowledged.
    Gone,
    /// It may or may not be stored.
    Unsure,
}

fn series(number: u8) -> Labels {
    let number = number.to_string();
    labels(&[("__name__", if number.len() > 1 { "b" } else { "a" }), ("n", &number)])
}

fn value(number: u8, timestamp_ms: i64) -> f64 {
    (timestamp_ms * 31 + i64::from(number)) as f64
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<(u8, i64)>),
    Delete(u8, i64, i64),
    Clean,
    Seal,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let time = (-3_i64..3, 0_i64..50).prop_map(|(w, t)| w * WINDOW_MS + t * 1000);
    let samples = proptest::collection::vec((0_u8..15, time), 1..40);
    prop_oneof![
        5 => samples.prop_map(Step::Append),
        2 => (0_u8..15, -3 * WINDOW_MS..3 * WINDOW_MS, 0..4 * WINDOW_MS)
            .prop_map(|(n, t, length)| Step::Delete(n, t, t + length)),
        1 => Just(Step::Clean),
        2 => Just(Step::Seal),
        1 => Just(Step::Reopen),
    ]
}

impl Sent {
    async fn append(&mut self, store: &Store, samples: &[(u8, i64)]) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for (number, timestamp_ms) in samples {
            batch.push(&series(*number), &[(*timestamp_ms, value(*number, *timestamp_ms))]);
        }
        let result = store.append(batch).await;
        for (number, timestamp_ms) in samples {
            let known = self.0.entry((series(*number), *timestamp_ms)).or_insert(Known::Unsure);
            match (result.is_ok(), *known) {
                (true, _) => *known = Known::There,
                (false, Known::Gone) => *known = Known::Unsure,
                (false, Known::There | Known::Unsure) => {}
            }
        }
        result.map(|outcome| assert_eq!(outcome.rejected.total(), 0))
    }

    async fn delete(
        &mut self,
        store: &Store,
        number: u8,
        (start_ms, end_ms): (i64, i64),
    ) -> Result<(), StoreError> {
        let labels = series(number);
        let matchers = vec![Matcher::equal("n", labels.get("n"))];
        let result = store.delete(vec![matchers], start_ms, end_ms).await;
        let range = (labels.clone(), start_ms)..=(labels, end_ms);
        for (_, known) in self.0.range_mut(range) {
            match (result.is_ok(), *known) {
                (true, _) => *known = Known::Gone,
                (false, Known::There) => *known = Known::Unsure,
                (false, Known::Gone | Known::Unsure) => {}
            }
        }
        result
    }

    async fn check(&self, store: &Store) {
        let mut found = BTreeMap::new();
        for (labels, samples) in read_all(store).await.unwrap() {
            let number = labels.get("n").parse().unwrap();
            for (timestamp_ms, bits) in samples {
                assert_eq!(f64::from_bits(bits), value(number, timestamp_ms));
                assert!(self.0.contains_key(&(labels.clone(), timestamp_ms)), "never sent");
                found.insert((labels.clone(), timestamp_ms), ());
            }
        }
        for (sample, known) in &self.0 {
            let is_found = found.contains_key(sample);
            assert!(*known != Known::There || is_found, "{sample:?} is lost");
            assert!(*known != Known::Gone || !is_found, "{sample:?} is back");
        }
    }
}

/// Runs steps on an object store that may fail; the first error ends them.
async fn attempt(
    objects: &Arc<dyn ObjectStore>,
    steps: &[Step],
    sent: &mut Sent,
) -> std::result::Result<(), StoreError> {
    let mut store = open(objects).await?;
    for step in steps {
        match step {
            Step::Append(samples) => {
                let result = sent.append(&store, samples).await;
                if result.is_err() {
                    let again = store.append(batch(&series(0), &[(0, 0.0)])).await;
                    assert!(again.is_err(), "no write after one that has failed");
                }
                result?;
            }
            Step::Delete(number, start_ms, end_ms) => {
                sent.delete(&store, *number, (*start_ms, *end_ms)).await?;
            }
            Step::Clean => store.clean_tombstones().await?,
            Step::Seal => store.seal_all().await?,
            Step::Reopen => {
                drop(store);
                store = open(objects).await?;
            }
        }
    }
    store.close().await
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_samples_survive_crashes_at_any_write(
        lives in proptest::collection::vec(
            (proptest::collection::vec(step(), 1..9), 0_i64..70, any::<bool>()),
            1..4,
        ),
    ) {
        harness::run(async {
            let objects = harness::memory();
            let mut sent = Sent::default();
            for (steps, writes, last_lands) in &lives {
                let faulty = Faulty::on(&objects, *writes, *last_lands);
                // An error is the crash; a run without one is fine, too.
                let _ = attempt(&faulty, steps, &mut sent).await;
            }
            let store = open(&objects).await.unwrap();
            sent.check(&store).await;
            store.seal_all().await.unwrap();
            sent.check(&store).await;
            drop(store);
            let store = open(&objects).await.unwrap();
            sent.check(&store).await;
        });
    }
}

/// Writes, deletes and cleans, sealed and open, with each write failing once.
#[test]
fn deletes_hold_after_a_crash_at_every_write() {
    let samples = |times: std::ops::Range<i64>| -> Step {
        let all = times.flat_map(|t| (0..5).map(move |n| (n, t * WINDOW_MS / 7)));
        Step::Append(all.collect())
    };
    let steps = [
        samples(-9..9),
        Step::Seal,
        samples(5..12),
        Step::Delete(1, -WINDOW_MS, WINDOW_MS),
        Step::Delete(2, i64::MIN, i64::MAX),
        samples(0..3),
        Step::Seal,
        Step::Delete(3, 0, WINDOW_MS / 2),
        Step::Clean,
        samples(2..4),
        Step::Delete(4, 0, WINDOW_MS),
        Step::Clean,
        Step::Seal,
        Step::Clean,
    ];
    let mut writes = 0;
    let mut is_done = false;
    while !is_done {
        for last_lands in [false, true] {
            is_done = harness::run(async {
                let objects = harness::memory();
                let mut sent = Sent::default();
                let faulty = Faulty::on(&objects, writes, last_lands);
                let done = attempt(&faulty, &steps, &mut sent).await.is_ok();
                let store = open(&objects).await.unwrap();
                sent.check(&store).await;
                store.clean_tombstones().await.unwrap();
                sent.check(&store).await;
                store.seal_all().await.unwrap();
                drop(store);
                let store = open(&objects).await.unwrap();
                sent.check(&store).await;
                done
            });
        }
        writes += 1;
    }
    assert!(writes > 40, "{writes} writes only");
}

#[test]
fn second_writer_fences_the_first_and_sees_its_samples() {
    harness::run(async {
        let objects = harness::memory();
        let first = open(&objects).await.unwrap();
        first.append(batch(&series(1), &[(1, 1.0)])).await.unwrap();
        let second = open(&objects).await.unwrap();
        let refused = first.append(batch(&series(1), &[(2, 2.0)])).await;
        assert_eq!(refused, Err(StoreError::Fenced));
        let refused = first.append(batch(&series(1), &[(3, 3.0)])).await;
        assert_eq!(refused, Err(StoreError::Fenced));
        assert_eq!(first.seal_all().await, Err(StoreError::Fenced));
        second.append(batch(&series(1), &[(4, 4.0)])).await.unwrap();
        let bits = [(1, 1.0_f64.to_bits()), (4, 4.0_f64.to_bits())];
        assert_eq!(read_all(&second).await.unwrap(), vec![(series(1), bits.to_vec())]);
        second.close().await.unwrap();
    });
}

/// Days deleted by the size limit are there whole or not at all, whichever write is the last one.
#[test]
fn deleted_days_are_never_partly_there_after_a_crash() {
    let mut writes = 0;
    let mut is_done = false;
    let mut has_gone_in_part = false;
    while !is_done {
        for last_lands in [false, true] {
            is_done = harness::run(async {
                let objects = harness::memory();
                let store = open(&objects).await.unwrap();
                for day in 0..3 {
                    let samples = (0..20).map(|i| (day * PARTITION_MS + i * 1000, i as f64));
                    let samples: Vec<(i64, f64)> = samples.collect();
                    for number in 0..3 {
                        store.append(batch(&series(number), &samples)).await.unwrap();
                    }
                }
                store.seal_all().await.unwrap();
                crate::seal::write_out(store.core()).await.unwrap();
                store.close().await.unwrap();
                let faulty = Faulty::on(&objects, writes, last_lands);
                let options = StoreOptions { retention_bytes: Some(1), ..harness::options() };
                let maintained = match open_with(&faulty, options).await {
                    Ok(store) => store.maintain().await,
                    Err(error) => Err(error),
                };
                // Without a limit, so that only the store's records decide.
                let store = open(&objects).await.unwrap();
                for round in 0..2 {
                    let left = read_all(&store).await.unwrap();
                    assert_eq!(left.len(), 3, "after {writes} writes, round {round}");
                    for (labels, samples) in &left {
                        assert_eq!(samples.len() % 20, 0, "after {writes} writes: {labels}");
                        assert_eq!(samples.len(), left[0].1.len(), "after {writes} writes");
                    }
                    let by_value = vec![Matcher::equal("n", "1")];
                    let of_one = read(&store, by_value, i64::MIN, i64::MAX).await.unwrap();
                    assert_eq!(of_one[0].1.len(), left[0].1.len(), "after {writes} writes");
                    has_gone_in_part |= maintained.is_err() && left[0].1.len() < 60;
                    store.maintain().await.unwrap();
                }
                maintained.is_ok()
            });
        }
        writes += 1;
    }
    assert!(has_gone_in_part, "no crash interrupted a deletion");
}
