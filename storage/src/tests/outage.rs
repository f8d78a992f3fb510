//! Outages of the object store: writes are refused within a limit, reads from memory go on, and
//! everything recovers with nothing lost or doubled.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use model::Matcher;
use slatedb::object_store::path::Path;
use slatedb::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::harness::{self, batch, labels, open_with, read, read_all};
use crate::{Store, StoreError, StoreOptions};

/// Error of the object store during an outage.
const REASON: &str = "no answer";
/// Timeout for writes and reads.
const PATIENCE: Duration = Duration::from_secs(2);

/// An object store with outages, which lose the answers to running requests.
#[derive(Debug, Clone)]
pub(super) struct Absent {
    objects: Arc<dyn ObjectStore>,
    is_away: Arc<AtomicBool>,
    /// True if writes are carried out and only their answers are lost.
    still_writes: Arc<AtomicBool>,
}

impl Absent {
    pub(super) fn on(objects: &Arc<dyn ObjectStore>) -> Absent {
        Absent {
            objects: Arc::clone(objects),
            is_away: Arc::default(),
            still_writes: Arc::default(),
        }
    }

    pub(super) fn set(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    fn check(&self) -> Result<()> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(Error::Generic { store: "absent", source: REASON.into() });
        }
        Ok(())
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("absent")
    }
}

#[async_trait]
impl ObjectStore for Absent {
    async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        if self.still_writes.load(Ordering::SeqCst) {
            let result = self.objects.put_opts(to, bytes, how).await;
            self.check()?;
            return result;
        }
        self.check()?;
        self.objects.put_opts(to, bytes, how).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check()?;
        self.objects.put_multipart_opts(to, how).await
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        self.check()?;
        self.objects.get_opts(from, how).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.check() {
            Ok(()) => self.objects.list(prefix),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check()?;
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.check()?;
        self.objects.copy_opts(from, to, how).await
    }
}

async fn open(absent: &Absent) -> Arc<Store> {
    let objects: Arc<dyn ObjectStore> = Arc::new(absent.clone());
    let options = StoreOptions {
        object_store_retries_max: None,
        write_timeout: PATIENCE,
        read_timeout: PATIENCE,
        ..harness::options()
    };
    Arc::new(open_with(&objects, options).await.unwrap())
}

async fn write(
    store: &Store,
    name: &str,
    timestamp_ms: i64,
) -> std::result::Result<usize, StoreError> {
    let labels = labels(&[("__name__", name)]);
    let outcome = store.append(batch(&labels, &[(timestamp_ms, timestamp_ms as f64)])).await?;
    Ok(outcome.accepted)
}

fn is_not_stored(result: &std::result::Result<usize, StoreError>) -> bool {
    matches!(result, Err(StoreError::Stalled { may_be_stored: false, .. }))
}

fn contents(names_and_times: &[(&str, &[i64])]) -> harness::Contents {
    let of = |(name, times): &(&str, &[i64])| {
        let samples = times.iter().map(|t| (*t, (*t as f64).to_bits())).collect();
        (labels(&[("__name__", name)]), samples)
    };
    names_and_times.iter().map(of).collect()
}

/// Writes until it is accepted: the LSM retries once a second.
async fn write_at_last(store: &Store, name: &str, timestamp_ms: i64) -> usize {
    for _ in 0..100 {
        if let Ok(accepted) = write(store, name, timestamp_ms).await {
            return accepted;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no write is accepted long after the outage");
}

#[test]
fn writes_are_refused_within_a_bound_and_none_is_lost_or_doubled() {
    for still_writes in [false, true] {
        harness::run(async {
            let objects = harness::memory();
            let absent = Absent::on(&objects);
            let store = open(&absent).await;
            assert_eq!(write(&store, "a", 1).await, Ok(1));
            assert_eq!(store.write_refusal(), None);
            absent.still_writes.store(still_writes, Ordering::SeqCst);
            absent.set(true);

            // The first is under way; the second waits in the queue and can be withdrawn.
            let first = tokio::spawn({
                let store = Arc::clone(&store);
                async move { write(&store, "b", 2).await }
            });
            while !store.core().is_committing() {
                tokio::task::yield_now().await;
            }
            let second = write(&store, "c", 3).await;
            let first = first.await.unwrap().unwrap_err();
            assert!(
                matches!(first, StoreError::Stalled { waited: PATIENCE, may_be_stored: true, .. }),
                "{first:?}"
            );
            // The answer states the reason.
            assert!(first.to_string().contains(REASON), "{first}");
            // On a busy machine the answer is so late that the write is not accepted at all.
            assert!(is_not_stored(&second), "{second:?}");
            // Later ones are refused at once, by the time that the first has been under way.
            let third = write(&store, "d", 4).await;
            let at_once = |waited| waited > PATIENCE;
            assert!(
                matches!(third, Err(StoreError::Stalled { waited, .. }) if at_once(waited)),
                "{third:?}"
            );
            assert!(is_not_stored(&third), "{third:?}");
            assert_eq!(store.stats().writes_stalled, 3);
            let refusal = store.write_refusal().unwrap();
            assert!(matches!(refusal, StoreError::Stalled { .. }), "{refusal:?}");
            assert!(refusal.to_string().contains(REASON), "{refusal}");
            // Reads from memory succeed.
            assert_eq!(read_all(store.as_ref()).await.unwrap(), contents(&[("a", &[1])]));

            absent.set(false);
            // A retry of the write under way finds it stored, and does not store it twice.
            assert_eq!(write_at_last(&store, "b", 2).await, 0);
            assert_eq!(store.write_refusal(), None);
            assert_eq!(write_at_last(&store, "d", 5).await, 1);
            let expected = contents(&[("a", &[1]), ("b", &[2]), ("d", &[5])]);
            assert_eq!(read_all(store.as_ref()).await.unwrap(), expected);
            assert_eq!(store.stats().queue_samples, 0, "the queue is empty");
            drop(store);
            let store = open(&absent).await;
            assert_eq!(read_all(store.as_ref()).await.unwrap(), expected);
        });
    }
}

#[test]
fn a_crash_while_the_object_store_is_away_loses_nothing_acknowledged() {
    harness::run(async {
        let objects = harness::memory();
        let absent = Absent::on(&objects);
        let store = open(&absent).await;
        assert_eq!(write(&store, "a", 1).await, Ok(1));
        absent.set(true);
        assert!(write(&store, "b", 2).await.is_err());
        drop(store);
        // Another link, which the requests of the first do not reach.
        let store = open(&Absent::on(&objects)).await;
        assert_eq!(read_all(store.as_ref()).await.unwrap(), contents(&[("a", &[1])]));
        assert_eq!(write(&store, "b", 2).await, Ok(1));
    });
}

#[test]
fn sealed_data_fails_within_a_bound_and_cached_data_is_readable() {
    harness::run(async {
        let objects = harness::memory();
        let absent = Absent::on(&objects);
        let store = open(&absent).await;
        assert_eq!(write(&store, "a", 1).await, Ok(1));
        store.seal_all().await.unwrap();
        crate::seal::write_out(store.core()).await.unwrap();
        drop(store);
        let store = open(&absent).await;
        let read_a = || {
            let matchers = vec![Matcher::equal("__name__", "a")];
            read(store.as_ref(), matchers, i64::MIN, i64::MAX)
        };
        absent.set(true);
        let error = read_a().await.unwrap_err().to_string();
        assert!(error.contains("the object store has not answered a read for 2 s"), "{error}");
        absent.set(false);
        let mut found = read_a().await;
        for _ in 0..20 {
            if found.is_ok() {
                break;
            }
            found = read_a().await;
        }
        assert_eq!(found.unwrap(), contents(&[("a", &[1])]));
        absent.set(true);
        assert_eq!(read_a().await.unwrap(), contents(&[("a", &[1])]));
    });
}
