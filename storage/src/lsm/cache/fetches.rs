//! Object store that merges reads of SSTs: concurrent reads of the same bytes share one request,
//! the end of an SST is fetched with its index, and blocks are fetched with those between them.
//!
//! The keys of a day sort its blocks first, then its run directories, forward index and postings.
//! So a read of the file's index that begins [`TAIL_BYTES`] earlier has the whole index of a small
//! day. These bytes stay in memory until others need their space; blocks that are decoded from them
//! are in the block cache.
//!
//! A reader waits for the request of another one for a limited time, then sends its own. So no
//! reader depends on the progress of another.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};
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
/// Share of the limit of the block cache that ranges of SSTs may take.
const RANGES_SHARE: usize = 4;
/// Number of ends of which each has to fit in the limit, or it is not fetched.
const TAILS_MIN: u64 = 4;
/// Maximum time that a reader waits for the request of another one.
const SHARED_WAIT_MAX: Duration = Duration::from_secs(2);

/// Object store that merges reads of SSTs.
pub(in crate::lsm) struct Fetches {
    objects: Arc<dyn ObjectStore>,
    ranges: Arc<Ranges>,
    flights: Mutex<HashMap<(Path, Range<u64>), Flight>>,
}

/// Request under way, and its result.
type Flight = Shared<oneshot::Receiver<Arc<Fetched>>>;

/// Bytes of an object.
#[derive(Clone)]
struct Fetched {
    meta: ObjectMeta,
    start: u64,
    bytes: Bytes,
}

/// Kind of a range that is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeKind {
    /// The end of an SST, up to its index.
    Tail,
    /// Blocks, with those between them.
    Span,
}

/// Ranges of SSTs in memory. Beyond the limit the oldest are dropped, spans before tails.
pub(in crate::lsm) struct Ranges {
    bytes_max: usize,
    kept: Mutex<KeptRanges>,
}

#[derive(Default)]
struct KeptRanges {
    /// The queued ranges, and those that only readers hold.
    by_path: HashMap<Path, Vec<Weak<Fetched>>>,
    tails: RangeQueue,
    spans: RangeQueue,
}

/// Ranges, the oldest first.
#[derive(Default)]
struct RangeQueue {
    ranges: VecDeque<(Path, Arc<Fetched>)>,
    bytes: usize,
}

/// Keeps a range in memory, also beyond the limit.
pub(crate) struct HeldRange {
    _range: Arc<Fetched>,
}

impl Fetched {
    fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }

    fn covers(&self, range: &Range<u64>) -> bool {
        let own = self.range();
        own.start <= range.start && range.end <= own.end
    }

    /// Returns a part as a copy: a small block in a cache would keep all bytes in memory.
    fn copy_of(&self, range: &Range<u64>) -> Fetched {
        let part = (range.start - self.start) as usize..(range.end - self.start) as usize;
        let bytes = Bytes::copy_from_slice(&self.bytes[part]);
        Fetched { meta: self.meta.clone(), start: range.start, bytes }
    }

    fn into_result(self) -> GetResult {
        let range = self.range();
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

impl RangeQueue {
    fn push(&mut self, path: &Path, range: &Arc<Fetched>) {
        self.bytes += range.bytes.len();
        self.ranges.push_back((path.clone(), Arc::clone(range)));
    }

    /// Drops the oldest range; returns whether there was one.
    fn pop(&mut self) -> bool {
        let oldest = self.ranges.pop_front();
        self.bytes -= oldest.as_ref().map_or(0, |(_, range)| range.bytes.len());
        oldest.is_some()
    }

    fn remove(&mut self, path: &Path) {
        self.ranges.retain(|(other, _)| other != path);
        self.bytes = self.ranges.iter().map(|(_, range)| range.bytes.len()).sum();
    }
}

impl Ranges {
    /// Creates an empty cache that takes a share of the limit of the block cache.
    pub(in crate::lsm) fn new(cache_bytes_max: usize) -> Ranges {
        Ranges { bytes_max: cache_bytes_max / RANGES_SHARE, kept: Mutex::default() }
    }

    /// Returns the limit.
    pub(in crate::lsm) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the bytes in memory, without ranges that only readers hold.
    pub(in crate::lsm) fn bytes(&self) -> usize {
        let kept = lock(&self.kept);
        kept.tails.bytes + kept.spans.bytes
    }

    /// Returns a range that covers another one.
    fn covering(&self, path: &Path, range: &Range<u64>) -> Option<Arc<Fetched>> {
        let kept = lock(&self.kept);
        let of_path = kept.by_path.get(path)?;
        of_path.iter().filter_map(Weak::upgrade).find(|known| known.covers(range))
    }

    /// Keeps a range as long as a reader holds it, and longer if there is space.
    fn keep(&self, path: &Path, range: &Arc<Fetched>, kind: RangeKind) {
        let mut kept = lock(&self.kept);
        let KeptRanges { by_path, tails, spans } = &mut *kept;
        by_path.retain(|_, ranges| {
            ranges.retain(|range| range.strong_count() > 0);
            !ranges.is_empty()
        });
        by_path.entry(path.clone()).or_default().push(Arc::downgrade(range));
        if range.bytes.len() <= self.bytes_max {
            match kind {
                RangeKind::Tail => tails.push(path, range),
                RangeKind::Span => spans.push(path, range),
            }
        }
        while tails.bytes + spans.bytes > self.bytes_max && (spans.pop() || tails.pop()) {}
    }

    /// Forgets all ranges of a file.
    fn remove(&self, path: &Path) {
        let mut kept = lock(&self.kept);
        kept.by_path.remove(path);
        kept.tails.remove(path);
        kept.spans.remove(path);
    }
}

impl Fetches {
    /// Wraps an object store.
    pub(in crate::lsm) fn new(objects: Arc<dyn ObjectStore>, ranges: Arc<Ranges>) -> Layered<Self> {
        Layered(Fetches { objects, ranges, flights: Mutex::default() })
    }

    /// Returns the ranges in memory.
    pub(in crate::lsm) fn ranges(&self) -> &Arc<Ranges> {
        &self.ranges
    }

    /// Fetches the end of an SST up to the end of its index, of which `index` is the range. Does
    /// nothing if the index is in memory, or if the end would take a large part of it.
    pub(in crate::lsm) async fn fetch_tail(&self, path: &Path, index: Range<u64>) -> Result<()> {
        let range = index.start.saturating_sub(TAIL_BYTES)..index.end;
        let bytes = range.end - range.start;
        if bytes * TAILS_MIN > self.ranges.bytes_max as u64
            || self.ranges.covering(path, &index).is_some()
        {
            return Ok(());
        }
        self.fetch(path, range.clone(), of_query(range), Some(RangeKind::Tail)).await?;
        Ok(())
    }

    /// Fetches a range of an SST, and holds it.
    pub(in crate::lsm) async fn fetch_span(
        &self,
        path: &Path,
        range: Range<u64>,
    ) -> Result<HeldRange> {
        let options = of_query(range.clone());
        let range = self.fetch(path, range, options, Some(RangeKind::Span)).await?;
        Ok(HeldRange { _range: range })
    }

    /// Holds a range that is in memory.
    pub(in crate::lsm) fn hold(&self, path: &Path, range: &Range<u64>) -> Option<HeldRange> {
        self.ranges.covering(path, range).map(|range| HeldRange { _range: range })
    }

    /// Fetches a range, or waits for the request of another reader. Returns bytes that cover it.
    async fn fetch(
        &self,
        path: &Path,
        range: Range<u64>,
        options: GetOptions,
        kind: Option<RangeKind>,
    ) -> Result<Arc<Fetched>> {
        let key = (path.clone(), range);
        let (sender, of_other) = {
            let mut flights = lock(&self.flights);
            // Under the lock: a request ends after its bytes have been kept.
            if let Some(known) = self.ranges.covering(path, &key.1) {
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
        let fetched = Arc::new(Fetched { meta, start, bytes: result.bytes().await? });
        if let Some(kind) = kind {
            self.ranges.keep(path, &fetched, kind);
        }
        if let Some(sender) = sender {
            // Fails if no other reader waits.
            let _ = sender.send(Arc::clone(&fetched));
        }
        Ok(fetched)
    }
}

/// Returns the options of a read of an SST for a query.
fn of_query(range: Range<u64>) -> GetOptions {
    let tag = ObjectStoreCallTag::new(TableStoreKind::Main, SstType::Compacted);
    GetOptions {
        range: Some(GetRange::Bounded(range)),
        extensions: tag.into(),
        ..GetOptions::default()
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
            self.ranges.remove(from);
            return self.objects.get_opts(from, options).await;
        }
        let fetched = self.fetch(from, range.clone(), options, None).await?;
        Ok(match fetched.covers(&range) && fetched.range() != range {
            true => fetched.copy_of(&range).into_result(),
            false => Arc::unwrap_or_clone(fetched).into_result(),
        })
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
        let ranges = Arc::new(Ranges::new(16 << 20));
        let fetches = Fetches::new(Arc::new(Layered(Arc::clone(&gate))), ranges);
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
            assert_eq!((reads(&gate), fetches.ranges.bytes()), (4, 0));
            read(&fetches, &path, inside).await.unwrap();
            assert_eq!(reads(&gate), 5);
        });
    }

    #[test]
    fn blocks_of_a_span_are_in_memory_while_it_is_held() {
        harness::run(async {
            let (gate, fetches, path) = rig(9).await;
            let span = 100 * KIB..1000 * KIB;
            let inside = 200 * KIB..204 * KIB;
            assert!(fetches.hold(&path, &inside).is_none());
            let held = fetches.fetch_span(&path, span.clone()).await.unwrap();
            let also = fetches.hold(&path, &inside).unwrap();
            let expected = gate.objects.get_range(&path, inside.clone()).await.unwrap();
            assert_eq!(read(&fetches, &path, inside.clone()).await.unwrap(), expected);
            assert_eq!(reads(&gate), 1);
            // The end of another file takes the space.
            let end = fetched(fetches.ranges.bytes_max());
            fetches.ranges.keep(&Path::from("other.sst"), &end, RangeKind::Tail);
            drop(held);
            assert_eq!(read(&fetches, &path, inside.clone()).await.unwrap(), expected);
            assert_eq!(reads(&gate), 1);
            drop(also);
            read(&fetches, &path, inside).await.unwrap();
            assert_eq!(reads(&gate), 2);
        });
    }

    fn fetched(len: usize) -> Arc<Fetched> {
        let meta = ObjectMeta {
            location: Path::default(),
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size: len as u64,
            e_tag: None,
            version: None,
        };
        Arc::new(Fetched { meta, start: 0, bytes: vec![7; len].into() })
    }

    #[test]
    fn the_oldest_ranges_are_dropped_beyond_the_limit_spans_first() {
        use RangeKind::{Span, Tail};
        let ranges = Ranges::new(400);
        let path = |number: usize| Path::from(format!("{number}.sst"));
        let state = || {
            let known = [0, 1, 2, 3, 4].map(|n| ranges.covering(&path(n), &(8..30)).is_some());
            (known, ranges.bytes())
        };
        ranges.keep(&path(0), &fetched(40), Tail);
        ranges.keep(&path(1), &fetched(30), Span);
        ranges.keep(&path(2), &fetched(30), Span);
        assert_eq!(state(), ([true, true, true, false, false], 100));
        ranges.keep(&path(3), &fetched(30), Tail);
        assert_eq!(state(), ([true, false, true, true, false], 100));
        ranges.keep(&path(4), &fetched(60), Tail);
        assert_eq!(state(), ([false, false, false, true, true], 90));
        // Too long, but held.
        let long = fetched(101);
        ranges.keep(&path(1), &long, Span);
        assert_eq!(state(), ([false, true, false, true, true], 90));
        drop(long);
        assert_eq!(state(), ([false, false, false, true, true], 90));
        assert!(ranges.covering(&path(3), &(8..31)).is_none());
        ranges.remove(&path(3));
        ranges.keep(&path(0), &fetched(1), Span);
        assert_eq!(state(), ([false, false, false, false, true], 61));
        assert_eq!(lock(&ranges.kept).by_path.len(), 2, "dropped ranges are forgotten");
    }
}
