//! Queries: admission, deadline, evaluation, metrics, and sending of the response.
//!
//! Each step adds one thing: [`Queries::run`] lists and logs, `run_admitted` waits for a permit, and
//! `evaluate` sets the budget and counts.

pub(crate) mod active;
pub(crate) mod encoded_parts;
pub(crate) mod gate;
mod lookup;
pub(crate) mod metric_use;
mod parse;
mod scoped;
pub(crate) mod sending;
pub(crate) mod stream;
pub(crate) mod top;

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::result_cache::ResultCache;
use engine::{Engine, QueryError, QueryOptions, QueryOutput, QueryRequest};
use model::{Budget, BudgetError, BudgetLimits, BudgetResource, MemoryPool};
use model::{Source, SourceError};
use tokio::sync::Semaphore;

use crate::flags::Args;
use crate::metrics::Metrics;
use crate::tenancy::{QuerySlots, TenantTable, TenantUsage};
use active::{ActiveQueries, ActiveQuery, Client, Listed};
use gate::{Gate, GateError, PermitRequest, QueryPermit};
use lookup::LookupPermits;
pub(crate) use lookup::{Lookup, LookupRequest, UngatedWork};
use sending::{Outbox, Sending, SendingLimits};
use top::{EndedQuery, TopQueries};

/// Limits of a trial, which a small query gets while no slot is free.
struct TrialLimits {
    samples_max: u64,
    memory_bytes_max: u64,
    series_max: u64,
    object_store_reads_max: u64,
    steps_max: u64,
}

/// With all data in memory, a trial ends within a few milliseconds.
const TRIAL: TrialLimits = TrialLimits {
    samples_max: 100_000,
    memory_bytes_max: 4 << 20,
    series_max: 1_000,
    object_store_reads_max: 64,
    steps_max: 100_000,
};

/// Maximum number of characters that are logged of a slow query.
const LOGGED_CHARS_MAX: usize = 4096;

/// Answer to a query.
pub(crate) struct Answer {
    pub(crate) output: QueryOutput,
    /// Time spent in the queue. The slot has been released.
    pub(crate) waited: Duration,
    /// State of the response.
    pub(crate) sending: Sending,
}

/// Result of an evaluation.
struct Evaluated {
    output: QueryOutput,
    waited: Duration,
}

/// Error of a query.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum QueryFailure {
    /// It was not admitted.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] QueryError),
    /// It exceeded its timeout.
    #[error("query timed out in expression evaluation")]
    TimedOut,
    /// It was canceled by a request.
    #[error("query was canceled in expression evaluation")]
    Canceled,
    /// Its thread has panicked.
    #[error("query failed: {0}")]
    Panicked(String),
}

/// Query with its deadline.
struct PendingQuery<'a> {
    source: Arc<dyn Source>,
    request: &'a QueryRequest,
    active: &'a ActiveQuery,
    started: Instant,
    /// Time limit from the start.
    timeout: Duration,
    tenant_pools: Arc<[Arc<MemoryPool>]>,
}

impl PendingQuery<'_> {
    fn time_left(&self) -> Duration {
        self.timeout.saturating_sub(self.started.elapsed())
    }

    fn request_with(&self, options: QueryOptions) -> QueryRequest {
        QueryRequest { options, ..self.request.clone() }
    }
}

/// Limits of concurrent queries, lookups and remote reads, and the list of active ones.
struct Gates {
    gate: Gate,
    /// Limits remote reads, which enter both gates.
    reads: Option<Gate>,
    active: Arc<ActiveQueries>,
    outbox: Arc<Outbox>,
}

impl Gates {
    fn list(&self, request: &LookupRequest) -> Listed {
        self.active.list(&request.text, None, request.client.clone())
    }

    fn prepare(&self, request: &LookupRequest, bytes: u64) -> Sending {
        self.outbox.prepare(self.list(request), bytes)
    }

    /// Waits for the permits of a lookup, for a remote read first at its own gate.
    async fn enter(
        &self,
        is_read: bool,
        request: PermitRequest,
        timeout: Duration,
    ) -> Result<LookupPermits, GateError> {
        let read_permit = match self.reads.as_ref().filter(|_| is_read) {
            Some(reads) => Some(reads.enter_as(request, timeout).await?),
            None => None,
        };
        let waited = read_permit.as_ref().map_or(Duration::ZERO, |permit| permit.waited);
        let permit = self.gate.enter_as(request, timeout.saturating_sub(waited)).await?;
        let waited = waited + permit.waited;
        Ok(LookupPermits { waited, _query_permit: permit, _read_permit: read_permit })
    }
}

/// Engine with its gates and limits.
pub(crate) struct Queries {
    engine: Engine,
    gates: Arc<Gates>,
    limits: BudgetLimits,
    pool: Arc<MemoryPool>,
    timeout: Duration,
    /// Minimum time of queries that are logged; 0 logs none.
    logged_from: Duration,
    /// One slot per core for blocking work.
    compute_slots: Arc<Semaphore>,
    tenants: Arc<TenantTable>,
    top: TopQueries,
}

impl Queries {
    /// Returns an engine with the options and limits of the flags.
    pub(crate) fn new(args: &Args, tenants: Arc<TenantTable>) -> Queries {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let pool = Arc::new(MemoryPool::new(args.query_memory_total_bytes_max));
        let queue_max = args.query_queue_max as usize;
        let reads_max = args.remote_read_concurrency_max as usize;
        let sending = SendingLimits {
            per_client_max: args.query_sending_per_client_max as usize,
            bytes_per_client_max: args.query_memory_total_bytes_max / 2,
            bytes_max: args.query_memory_total_bytes_max / 4 * 3,
            timeout: args.write_timeout,
        };
        let gates = Gates {
            gate: Gate::new(args.query_concurrency_max as usize, queue_max),
            reads: (reads_max > 0).then(|| Gate::new(reads_max, queue_max)),
            active: Arc::default(),
            outbox: Arc::new(Outbox::new(sending, Arc::clone(&pool), Arc::clone(&tenants))),
        };
        Queries {
            engine: Engine::new(args.engine_options()),
            gates: Arc::new(gates),
            limits: BudgetLimits {
                samples_max: args.query_samples_max,
                memory_bytes_max: args.query_memory_bytes_max,
                series_max: args.query_series_max,
                object_store_reads_max: args.query_object_store_reads_max,
                timeout: None,
                pool: Some(Arc::clone(&pool)),
                tenant_pools: Arc::default(),
                view: None,
            },
            pool,
            timeout: args.query_timeout,
            logged_from: args.query_logged_from,
            compute_slots: Arc::new(Semaphore::new(cores)),
            tenants,
            top: TopQueries::default(),
        }
    }

    /// Computes on a blocking thread. A short text may hold expressions that compile slowly, take
    /// much memory, or match many series.
    ///
    /// Errors: [`QueryFailure::TimedOut`].
    pub(crate) async fn compute_blocking<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, QueryFailure> {
        let computing = async {
            let slots = Arc::clone(&self.compute_slots);
            let permit = slots.acquire_owned().await.expect("the semaphore is never closed");
            tokio::task::spawn_blocking(move || {
                let computed = compute();
                // Held until the end even if the caller is gone.
                drop(permit);
                computed
            })
            .await
        };
        match tokio::time::timeout(self.timeout, computing).await {
            Ok(Ok(computed)) => Ok(computed),
            Ok(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Ok(Err(_)) | Err(_) => Err(QueryFailure::TimedOut),
        }
    }

    /// Lists, runs and logs a query. Dropping the future stops it.
    ///
    /// Of the limits of the request, only a timeout below the server's applies.
    pub(crate) async fn run(
        &self,
        source: Arc<dyn Source>,
        request: &QueryRequest,
        client: Client,
        metrics: &Metrics,
    ) -> Result<Answer, QueryFailure> {
        let tenants = self.tenants.of(client.scope());
        let slots = QuerySlots::take(&tenants).map_err(GateError::from)?;
        let listed = self.gates.active.list(&request.text, Some(request.when), client);
        let timeout = request.options.limits.timeout;
        let query = PendingQuery {
            source,
            request,
            active: listed.query(),
            started: Instant::now(),
            timeout: timeout.map_or(self.timeout, |timeout| timeout.min(self.timeout)),
            tenant_pools: pools(&tenants),
        };
        let outcome = tokio::select! {
            outcome = self.run_admitted(&query, metrics) => outcome,
            () = query.active.canceled() => Err(QueryFailure::Canceled),
        };
        drop(slots);
        self.log_slow(&query, &outcome);
        self.note(&query, &outcome);
        let samples = outcome.as_ref().map_or(0, |answer| answer.output.stats.sample_count);
        tenants.iter().for_each(|tenant| tenant.count_query(query.started.elapsed(), samples));
        let Evaluated { output, waited } = outcome?;
        let sending = self.gates.outbox.prepare(listed, output.value.bytes());
        Ok(Answer { output, waited, sending })
    }

    /// Waits for a permit and evaluates, or evaluates a short query without one.
    async fn run_admitted(
        &self,
        query: &PendingQuery<'_>,
        metrics: &Metrics,
    ) -> Result<Evaluated, QueryFailure> {
        let gate = &self.gates.gate;
        let permit = match gate.try_enter() {
            Some(permit) => permit,
            None => {
                if let Some(permit) = gate.try_trial() {
                    // A trial finds all errors that a check finds.
                    if let Some(outcome) = self.evaluate_trial(query, permit, metrics).await {
                        return outcome;
                    }
                } else if !gate.is_full() {
                    self.check(query).await?;
                }
                gate.enter(query.time_left()).await?
            }
        };
        self.evaluate(query, permit, &self.limits, u64::MAX, metrics).await
    }

    /// Logs a slow query with its cost.
    fn log_slow(&self, pending: &PendingQuery<'_>, outcome: &Result<Evaluated, QueryFailure>) {
        let elapsed = pending.started.elapsed();
        if self.logged_from.is_zero() || elapsed < self.logged_from {
            return;
        }
        let query: String = pending.request.text.chars().take(LOGGED_CHARS_MAX).collect();
        let seconds = elapsed.as_secs_f64();
        let client = pending.active.client.to_string();
        let user = pending.active.client.user();
        let tenant = pending.active.client.tenants_text();
        match outcome {
            Ok(answer) => {
                let stats = &answer.output.stats;
                tracing::warn!(
                    query,
                    seconds,
                    client,
                    user,
                    tenant,
                    queue_seconds = answer.waited.as_secs_f64(),
                    load_seconds = stats.load_seconds,
                    execute_seconds = stats.execute_seconds,
                    series = stats.series_count,
                    samples = stats.sample_count,
                    memory_bytes_peak = stats.memory_bytes_peak,
                    object_store_reads = stats.object_store.reads,
                    object_store_read_bytes = stats.object_store.read_bytes,
                    cached_bytes = stats.object_store.cached_bytes,
                    "slow query"
                );
            }
            Err(error) => {
                tracing::warn!(query, seconds, client, user, tenant, %error, "slow query");
            }
        }
    }

    /// Adds a query to the costs by text, unless it does not parse.
    fn note(&self, pending: &PendingQuery<'_>, outcome: &Result<Evaluated, QueryFailure>) {
        if matches!(outcome, Err(QueryFailure::Engine(QueryError::Parse(_)))) {
            return;
        }
        self.top.note(&EndedQuery {
            text: &pending.request.text,
            when: pending.request.when,
            client: &pending.active.client,
            elapsed: pending.started.elapsed(),
            stats: outcome.as_ref().ok().map(|evaluated| &evaluated.output.stats),
        });
    }

    /// Evaluates a query within the limits of a trial, without a free slot.
    ///
    /// Returns `None` for a query that exceeds them.
    async fn evaluate_trial(
        &self,
        query: &PendingQuery<'_>,
        permit: QueryPermit,
        metrics: &Metrics,
    ) -> Option<Result<Evaluated, QueryFailure>> {
        let limits = BudgetLimits {
            samples_max: TRIAL.samples_max.min(self.limits.samples_max),
            memory_bytes_max: TRIAL.memory_bytes_max.min(self.limits.memory_bytes_max),
            series_max: TRIAL.series_max.min(self.limits.series_max),
            object_store_reads_max: TRIAL
                .object_store_reads_max
                .min(self.limits.object_store_reads_max),
            ..self.limits.clone()
        };
        match self.evaluate(query, permit, &limits, TRIAL.steps_max, metrics).await {
            Err(QueryFailure::Engine(QueryError::Source(SourceError::Budget(error))))
                if self.allows_more_than(&error) =>
            {
                None
            }
            outcome => Some(outcome),
        }
    }

    /// Returns whether the exceeded limit is that of the trial.
    fn allows_more_than(&self, error: &BudgetError) -> bool {
        let BudgetError::Exceeded { resource, limit, .. } = error else { return false };
        let own = match resource {
            BudgetResource::Samples | BudgetResource::AnswerSamples => self.limits.samples_max,
            BudgetResource::Memory => self.limits.memory_bytes_max,
            BudgetResource::Series => self.limits.series_max,
            BudgetResource::ObjectStoreReads => self.limits.object_store_reads_max,
            BudgetResource::Steps => self.engine.steps_max(),
        };
        *limit < own
    }

    /// Evaluates a query within limits and counts it.
    async fn evaluate(
        &self,
        query: &PendingQuery<'_>,
        permit: QueryPermit,
        limits: &BudgetLimits,
        steps_max: u64,
        metrics: &Metrics,
    ) -> Result<Evaluated, QueryFailure> {
        let permit = Arc::new(permit);
        query.active.set_running();
        let view = Some(query.active.view.clone());
        let left = query.time_left();
        let request = query.request_with(QueryOptions {
            limits: BudgetLimits {
                timeout: Some(left),
                view,
                tenant_pools: Arc::clone(&query.tenant_pools),
                ..limits.clone()
            },
            steps_max,
            held: Some(Arc::clone(&permit) as Arc<_>),
            ..query.request.options.clone()
        });
        let evaluating = self.engine.answer(Arc::clone(&query.source), &request);
        // The engine checks its budget; this bounds its waits.
        let output = match tokio::time::timeout(left, evaluating).await {
            Ok(output) => output?,
            Err(_) => return Err(QueryFailure::TimedOut),
        };
        metrics.query(&output.stats, permit.waited);
        Ok(Evaluated { output, waited: permit.waited })
    }

    /// Returns the error of a query that fails for any data, before it waits for a permit. The plan
    /// is dropped, because many queries may wait.
    async fn check(&self, query: &PendingQuery<'_>) -> Result<(), QueryFailure> {
        let checking = async {
            let slots = Arc::clone(&self.compute_slots);
            let held = slots.acquire_owned().await.expect("the semaphore is never closed");
            let held = Some(Arc::new(held) as Arc<_>);
            let options = QueryOptions { held, ..query.request.options.clone() };
            self.engine.check(&query.request_with(options)).await
        };
        match tokio::time::timeout(query.time_left(), checking).await {
            Ok(checked) => Ok(checked?),
            Err(_) => Err(QueryFailure::TimedOut),
        }
    }

    /// Starts a lookup of series or labels, with the permit and limits of a query.
    pub(crate) async fn begin_lookup(&self, request: LookupRequest) -> Result<Lookup, GateError> {
        self.begin(request, false).await
    }

    /// Starts a remote read, which waits at the gate of remote reads, too.
    pub(crate) async fn begin_read(&self, request: LookupRequest) -> Result<Lookup, GateError> {
        self.begin(request, true).await
    }

    async fn begin(&self, request: LookupRequest, is_read: bool) -> Result<Lookup, GateError> {
        let tenants = self.tenants.of(request.client.scope());
        let slots = QuerySlots::take(&tenants)?;
        let permits = self.gates.enter(is_read, PermitRequest::First, self.timeout).await?;
        let timeout = self.timeout.saturating_sub(permits.waited);
        let tenant_pools = pools(&tenants);
        let limits = BudgetLimits { timeout: Some(timeout), tenant_pools, ..self.limits.clone() };
        let (budget, gates) = (Budget::new(limits), Arc::clone(&self.gates));
        let permits = Some(permits);
        Ok(Lookup { budget, timeout, request, gates, is_read, permits, _slots: slots })
    }

    /// Returns work that needs no slot, because it is bounded otherwise.
    pub(crate) fn work(&self, request: LookupRequest) -> UngatedWork {
        UngatedWork { request, gates: Arc::clone(&self.gates) }
    }

    /// Memory of all queries.
    pub(crate) fn memory(&self) -> &Arc<MemoryPool> {
        &self.pool
    }

    /// Result cache, if there is one.
    pub(crate) fn result_cache(&self) -> Option<&Arc<ResultCache>> {
        self.engine.result_cache()
    }

    /// Remote reads that wait at their gate.
    #[cfg(test)]
    pub(crate) fn reads_waiting(&self) -> usize {
        self.gates.reads.as_ref().map_or(0, Gate::waiting)
    }

    /// Active queries.
    pub(crate) fn active(&self) -> &ActiveQueries {
        &self.gates.active
    }

    /// Costs of queries since the start.
    pub(crate) fn top(&self) -> &TopQueries {
        &self.top
    }

    /// Gate of queries.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gates.gate
    }
}

/// Returns the memory of tenants.
fn pools(tenants: &[Arc<TenantUsage>]) -> Arc<[Arc<MemoryPool>]> {
    tenants.iter().map(|tenant| Arc::clone(tenant.memory())).collect()
}
