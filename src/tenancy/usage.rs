//! Use of the server by tenants: limits of writes and queries, and metrics.
//!
//! The number of tenants that are tracked is bounded. All others share one entry.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::{MemoryPool, RejectReason};
use prometheus::{Counter, CounterVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::Scope;
use super::limits::{LimitTable, TenantLimits};

/// Maximum number of tenants that are tracked, besides those with limits of their own.
const TRACKED_MAX: usize = 1_000;
/// Name of the entry of all others. No tenant has it.
const OTHERS: &str = "<others>";
/// Time for which unused samples of the rate are kept for a burst.
const BURST: Duration = Duration::from_secs(10);
/// Reason of samples over the rate, in metrics.
const RATE_REASON: &str = "samples_per_second";

/// Tenants by name.
#[derive(Debug)]
pub(crate) struct TenantTable {
    metrics: TenantMetrics,
    tracked: Mutex<Tracked>,
}

#[derive(Debug, Default)]
struct Tracked {
    limits: Arc<LimitTable>,
    tenants: HashMap<Arc<str>, Arc<TenantUsage>>,
}

/// Use of the server by one tenant.
#[derive(Debug)]
pub(crate) struct TenantUsage {
    name: Arc<str>,
    limits: Mutex<TenantLimits>,
    rate: Mutex<SampleRate>,
    /// Queries and lookups that run or wait.
    queries: AtomicU64,
    memory: Arc<MemoryPool>,
    metrics: UsageMetrics,
}

/// Samples that a tenant may send now. A request may take more than there are, so that one of any
/// size passes; the following ones wait.
#[derive(Debug, Default)]
struct SampleRate {
    available: f64,
    updated: Option<Instant>,
}

/// Limit of a tenant that a request exceeds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitExceeded {
    /// It sends too many samples.
    #[error(
        "tenant {tenant} sends more than {limit} samples a second (samples_per_second of tenants \
         in the configuration file): repeat the request in {} s", .retry.as_secs()
    )]
    Samples { tenant: Arc<str>, limit: u64, retry: Duration },
    /// It runs too many queries.
    #[error(
        "tenant {tenant} has {limit} running or waiting queries, which is its limit \
         (concurrent_queries of tenants in the configuration file)"
    )]
    Queries { tenant: Arc<str>, limit: u64 },
}

impl TenantTable {
    /// Returns an empty table.
    pub(crate) fn new() -> TenantTable {
        TenantTable { metrics: TenantMetrics::new(), tracked: Mutex::default() }
    }

    /// Registers the metrics, which have no series before the first request of a tenant.
    pub(crate) fn register(&self, registry: &Registry) {
        self.metrics.register(registry);
    }

    /// Sets the limits of all tenants.
    pub(crate) fn set_limits(&self, limits: LimitTable) {
        let mut tracked = self.lock();
        for tenant in tracked.tenants.values() {
            tenant.set_limits(limits.of(&tenant.name));
        }
        tracked.limits = Arc::new(limits);
    }

    /// Returns the tenants of a scope; none for a root, or if tenants are off.
    pub(crate) fn of(&self, scope: Option<&Scope>) -> Vec<Arc<TenantUsage>> {
        match scope {
            Some(Scope::Tenants(tenants)) => {
                let mut found: Vec<_> = tenants.names().iter().map(|name| self.get(name)).collect();
                // All others share one entry. It may stand between tracked ones.
                found.sort_by_key(Arc::as_ptr);
                found.dedup_by(|a, b| Arc::ptr_eq(a, b));
                found
            }
            Some(Scope::Root) | None => Vec::new(),
        }
    }

    /// Returns a tenant.
    pub(crate) fn get(&self, name: &str) -> Arc<TenantUsage> {
        let mut tracked = self.lock();
        if let Some(known) = tracked.tenants.get(name) {
            return Arc::clone(known);
        }
        let limits = Arc::clone(&tracked.limits);
        let is_tracked = tracked.tenants.len() < TRACKED_MAX || limits.overrides.contains_key(name);
        let name = if is_tracked { name } else { OTHERS };
        if let Some(known) = tracked.tenants.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        let usage = Arc::new(TenantUsage::new(&name, limits.of(&name), &self.metrics));
        tracked.tenants.insert(name, Arc::clone(&usage));
        usage
    }

    /// Sets the numbers of active series in the metrics.
    pub(crate) fn set_active_series(&self, counts: Vec<(String, usize)>) {
        let tracked = self.lock();
        let gauge = &self.metrics.active_series;
        gauge.reset();
        let (mut others, mut free) = (0, TRACKED_MAX.saturating_sub(tracked.tenants.len()));
        for (tenant, count) in counts {
            let is_tracked = tracked.tenants.contains_key(tenant.as_str()) || {
                let is_free = free > 0;
                free = free.saturating_sub(1);
                is_free
            };
            match is_tracked {
                true => gauge.with_label_values(&[&tenant]).set(count as i64),
                false => others += count,
            }
        }
        if others > 0 {
            gauge.with_label_values(&[OTHERS]).set(others as i64);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tracked> {
        self.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TenantUsage {
    fn new(name: &Arc<str>, limits: TenantLimits, metrics: &TenantMetrics) -> TenantUsage {
        let usage = TenantUsage {
            name: Arc::clone(name),
            limits: Mutex::default(),
            rate: Mutex::default(),
            queries: AtomicU64::new(0),
            memory: Arc::new(MemoryPool::of_tenant(Arc::clone(name))),
            metrics: metrics.of(name),
        };
        usage.set_limits(limits);
        usage
    }

    fn set_limits(&self, limits: TenantLimits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
        let no_limit = |max: u64| if max == 0 { u64::MAX } else { max };
        self.memory.set_bytes_max(no_limit(limits.query_memory_bytes_max));
    }

    fn limits(&self) -> TenantLimits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of the tenant's queries.
    pub(crate) fn memory(&self) -> &Arc<MemoryPool> {
        &self.memory
    }

    /// Counts samples of a request before they are stored, invalid ones included, and other
    /// entries, such as exemplars and metadata. These have a part in the rate alone.
    ///
    /// Errors: the tenant has sent too many.
    pub(crate) fn receive(
        &self,
        samples: u64,
        other_entries: u64,
        now: Instant,
    ) -> Result<(), LimitExceeded> {
        self.metrics.samples_received.inc_by(samples);
        let limit = self.limits().samples_per_second_max;
        if limit == 0 {
            return Ok(());
        }
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        rate.take(samples + other_entries, limit, now).map_err(|retry| {
            self.metrics.count_rejected(RATE_REASON, samples);
            LimitExceeded::Samples { tenant: Arc::clone(&self.name), limit, retry }
        })
    }

    /// Counts rejected samples.
    pub(crate) fn count_rejected(&self, reason: RejectReason, samples: u64) {
        if samples > 0 {
            self.metrics.count_rejected(reason.as_str(), samples);
        }
    }

    /// Counts a query that has ended.
    pub(crate) fn count_query(&self, elapsed: Duration, samples: u64) {
        self.metrics.queries.inc();
        self.metrics.query_seconds.inc_by(elapsed.as_secs_f64());
        self.metrics.query_samples.inc_by(samples);
    }
}

impl SampleRate {
    /// Takes samples, or returns the time after which some are available.
    fn take(&mut self, samples: u64, limit: u64, now: Instant) -> Result<(), Duration> {
        let (limit, most) = (limit as f64, limit as f64 * BURST.as_secs_f64());
        let elapsed = self.updated.map(|at| now.saturating_duration_since(at).as_secs_f64());
        // A new tenant may begin with a burst.
        let gained = elapsed.map_or(most, |elapsed| elapsed * limit);
        self.available = (self.available + gained).min(most);
        self.updated = Some(now);
        if self.available <= 0.0 {
            let seconds = (-self.available / limit).ceil().clamp(1.0, 60.0);
            return Err(Duration::from_secs(seconds as u64));
        }
        self.available -= samples as f64;
        Ok(())
    }
}

/// Slots of a query of its tenants, released when they are dropped.
#[derive(Debug, Default)]
pub(crate) struct QuerySlots(Vec<Arc<TenantUsage>>);

impl QuerySlots {
    /// Takes a slot of each tenant.
    ///
    /// Errors: one has none.
    pub(crate) fn take(tenants: &[Arc<TenantUsage>]) -> Result<QuerySlots, LimitExceeded> {
        let mut slots = QuerySlots::default();
        for tenant in tenants {
            let limit = tenant.limits().queries_max;
            let running = 1 + tenant.queries.fetch_add(1, Ordering::Relaxed);
            slots.0.push(Arc::clone(tenant));
            if limit > 0 && running > limit {
                return Err(LimitExceeded::Queries { tenant: Arc::clone(&tenant.name), limit });
            }
        }
        Ok(slots)
    }
}

impl Drop for QuerySlots {
    fn drop(&mut self) {
        for tenant in &self.0 {
            tenant.queries.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Metrics by tenant.
#[derive(Debug)]
struct TenantMetrics {
    active_series: IntGaugeVec,
    samples_received: IntCounterVec,
    samples_rejected: IntCounterVec,
    queries: IntCounterVec,
    query_seconds: CounterVec,
    query_samples: IntCounterVec,
}

/// Metrics of one tenant.
#[derive(Debug)]
struct UsageMetrics {
    name: Arc<str>,
    samples_received: IntCounter,
    samples_rejected: IntCounterVec,
    queries: IntCounter,
    query_seconds: Counter,
    query_samples: IntCounter,
}

impl UsageMetrics {
    fn count_rejected(&self, reason: &str, samples: u64) {
        self.samples_rejected.with_label_values(&[&*self.name, reason]).inc_by(samples);
    }
}

impl TenantMetrics {
    fn new() -> TenantMetrics {
        const WELL_FORMED: &str = "the name and the labels are well-formed";
        let counter = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels).expect(WELL_FORMED)
        };
        let seconds = Opts::new(
            "tessella_tenant_query_seconds_total",
            "Time of queries by tenant, waiting included.",
        );
        let active = Opts::new("tessella_tenant_active_series", "Active series by tenant.");
        TenantMetrics {
            active_series: IntGaugeVec::new(active, &["tenant"]).expect(WELL_FORMED),
            samples_received: counter(
                "tessella_tenant_samples_received_total",
                "Samples that a tenant has sent, rejected ones included.",
                &["tenant"],
            ),
            samples_rejected: counter(
                "tessella_tenant_samples_rejected_total",
                "Rejected samples by tenant and reason.",
                &["tenant", "reason"],
            ),
            queries: counter(
                "tessella_tenant_queries_total",
                "Queries by tenant, failed ones included.",
                &["tenant"],
            ),
            query_seconds: CounterVec::new(seconds, &["tenant"]).expect(WELL_FORMED),
            query_samples: counter(
                "tessella_tenant_query_samples_total",
                "Samples that queries have read, by tenant.",
                &["tenant"],
            ),
        }
    }

    fn register(&self, registry: &Registry) {
        let collectors: [Box<dyn prometheus::core::Collector>; 6] = [
            Box::new(self.active_series.clone()),
            Box::new(self.samples_received.clone()),
            Box::new(self.samples_rejected.clone()),
            Box::new(self.queries.clone()),
            Box::new(self.query_seconds.clone()),
            Box::new(self.query_samples.clone()),
        ];
        for collector in collectors {
            registry.register(collector).expect("each name is registered once");
        }
    }

    fn of(&self, name: &Arc<str>) -> UsageMetrics {
        UsageMetrics {
            name: Arc::clone(name),
            samples_received: self.samples_received.with_label_values(&[&**name]),
            samples_rejected: self.samples_rejected.clone(),
            queries: self.queries.with_label_values(&[&**name]),
            query_seconds: self.query_seconds.with_label_values(&[&**name]),
            query_samples: self.query_samples.with_label_values(&[&**name]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tenants;
    use super::*;

    fn table(limits: TenantLimits) -> TenantTable {
        let table = TenantTable::new();
        table.set_limits(LimitTable { defaults: limits, ..LimitTable::default() });
        table
    }

    #[test]
    fn the_rate_holds_on_average_and_allows_bursts() {
        let limits = TenantLimits { samples_per_second_max: 100, ..TenantLimits::default() };
        let table = table(limits);
        let (a, b, start) = (table.get("a"), table.get("b"), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        // The burst of 10 s, and a request that exceeds it.
        assert_eq!(a.receive(999, 0, at(0)), Ok(()));
        assert_eq!(a.receive(101, 100, at(0)), Ok(()));
        let error = a.receive(1, 0, at(0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tenant a sends more than 100 samples a second (samples_per_second of tenants in the \
             configuration file): repeat the request in 2 s"
        );
        assert!(a.receive(1, 0, at(2)).is_err());
        assert_eq!(a.receive(1, 0, at(3)), Ok(()));
        assert_eq!(b.receive(1_000, 0, at(3)), Ok(()));
        // In the long run, the rate.
        let mut taken = 0;
        for second in 10..1_010 {
            taken += usize::from(a.receive(150, 0, at(second)).is_ok());
        }
        assert!((655..=675).contains(&taken), "{taken}");
        table.set_limits(LimitTable::default());
        assert_eq!(a.receive(1_000_000, 0, at(1_010)), Ok(()));
    }

    #[test]
    fn slots_are_those_of_each_tenant() {
        let limits = TenantLimits { queries_max: 1, ..TenantLimits::default() };
        let table = table(limits);
        let (a, b) = (table.get("a"), table.get("b"));
        let first = QuerySlots::take(&[Arc::clone(&a)]).unwrap();
        let both = QuerySlots::take(&[Arc::clone(&b), Arc::clone(&a)]);
        assert_eq!(
            both.unwrap_err().to_string(),
            "tenant a has 1 running or waiting queries, which is its limit \
             (concurrent_queries of tenants in the configuration file)"
        );
        // The slot of the other tenant is free again.
        let second = QuerySlots::take(&[Arc::clone(&b)]).unwrap();
        drop(first);
        assert!(QuerySlots::take(&[a]).is_ok());
        assert!(QuerySlots::take(&[Arc::clone(&b)]).is_err());
        drop(second);
        assert!(QuerySlots::take(&[b]).is_ok());
    }

    #[test]
    fn the_number_of_tenants_is_bounded() {
        let table = TenantTable::new();
        let own = TenantLimits { queries_max: 7, ..TenantLimits::default() };
        let overrides = [("last".to_owned(), own)].into();
        table.set_limits(LimitTable { overrides, ..LimitTable::default() });
        for number in 0..TRACKED_MAX + 10 {
            table.get(&format!("tenant-{number}"));
        }
        assert!(Arc::ptr_eq(&table.get("another"), &table.get("one more")));
        assert_eq!(&*table.get("another").name, OTHERS);
        assert_eq!(table.get("last").limits().queries_max, 7);
        assert_eq!(table.lock().tenants.len(), TRACKED_MAX + 2);
        // Others count once for a request, next to each other or not.
        for (names, expected) in [(["m", "tenant-5", "z"], 2), (["m", "o", "z"], 1)] {
            let names: Arc<[String]> = names.map(str::to_owned).into();
            assert_eq!(table.of(Some(&Scope::Tenants(Tenants(names)))).len(), expected);
        }
        let counts = (0..TRACKED_MAX + 10).map(|number| (format!("tenant-{number}"), 1)).collect();
        table.set_active_series(counts);
        let gauge = &table.metrics.active_series;
        assert_eq!(gauge.with_label_values(&[OTHERS]).get(), 10);
        assert_eq!(gauge.with_label_values(&["tenant-0"]).get(), 1);
    }
}
