//! What can be set when a store is opened.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::remote::RemoteOptions;
use crate::retention::{Retention, RetentionRule};
use crate::sizes::Sizes;

/// How many exemplars are kept where nothing else is set.
/// Source: `DefaultExemplarsConfig` of Prometheus.
pub const EXEMPLARS_MAX: usize = 100_000;

/// How many series may be active where nothing else is set: what [`HEAD_BYTES_MAX`] holds of
/// series with eight labels that are scraped every 15 s.
pub const ACTIVE_SERIES_MAX: usize = 2_000_000;
/// How many of one metric: a quarter, so that no metric alone keeps the others out.
pub const ACTIVE_SERIES_PER_METRIC_MAX: usize = 500_000;
/// Default of [`StoreOptions::retention_confirmation`].
pub const RETENTION_CONFIRMATION: Duration = Duration::from_secs(600);
/// How much memory the head may take where nothing else is set.
pub const HEAD_BYTES_MAX: usize = 4 << 30;

/// Tells the time; passed in, so that tests need not sleep.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since the epoch.
    fn now_ms(&self) -> i64;

    /// Time since some point in the past, which no setting of the clock affects.
    fn monotonic(&self) -> Duration;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }
}

/// A clock that stands still until it is set.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
    monotonic_ms: AtomicU64,
}

impl ManualClock {
    /// A clock that shows a time.
    pub fn new(now_ms: i64) -> ManualClock {
        ManualClock { now_ms: AtomicI64::new(now_ms), monotonic_ms: AtomicU64::new(0) }
    }

    /// Lets time pass until the clock shows a later time; sets it to an earlier one.
    pub fn set(&self, now_ms: i64) {
        let passed_ms = now_ms.saturating_sub(self.now_ms.load(Ordering::Relaxed)).max(0);
        self.monotonic_ms.fetch_add(passed_ms.unsigned_abs(), Ordering::Relaxed);
        self.step_to(now_ms);
    }

    /// Sets the clock while no time passes.
    pub fn step_to(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic_ms.load(Ordering::Relaxed))
    }
}

/// What can be set when a store is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// How object stores are reached.
    pub remote: RemoteOptions,
    /// What the store says of who writes to it, until it is closed.
    pub owner: String,
    /// Address of the process's HTTP server, which is told to others that want the store.
    pub address: Option<String>,
    /// Whether to take a store on an object store from an owner that may be alive.
    pub take_over: bool,
    /// How long the lease of an owner holds that does not renew it, on an object store.
    pub lease_duration: Duration,
    /// Whether to delete files of a store whose manifest is missing, and to start a new one.
    pub discard_leftovers: bool,
    /// Samples older than this are refused, and whole days of them deleted; `None` keeps
    /// everything.
    pub retention_ms: Option<i64>,
    /// Bytes of files from which the oldest days are deleted, but for the newest one; `None` sets
    /// no bound.
    pub retention_bytes: Option<u64>,
    /// Rules that keep some series for a shorter time. All three may be changed while the store is
    /// open ([`Store::set_retention`](crate::Store::set_retention)).
    pub retention_rules: Vec<RetentionRule>,
    /// How long the clock and the newest acknowledged sample must agree on the time before samples
    /// count as older than the retention. A step of the clock suspends that for six times as long.
    pub retention_confirmation: Duration,
    /// How far behind the newest sample of the store a late one may lie; `None` takes samples
    /// of any age within the retention. 0 takes what Prometheus takes by default.
    pub out_of_order_window_ms: Option<i64>,
    /// How far ahead of the clock a sample may lie; `None` sets no bound.
    /// Source: `maxAheadTime` of Prometheus' write handler, 10 minutes.
    pub ahead_max_ms: Option<i64>,
    /// The least time between two commits of the log: bounds the cost in requests on S3.
    pub commit_interval_min: Duration,
    /// How long a write waits for the log.
    pub write_timeout: Duration,
    /// How long one read of the tree waits for the object store.
    pub read_timeout: Duration,
    /// Samples that may wait for the log; a write beyond it is refused as overloaded. A
    /// histogram, an exemplar and metadata count as many floats as take their memory, 16 bytes
    /// each.
    pub queue_samples_max: usize,
    /// Log bytes after which the head is sealed early, so that memory and the time of a
    /// restart stay bounded.
    pub log_bytes_max: u64,
    /// Series that may be active: those of which something is not sealed. Samples of others are
    /// refused. 0 sets no bound, here and in the two that follow.
    pub active_series_max: usize,
    /// The same of each metric.
    pub active_series_per_metric_max: usize,
    /// Bytes that the head may take in memory. It is sealed early from three quarters on, new
    /// series are refused from seven eighths on, and all writes beyond.
    pub head_bytes_max: usize,
    /// Exemplars that are kept in all; the oldest make room. 0 keeps none.
    pub exemplars_max: usize,
    /// How long nothing must have been added to a day for its files to be merged into one run,
    /// which takes the fewest reads: longer than it is from one seal to the next.
    pub full_compaction_after: Duration,
    /// How often files to be merged are looked for; `None` is every 5 s.
    pub compaction_interval: Option<Duration>,
    /// How long what a crash has left is kept after a start, at least.
    pub orphan_age_min: Duration,
    /// Whether a background task seals closed windows and applies the retention. Tests turn
    /// it off and call [`Store::maintain`](crate::Store::maintain) themselves.
    pub background: bool,
    /// Bytes of decoded blocks that are kept in memory.
    pub cache_bytes_max: usize,
    /// The cache on disk of an object store behind a network; `None` keeps nothing there.
    pub disk_cache: Option<DiskCacheOptions>,
    /// The span up to now whose days are read ahead of queries after a start; `None` reads none.
    pub warm_up_span_ms: Option<i64>,
    /// Bytes of the index of sealed days that are kept in memory; 0 reads it for each query.
    pub index_cache_bytes_max: usize,
    /// Bytes of decoded floats that are kept in memory, of sealed blocks and of the head; 0
    /// keeps none.
    pub columns_bytes_max: usize,
    /// Times that a failed request to the object store is repeated; `None` repeats it until
    /// it succeeds.
    pub object_store_retries_max: Option<u32>,
    /// Receives why a write to the object store has failed, also while the store is being opened;
    /// writes are repeated.
    pub write_failures: Option<watch::Sender<Option<String>>>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Sizes of internal work, which no caller sets.
    #[doc(hidden)]
    pub sizes: Sizes,
}

/// A cache on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCacheOptions {
    /// Its folder, which holds nothing else. It is created.
    pub folder: PathBuf,
    /// Bytes of files in it.
    pub bytes_max: u64,
}

impl StoreOptions {
    /// How long samples are kept.
    pub(crate) fn retention(&self) -> Retention {
        Retention {
            time_ms: self.retention_ms,
            bytes: self.retention_bytes,
            rules: self.retention_rules.clone(),
        }
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            remote: RemoteOptions::default(),
            owner: format!("process {}", std::process::id()),
            address: None,
            take_over: false,
            lease_duration: Duration::from_secs(60),
            discard_leftovers: false,
            retention_ms: None,
            retention_bytes: None,
            retention_rules: Vec::new(),
            retention_confirmation: RETENTION_CONFIRMATION,
            out_of_order_window_ms: None,
            ahead_max_ms: Some(10 * 60 * 1000),
            commit_interval_min: Duration::ZERO,
            write_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            queue_samples_max: 4 << 20,
            log_bytes_max: 1 << 30,
            active_series_max: ACTIVE_SERIES_MAX,
            active_series_per_metric_max: ACTIVE_SERIES_PER_METRIC_MAX,
            head_bytes_max: HEAD_BYTES_MAX,
            exemplars_max: EXEMPLARS_MAX,
            full_compaction_after: Duration::from_secs(3 * 60 * 60),
            compaction_interval: None,
            orphan_age_min: Duration::from_secs(60),
            background: true,
            cache_bytes_max: 128 << 20,
            disk_cache: None,
            warm_up_span_ms: None,
            index_cache_bytes_max: 128 << 20,
            columns_bytes_max: 128 << 20,
            object_store_retries_max: None,
            write_failures: None,
            clock: Arc::new(SystemClock),
            sizes: Sizes::default(),
        }
    }
}
