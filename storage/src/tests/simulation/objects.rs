//! An object store in memory that fails like a remote one.
//!
//! All processes share a [`Cloud`]; each reaches it over its own [`Link`], on which requests are
//! slow, fail, or succeed with an error as the answer. A link is cut when its process dies, at any
//! request: its open requests may arrive at once, later or never.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};
use slatedb::object_store::memory::InMemory;
use slatedb::object_store::path::Path;
use slatedb::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, UploadPart,
};
use slatedb_common::clock::{SystemClock, SystemClockTicker};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::chance::Chance;

/// Duration of an unanswered request.
const TIME_OUT: Duration = Duration::from_secs(30);

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time of the world, which continues from process to process.
#[derive(Debug)]
pub(super) struct Time {
    begun_ms: AtomicI64,
    begun_at: Mutex<Instant>,
}

impl Time {
    pub(super) fn new(now_ms: i64) -> Time {
        Time { begun_ms: AtomicI64::new(now_ms), begun_at: Mutex::new(Instant::now()) }
    }

    /// Starts the time in a runtime.
    pub(super) fn begin(&self) {
        *lock(&self.begun_at) = Instant::now();
    }

    /// Stops the time, which continues after a gap in the next runtime.
    pub(super) fn end(&self, gap: Duration) {
        let now_ms = self.now_ms() + gap.as_millis() as i64;
        self.begun_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(super) fn elapsed(&self) -> Duration {
        lock(&self.begun_at).elapsed()
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.begun_ms.load(Ordering::Relaxed) + self.elapsed().as_millis() as i64
    }

    fn now(&self) -> DateTime<Utc> {
        at(self.now_ms())
    }
}

fn at(time_ms: i64) -> DateTime<Utc> {
    (UNIX_EPOCH + Duration::from_millis(time_ms as u64)).into()
}

/// Clocks of a machine: the store's may be set at any time, the LSM's never goes back while it
/// runs, as slatedb ensures.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) time: Arc<Time>,
    pub(super) skew_ms: AtomicI64,
    pub(super) tree_skew_ms: i64,
    /// Time of the world from which the retention may delete more than before.
    pub(super) confirmed_from_ms: AtomicI64,
}

impl crate::Clock for Machine {
    fn now_ms(&self) -> i64 {
        self.time.now_ms() + self.skew_ms.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.time.now_ms().unsigned_abs())
    }
}

impl SystemClock for Machine {
    fn now(&self) -> DateTime<Utc> {
        at(self.time.now_ms() + self.tree_skew_ms)
    }

    fn sleep<'a>(
        &'a self,
        duration: Duration,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn ticker<'a>(&'a self, duration: Duration) -> SystemClockTicker<'a> {
        SystemClockTicker::new(self, duration)
    }
}

/// Objects, which outlive every process.
#[derive(Debug)]
pub(super) struct Cloud {
    objects: InMemory,
    time: Arc<Time>,
    /// Time of each object's last write.
    written: Mutex<BTreeMap<Path, DateTime<Utc>>>,
    on_the_way: Mutex<OnTheWay>,
}

/// Writes that were sent and have not arrived.
#[derive(Debug, Default)]
struct OnTheWay {
    next: u64,
    puts: BTreeMap<u64, Put>,
    /// Writes of dead processes, and the number of other requests before they arrive.
    late: Vec<(u64, Put)>,
}

#[derive(Debug, Clone)]
struct Put {
    to: Path,
    bytes: PutPayload,
    how: PutOptions,
}

impl Cloud {
    pub(super) fn new(time: Arc<Time>) -> Cloud {
        Cloud {
            objects: InMemory::new(),
            time,
            written: Mutex::default(),
            on_the_way: Mutex::default(),
        }
    }

    /// Decides the fate of writes that were under way when their processes died.
    pub(super) async fn bury(&self, chance: &mut Chance) {
        let puts = std::mem::take(&mut lock(&self.on_the_way).puts);
        for put in puts.into_values() {
            match chance.below(3) {
                0 => {}
                1 => drop(self.put(put).await),
                _ => lock(&self.on_the_way).late.push((chance.below(60), put)),
            }
        }
    }

    /// Applies late writes that are due before another request.
    async fn let_arrive(&self) {
        let due: Vec<Put> = {
            let mut on_the_way = lock(&self.on_the_way);
            on_the_way.late.iter_mut().for_each(|(after, _)| *after = after.saturating_sub(1));
            on_the_way.late.extract_if(.., |(after, _)| *after == 0).map(|(_, put)| put).collect()
        };
        for put in due {
            let _ = self.put(put).await;
        }
    }

    async fn put(&self, put: Put) -> Result<PutResult> {
        let result = self.objects.put_opts(&put.to, put.bytes, put.how).await;
        if result.is_ok() {
            lock(&self.written).insert(put.to, self.time.now());
        }
        result
    }

    fn dated(&self, meta: ObjectMeta) -> ObjectMeta {
        let written = lock(&self.written).get(&meta.location).copied();
        ObjectMeta { last_modified: written.unwrap_or(meta.last_modified), ..meta }
    }
}

/// Faults of a link.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    /// Failing requests per thousand, carried out or not.
    pub(super) errors: u64,
    /// Slow requests per thousand.
    pub(super) slow: u64,
    /// Unanswered requests per thousand.
    pub(super) lost: u64,
    /// Conditional writes per thousand that report a conflict.
    pub(super) conflicts: u64,
    /// Outages, in time since the process began.
    pub(super) outages: Vec<Range<Duration>>,
    /// The request at which the process dies.
    pub(super) dies_at: Option<u64>,
    /// The write at which the process dies.
    pub(super) dies_at_write: Option<u64>,
}

/// Connection of a process to the objects.
#[derive(Debug)]
pub(super) struct Link {
    cloud: Arc<Cloud>,
    pub(super) faults: Faults,
    chance: Mutex<Chance>,
    requests: AtomicU64,
    writes: AtomicU64,
    is_cut: AtomicBool,
    cut: Notify,
    /// Hash of all requests, to compare two runs.
    pub(super) trace: AtomicU64,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    DoneButFails,
    DoneThenDies,
    Fails,
    Conflicts,
}

impl Link {
    pub(super) fn new(cloud: &Arc<Cloud>, faults: Faults, chance: Chance) -> Arc<Link> {
        Arc::new(Link {
            cloud: Arc::clone(cloud),
            faults,
            chance: Mutex::new(chance),
            requests: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            is_cut: AtomicBool::new(false),
            cut: Notify::new(),
            trace: AtomicU64::new(0),
        })
    }

    /// Waits until the process has died.
    pub(super) async fn is_dead(&self) {
        let cut = self.cut.notified();
        if !self.is_cut.load(Ordering::SeqCst) {
            cut.await;
        }
    }

    pub(super) fn die(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.cut.notify_waiters();
        self.cut.notify_one();
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    async fn die_now(&self) -> ! {
        self.die();
        std::future::pending().await
    }

    /// Waits for the duration of a request, and returns its fate.
    async fn travel(&self, is_write: bool, what: &str, path: &Path) -> Fate {
        self.cloud.let_arrive().await;
        let (delay, fate) = self.decide(is_write, what, path);
        if self.is_cut.load(Ordering::SeqCst) {
            self.die_now().await;
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.is_cut.load(Ordering::SeqCst) {
            self.die_now().await;
        }
        fate
    }

    fn decide(&self, is_write: bool, what: &str, path: &Path) -> (Duration, Fate) {
        let request = self.requests.fetch_add(1, Ordering::SeqCst);
        let mut trace = self.trace.load(Ordering::Relaxed);
        for byte in what.bytes().chain(path.as_ref().bytes()) {
            trace = (trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.trace.store(trace, Ordering::Relaxed);
        let write = is_write.then(|| self.writes.fetch_add(1, Ordering::SeqCst));
        let mut chance = lock(&self.chance);
        let faults = &self.faults;
        let dies =
            faults.dies_at == Some(request) || (write.is_some() && write == faults.dies_at_write);
        if dies {
            if chance.happens(500) {
                return (Duration::ZERO, Fate::DoneThenDies);
            }
            self.die();
            return (Duration::ZERO, Fate::Fails);
        }
        let elapsed = self.cloud.time.elapsed();
        if faults.outages.iter().any(|outage| outage.contains(&elapsed)) {
            let wait = if chance.happens(300) { TIME_OUT } else { Duration::from_millis(20) };
            return (wait, Fate::Fails);
        }
        let failed = |chance: &mut Chance| chance.pick(&[Fate::DoneButFails, Fate::Fails]);
        if chance.happens(faults.lost) {
            return (TIME_OUT, failed(&mut chance));
        }
        let usual = Duration::from_micros(500 + chance.below(4000));
        if chance.happens(faults.errors) {
            return (usual, failed(&mut chance));
        }
        if chance.happens(faults.conflicts) {
            return (usual, Fate::Conflicts);
        }
        if chance.happens(faults.slow) {
            return (Duration::from_millis(50 + chance.below(25_000)), Fate::Done);
        }
        (usual, Fate::Done)
    }

    /// Carries a request out according to its fate.
    async fn finish<T>(&self, fate: Fate, request: impl Future<Output = Result<T>>) -> Result<T> {
        match fate {
            Fate::Fails => Err(failed()),
            Fate::Done | Fate::Conflicts => request.await,
            Fate::DoneButFails => request.await.and(Err(failed())),
            Fate::DoneThenDies => {
                let _ = request.await;
                self.die_now().await
            }
        }
    }
}

fn failed() -> Error {
    Error::Generic { store: "simulated", source: "the request failed".into() }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}

/// Sends requests over a link.
#[derive(Debug, Clone)]
pub(super) struct Remote(pub(super) Arc<Link>);

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Remote {
    async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        let cloud = &self.0.cloud;
        let put = Put { to: to.clone(), bytes, how };
        let number = {
            let mut on_the_way = lock(&cloud.on_the_way);
            let number = on_the_way.next;
            on_the_way.next += 1;
            on_the_way.puts.insert(number, put.clone());
            number
        };
        let fate = self.0.travel(true, "put", to).await;
        // Unless `bury` has decided on it meanwhile.
        lock(&cloud.on_the_way).puts.remove(&number);
        if fate == Fate::Conflicts && matches!(put.how.mode, PutMode::Update(_)) {
            let (path, source) = (to.to_string(), "another write came between".into());
            return Err(Error::Precondition { path, source });
        }
        self.0.finish(fate, cloud.put(put)).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let fate = self.0.travel(true, "upload", to).await;
        let upload = self.0.cloud.objects.put_multipart_opts(to, how);
        let upload = self.0.finish(fate, upload).await?;
        Ok(Box::new(Upload { upload, link: Arc::clone(&self.0), to: to.clone() }))
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        let fate = self.0.travel(false, "get", from).await;
        let mut result = self.0.finish(fate, self.0.cloud.objects.get_opts(from, how)).await?;
        result.meta = self.0.cloud.dated(result.meta);
        Ok(result)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let remote = self.clone();
        let delete = move |path: Result<Path>| {
            let link = Arc::clone(&remote.0);
            async move {
                let path = path?;
                let fate = link.travel(true, "delete", &path).await;
                link.finish(fate, link.cloud.objects.delete(&path)).await?;
                Ok(path)
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (link, prefix) = (Arc::clone(&self.0), prefix.cloned());
        let listed = async move {
            let path = prefix.clone().unwrap_or_default();
            let fate = link.travel(false, "list", &path).await;
            let cloud = &link.cloud;
            let all = cloud.objects.list(prefix.as_ref()).collect::<Vec<_>>();
            let all = link.finish(fate, async { Ok(all.await) }).await;
            let all = all.unwrap_or_else(|error| vec![Err(error)]).into_iter();
            let cloud = Arc::clone(cloud);
            stream::iter(all.map(move |meta| meta.map(|meta| cloud.dated(meta))))
        };
        stream::once(listed).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        let fate = self.0.travel(false, "list", &path).await;
        let cloud = &self.0.cloud;
        let mut result = self.0.finish(fate, cloud.objects.list_with_delimiter(prefix)).await?;
        result.objects = result.objects.into_iter().map(|meta| cloud.dated(meta)).collect();
        Ok(result)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        let fate = self.0.travel(true, "copy", to).await;
        let copying = self.0.cloud.objects.copy_opts(from, to, how);
        self.0.finish(fate, copying).await?;
        lock(&self.0.cloud.written).insert(to.clone(), self.0.cloud.time.now());
        Ok(())
    }
}

/// An object that is uploaded in parts.
#[derive(Debug)]
struct Upload {
    upload: Box<dyn MultipartUpload>,
    link: Arc<Link>,
    to: Path,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (link, to) = (Arc::clone(&self.link), self.to.clone());
        let part = self.upload.put_part(data);
        Box::pin(async move {
            let fate = link.travel(true, "part", &to).await;
            link.finish(fate, part).await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let fate = self.link.travel(true, "complete", &self.to).await;
        let result = self.link.finish(fate, self.upload.complete()).await;
        if matches!(fate, Fate::Done | Fate::Conflicts | Fate::DoneButFails) {
            let cloud = &self.link.cloud;
            lock(&cloud.written).insert(self.to.clone(), cloud.time.now());
        }
        result
    }

    async fn abort(&mut self) -> Result<()> {
        let fate = self.link.travel(true, "abort", &self.to).await;
        self.link.finish(fate, self.upload.abort()).await
    }
}
