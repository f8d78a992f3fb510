//! Running queries: a place at the gate, a deadline, the engine, what is counted, and how the answer
//! is sent, which takes no place.

pub(crate) mod active;
pub(crate) mod gate;
mod lookup;
pub(crate) mod sending;

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::results::Results;
use engine::{Engine, QueryError, QueryOptions, QueryOutput, QueryRequest};
use model::{BoxFuture, Budget, BudgetError, BudgetLimits, MemoryPool};
use model::{Source, SourceError};
use tokio::sync::Semaphore;

use crate::flags::Args;
use crate::metrics::Metrics;
use active::{ActiveQueries, ActiveQuery, Client, Listed};
use gate::{Gate, GateError, PermitRequest, QueryPermit};
use lookup::LookupPlaces;
pub(crate) use lookup::{Lookup, LookupRequest, UnplacedWork};
use sending::{Outbox, Sending, SendingLimits};

/// What a query may cost that is tried while no place is free: it is done in a few milliseconds,
/// and so it takes little from those that run.
const TRIAL: BudgetLimits = BudgetLimits {
    samples_max: 100_000,
    memory_bytes_max: 4 << 20,
    series_max: 1_000,
    object_store_reads_max: u64::MAX,
    timeout: None,
    pool: None,
    view: None,
};

/// Characters of a slow query that are logged.
const LOGGED_CHARS_MAX: usize = 4096;

/// Whoever evaluates queries: the engine, or a stand-in of the tests.
pub(crate) trait Evaluate: Send + Sync {
    /// Refuses a query that will not be evaluated whatever the data, without evaluating any
    /// other.
    fn check<'a>(&'a self, request: &'a QueryRequest) -> BoxFuture<'a, Result<(), QueryError>>;

    /// Evaluates a query. Dropping the future stops it.
    fn answer<'a>(
        &'a self,
        source: Arc<dyn Source>,
        request: &'a QueryRequest,
    ) -> BoxFuture<'a, Result<QueryOutput, QueryError>>;

    /// The answers that are kept, if any are.
    fn results(&self) -> Option<Arc<Results>> {
        None
    }
}

impl Evaluate for Engine {
    fn results(&self) -> Option<Arc<Results>> {
        Engine::results(self).cloned()
    }

    fn check<'a>(&'a self, request: &'a QueryRequest) -> BoxFuture<'a, Result<(), QueryError>> {
        Box::pin(self.check(request))
    }

    fn answer<'a>(
        &'a self,
        source: Arc<dyn Source>,
        request: &'a QueryRequest,
    ) -> BoxFuture<'a, Result<QueryOutput, QueryError>> {
        Box::pin(self.answer(source, request))
    }
}

/// An answered query.
pub(crate) struct Answer {
    pub(crate) output: QueryOutput,
    /// Time spent in the queue. The slot has been released.
    pub(crate) waited: Duration,
    /// How it is sent: what it holds as long, and who may end that.
    pub(crate) sending: Sending,
}

/// An evaluated query.
struct Evaluated {
    output: QueryOutput,
    waited: Duration,
}

/// Why a query was not answered.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum QueryFailure {
    /// There was no place for it.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The engine refused it or gave up.
    #[error(transparent)]
    Engine(#[from] QueryError),
    /// It did not end in time.
    #[error("query timed out in expression evaluation")]
    TimedOut,
    /// Somebody ended it.
    #[error("query was canceled in expression evaluation")]
    Canceled,
}

/// A query on its way to an answer.
struct Asked<'a> {
    source: Arc<dyn Source>,
    request: &'a QueryRequest,
    active: &'a ActiveQuery,
    started: Instant,
    /// How long it may take from then on.
    timeout: Duration,
}

impl Asked<'_> {
    fn request_with(&self, options: QueryOptions) -> QueryRequest {
        QueryRequest { options, ..self.request.clone() }
    }
}

/// Limits of concurrent queries, lookups and remote reads, and the list of active ones.
struct Gates {
    gate: Gate,
    /// How many of those that have a place may be remote reads.
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

    /// Waits for the places of a lookup; a remote read takes one among its like first.
    async fn enter(
        &self,
        is_read: bool,
        entry: PermitRequest,
        timeout: Duration,
    ) -> Result<LookupPlaces, GateError> {
        let read_place = match self.reads.as_ref().filter(|_| is_read) {
            Some(reads) => Some(reads.enter_as(entry, timeout).await?),
            None => None,
        };
        let waited = read_place.as_ref().map_or(Duration::ZERO, |place| place.waited);
        let place = self.gate.enter_as(entry, timeout.saturating_sub(waited)).await?;
        let waited = waited + place.waited;
        Ok(LookupPlaces { waited, _place: place, _read_place: read_place })
    }
}

/// The engine behind its gate.
pub(crate) struct Queries {
    engine: Box<dyn Evaluate>,
    gates: Arc<Gates>,
    limits: BudgetLimits,
    pool: Arc<MemoryPool>,
    timeout: Duration,
    /// Queries that take longer are logged; 0 logs none.
    logged_from: Duration,
    /// Who may compute apart: so many as there are cores.
    computers: Arc<Semaphore>,
}

impl Queries {
    /// Queries under the limits of the command line.
    pub(crate) fn new(args: &Args, engine: Box<dyn Evaluate>) -> Queries {
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
            outbox: Arc::new(Outbox::new(sending, Arc::clone(&pool))),
        };
        Queries {
            engine,
            gates: Arc::new(gates),
            limits: BudgetLimits {
                samples_max: args.query_samples_max,
                memory_bytes_max: args.query_memory_bytes_max,
                series_max: args.query_series_max,
                object_store_reads_max: args.query_object_store_reads_max,
                timeout: None,
                pool: Some(Arc::clone(&pool)),
                view: None,
            },
            pool,
            timeout: args.query_timeout,
            logged_from: args.query_logged_from,
            computers: Arc::new(Semaphore::new(cores)),
        }
    }

    /// Computes where it does not hold up those who wait for other things: a short text may hold
    /// expressions that take long to compile, and much memory, or match many series.
    ///
    /// Errors: [`QueryFailure::TimedOut`].
    pub(crate) async fn compute_apart<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, QueryFailure> {
        let computing = async {
            let computers = Arc::clone(&self.computers);
            let place = computers.acquire_owned().await.expect("the semaphore is never closed");
            tokio::task::spawn_blocking(move || {
                let computed = compute();
                // Kept where nobody waits any more, too.
                drop(place);
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

    /// Answers a query, or says why not. Dropping the future stops the query.
    ///
    /// Of the limits of the request only the timeout counts, and the server's own holds as well.
    pub(crate) async fn run(
        &self,
        source: Arc<dyn Source>,
        request: &QueryRequest,
        client: Client,
        metrics: &Metrics,
    ) -> Result<Answer, QueryFailure> {
        let listed = self.gates.active.list(&request.text, Some(request.when), client);
        let timeout = request.options.limits.timeout;
        let asked = Asked {
            source,
            request,
            active: listed.query(),
            started: Instant::now(),
            timeout: timeout.map_or(self.timeout, |timeout| timeout.min(self.timeout)),
        };
        let outcome = tokio::select! {
            outcome = self.run_asked(&asked, metrics) => outcome,
            () = asked.active.canceled() => Err(QueryFailure::Canceled),
        };
        self.log_slow(&asked, &outcome);
        let Evaluated { output, waited } = outcome?;
        let sending = self.gates.outbox.prepare(listed, output.value.bytes());
        Ok(Answer { output, waited, sending })
    }

    async fn run_asked(
        &self,
        asked: &Asked<'_>,
        metrics: &Metrics,
    ) -> Result<Evaluated, QueryFailure> {
        let place = match self.gates.gate.try_enter() {
            Some(place) => place,
            None => match self.try_short(asked, metrics).await {
                Some(outcome) => return outcome,
                None => self.wait(asked).await?,
            },
        };
        self.answer(asked, place, &self.limits, metrics).await
    }

    /// Says what a query cost that took long.
    fn log_slow(&self, asked: &Asked<'_>, outcome: &Result<Evaluated, QueryFailure>) {
        let elapsed = asked.started.elapsed();
        if self.logged_from.is_zero() || elapsed < self.logged_from {
            return;
        }
        let query: String = asked.request.text.chars().take(LOGGED_CHARS_MAX).collect();
        let seconds = elapsed.as_secs_f64();
        let client = asked.active.client.to_string();
        let user = asked.active.client.user();
        match outcome {
            Ok(answer) => {
                let stats = &answer.output.stats;
                tracing::warn!(
                    query,
                    seconds,
                    client,
                    user,
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
            Err(error) => tracing::warn!(query, seconds, client, user, %error, "slow query"),
        }
    }

    /// Answers a query without a free place if that costs little, and refuses one that will be
    /// refused; nothing if neither is so.
    async fn try_short(
        &self,
        asked: &Asked<'_>,
        metrics: &Metrics,
    ) -> Option<Result<Evaluated, QueryFailure>> {
        let place = self.gates.gate.try_trial()?;
        let limits = BudgetLimits {
            samples_max: TRIAL.samples_max.min(self.limits.samples_max),
            memory_bytes_max: TRIAL.memory_bytes_max.min(self.limits.memory_bytes_max),
            series_max: TRIAL.series_max.min(self.limits.series_max),
            ..self.limits.clone()
        };
        match self.answer(asked, place, &limits, metrics).await {
            Err(QueryFailure::Engine(QueryError::Source(SourceError::Budget(error))))
                if self.allows_more_than(&error) =>
            {
                None
            }
            outcome => Some(outcome),
        }
    }

    /// Whether the limit that was passed is not the one that is set.
    fn allows_more_than(&self, error: &BudgetError) -> bool {
        let BudgetError::Exceeded { flag, limit, .. } = error else { return false };
        let own = match *flag {
            "query.max-samples" => self.limits.samples_max,
            "query.max-memory" => self.limits.memory_bytes_max,
            "query.max-series" => self.limits.series_max,
            _ => return false,
        };
        *limit < own
    }

    async fn answer(
        &self,
        asked: &Asked<'_>,
        place: QueryPermit,
        limits: &BudgetLimits,
        metrics: &Metrics,
    ) -> Result<Evaluated, QueryFailure> {
        let place = Arc::new(place);
        asked.active.run();
        let view = Some(asked.active.view.clone());
        let left = asked.timeout.saturating_sub(asked.started.elapsed());
        let request = asked.request_with(QueryOptions {
            limits: BudgetLimits { timeout: Some(left), view, ..limits.clone() },
            held: Some(Arc::clone(&place) as Arc<_>),
            ..asked.request.options.clone()
        });
        let evaluating = self.engine.answer(Arc::clone(&asked.source), &request);
        // The engine looks at its budget; this bounds what it waits for.
        let output = match tokio::time::timeout(left, evaluating).await {
            Ok(output) => output?,
            Err(_) => return Err(QueryFailure::TimedOut),
        };
        metrics.query(&output.stats, place.waited);
        Ok(Evaluated { output, waited: place.waited })
    }

    /// Waits for a place, but not with a query that will be refused. What has been read of it is
    /// given up meanwhile: those that wait are many.
    async fn wait(&self, asked: &Asked<'_>) -> Result<QueryPermit, QueryFailure> {
        let left = || asked.timeout.saturating_sub(asked.started.elapsed());
        if !self.gates.gate.is_full() {
            let checking = async {
                let computers = Arc::clone(&self.computers);
                let held = computers.acquire_owned().await.expect("the semaphore is never closed");
                let held = Some(Arc::new(held) as Arc<_>);
                let options = QueryOptions { held, ..asked.request.options.clone() };
                self.engine.check(&asked.request_with(options)).await
            };
            match tokio::time::timeout(left(), checking).await {
                Ok(checked) => checked?,
                Err(_) => return Err(QueryFailure::TimedOut),
            }
        }
        Ok(self.gates.gate.enter(left()).await?)
    }

    /// Begins a lookup of series or labels: it takes a place as a query does, under the same
    /// limits.
    pub(crate) async fn begin_lookup(&self, request: LookupRequest) -> Result<Lookup, GateError> {
        self.begin(request, false).await
    }

    /// The same for a remote read, which takes a place among its like first.
    pub(crate) async fn begin_read(&self, request: LookupRequest) -> Result<Lookup, GateError> {
        self.begin(request, true).await
    }

    async fn begin(&self, request: LookupRequest, is_read: bool) -> Result<Lookup, GateError> {
        let places = self.gates.enter(is_read, PermitRequest::First, self.timeout).await?;
        let timeout = self.timeout.saturating_sub(places.waited);
        let limits = BudgetLimits { timeout: Some(timeout), ..self.limits.clone() };
        let (budget, gates) = (Budget::new(limits), Arc::clone(&self.gates));
        Ok(Lookup { budget, timeout, request, gates, is_read, places: Some(places) })
    }

    /// Work that takes no place, because it is bounded otherwise.
    pub(crate) fn work(&self, request: LookupRequest) -> UnplacedWork {
        UnplacedWork { request, gates: Arc::clone(&self.gates) }
    }

    /// The memory that all queries hold.
    pub(crate) fn memory(&self) -> &Arc<MemoryPool> {
        &self.pool
    }

    /// The answers that are kept, if any are.
    pub(crate) fn results(&self) -> Option<Arc<Results>> {
        self.engine.results()
    }

    /// How many remote reads wait for others of their kind.
    #[cfg(test)]
    pub(crate) fn reads_waiting(&self) -> usize {
        self.gates.reads.as_ref().map_or(0, Gate::waiting)
    }

    /// The queries that wait or run.
    pub(crate) fn active(&self) -> &ActiveQueries {
        &self.gates.active
    }

    /// The gate.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gates.gate
    }
}
