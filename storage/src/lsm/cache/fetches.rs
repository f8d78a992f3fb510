//! Object store that merges reads of SSTs: concurrent reads of the same bytes share one request,
//! and the end of an SST is fetched with its index.
//!
//! The keys of a day sort its blocks first, then its run directories, forward index and postings.
//! So a read of the file's index that begins [`TAIL_BYTES`] earlier has the whole index of a small
//! day. These bytes stay in memory until other ends need their space; blocks that are decoded from
//! them are in the block cache.
//!
//! A reader waits for the request of another one for a limited time, then sends its own. So no
//! reader depends on the progress of another.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::Shared;
use futures::stream::{self, StreamExt};
use slatedb::object_store::path::Path;
use slatedb::object_store::{
    GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore, Result,
};
use slatedb::object_store_tag::{ObjectStoreCallTag, SstType, TableStoreKind};
use tokio::sync::oneshot;

use crate::lock::lock;
use crate::lsm::cache::sst_range;
use crate::lsm::objects::layer::{Layer, Layered};

/// Bytes before the index of an SST that are fetched with it.
const TAIL_BYTES: u64 = 512 << 10;
/// Share of the limit of the block cache that the ends of SSTs may take.
const TAILS_SHARE: usize = 4;
/// Number of ends of which each has to fit in the limit, or it is not fetched.
const TAILS_MIN: u64 = 4;
/// Maximum time that a reader waits for the request of another one.
const SHARED_WAIT_MAX: Duration = Duration::from_secs(2);

/// Object store that merges reads of SSTs.
pub(in crate::lsm) struct Fetches {
    objects: Arc<dyn ObjectStore>,
    tails: Arc<Tails>,
    flights: Mutex<HashMap<(Path, Range<u64>), Flight>>,
}

/// Request under way, and its result.
type Flight = Shared<oneshot::Receiver<Fetched>>;

/// Bytes of an object.
#[derive(Clone)]
struct Fetched {
    meta: ObjectMeta,
    start: u64,
    bytes: Bytes,
}

/// Ends of SSTs, the oldest first.
pub(in crate::lsm) struct Tails {
    bytes_max: usize,
    kept: Mutex<KeptTails>,
}

#[derive(Default)]
struct KeptTails {
    by_path: HashMap<Path, Fetched>,
    order: VecDeque<Path>,
    bytes: usize,
}

impl Fetched {
    /// Returns the part of a range, `None` if some of it is missing.
    fn slice(&self, range: &Range<u64>) -> Option<Fetched> {
        let from = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        let to = usize::try_from(range.end.checked_sub(self.start)?).ok()?;
        // A copy: a small block in a cache would keep all bytes in memory.
        let bytes = Bytes::copy_from_slice(self.bytes.get(from..to)?);
        Some(Fetched { meta: self.meta.clone(), start: range.start, bytes })
    }

    fn into_result(self) -> GetResult {
        let range = self.start..self.start + self.bytes.len() as u64;
        let payload = stream::once(async move { Ok(self.bytes) }).boxed();
        GetResult {
            payload: GetResultPayload::Stream(payload),
            meta: self.meta,
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        }
    }
}

impl Tails {
    /// Creates an empty cache that takes a share of the limit of the block cache.
    pub(in crate::lsm) fn new(cache_bytes_max: usize) -> Tails {
        Tails { bytes_max: cache_bytes_max / TAILS_SHARE, kept: Mutex::default() }
    }

    /// Returns the limit.
    pub(in crate::lsm) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns whether the end of an SST is in memory.
    fn has(&self, path: &Path) -> bool {
        lock(&self.kept).by_path.contains_key(path)
    }

    /// Returns the bytes in memory.
    pub(in crate::lsm) fn bytes(&self) -> usize {
        lock(&self.kept).bytes
    }

    fn slice(&self, path: &Path, range: &Range<u64>) -> Option<Fetched> {
        let tail = lock(&self.kept).by_path.get(path)?.clone();
        tail.slice(range)
    }

    fn keep(&self, path: &Path, tail: Fetched) {
        let mut kept = lock(&self.kept);
        let kept = &mut *kept;
        if tail.bytes.len() > self.bytes_max || kept.by_path.contains_key(path) {
            return;
        }
        kept.bytes += tail.bytes.len();
        kept.by_path.insert(path.clone(), tail);
        kept.order.push_back(path.clone());
        while kept.bytes > self.bytes_max
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.bytes -= kept.by_path.remove(&oldest).map_or(0, |tail| tail.bytes.len());
        }
    }

    fn remove(&self, path: &Path) {
        let mut kept = lock(&self.kept);
        if let Some(tail) = kept.by_path.remove(path) {
            kept.bytes -= tail.bytes.len();
            kept.order.retain(|other| other != path);
        }
    }
}

impl Fetches {
    /// Wraps an object store.
    pub(in crate::lsm) fn new(objects: Arc<dyn ObjectStore>, tails: Arc<Tails>) -> Layered<Self> {
        Layered(Fetches { objects, tails, flights: Mutex::default() })
    }

    /// Fetches the end of an SST up to the end of its index, of which `index` is the range. Does
    /// nothing if the end is in memory, or would take a large part of it.
    pub(in crate::lsm) async fn fetch_tail(&self, path: &Path, index: Range<u64>) -> Result<()> {
        let range = index.start.saturating_sub(TAIL_BYTES)..index.end;
        let bytes = range.end - range.start;
        if bytes * TAILS_MIN > self.tails.bytes_max as u64 || self.tails.has(path) {
            return Ok(());
        }
        let tag = ObjectStoreCallTag::new(TableStoreKind::Main, SstType::Compacted);
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            extensions: tag.into(),
            ..GetOptions::default()
        };
        self.fetch(path, range, options, true).await?;
        Ok(())
    }

    /// Fetches a range, or waits for the request of another reader. Keeps the range if it is the
    /// end of an SST.
    async fn fetch(
        &self,
        path: &Path,
        range: Range<u64>,
        options: GetOptions,
        is_tail: bool,
    ) -> Result<Fetched> {
        let key = (path.clone(), range);
        let (sender, of_other) = {
            let mut flights = lock(&self.flights);
            // Under the lock: a request ends after its bytes have been kept.
            if let Some(known) = self.tails.slice(path, &key.1) {
                return Ok(known);
            }
            match flights.get(&key) {
                Some(flight) => (None, Some(flight.clone())),
                None => {
                    let (sender, receiver) = oneshot::channel();
                    flights.insert(key.clone(), receiver.shared());
                    (Some(sender), None)
                }
            }
        };
        if let Some(flight) = of_other
            && let Ok(Ok(fetched)) = tokio::time::timeout(SHARED_WAIT_MAX, flight).await
        {
            return Ok(fetched);
        }
        // Also if the other reader has failed: the error may be its own.
        let _landing = sender.is_some().then(|| Landing { fetches: self, key });
        let result = self.objects.get_opts(path, options).await?;
        let (meta, start) = (result.meta.clone(), result.range.start);
        let fetched = Fetched { meta, start, bytes: result.bytes().await? };
        if is_tail {
            self.tails.keep(path, fetched.clone());
        }
        if let Some(sender) = sender {
            // Fails if no other reader waits.
            let _ = sender.send(fetched.clone());
        }
        Ok(fetched)
    }
}

/// Ends a request that other readers may wait for, also if it fails or is cancelled.
struct Landing<'a> {
    fetches: &'a Fetches,
    key: (Path, Range<u64>),
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        lock(&self.fetches.flights).remove(&self.key);
    }
}

impl fmt::Debug for Fetches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fetches({:?})", self.objects)
    }
}

#[async_trait]
impl Layer for Fetches {
    fn below(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        let Some((range, is_retry)) = sst_range(&options) else {
            return self.objects.get_opts(from, options).await;
        };
        if is_retry {
            self.tails.remove(from);
            return self.objects.get_opts(from, options).await;
        }
        Ok(self.fetch(from, range, options, false).await?.into_result())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use slatedb::object_store::memory::InMemory;
    use slatedb::object_store::{Error, ObjectStoreExt};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::tests::harness;

    const KIB: u64 = 1 << 10;

    /// Counts reads; each waits for a permit, and some fail.
    #[derive(Debug)]
    struct Gate {
        objects: InMemory,
        reads: AtomicUsize,
        failing: AtomicUsize,
        permits: Semaphore,
    }

    #[async_trait]
    impl Layer for Arc<Gate> {
        fn below(&self) -> &dyn ObjectStore {
            &self.objects
        }

        async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.permits.acquire().await.unwrap().forget();
            let failing = self.failing.load(Ordering::Relaxed);
            self.failing.store(failing.saturating_sub(1), Ordering::Relaxed);
            if failing > 0 {
                return Err(Error::Generic { store: "gate", source: "closed".into() });
            }
            self.objects.get_opts(from, options).await
        }
    }

    /// An object of 2 MiB behind a gate.
    async fn rig(permits: usize) -> (Arc<Gate>, Layered<Fetches>, Path) {
        let objects = InMemory::new();
        let path = Path::from("an.sst");
        let bytes: Vec<u8> = (0..2 * KIB * KIB).map(|at| (at / 7) as u8).collect();
        objects.put(&path, bytes.into()).await.unwrap();
        let (reads, failing) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let gate = Arc::new(Gate { objects, reads, failing, permits: Semaphore::new(permits) });
        let tails = Arc::new(Tails::new(16 << 20));
        let fetches = Fetches::new(Arc::new(Layered(Arc::clone(&gate))), tails);
        (gate, fetches, path)
    }

    fn options(range: Range<u64>, retry: bool) -> GetOptions {
        let mut tag = ObjectStoreCallTag::new(TableStoreKind::Main, SstType::Compacted);
        tag.retry = retry.then_some(slatedb::object_store_tag::RetryReason::CrcMismatch);
        let range = Some(GetRange::Bounded(range));
        GetOptions { range, extensions: tag.into(), ..GetOptions::default() }
    }

    async fn read(fetches: &Layered<Fetches>, path: &Path, range: Range<u64>) -> Result<Bytes> {
        fetches.get_opts(path, options(range, false)).await?.bytes().await
    }

    fn reads(gate: &Gate) -> usize {
        gate.reads.load(Ordering::Relaxed)
    }

    #[test]
    fn concurrent_reads_of_a_range_are_one_request() {
        harness::run(async {
            let (gate, fetches, path) = rig(0).await;
            let same = (0..5).map(|_| read(&fetches, &path, 100..200));
            let all = futures::future::join_all(same);
            let other = read(&fetches, &path, 100..201);
            let open = async { gate.permits.add_permits(2) };
            let (all, other, ()) = futures::join!(all, other, open);
            let expected = gate.objects.get_range(&path, 100..201).await.unwrap();
            assert_eq!(other.unwrap(), expected);
            assert!(all.into_iter().all(|bytes| bytes.unwrap() == expected[..100]));
            assert_eq!(reads(&gate), 2);
            // A request that has ended is not shared.
            gate.permits.add_permits(1);
            read(&fetches, &path, 100..200).await.unwrap();
            assert_eq!(reads(&gate), 3);
            assert!(lock(&fetches.flights).is_empty());
        });
    }

    #[test]
    fn readers_do_not_fail_or_end_with_the_request_of_another() {
        harness::run(async {
            let (gate, fetches, path) = rig(0).await;
            gate.failing.store(1, Ordering::Relaxed);
            let open = async { gate.permits.add_permits(2) };
            let (first, second) = (read(&fetches, &path, 0..9), read(&fetches, &path, 0..9));
            let (first, second, ()) = futures::join!(first, second, open);
            assert!(first.is_err() && second.is_ok());
            {
                let mut cancelled = Box::pin(read(&fetches, &path, 0..9));
                assert!(futures::poll!(cancelled.as_mut()).is_pending());
            }
            gate.permits.add_permits(1);
            assert!(read(&fetches, &path, 0..9).await.is_ok());
            assert!(lock(&fetches.flights).is_empty());
        });
    }

    #[test]
    fn an_end_is_fetched_once_and_a_retry_bypasses_it() {
        harness::run(async {
            let (gate, fetches, path) = rig(9).await;
            let index = 1900 * KIB..2000 * KIB;
            fetches.fetch_tail(&path, index.clone()).await.unwrap();
            fetches.fetch_tail(&path, index).await.unwrap();
            assert_eq!(reads(&gate), 1);
            let inside = 1900 * KIB - TAIL_BYTES..1800 * KIB;
            let expected = gate.objects.get_range(&path, inside.clone()).await.unwrap();
            assert_eq!(read(&fetches, &path, inside.clone()).await.unwrap(), expected);
            assert_eq!(reads(&gate), 1);
            read(&fetches, &path, inside.start - 1..inside.end).await.unwrap();
            read(&fetches, &path, inside.start..2000 * KIB + 1).await.unwrap();
            assert_eq!(reads(&gate), 3);
            fetches.get_opts(&path, options(inside.clone(), true)).await.unwrap();
            assert_eq!((reads(&gate), fetches.tails.bytes()), (4, 0));
            read(&fetches, &path, inside).await.unwrap();
            assert_eq!(reads(&gate), 5);
        });
    }

    #[test]
    fn the_oldest_ends_are_dropped_beyond_the_limit() {
        let tails = Tails::new(400);
        let path = |number: usize| Path::from(format!("{number}.sst"));
        let meta = |location| ObjectMeta {
            location,
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size: 40,
            e_tag: None,
            version: None,
        };
        for number in 0..4 {
            let bytes = Bytes::from(vec![number as u8; 40]);
            tails.keep(&path(number), Fetched { meta: meta(path(number)), start: 0, bytes });
        }
        assert_eq!(tails.bytes(), 80);
        assert_eq!([0, 1, 2, 3].map(|number| tails.has(&path(number))), [false, false, true, true]);
        assert_eq!(tails.slice(&path(3), &(8..9)).unwrap().bytes, [3_u8][..]);
        assert!(tails.slice(&path(3), &(8..41)).is_none());
    }
}
