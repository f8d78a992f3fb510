//! Limits of one query, and the account of its costs.
//!
//! Rules for code that runs for a query:
//! - A loop whose length depends on data uses a [`Checkpoint`](crate::Checkpoint): `new` with the
//!   values or bytes that it processes, `of_samples` if it decodes samples. A sort of such data is
//!   [`checkpoint::sort_by`](crate::checkpoint::sort_by).
//! - Code that runs once per node, tile or batch of blocks calls [`Budget::check`], and after reads of
//!   the object store [`Budget::check_object_store`].
//! - An allocation whose size depends on data is preceded by a [`Reservation`](crate::Reservation),
//!   which is dropped with it. [`Budget::charge_memory`] alone is for memory that lives as long as the
//!   query: the end of the budget releases it.
//! - Memory that outlives the budget, such as a response, is held by [`MemoryPool::hold`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Limits of one query; `u64::MAX` is no limit.
#[derive(Debug, Clone)]
pub struct BudgetLimits {
    /// Maximum number of decoded samples.
    pub samples_max: u64,
    /// Maximum memory: loaded chunks, tiles, partials, output.
    pub memory_bytes_max: u64,
    /// Maximum number of selected series.
    pub series_max: u64,
    /// Maximum number of reads of the object store.
    pub object_store_reads_max: u64,
    /// Maximum duration of the query.
    pub timeout: Option<Duration>,
    /// Memory limit of all queries together, if there is one.
    pub pool: Option<Arc<MemoryPool>>,
    /// Memory limits of the query's tenants.
    pub tenant_pools: Arc<[Arc<MemoryPool>]>,
    /// View that shows the counts so far, if one is wanted.
    pub view: Option<BudgetView>,
}

impl Default for BudgetLimits {
    fn default() -> Self {
        BudgetLimits {
            samples_max: u64::MAX,
            memory_bytes_max: u64::MAX,
            series_max: u64::MAX,
            object_store_reads_max: u64::MAX,
            timeout: None,
            pool: None,
            tenant_pools: Arc::default(),
            view: None,
        }
    }
}

impl BudgetLimits {
    /// Returns the pools that the query charges.
    fn pools(&self) -> impl Iterator<Item = &Arc<MemoryPool>> {
        self.pool.iter().chain(&*self.tenant_pools)
    }
}

/// View of the cost of a query from outside: it sums the budgets of the query, which may be several
/// at once.
#[derive(Debug, Clone, Default)]
pub struct BudgetView(Arc<Mutex<Vec<Weak<Account>>>>);

/// Cost of a query so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetCost {
    /// Decoded samples.
    pub samples: u64,
    /// Selected series.
    pub series: u64,
    /// Memory now.
    pub memory_bytes: u64,
    /// Maximum memory so far.
    pub memory_bytes_peak: u64,
    /// Reads of the object store.
    pub object_store: ObjectStoreCost,
}

impl BudgetView {
    /// Returns the sums of the budgets in use.
    pub fn cost(&self) -> BudgetCost {
        let accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cost = BudgetCost::default();
        for budget in accounts.iter().filter_map(Weak::upgrade).map(Budget) {
            let object_store = budget.object_store_cost();
            cost.samples += budget.sample_count();
            cost.series += budget.series_count();
            cost.memory_bytes += budget.memory_bytes();
            cost.memory_bytes_peak += budget.memory_bytes_peak();
            cost.object_store.reads += object_store.reads;
            cost.object_store.read_bytes += object_store.read_bytes;
            cost.object_store.cached_bytes += object_store.cached_bytes;
        }
        cost
    }

    fn show(&self, account: &Arc<Account>) {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.retain(|account| account.strong_count() > 0);
        accounts.push(Arc::downgrade(account));
    }
}

/// Memory of all queries together: each charge of a query is also a charge here.
#[derive(Debug)]
pub struct MemoryPool {
    bytes_max: AtomicU64,
    /// Tenant whose queries charge the pool; `None` for the pool of all queries.
    tenant: Option<Arc<str>>,
    bytes: AtomicU64,
    bytes_peak: AtomicU64,
}

impl MemoryPool {
    /// Returns an empty pool with a limit.
    pub fn new(bytes_max: u64) -> MemoryPool {
        MemoryPool {
            bytes_max: AtomicU64::new(bytes_max),
            tenant: None,
            bytes: AtomicU64::new(0),
            bytes_peak: AtomicU64::new(0),
        }
    }

    /// Returns an empty pool of a tenant's queries, without a limit.
    pub fn of_tenant(tenant: Arc<str>) -> MemoryPool {
        MemoryPool { tenant: Some(tenant), ..MemoryPool::new(u64::MAX) }
    }

    /// Sets the limit for later charges.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Returns the charged bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the maximum of the charged bytes so far.
    pub fn bytes_peak(&self) -> u64 {
        self.bytes_peak.load(Ordering::Relaxed)
    }

    /// Charges bytes that are already allocated, until the result is dropped.
    pub fn hold(self: &Arc<Self>, bytes: u64) -> HeldMemory {
        // Allocated memory cannot be refused; the next charge is.
        let _ = self.charge(bytes);
        HeldMemory { pool: Arc::clone(self), bytes }
    }

    /// Charges bytes that are about to be allocated, also if the result is an error.
    fn charge(&self, bytes: u64) -> Result<(), BudgetError> {
        let reached = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bytes_peak.fetch_max(reached, Ordering::Relaxed);
        let limit = self.bytes_max.load(Ordering::Relaxed);
        match &self.tenant {
            _ if reached <= limit => Ok(()),
            None => Err(BudgetError::PoolExceeded { limit, reached }),
            Some(tenant) => {
                Err(BudgetError::TenantExceeded { tenant: Arc::clone(tenant), limit, reached })
            }
        }
    }

    fn release(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes of a pool in addition to those of its queries.
#[derive(Debug)]
pub struct HeldMemory {
    pool: Arc<MemoryPool>,
    bytes: u64,
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.pool.release(self.bytes);
    }
}

/// Resource of a query that has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetResource {
    /// Decoded samples.
    Samples,
    /// Samples of the answer.
    AnswerSamples,
    /// Selected series.
    Series,
    /// Bytes of memory.
    Memory,
    /// Reads of the object store.
    ObjectStoreReads,
    /// Steps of the query or of a subquery.
    Steps,
}

impl BudgetResource {
    /// Name of the flag that sets the limit, without dashes.
    pub fn flag(self) -> &'static str {
        match self {
            BudgetResource::Samples | BudgetResource::AnswerSamples => "query.max-samples",
            BudgetResource::Series => "query.max-series",
            BudgetResource::Memory => "query.max-memory",
            BudgetResource::ObjectStoreReads => "query.max-object-store-reads",
            BudgetResource::Steps => "query.max-steps",
        }
    }
}

impl std::fmt::Display for BudgetResource {
    /// The units that are counted.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BudgetResource::Samples => "samples",
            BudgetResource::AnswerSamples => "samples in its answer",
            BudgetResource::Series => "series",
            BudgetResource::Memory => "bytes of memory",
            BudgetResource::ObjectStoreReads => "reads of the object store",
            BudgetResource::Steps => "steps",
        })
    }
}

/// Reason why a query has to stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// A limit was exceeded.
    #[error("query needs {reached} {resource}, the limit is {limit} (--{})", .resource.flag())]
    Exceeded {
        /// Limited resource.
        resource: BudgetResource,
        /// Limit.
        limit: u64,
        /// Count that exceeds it.
        reached: u64,
    },
    /// All queries together exceed the memory limit; this one charged last.
    #[error(
        "queries need {reached} bytes of memory together, the limit is {limit} \
         (--query.max-memory-total)"
    )]
    PoolExceeded {
        /// Limit.
        limit: u64,
        /// Bytes that exceed it.
        reached: u64,
    },
    /// The queries of a tenant exceed its memory limit; this one charged last.
    #[error(
        "queries of tenant {tenant} need {reached} bytes of memory together, the limit is {limit} \
         (query_memory of tenants in the configuration file)"
    )]
    TenantExceeded {
        /// Tenant.
        tenant: Arc<str>,
        /// Limit.
        limit: u64,
        /// Bytes that exceed it.
        reached: u64,
    },
    /// The timeout has passed.
    #[error("query timed out after {0:?}")]
    TimedOut(Duration),
    /// The client has disconnected, or the server shuts down.
    #[error("query was canceled")]
    Canceled,
}

/// Account of one query, shared by all tasks and threads that work on it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Account>);

#[derive(Debug)]
struct Account {
    limits: BudgetLimits,
    started: Instant,
    canceled: AtomicBool,
    samples: AtomicU64,
    /// True if samples are no longer counted.
    samples_ended: AtomicBool,
    answer_samples: AtomicU64,
    memory_bytes: AtomicU64,
    memory_bytes_peak: AtomicU64,
    series: AtomicU64,
    object_store_reads: AtomicU64,
    object_store_bytes: AtomicU64,
    cached_bytes: AtomicU64,
}

/// Reads of a query from the object store and its caches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectStoreCost {
    /// Reads (GETs), including failed and repeated ones.
    pub reads: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Bytes of blocks and indexes of SSTs from a cache.
    pub cached_bytes: u64,
}

impl Budget {
    /// Returns an account that starts now.
    pub fn new(limits: BudgetLimits) -> Budget {
        let view = limits.view.clone();
        let account = Arc::new(Account {
            limits,
            started: Instant::now(),
            canceled: AtomicBool::new(false),
            samples: AtomicU64::new(0),
            samples_ended: AtomicBool::new(false),
            answer_samples: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
            memory_bytes_peak: AtomicU64::new(0),
            series: AtomicU64::new(0),
            object_store_reads: AtomicU64::new(0),
            object_store_bytes: AtomicU64::new(0),
            cached_bytes: AtomicU64::new(0),
        });
        if let Some(view) = view {
            view.show(&account);
        }
        Budget(account)
    }

    /// Returns an account without limits.
    pub fn unlimited() -> Budget {
        Budget::new(BudgetLimits::default())
    }

    /// Returns the limits of this query.
    pub fn limits(&self) -> &BudgetLimits {
        &self.0.limits
    }

    /// Makes every later [`Budget::check`] fail.
    pub fn cancel(&self) {
        self.0.canceled.store(true, Ordering::Relaxed);
    }

    /// Counts a read of the object store before it is made. It cannot fail, because the reading task
    /// cannot end the query: [`Budget::check_object_store`] does.
    pub fn note_object_store_read(&self) {
        self.0.object_store_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the bytes of a read of the object store.
    pub fn note_object_store_bytes(&self, bytes: u64) {
        self.0.object_store_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of SSTs from a cache.
    pub fn note_cached_bytes(&self, bytes: u64) {
        self.0.cached_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Checks the number of reads of the object store. The count may exceed the limit by the number
    /// of concurrent reads.
    ///
    /// Errors: the limit of reads is exceeded.
    pub fn check_object_store(&self) -> Result<(), BudgetError> {
        let reached = self.0.object_store_reads.load(Ordering::Relaxed);
        let limit = self.0.limits.object_store_reads_max;
        within(reached, limit, BudgetResource::ObjectStoreReads)
    }

    /// Checks time and cancellation. Cheap enough for every tile and every batch of loaded blocks,
    /// not for every sample.
    ///
    /// Errors: the query was canceled, or its timeout has passed.
    pub fn check(&self) -> Result<(), BudgetError> {
        if self.0.canceled.load(Ordering::Relaxed) {
            return Err(BudgetError::Canceled);
        }
        match self.0.limits.timeout {
            Some(timeout) if self.0.started.elapsed() > timeout => {
                Err(BudgetError::TimedOut(timeout))
            }
            _ => Ok(()),
        }
    }

    /// Stops counting samples, because those read from now on were counted before. Time, memory and
    /// cancellation are still checked.
    pub fn end_sample_count(&self) {
        self.0.samples_ended.store(true, Ordering::Relaxed);
    }

    /// Charges decoded samples.
    pub fn charge_samples(&self, count: u64) -> Result<(), BudgetError> {
        if self.0.samples_ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        let reached = self.0.samples.fetch_add(count, Ordering::Relaxed) + count;
        within(reached, self.0.limits.samples_max, BudgetResource::Samples)
    }

    /// Charges samples of the result. Their limit is that of decoded samples, counted separately.
    pub fn charge_answer(&self, count: u64) -> Result<(), BudgetError> {
        let reached = self.0.answer_samples.fetch_add(count, Ordering::Relaxed) + count;
        within(reached, self.0.limits.samples_max, BudgetResource::AnswerSamples)
    }

    /// Charges selected series.
    pub fn charge_series(&self, count: u64) -> Result<(), BudgetError> {
        let reached = self.0.series.fetch_add(count, Ordering::Relaxed) + count;
        within(reached, self.0.limits.series_max, BudgetResource::Series)
    }

    /// Charges bytes that are about to be allocated. They are charged even if the result is an error,
    /// so that the caller releases them in either case.
    pub fn charge_memory(&self, bytes: u64) -> Result<(), BudgetError> {
        let reached = self.0.memory_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.0.memory_bytes_peak.fetch_max(reached, Ordering::Relaxed);
        let all = self.0.limits.pool.as_ref().map_or(Ok(()), |pool| pool.charge(bytes));
        let mut of_tenants = Ok(());
        for pool in &*self.0.limits.tenant_pools {
            of_tenants = of_tenants.and(pool.charge(bytes));
        }
        within(reached, self.0.limits.memory_bytes_max, BudgetResource::Memory)?;
        of_tenants.and(all)
    }

    /// Releases charged bytes.
    pub fn release_memory(&self, bytes: u64) {
        self.0.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.0.limits.pools().for_each(|pool| pool.release(bytes));
    }

    /// Returns the decoded samples so far.
    pub fn sample_count(&self) -> u64 {
        self.0.samples.load(Ordering::Relaxed)
    }

    /// Returns the selected series so far.
    pub fn series_count(&self) -> u64 {
        self.0.series.load(Ordering::Relaxed)
    }

    /// Returns the reads of the object store so far.
    pub fn object_store_cost(&self) -> ObjectStoreCost {
        ObjectStoreCost {
            reads: self.0.object_store_reads.load(Ordering::Relaxed),
            read_bytes: self.0.object_store_bytes.load(Ordering::Relaxed),
            cached_bytes: self.0.cached_bytes.load(Ordering::Relaxed),
        }
    }

    /// Returns the charged bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes.load(Ordering::Relaxed)
    }

    /// Returns the maximum of the charged bytes so far.
    pub fn memory_bytes_peak(&self) -> u64 {
        self.0.memory_bytes_peak.load(Ordering::Relaxed)
    }

    /// Returns the time since the query began.
    pub fn elapsed(&self) -> Duration {
        self.0.started.elapsed()
    }
}

impl Drop for Account {
    /// Releases charges that last as long as the query.
    fn drop(&mut self) {
        let bytes = *self.memory_bytes.get_mut();
        self.limits.pools().for_each(|pool| pool.release(bytes));
    }
}

fn within(reached: u64, limit: u64, resource: BudgetResource) -> Result<(), BudgetError> {
    if reached > limit {
        return Err(BudgetError::Exceeded { resource, limit, reached });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_limit_figure_and_flag() {
        let budget = Budget::new(BudgetLimits { samples_max: 10, ..BudgetLimits::default() });
        assert!(budget.charge_samples(10).is_ok());
        let error = budget.charge_samples(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "query needs 11 samples, the limit is 10 (--query.max-samples)"
        );
    }

    #[test]
    fn samples_of_the_answer_are_limited_apart_from_those_decoded() {
        let budget = Budget::new(BudgetLimits { samples_max: 10, ..BudgetLimits::default() });
        assert!(budget.charge_samples(10).is_ok() && budget.charge_answer(10).is_ok());
        assert_eq!(
            budget.charge_answer(1).unwrap_err().to_string(),
            "query needs 11 samples in its answer, the limit is 10 (--query.max-samples)"
        );
        assert_eq!(budget.sample_count(), 10);
    }

    #[test]
    fn samples_after_the_end_of_the_count_are_free() {
        let budget = Budget::new(BudgetLimits { samples_max: 10, ..BudgetLimits::default() });
        assert!(budget.charge_samples(7).is_ok());
        budget.end_sample_count();
        assert!(budget.charge_samples(7).is_ok());
        assert_eq!(budget.sample_count(), 7);
        budget.cancel();
        assert_eq!(budget.check(), Err(BudgetError::Canceled));
    }

    #[test]
    fn reads_of_the_object_store_are_limited_too() {
        let limits = BudgetLimits { object_store_reads_max: 2, ..BudgetLimits::default() };
        let budget = Budget::new(limits);
        for _ in 0..2 {
            budget.note_object_store_read();
            assert!(budget.check_object_store().is_ok());
        }
        budget.note_object_store_read();
        budget.note_object_store_bytes(7);
        assert_eq!(
            budget.check_object_store().unwrap_err().to_string(),
            "query needs 3 reads of the object store, the limit is 2 \
             (--query.max-object-store-reads)"
        );
        let cost = ObjectStoreCost { reads: 3, read_bytes: 7, cached_bytes: 0 };
        assert_eq!(budget.object_store_cost(), cost);
    }

    #[test]
    fn released_memory_can_be_charged_again() {
        let limits = BudgetLimits { memory_bytes_max: 100, ..BudgetLimits::default() };
        let budget = Budget::new(limits);
        for _ in 0..3 {
            assert!(budget.charge_memory(100).is_ok());
            budget.release_memory(100);
        }
        assert!(budget.charge_memory(101).is_err());
        assert_eq!(budget.memory_bytes_peak(), 101);
    }

    #[test]
    fn queries_share_a_pool_and_the_one_that_exceeds_it_fails() {
        let pool = Arc::new(MemoryPool::new(100));
        let limits = || BudgetLimits {
            memory_bytes_max: 80,
            pool: Some(Arc::clone(&pool)),
            ..BudgetLimits::default()
        };
        let (first, second) = (Budget::new(limits()), Budget::new(limits()));
        assert!(first.charge_memory(60).is_ok() && second.charge_memory(40).is_ok());
        assert_eq!(
            second.charge_memory(5).unwrap_err().to_string(),
            "queries need 105 bytes of memory together, the limit is 100 \
             (--query.max-memory-total)"
        );
        // The query's own limit takes precedence, because its user can change the query.
        assert_eq!(
            second.charge_memory(50).unwrap_err().to_string(),
            "query needs 95 bytes of memory, the limit is 80 (--query.max-memory)"
        );
        first.release_memory(60);
        assert_eq!((pool.bytes(), pool.bytes_peak()), (95, 155));
        let held = pool.hold(50);
        assert!(first.charge_memory(1).is_err());
        drop(held);
        assert!(first.charge_memory(1).is_ok());
        // Charges that were not released end with the query.
        drop((first, second.clone(), second));
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn a_view_shows_the_budgets_that_are_in_use() {
        let view = BudgetView::default();
        let limits = || BudgetLimits { view: Some(view.clone()), ..BudgetLimits::default() };
        let (first, second) = (Budget::new(limits()), Budget::new(limits()));
        first.charge_samples(3).unwrap();
        second.clone().charge_samples(4).unwrap();
        second.charge_memory(9).unwrap();
        second.release_memory(5);
        second.note_object_store_read();
        let cost = view.cost();
        assert_eq!((cost.samples, cost.memory_bytes, cost.memory_bytes_peak), (7, 4, 9));
        assert_eq!(cost.object_store.reads, 1);
        drop(second);
        assert_eq!(view.cost(), BudgetCost { samples: 3, ..BudgetCost::default() });
        drop(first);
        assert_eq!(view.cost(), BudgetCost::default());
    }

    #[test]
    fn cancel_reaches_every_clone() {
        let budget = Budget::unlimited();
        let clone = budget.clone();
        assert!(clone.check().is_ok());
        budget.cancel();
        assert_eq!(clone.check(), Err(BudgetError::Canceled));
    }
}
