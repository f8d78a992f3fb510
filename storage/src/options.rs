//! Options of a store.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::remote::RemoteOptions;
use crate::retention::{Retention, RetentionRule};
use crate::sizes::Sizes;

/// Default of [`StoreOptions::exemplars_max`].
/// Source: `DefaultExemplarsConfig` of Prometheus.
pub const EXEMPLARS_MAX: usize = 100_000;

/// Default of [`StoreOptions::active_series_max`]: the series with eight labels, scraped every 15
/// s, that fit [`HEAD_BYTES_MAX`].
pub const ACTIVE_SERIES_MAX: usize = 2_000_000;
/// Default of [`StoreOptions::active_series_per_metric_max`]: a quarter, so that no metric excludes
/// the others.
pub const ACTIVE_SERIES_PER_METRIC_MAX: usize = 500_000;
/// Default of [`StoreOptions::retention_confirmation`].
pub const RETENTION_CONFIRMATION: Duration = Duration::from_secs(600);
/// Default of [`StoreOptions::head_bytes_max`].
pub const HEAD_BYTES_MAX: usize = 4 << 30;

/// Source of the time; passed in, so that tests need not sleep.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns milliseconds since the epoch.
    fn now_ms(&self) -> i64;

    /// Returns the time since some point in the past, which setting the clock does not change.
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
    /// Returns a clock that shows a time.
    pub fn new(now_ms: i64) -> ManualClock {
        ManualClock { now_ms: AtomicI64::new(now_ms), monotonic_ms: AtomicU64::new(0) }
    }

    /// Sets the clock. Setting it forward lets that time pass.
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

/// Options of a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Access to object stores.
    pub remote: RemoteOptions,
    /// Name of this process, which the store keeps until it is closed.
    pub owner: String,
    /// Address of this process's HTTP server, shown to others that want the store.
    pub address: Option<String>,
    /// Takes a store on an object store from an owner that may be alive.
    pub take_over: bool,
    /// Duration of an owner's lease on an object store, if it is not renewed.
    pub lease_duration: Duration,
    /// Deletes objects of a store without a manifest, and starts a new one.
    pub discard_leftovers: bool,
    /// Age from which samples are refused, and whole days deleted; `None` keeps everything.
    pub retention_ms: Option<i64>,
    /// Age from which samples are refused, and those of whole days replaced by summaries where
    /// possible; `None` keeps samples for as long as their day.
    pub retention_samples_ms: Option<i64>,
    /// Bytes of SSTs from which the oldest days are deleted, except the newest; `None` sets no
    /// limit.
    pub retention_bytes: Option<u64>,
    /// Rules that keep some series for a shorter time. These three options may change while the
    /// store is open ([`Store::set_retention`](crate::Store::set_retention)).
    pub retention_rules: Vec<RetentionRule>,
    /// Time for which the clock and the newest acknowledged sample must agree before samples
    /// expire. A step of the clock suspends expiry for six times as long.
    pub retention_confirmation: Duration,
    /// Maximum age of a sample relative to the newest of the store; `None` takes any age within the
    /// retention. 0 takes what Prometheus takes by default.
    pub out_of_order_window_ms: Option<i64>,
    /// Maximum distance of a sample ahead of the clock; `None` sets no limit.
    /// Source: `maxAheadTime` of Prometheus' write handler, 10 minutes.
    pub ahead_max_ms: Option<i64>,
    /// Minimum time between two commits of the log, which limits the cost of requests on S3.
    pub commit_interval_min: Duration,
    /// Timeout for a write waiting for the log.
    pub write_timeout: Duration,
    /// Timeout for one read from the object store.
    pub read_timeout: Duration,
    /// Maximum number of samples waiting for the log; a write beyond it is refused as overloaded. A
    /// histogram, an exemplar and metadata count as floats of 16 bytes each.
    pub queue_samples_max: usize,
    /// Log bytes after which the head is sealed early, to limit memory and the time of a restart.
    pub log_bytes_max: u64,
    /// Maximum number of active series, which have unsealed samples. Samples of other series are
    /// refused. 0 sets no limit, here and in the next two.
    pub active_series_max: usize,
    /// Maximum number of active series of one metric.
    pub active_series_per_metric_max: usize,
    /// Label whose value names the tenant of a series. Active series are counted by it, and limited
    /// by [`Store::set_tenant_limits`](crate::Store::set_tenant_limits).
    pub tenant_label: Option<String>,
    /// Maximum bytes of the head in memory. It is sealed early from three quarters on, new series
    /// are refused from seven eighths on, and all writes beyond it.
    pub head_bytes_max: usize,
    /// Maximum number of exemplars; the oldest are evicted. 0 keeps none.
    pub exemplars_max: usize,
    /// Time without additions to a day until it is compacted into one sorted run, which takes the
    /// fewest reads. It is longer than the time between two seals.
    pub full_compaction_after: Duration,
    /// Interval of looking for compactions; `None` is every 5 s.
    pub compaction_interval: Option<Duration>,
    /// Minimum time after a start before leftovers of a crash are deleted.
    pub orphan_age_min: Duration,
    /// Runs a background task that seals closed windows and applies the retention. Tests turn it off
    /// and call [`Store::maintain`](crate::Store::maintain) themselves.
    pub background: bool,
    /// Maximum bytes of decoded blocks in memory.
    pub cache_bytes_max: usize,
    /// Cache on disk for a remote object store; `None` keeps nothing on disk.
    pub disk_cache: Option<DiskCacheOptions>,
    /// Span before now whose days are read ahead of queries after a start; `None` reads none.
    pub warm_up_span_ms: Option<i64>,
    /// Maximum bytes of the index of sealed days in memory; 0 reads it for each query.
    pub index_cache_bytes_max: usize,
    /// Maximum bytes of decoded floats in memory, of sealed blocks and of the head; 0 keeps none.
    pub columns_bytes_max: usize,
    /// Maximum number of retries of a failed request to the object store; `None` retries until it
    /// succeeds.
    pub object_store_retries_max: Option<u32>,
    /// Receives the reason for a failed write to the object store, even while the store is being
    /// opened; writes are retried.
    pub write_failures: Option<watch::Sender<Option<String>>>,
    /// Source of the time.
    pub clock: Arc<dyn Clock>,
    /// Sizes of internal work, which no caller sets.
    #[doc(hidden)]
    pub sizes: Sizes,
}

/// A cache on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCacheOptions {
    /// Its directory, which holds nothing else. It is created.
    pub folder: PathBuf,
    /// Maximum bytes of its files.
    pub bytes_max: u64,
}

impl StoreOptions {
    /// Returns the retention.
    pub(crate) fn retention(&self) -> Retention {
        Retention {
            time_ms: self.retention_ms,
            samples_ms: self.retention_samples_ms,
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
            retention_samples_ms: None,
            retention_bytes: None,
            retention_rules: Vec::new(),
            retention_confirmation: RETENTION_CONFIRMATION,
            out_of_order_window_ms: None,
            ahead_max_ms: Some(10 * 60 * 1000),
            commit_interval_min: Duration::ZERO,
            write_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            queue_samples_max: 4 << 20,
            log_bytes_max: 512 << 20,
            active_series_max: ACTIVE_SERIES_MAX,
            active_series_per_metric_max: ACTIVE_SERIES_PER_METRIC_MAX,
            tenant_label: None,
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
