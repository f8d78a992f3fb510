//! Running queries: a place at the gate, a deadline, the engine, and what is counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Engine, QueryError, QueryOptions, QueryOutput};
use model::{BoxFuture, Budget, BudgetLimits, Source};
use tokio::sync::Semaphore;

use crate::cli::Args;
use crate::gate::{Gate, GateError, Place};
use crate::metrics::Metrics;

/// What a client may set for one query.
#[derive(Debug, Clone, Default)]
pub(crate) struct QuerySettings {
    /// How long it may take; the server's own limit holds as well.
    pub(crate) timeout: Option<Duration>,
    /// How far back an instant selector looks.
    pub(crate) lookback_delta: Option<Duration>,
    /// Whether the answer says how it was done.
    pub(crate) explain: bool,
    /// Whether the answer says how many samples each step saw.
    pub(crate) count_seen: bool,
}

/// When a query is evaluated.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    /// At one time, in ms since the epoch.
    Instant(i64),
    /// At the times from the first to the second, by steps of the third, in ms.
    Range(i64, i64, i64),
}

/// What holds for one evaluation.
#[derive(Debug, Clone)]
pub(crate) struct Evaluation {
    /// How far back an instant selector looks, in ms.
    pub(crate) lookback_ms: i64,
    /// The step of a subquery that names none, in ms.
    pub(crate) subquery_step_ms: i64,
    /// What it may cost.
    pub(crate) limits: BudgetLimits,
    /// Whether the answer says how it was done.
    pub(crate) explain: bool,
    /// Whether the answer says how many samples each step saw.
    pub(crate) count_seen: bool,
    /// Its place at the gate, kept until nothing computes for it any more.
    pub(crate) place: Arc<Place>,
}

/// Whoever evaluates queries: the engine, or a stand-in of the tests.
pub(crate) trait Evaluate: Send + Sync {
    /// Evaluates a query. Dropping the future stops it.
    fn evaluate<'a>(
        &'a self,
        source: Arc<dyn Source>,
        query: &'a str,
        when: When,
        evaluation: &'a Evaluation,
    ) -> BoxFuture<'a, Result<QueryOutput, QueryError>>;
}

impl Evaluate for Engine {
    fn evaluate<'a>(
        &'a self,
        source: Arc<dyn Source>,
        query: &'a str,
        when: When,
        evaluation: &'a Evaluation,
    ) -> BoxFuture<'a, Result<QueryOutput, QueryError>> {
        Box::pin(async move {
            let options = QueryOptions {
                lookback_ms: Some(evaluation.lookback_ms),
                subquery_step_ms: Some(evaluation.subquery_step_ms),
                limits: evaluation.limits.clone(),
                explain: evaluation.explain,
                count_seen: evaluation.count_seen,
                held: Some(Arc::clone(&evaluation.place) as Arc<_>),
            };
            match when {
                When::Instant(time_ms) => self.instant(source, query, time_ms, &options).await,
                When::Range(start_ms, end_ms, step_ms) => {
                    self.range(source, query, start_ms, end_ms, step_ms, &options).await
                }
            }
        })
    }
}

/// An answered query.
pub(crate) struct Answer {
    pub(crate) output: QueryOutput,
    /// Kept until the answer is sent: it takes memory as long.
    pub(crate) place: Arc<Place>,
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
}

/// A lookup of series or labels. Dropping it stops what still works for it.
pub(crate) struct Lookup {
    /// What it may cost.
    pub(crate) budget: Budget,
    /// How long it may take.
    pub(crate) timeout: Duration,
    _place: Place,
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.budget.cancel();
    }
}

/// The engine behind its gate.
pub(crate) struct Queries {
    engine: Box<dyn Evaluate>,
    gate: Gate,
    limits: BudgetLimits,
    timeout: Duration,
    lookback_delta: Duration,
    /// Who may parse apart: so many as there are cores.
    parsers: Arc<Semaphore>,
}

impl Queries {
    /// Queries under the limits of the command line.
    pub(crate) fn new(args: &Args, engine: Box<dyn Evaluate>) -> Queries {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Queries {
            engine,
            gate: Gate::new(args.query_concurrency_max as usize, args.query_queue_max as usize),
            limits: BudgetLimits {
                samples_max: args.query_samples_max,
                memory_bytes_max: args.query_memory_bytes_max,
                series_max: args.query_series_max,
                timeout: None,
            },
            timeout: args.query_timeout,
            lookback_delta: args.lookback_delta,
            parsers: Arc::new(Semaphore::new(cores)),
        }
    }

    /// Parses where it does not hold up those who wait for other things: a short text may hold
    /// expressions that take long to compile, and much memory.
    ///
    /// Errors: [`QueryFailure::TimedOut`].
    pub(crate) async fn parse_apart<T: Send + 'static>(
        &self,
        parse: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, QueryFailure> {
        let parsing = async {
            let parsers = Arc::clone(&self.parsers);
            let place = parsers.acquire_owned().await.expect("the semaphore is never closed");
            tokio::task::spawn_blocking(move || {
                let parsed = parse();
                // Kept where nobody waits any more, too.
                drop(place);
                parsed
            })
            .await
        };
        match tokio::time::timeout(self.timeout, parsing).await {
            Ok(Ok(parsed)) => Ok(parsed),
            Ok(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Ok(Err(_)) | Err(_) => Err(QueryFailure::TimedOut),
        }
    }

    /// Answers a query, or says why not. Dropping the future stops the query.
    pub(crate) async fn run(
        &self,
        source: Arc<dyn Source>,
        query: &str,
        when: When,
        settings: &QuerySettings,
        subquery_step: Duration,
        metrics: &Metrics,
    ) -> Result<Answer, QueryFailure> {
        let started = Instant::now();
        let timeout = settings.timeout.map_or(self.timeout, |t| t.min(self.timeout));
        let place = Arc::new(self.gate.enter(timeout).await?);
        let left = timeout.saturating_sub(started.elapsed());
        let evaluation = Evaluation {
            lookback_ms: millis(settings.lookback_delta.unwrap_or(self.lookback_delta)),
            subquery_step_ms: millis(subquery_step),
            limits: BudgetLimits { timeout: Some(left), ..self.limits.clone() },
            explain: settings.explain,
            count_seen: settings.count_seen,
            place: Arc::clone(&place),
        };
        // The engine looks at its budget; this bounds what it waits for.
        let output = match tokio::time::timeout(
            left,
            self.engine.evaluate(source, query, when, &evaluation),
        )
        .await
        {
            Ok(output) => output?,
            Err(_) => return Err(QueryFailure::TimedOut),
        };
        metrics.query(&output.stats, place.waited);
        Ok(Answer { output, place })
    }

    /// Begins a lookup of series or labels: it takes a place as a query does, under the same
    /// limits.
    pub(crate) async fn begin_lookup(&self) -> Result<Lookup, GateError> {
        let place = self.gate.enter(self.timeout).await?;
        let timeout = self.timeout.saturating_sub(place.waited);
        let limits = BudgetLimits { timeout: Some(timeout), ..self.limits.clone() };
        Ok(Lookup { budget: Budget::new(limits), timeout, _place: place })
    }

    /// The gate.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }
}

/// A duration in whole ms.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
