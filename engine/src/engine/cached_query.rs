//! Range queries that read steps from the result cache and compute all other steps.
//!
//! ```text
//! version of the source ← before anything is loaded
//! cached ← cached steps that no later change affects
//! if cached has no requested step: run the whole query, and cache it
//! else: run the query over the steps before and after cached, each with one cached step,
//!       so that together they load all that the whole query loads; merge
//!       if a part has more than plain values: run the whole query, and cache nothing
//! ```

use std::sync::Arc;
use std::time::Instant;

use model::{Budget, Reservation, Source};

use super::{Engine, QueryOptions, RunOutput};
use crate::annotations::Annotations;
use crate::error::QueryError;
use crate::result::{QueryOutput, QueryStats, Row, Value};
use crate::result_cache::{CacheKey, CacheOutcome, CachedSteps, Piece, ResultCache};
use crate::stack::STACK_BYTES_MIN;
use crate::steps::Steps;

/// Maximum number of cached steps of one query.
const STEPS_MAX: usize = 11_001;
/// Maximum number of cells that are merged on the calling thread.
const SMALL_CELLS_MAX: usize = 1 << 15;

/// Range query that can use the result cache. Of the engine, it uses [`Engine::run_range`] for runs
/// without the cache, and [`Engine::plan_options`] for the key.
pub(super) struct CachedQuery<'a> {
    pub(super) engine: &'a Engine,
    pub(super) cache: &'a ResultCache,
    pub(super) source: Arc<dyn Source>,
    pub(super) query: &'a str,
    /// Requested steps.
    pub(super) steps: Steps,
    /// Requested end.
    pub(super) end_ms: i64,
    pub(super) options: &'a QueryOptions,
    /// Version of the source before loading.
    pub(super) version: u64,
    pub(super) started: Instant,
}

/// Rows of a result, and the steps to cache.
struct Finished {
    rows: Vec<Row>,
    run: CachedSteps,
}

impl CachedQuery<'_> {
    /// Answers the query.
    ///
    /// Errors: as without the cache.
    pub(super) async fn answer(self) -> Result<QueryOutput, QueryError> {
        let key = self.key();
        let Some(run) = self.cached(&key) else { return self.begin(key).await };
        let Some(parts) = self.missing(&run).await? else {
            return self.give_up(&key).await;
        };
        let found = if parts.is_empty() { CacheOutcome::Hit } else { CacheOutcome::PartialHit };
        let mut stats = QueryStats::default();
        parts.iter().for_each(|part| add(&mut stats, &part.output.stats));
        let (asked, version, options) = (self.steps, self.version, self.options.clone());
        let rows_of_parts = parts.iter().map(|part| row_count(&part.output)).sum::<usize>();
        let cells = (run.row_count_max() + rows_of_parts) * asked.count;
        let finish = move || finish(run, &parts, asked, version, &options);
        let is_small = cells <= SMALL_CELLS_MAX;
        let Some(Finished { rows, run }) =
            self.engine.threads.compute(is_small, STACK_BYTES_MIN, finish).await?
        else {
            return self.give_up(&key).await;
        };
        self.cache.count(found);
        self.cache.put(key, run);
        let value = Value::Grid { steps: asked, rows };
        let annotations = Annotations::default();
        Ok(QueryOutput { value, annotations, stats, explained: None, step_stats: None })
    }

    /// Answers the query if none of its steps is cached.
    async fn begin(&self, key: CacheKey) -> Result<QueryOutput, QueryError> {
        let ran = self.run(self.steps, self.end_ms).await?;
        let Some(reach) = ran.reach else { return Ok(ran.output) };
        let (version, held) = (self.version, self.options.held.clone());
        let is_small = row_count(&ran.output) * self.steps.count <= SMALL_CELLS_MAX;
        let pack = move || {
            let _held = held;
            let run = piece_of(&ran).map(|piece| CachedSteps::new(piece, reach, version));
            Ok((ran.output, run))
        };
        let (output, run) = self.engine.threads.compute(is_small, STACK_BYTES_MIN, pack).await?;
        if let Some(mut run) = run {
            // Samples that expired since they were loaded may become visible again.
            run.keep_unchanged(&(self.source.unchanged_since(version).start..i64::MAX));
            self.cache.count(CacheOutcome::Miss);
            self.cache.put(key, run);
        }
        Ok(output)
    }

    /// Runs the whole query if merged parts may differ from it.
    async fn give_up(&self, key: &CacheKey) -> Result<QueryOutput, QueryError> {
        self.cache.remove(key);
        Ok(self.run(self.steps, self.end_ms).await?.output)
    }

    fn key(&self) -> CacheKey {
        let Steps { start_ms, step_ms, .. } = self.steps;
        let plan = self.engine.plan_options(self.steps, self.end_ms, false, self.options);
        CacheKey {
            query: self.query.to_owned(),
            scope: Arc::clone(&self.options.result_cache_scope),
            step_ms,
            phase_ms: start_ms.rem_euclid(step_ms),
            lookback_ms: plan.lookback_ms,
            subquery_step_ms: plan.subquery_step_ms,
        }
    }

    /// Returns the cached steps that are still valid, if at least one of them is requested.
    fn cached(&self, key: &CacheKey) -> Option<CachedSteps> {
        let mut run = CachedSteps::clone(&*self.cache.get(key)?);
        let unchanged = self.source.unchanged_since(run.version);
        if run.keep_unchanged(&unchanged) {
            self.cache.count_invalidation();
        }
        let cached = run.steps()?;
        let overlaps =
            cached.start_ms <= self.steps.end_ms() && self.steps.start_ms <= cached.end_ms();
        // A step at either end may be computed again.
        (overlaps && cached.count > 2).then_some(run)
    }

    /// Runs the query at the steps that are not cached. `None` if it fails because of the data: the
    /// whole query may fail with another message.
    ///
    /// Errors: those of the source, limits of the query included.
    async fn missing(&self, run: &CachedSteps) -> Result<Option<Vec<RunOutput>>, QueryError> {
        let Some(cached) = run.steps() else { return Ok(None) };
        let mut parts = Vec::new();
        for steps in missing(self.steps, cached).into_iter().flatten() {
            match self.run(steps, steps.end_ms()).await {
                Ok(ran) => parts.push(ran),
                Err(error @ QueryError::Source(_)) => return Err(error),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(parts))
    }

    /// Runs the query at `steps`, in the remaining time. Every run has the full limits: together
    /// the parts load little more than the whole query.
    async fn run(&self, steps: Steps, end_ms: i64) -> Result<RunOutput, QueryError> {
        let mut options = self.options.clone();
        if let Some(timeout) = &mut options.limits.timeout {
            *timeout = timeout.saturating_sub(self.started.elapsed());
        }
        self.engine.run_range(Arc::clone(&self.source), self.query, steps, end_ms, &options).await
    }
}

/// Merges cached steps with new ones; `None` if the result may differ from that of the whole query.
///
/// Errors: the memory limit of the query.
fn finish(
    mut run: CachedSteps,
    parts: &[RunOutput],
    asked: Steps,
    version: u64,
    options: &QueryOptions,
) -> Result<Option<Finished>, QueryError> {
    for part in parts {
        let (Some(piece), Some(reach)) = (piece_of(part), part.reach) else { return Ok(None) };
        run.make_way(&piece);
        run.reach.back_ms = run.reach.back_ms.max(reach.back_ms);
        run.reach.ahead_ms = run.reach.ahead_ms.max(reach.ahead_ms);
        run.extend(piece);
    }
    run.version = version;
    run.asked_max = run.asked_max.min(STEPS_MAX).max(asked.count);
    run.keep_up_to(asked);
    run.tidy();
    let budget = Budget::new(options.limits.clone());
    let row_bytes = size_of::<Row>() + (asked.count + asked.count.div_ceil(64)) * 8;
    let _reservation = Reservation::new(&budget, (run.row_count_max() * row_bytes) as u64)?;
    let rows = run.rows(asked);
    Ok(Some(Finished { rows, run }))
}

/// Packs a result, if each value depends only on the samples that its step sees.
fn piece_of(ran: &RunOutput) -> Option<Piece> {
    match &ran.output.value {
        Value::Grid { steps, rows } if ran.reach.is_some() && ran.output.annotations.is_empty() => {
            Piece::pack(*steps, rows)
        }
        _ => None,
    }
}

fn row_count(output: &QueryOutput) -> usize {
    match &output.value {
        Value::Grid { rows, .. } => rows.len(),
        _ => 0,
    }
}

/// Returns the requested steps before and after the cached steps, both extended by the adjacent
/// cached step.
///
/// The extension makes the query load the samples between the ranges of two steps, too. Neither
/// step sees them, but a histogram or a failing inner step of a subquery there affects the result.
fn missing(asked: Steps, cached: Steps) -> [Option<Steps>; 2] {
    let Steps { step_ms, .. } = asked;
    let range = |start_ms: i64, end_ms: i64| {
        if start_ms < end_ms { Steps::range(start_ms, end_ms, step_ms) } else { None }
    };
    [range(asked.start_ms, cached.start_ms), range(cached.end_ms(), asked.end_ms())]
}

fn add(stats: &mut QueryStats, more: &QueryStats) {
    stats.sample_count += more.sample_count;
    stats.series_count += more.series_count;
    stats.memory_bytes_peak = stats.memory_bytes_peak.max(more.memory_bytes_peak);
    stats.object_store.reads += more.object_store.reads;
    stats.object_store.read_bytes += more.object_store.read_bytes;
    stats.object_store.cached_bytes += more.object_store.cached_bytes;
    stats.prepare_seconds += more.prepare_seconds;
    stats.load_seconds += more.load_seconds;
    stats.execute_seconds += more.execute_seconds;
}
