//! The engine: from query text to result.

mod cached_query;
mod compute;
mod load;
mod parsed_queries;

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use model::{Budget, BudgetLimits, Checkpoint, Reservation, SeriesSet, Source};

use cached_query::CachedQuery;
use compute::ComputeThreads;
use load::{load, load_one_by_one, without_buckets};
use parsed_queries::ParsedQueries;

use crate::error::QueryError;
use crate::exec::execute::execute;
use crate::exec::operator::Context;
use crate::exec::schedule::worker_pool::WorkerPool;
use crate::exec::stats::meter::{MeterGuard, metered_sets};
use crate::exec::stats::step_stats::count_step_samples;
use crate::parse::{ParseOptions, is_plain};
use crate::plan::{Explained, Figures, LoadCost, LoadFigures, Meters, Plan, PlanOptions, plan};
use crate::result::{QueryOutput, QueryStats, StepStats, Value};
use crate::result_cache::{ResultCache, cacheable_reach};
use crate::stack::{DeepTree, stack_bytes};
use crate::steps::{Reach, Steps};
use crate::tile::TileShape;

/// Maximum size of a query that runs on the caller's thread: some tens of microseconds.
const SMALL_SERIES_MAX: usize = 32;
const SMALL_CELLS_MAX: usize = 4096;
const SMALL_SAMPLES_MAX: usize = 8192;

/// Maximum number of levels of a plan that is explained.
const SHOWN_LEVELS_MAX: usize = 256;

/// Settings for all queries.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// True if the metric name is dropped at the end of the query, not by each function.
    pub delayed_name_removal: bool,
    /// True if `rate`, `irate`, `increase`, `resets` and `start_timestamp` use start timestamps.
    pub use_start_timestamps: bool,
    /// Number of threads that compute at a time; 0 means one per core. Queries that take longer
    /// than a few milliseconds share them; shorter queries run at once on their own thread. As many
    /// idle threads are kept for later queries.
    pub threads: usize,
    /// Shape of tiles; the answer does not depend on it.
    pub tile_shape: TileShape,
    /// Maximum number of steps of a query or a subquery.
    pub steps_max: u64,
    /// Experimental parts of the language that are enabled.
    pub parse: ParseOptions,
    /// Maximum size of the result cache; 0 disables it.
    pub result_cache_bytes_max: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            delayed_name_removal: true,
            use_start_timestamps: false,
            threads: 0,
            tile_shape: TileShape::default(),
            steps_max: 5_000_000,
            parse: ParseOptions::default(),
            result_cache_bytes_max: 0,
        }
    }
}

/// Query with its times and options.
#[derive(Debug, Clone)]
pub struct QueryRequest {
    /// PromQL expression.
    pub text: Arc<str>,
    /// Times of evaluation.
    pub when: When,
    /// Settings for this query.
    pub options: QueryOptions,
}

/// Times at which a query is evaluated, in ms since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Evaluation at one time.
    Instant(i64),
    /// Evaluation at times from `start_ms` up to `end_ms`, `step_ms` apart.
    Range {
        /// First time.
        start_ms: i64,
        /// End of the range; the last step may lie before it.
        end_ms: i64,
        /// Distance between two steps.
        step_ms: i64,
    },
}

/// Settings for one query.
#[derive(Debug, Clone)]
pub struct QueryOptions {
    /// Lookback of instant selectors; a negative number counts as 0.
    pub lookback_ms: i64,
    /// Default step of subqueries, at least 1.
    pub subquery_step_ms: i64,
    /// Limits on time, memory and samples.
    pub limits: BudgetLimits,
    /// Maximum number of steps of the query and of each subquery, besides that of the engine.
    pub steps_max: u64,
    /// True to return the explained plan.
    pub explain: bool,
    /// True to return the number of samples that each step saw. The extra decoding for this is not
    /// counted.
    pub per_step_stats: bool,
    /// True to use the result cache. Queries with `explain` or `per_step_stats` never use it.
    pub use_result_cache: bool,
    /// Name of the data behind the source, which separates results in the cache: the same text has
    /// another result over series with external labels.
    pub result_cache_scope: Arc<str>,
    /// Value to drop when no thread computes for the query any more, which may be after its future
    /// is dropped.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        QueryOptions {
            lookback_ms: 300_000,
            subquery_step_ms: 60_000,
            limits: BudgetLimits::default(),
            steps_max: u64::MAX,
            explain: false,
            per_step_stats: false,
            use_result_cache: false,
            result_cache_scope: Arc::from(""),
            held: None,
        }
    }
}

/// Answers queries over any source.
///
/// Loading is asynchronous. Queries compute on threads of the engine: each query has its own
/// thread, so that a short query never waits. Workers help while cores are free. The caller limits
/// the number of concurrent queries. A query whose future is dropped stops at its next budget
/// check.
#[derive(Debug)]
pub struct Engine {
    options: EngineOptions,
    pool: Arc<WorkerPool>,
    threads: ComputeThreads,
    result_cache: Option<Arc<ResultCache>>,
    parsed: Arc<ParsedQueries>,
}

/// Result of running a query.
struct RunOutput {
    output: QueryOutput,
    /// Reach of the query's steps, if the result can be cached.
    reach: Option<Reach>,
}

impl Engine {
    /// Creates an engine with its own threads.
    pub fn new(options: EngineOptions) -> Engine {
        let pool = Arc::new(WorkerPool::new(options.threads));
        let threads = ComputeThreads::new(pool.threads());
        let bytes_max = options.result_cache_bytes_max;
        let result_cache = (bytes_max > 0).then(|| Arc::new(ResultCache::new(bytes_max)));
        Engine { options, pool, threads, result_cache, parsed: Arc::new(ParsedQueries::new()) }
    }

    /// Returns the maximum number of steps of a query, and of each of its subqueries.
    pub fn steps_max(&self) -> u64 {
        self.options.steps_max
    }

    /// Returns the result cache, if enabled.
    pub fn result_cache(&self) -> Option<&Arc<ResultCache>> {
        self.result_cache.as_ref()
    }

    /// Answers a request. Dropping the future stops the query.
    ///
    /// Errors: see [`QueryError`].
    pub async fn answer(
        &self,
        source: Arc<dyn Source>,
        request: &QueryRequest,
    ) -> Result<QueryOutput, QueryError> {
        let QueryRequest { text, when, options } = request;
        match *when {
            When::Instant(time_ms) => self.instant(source, text, time_ms, options).await,
            When::Range { start_ms, end_ms, step_ms } => {
                self.range(source, text, start_ms, end_ms, step_ms, options).await
            }
        }
    }

    /// Evaluates a query at one time.
    ///
    /// Units: ms since the epoch.
    /// Errors: see [`QueryError`].
    pub async fn instant(
        &self,
        source: Arc<dyn Source>,
        query: &str,
        time_ms: i64,
        options: &QueryOptions,
    ) -> Result<QueryOutput, QueryError> {
        let plan_options = self.plan_options(Steps::instant(time_ms), time_ms, true, options);
        Ok(self.run(source, query, plan_options, options).await?.output)
    }

    /// Answers a query at all times from `start_ms` up to `end_ms`, `step_ms` apart.
    ///
    /// Units: ms since the epoch.
    /// Errors: see [`QueryError`].
    pub async fn range(
        &self,
        source: Arc<dyn Source>,
        query: &str,
        start_ms: i64,
        end_ms: i64,
        step_ms: i64,
        options: &QueryOptions,
    ) -> Result<QueryOutput, QueryError> {
        let started = Instant::now();
        let steps = range_steps(start_ms, end_ms, step_ms)?;
        let may_use_cache = options.use_result_cache && !options.explain && !options.per_step_stats;
        let cache = self.result_cache.as_deref().filter(|_| may_use_cache && steps.count > 1);
        if let Some(cache) = cache
            && let Some(version) = source.version()
        {
            let engine = self;
            let refresh = CachedQuery {
                engine,
                cache,
                source,
                query,
                steps,
                end_ms,
                options,
                version,
                started,
            };
            return refresh.answer().await;
        }
        let options = &QueryOptions { use_result_cache: false, ..options.clone() };
        Ok(self.run_range(source, query, steps, end_ms, options).await?.output)
    }

    /// Runs a range query without the cache. `end_ms` is the requested end.
    async fn run_range(
        &self,
        source: Arc<dyn Source>,
        query: &str,
        steps: Steps,
        end_ms: i64,
        options: &QueryOptions,
    ) -> Result<RunOutput, QueryError> {
        let plan_options = self.plan_options(steps, end_ms, false, options);
        self.run(source, query, plan_options, options).await
    }

    /// Returns the plan of a query as a tree of text; one step makes it an instant query.
    pub async fn explain(
        &self,
        query: &str,
        steps: Steps,
        options: &QueryOptions,
    ) -> Result<String, QueryError> {
        let plan_options = self.plan_options(steps, steps.end_ms(), steps.count == 1, options);
        let plan = self.plan(query, plan_options, options).await?.plan;
        let describe = move || shown(plan.explain(None)).map(|explained| explained.to_string());
        self.threads.compute(is_plain(query), stack_bytes(query), describe).await
    }

    /// Checks a request without data.
    ///
    /// Errors: errors of [`Engine::answer`] that do not depend on data.
    pub async fn check(&self, request: &QueryRequest) -> Result<(), QueryError> {
        let QueryRequest { text, when, options } = request;
        let plan_options = match *when {
            When::Instant(time_ms) => {
                self.plan_options(Steps::instant(time_ms), time_ms, true, options)
            }
            When::Range { start_ms, end_ms, step_ms } => {
                let steps = range_steps(start_ms, end_ms, step_ms)?;
                self.plan_options(steps, end_ms, false, options)
            }
        };
        self.plan(text, plan_options, options).await.map(|_| ())
    }

    pub(crate) fn plan_options(
        &self,
        steps: Steps,
        end_ms: i64,
        is_instant: bool,
        options: &QueryOptions,
    ) -> PlanOptions {
        PlanOptions {
            steps,
            end_ms,
            is_instant,
            lookback_ms: options.lookback_ms.max(0),
            subquery_step_ms: options.subquery_step_ms.max(1),
            steps_max: self.options.steps_max.min(options.steps_max),
            // Statistics of steps count samples; start timestamps decide about resets.
            needs_samples: options.per_step_stats || self.options.use_start_timestamps,
        }
    }

    async fn run(
        &self,
        source: Arc<dyn Source>,
        query: &str,
        plan_options: PlanOptions,
        options: &QueryOptions,
    ) -> Result<RunOutput, QueryError> {
        let budget = Budget::new(options.limits.clone());
        let _guard = CancelOnDrop(budget.clone());
        let started = Instant::now();
        let Planned { plan, reach } = self.plan(query, plan_options, options).await?;
        let scalars = Reservation::new(&budget, plan.scalar_bytes)?;
        let mut stats = QueryStats {
            prepare_seconds: started.elapsed().as_secs_f64(),
            ..QueryStats::default()
        };
        let started = Instant::now();
        let (sets, loads) = if options.explain {
            load_one_by_one(&*source, &plan.selections, &budget).await?
        } else {
            (load(&*source, &plan.selections, &budget).await?, Vec::new())
        };
        // The order in which histograms are summed depends on the query's range, so steps do, too.
        let reach = reach.filter(|_| !sets.iter().any(|set| set.has_any_histograms()));
        let sets = without_buckets(sets, &plan.bucketless);
        stats.load_seconds = started.elapsed().as_secs_f64();
        let is_small = is_plain(query)
            && !plan.has_subqueries
            && !options.per_step_stats
            && is_small(plan.root.steps, &sets);
        let started = Instant::now();
        let ctx = Context::new(
            budget.clone(),
            self.options.tile_shape,
            self.options.delayed_name_removal,
        )
        .with_worker_pool(Arc::clone(&self.pool))
        .with_start_timestamps(self.options.use_start_timestamps);
        let mut annotations = plan.annotations.clone();
        let task = Task {
            ctx: ctx.clone(),
            plan,
            sets,
            is_instant: plan_options.is_instant,
            _held: options.held.clone(),
            explain: options.explain,
            loads,
            per_step_stats: options.per_step_stats,
            started,
            stats,
        };
        let work = move || {
            let _scalars = scalars;
            let _release = ReleaseSlot(task.ctx.clone());
            task.run()
        };
        let Done { value, explained, step_stats, stats } =
            self.threads.compute(is_small, stack_bytes(query), work).await?;
        annotations.merge(ctx.take_annotations());
        let output = QueryOutput { value, annotations, stats, explained, step_stats };
        Ok(RunOutput { output, reach })
    }

    /// Parses and plans a query.
    async fn plan(
        &self,
        query: &str,
        plan_options: PlanOptions,
        options: &QueryOptions,
    ) -> Result<Planned, QueryError> {
        let (text, parse_options) = (query.to_owned(), self.options.parse);
        let (held, parsed) = (options.held.clone(), Arc::clone(&self.parsed));
        // Without delayed name removal, or with start timestamps, answers depend on other steps.
        let use_result_cache = options.use_result_cache
            && !plan_options.is_instant
            && self.options.delayed_name_removal
            && !self.options.use_start_timestamps;
        let stack_bytes = stack_bytes(query);
        let planning = move || {
            let _held = held;
            let expr = parsed.parse(&text, &parse_options)?;
            let plan = plan(&expr, &plan_options)?;
            let reach = if use_result_cache { cacheable_reach(&expr, &plan) } else { None };
            Ok(Planned { plan: DeepTree::new(plan, stack_bytes), reach })
        };
        self.threads.compute(is_plain(query), stack_bytes, planning).await
    }
}

/// Returns whether computing takes less time than handing it to another thread.
fn is_small(steps: Steps, sets: &[Arc<dyn SeriesSet>]) -> bool {
    let series_count: usize = sets.iter().map(|set| set.len()).sum();
    let samples_of = |set: &Arc<dyn SeriesSet>| -> usize {
        (0..set.len()).map(|index| set.sample_count_estimate(index)).sum()
    };
    series_count <= SMALL_SERIES_MAX
        && steps.count.saturating_mul(series_count.max(1)) <= SMALL_CELLS_MAX
        && sets.iter().map(samples_of).sum::<usize>() <= SMALL_SAMPLES_MAX
}

/// A plan, and the reach of its steps, if the result can be cached.
struct Planned {
    plan: DeepTree<Plan>,
    reach: Option<Reach>,
}

/// Refuses plans deeper than JSON parsers accept.
fn shown(explained: Explained) -> Result<Explained, QueryError> {
    let levels = explained.levels();
    if levels <= SHOWN_LEVELS_MAX {
        return Ok(explained);
    }
    Err(QueryError::Execution(format!(
        "the plan has {levels} levels, and is explained only if it has at most {SHOWN_LEVELS_MAX}"
    )))
}

fn range_steps(start_ms: i64, end_ms: i64, step_ms: i64) -> Result<Steps, QueryError> {
    Steps::range(start_ms, end_ms, step_ms).ok_or_else(|| {
        let text = "end timestamp must not be before start time, and the step above 0";
        QueryError::Parse(text.to_owned())
    })
}

/// Cancels a query on drop.
struct CancelOnDrop(Budget);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Releases the slot of the query thread on drop.
struct ReleaseSlot(Context);

impl Drop for ReleaseSlot {
    fn drop(&mut self) {
        self.0.release_slot();
    }
}

/// Synchronous part of a query.
struct Task {
    ctx: Context,
    plan: DeepTree<Plan>,
    sets: Vec<Arc<dyn SeriesSet>>,
    is_instant: bool,
    explain: bool,
    /// Cost of loading each selection, for explained plans.
    loads: Vec<LoadCost>,
    per_step_stats: bool,
    started: Instant,
    /// Statistics of planning and loading.
    stats: QueryStats,
    _held: Option<Arc<dyn Any + Send + Sync>>,
}

/// Result of a task.
struct Done {
    value: Value,
    explained: Option<Explained>,
    step_stats: Option<StepStats>,
    stats: QueryStats,
}

impl Task {
    fn run(mut self) -> Result<Done, QueryError> {
        // Meters identify nodes by address: the plan does not move from here on.
        let meters = self.explain.then(|| Arc::new(Meters::new(&self.plan)));
        if let Some(meters) = &meters {
            self.sets = metered_sets(meters, std::mem::take(&mut self.sets));
            self.ctx = self.ctx.clone().with_meters(Arc::clone(meters));
        }
        let value = {
            let _run = meters.as_ref().map(|meters| MeterGuard::start(meters.query()));
            execute(&self.ctx, &self.plan, &self.sets, self.is_instant)?
        };
        let budget = &self.ctx.budget;
        // The counting of samples below is not part of these statistics.
        let stats = QueryStats {
            execute_seconds: self.started.elapsed().as_secs_f64(),
            sample_count: budget.sample_count(),
            series_count: budget.series_count(),
            memory_bytes_peak: budget.memory_bytes_peak(),
            object_store: budget.object_store_cost(),
            ..self.stats
        };
        let explained = match &meters {
            Some(meters) => Some(self.explained(meters)?),
            None => None,
        };
        let step_stats = if self.per_step_stats { Some(self.step_stats()?) } else { None };
        Ok(Done { value, explained, step_stats, stats })
    }

    fn explained(&self, meters: &Meters) -> Result<Explained, QueryError> {
        let mut checkpoint = Checkpoint::new(&self.ctx.budget);
        let mut loads = Vec::with_capacity(self.sets.len());
        for (set, cost) in self.sets.iter().zip(&self.loads) {
            loads.push(LoadFigures::of(&**set, *cost, &mut checkpoint)?);
        }
        shown(self.plan.explain(Some(&Figures { meters, loads })))
    }

    fn step_stats(&self) -> Result<StepStats, QueryError> {
        // Samples are already counted, and annotations collected.
        self.ctx.budget.end_sample_count();
        let ctx = self.ctx.without_annotations();
        count_step_samples(&ctx, &self.sets, &self.plan.root)
    }
}

#[cfg(test)]
mod catalog_tests;
#[cfg(test)]
mod tests;
