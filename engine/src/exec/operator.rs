//! Interface of operators: series are known before values, and values come in tiles.

use std::any::Any;
use std::sync::{Arc, Mutex};

use model::{Budget, DerivedValues, Labels, METRIC_NAME, SeriesSet};

use crate::annotations::{Annotations, BucketRepair, Cause};
use crate::error::QueryError;
use crate::exec::schedule::fair::QueryThread;
use crate::exec::schedule::worker_pool::WorkerPool;
use crate::exec::stats::meter::MeterGuard;
use crate::parse::ast::Span;
use crate::plan::Meters;
use crate::steps::Steps;
use crate::tile::{Tile, TileShape};

/// Maximum series of a tile with histograms.
const HISTOGRAM_TILE_SERIES: usize = 64;

/// Properties of an output series that are known before its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeriesMeta {
    /// Labels of the series, including the metric name if its removal is delayed.
    pub labels: Labels,
    /// True if the metric name is dropped at the end of the query.
    pub drop_name: bool,
}

impl SeriesMeta {
    /// Returns the series after an operation that drops the metric name, now or at the end of the
    /// query.
    pub fn dropping_name(&self, ctx: &Context) -> SeriesMeta {
        let labels = if ctx.delayed_name_removal {
            self.labels.clone()
        } else {
            without_schema(&self.labels)
        };
        SeriesMeta { labels, drop_name: true }
    }

    /// Returns the series after an operation that drops only the metric name. If the removal is
    /// delayed, type and unit are dropped with it at the end.
    pub fn dropping_name_alone(&self, ctx: &Context) -> SeriesMeta {
        let labels = if ctx.delayed_name_removal {
            self.labels.clone()
        } else {
            self.labels.filtered(|name| name != METRIC_NAME)
        };
        SeriesMeta { labels, drop_name: true }
    }
}

/// Returns whether a label describes the metric, not the series: its name, its type, its unit.
///
/// Source: `schema.IsMetadataLabel` of Prometheus.
pub fn is_schema_label(name: &str) -> bool {
    matches!(name, METRIC_NAME | "__type__" | "__unit__")
}

/// Returns the labels without name, type and unit of the metric.
pub fn without_schema(labels: &Labels) -> Labels {
    if labels.iter().any(|(name, _)| is_schema_label(name)) {
        labels.filtered(|name| !is_schema_label(name))
    } else {
        labels.clone()
    }
}

/// Number of series ahead for which loops prefetch labels, which are scattered in memory.
pub const LABELS_AHEAD: usize = 8;

/// Vector-valued node of a running query: series over all steps.
///
/// The list of series is complete when the operator exists, but only tiles show whether a series
/// has a value at a step. Two entries may have equal labels if no step has a value of both.
pub trait VectorOperator: Send + Sync {
    /// Returns the output series in output order.
    fn series(&self) -> &[SeriesMeta];

    /// Returns the steps of the tiles.
    fn steps(&self) -> Steps;

    /// Returns whether tiles may have native histograms. If not, the caller never checks for them.
    fn has_histograms(&self) -> bool;

    /// Returns whether tiles may have errors or annotations. If so, a caller that excludes series
    /// must compute them nevertheless, as Prometheus does.
    fn has_effects(&self) -> bool {
        true
    }

    /// Returns whether the series are known to be sorted by labels, each label set once.
    fn is_sorted(&self) -> bool {
        false
    }

    /// Returns whether the histograms of tiles are held by the operator, and charged for as long as
    /// it lives.
    fn holds_histograms(&self) -> bool {
        false
    }

    /// Returns the values that earlier queries have derived from the same output series.
    fn derived(&self) -> Option<DerivedOfSeries<'_>> {
        None
    }

    /// Returns the approximate work of a series, in values that are computed.
    fn row_work(&self) -> usize {
        self.steps().count
    }

    /// Declares that the tiles are the result of the query, in which a series may have a float and
    /// a histogram at one step.
    fn become_answer(&mut self) {}

    /// Opens a reader of the series with the given indices, in that order. Readers of disjoint
    /// series run on several threads at once.
    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a>;
}

/// Values derived from the output series of an operator over a set.
#[derive(Clone, Copy)]
pub struct DerivedOfSeries<'a> {
    values: &'a DerivedValues,
    removal: NameRemoval,
}

/// Removal of the metric names of a set from the output series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameRemoval {
    None,
    AtOnce,
    /// At the end of the query.
    AtEnd,
}

impl<'a> DerivedOfSeries<'a> {
    /// Returns the values derived from the series of a set, after an operation that drops the name
    /// of the metric if `drop_name`; `None` if the set is not kept.
    pub fn of_set(
        ctx: &Context,
        set: &'a dyn SeriesSet,
        drop_name: bool,
    ) -> Option<DerivedOfSeries<'a>> {
        let removal = match (drop_name, ctx.delayed_name_removal) {
            (false, _) => NameRemoval::None,
            (true, false) => NameRemoval::AtOnce,
            (true, true) => NameRemoval::AtEnd,
        };
        Some(DerivedOfSeries { values: set.derived()?, removal })
    }

    /// Returns the value of a key.
    pub fn find<T: Any + Send + Sync>(&self, key: &[u8]) -> Option<Arc<T>> {
        self.values.find(&self.key(key))
    }

    /// Keeps a value of `bytes` bytes for later queries.
    pub fn keep<T: Any + Send + Sync>(&self, key: &[u8], value: &Arc<T>, bytes: usize) {
        self.values.keep(self.key(key), Arc::clone(value), bytes);
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&[self.removal as u8], key].concat()
    }
}

/// Forward-only reader of tiles of the same series.
pub trait TileReader: Send {
    /// Fills the next `step_count` steps: calls `tile.reset(series, step_count)` with the
    /// number of series that it was opened for, then writes rows, presence and histograms.
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError>;
}

/// Result of evaluating a node.
pub enum Operand {
    /// One number per step.
    Scalar(Vec<f64>),
    /// A string.
    String(String),
    /// Series.
    Vector(Box<dyn VectorOperator>),
}

/// State shared by the operators of a query.
#[derive(Clone)]
pub struct Context {
    /// Budget of the query.
    pub budget: Budget,
    /// Shape of tiles.
    pub tile_shape: TileShape,
    /// True if the metric name is dropped at the end of the query, not by each function.
    pub delayed_name_removal: bool,
    /// True if start timestamps are used.
    pub uses_start_timestamps: bool,
    /// Workers that run tasks of loops.
    pool: Arc<WorkerPool>,
    /// Thread of the query.
    thread: Arc<QueryThread>,
    annotations: Arc<Mutex<Annotations>>,
    /// Meters of the nodes, if the query requests them.
    meters: Option<Arc<Meters>>,
}

impl Context {
    /// Creates a context without annotations and workers.
    pub fn new(budget: Budget, tile_shape: TileShape, delayed_name_removal: bool) -> Context {
        let pool = Arc::new(WorkerPool::new(1));
        let thread = Arc::new(pool.query_thread(&budget));
        Context {
            budget,
            tile_shape,
            delayed_name_removal,
            uses_start_timestamps: false,
            pool,
            thread,
            annotations: Arc::default(),
            meters: None,
        }
    }

    /// Sets whether start timestamps are used.
    pub fn with_start_timestamps(self, uses_start_timestamps: bool) -> Context {
        Context { uses_start_timestamps, ..self }
    }

    /// Sets the worker pool; the calling thread becomes the query thread.
    pub fn with_worker_pool(self, pool: Arc<WorkerPool>) -> Context {
        let thread = Arc::new(pool.query_thread(&self.budget));
        Context { pool, thread, ..self }
    }

    /// Sets the meters of the nodes.
    pub fn with_meters(self, meters: Arc<Meters>) -> Context {
        Context { meters: Some(meters), ..self }
    }

    /// Meters of the nodes, if the query requests them.
    pub fn meters(&self) -> Option<&Meters> {
        self.meters.as_deref()
    }

    /// Returns the maximum number of threads that compute for the query.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Calls [`QueryThread::yield_if_due`] of the query thread.
    ///
    /// Errors: the query timed out or was canceled.
    pub fn yield_if_due(&self) -> Result<(), QueryError> {
        self.thread.yield_if_due()
    }

    /// Releases the slot of the query thread.
    pub fn release_slot(&self) {
        self.thread.release();
    }

    /// Runs all tasks of a loop on the query thread and on free workers. Only the query thread
    /// calls this; long tasks call [`QueryThread::yield_if_due`].
    ///
    /// Errors and panics: as for [`WorkerPool::map`].
    pub fn map<T, R: Send>(
        &self,
        tasks: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(T, &QueryThread) -> Result<R, QueryError> + Sync,
    ) -> Result<Vec<R>, QueryError> {
        if self.meters.is_none() {
            return self.pool.map(&self.thread, tasks, work);
        }
        // Workers compute for the node of the caller.
        let meter = MeterGuard::current();
        self.pool.map(&self.thread, tasks, |task, thread| {
            let _run = meter.as_ref().map(MeterGuard::start);
            work(task, thread)
        })
    }

    /// Runs all tasks of a loop without results.
    ///
    /// Errors and panics: as for [`WorkerPool::map`].
    pub fn for_each<T>(
        &self,
        tasks: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(T, &QueryThread) -> Result<(), QueryError> + Sync,
    ) -> Result<(), QueryError> {
        self.map(tasks, work).map(|_| ())
    }

    /// Returns a context that collects annotations separately.
    pub fn without_annotations(&self) -> Context {
        Context { annotations: Arc::default(), ..self.clone() }
    }

    /// Returns the shape of tiles for `steps`: at most as wide as their number.
    pub fn tile_shape_for(&self, steps: Steps) -> TileShape {
        TileShape { steps: self.tile_shape.steps.min(steps.count), ..self.tile_shape }
    }

    /// Returns the shape of an operator's tiles. It has fewer rows if there are histograms, because
    /// each may have hundreds of buckets.
    pub fn tile_shape_of(&self, operator: &dyn VectorOperator) -> TileShape {
        let shape = self.tile_shape_for(operator.steps());
        if operator.has_histograms() {
            TileShape { series: shape.series.min(HISTOGRAM_TILE_SERIES), ..shape }
        } else {
            shape
        }
    }

    /// Adds a warning. Callers do so once per tile or series, never per sample.
    pub fn warn(&self, message: impl Into<String>, cause: impl Into<Cause>) {
        self.annotate(|annotations| annotations.warn(message, cause));
    }

    /// Adds a warning with a count.
    pub fn warn_counted(&self, message: impl Into<String>, cause: impl Into<Cause>, count: u64) {
        self.annotate(|annotations| annotations.warn_counted(message, cause, count));
    }

    /// Adds an info.
    pub fn info(&self, message: impl Into<String>, cause: impl Into<Cause>) {
        self.annotate(|annotations| annotations.info(message, cause));
    }

    /// Adds the info that buckets were repaired.
    pub fn info_repair(&self, message: impl Into<String>, span: Span, repair: BucketRepair) {
        self.annotate(|annotations| annotations.info_repair(message, span, repair));
    }

    /// Takes the collected annotations.
    pub fn take_annotations(&self) -> Annotations {
        let mut taken = Annotations::default();
        self.annotate(|annotations| std::mem::swap(annotations, &mut taken));
        taken
    }

    fn annotate(&self, change: impl FnOnce(&mut Annotations)) {
        // A poisoned lock means that another thread panicked; the set itself is intact.
        let mut annotations = match self.annotations.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        };
        change(&mut annotations);
    }
}
