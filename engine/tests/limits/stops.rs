//! Queries whose client leaves: whatever is left to do after the last sample has been read is
//! not done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::{Engine, EngineOptions, QueryError, QueryOptions};
use futures::executor::block_on;
use model::memory::MemorySource;
use model::{
    Advance, BoxFuture, Budget, BudgetError, Cursor, Labels, MetadataQuery, SampleBatch, Selection,
    SeriesSet, SmolStr, Source, SourceError,
};

const SERIES: usize = 6_000;
const END_MS: i64 = 600_000;
const STEP_MS: i64 = 100_000;

/// A source whose client leaves when the last cursor of a number of series is closed.
struct Leaving {
    inner: MemorySource,
    open: Arc<AtomicUsize>,
}

struct LeavingSet {
    inner: Arc<dyn SeriesSet>,
    left: Left,
}

struct LeavingCursor<'a> {
    inner: Box<dyn Cursor + 'a>,
    left: &'a Left,
}

/// Counts cursors down, and cancels the query at the last one.
struct Left {
    open: Arc<AtomicUsize>,
    budget: Budget,
}

impl Source for Leaving {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        Box::pin(async move {
            let inner = self.inner.select(selection, budget).await?;
            self.open.fetch_add(inner.len(), Ordering::Relaxed);
            let left = Left { open: Arc::clone(&self.open), budget: budget.clone() };
            Ok(Arc::new(LeavingSet { inner, left }) as Arc<dyn SeriesSet>)
        })
    }

    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        self.inner.series(query, budget)
    }

    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        self.inner.label_names(query, budget)
    }

    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        self.inner.label_values(name, query, budget)
    }
}

impl SeriesSet for LeavingSet {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        self.inner.labels(series_index)
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        Box::new(LeavingCursor { inner: self.inner.cursor(series_index), left: &self.left })
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.inner.sample_count_estimate(series_index)
    }

    fn encoded_bytes(&self) -> usize {
        self.inner.encoded_bytes()
    }

    fn has_histograms(&self, series_index: usize) -> bool {
        self.inner.has_histograms(series_index)
    }
}

impl Cursor for LeavingCursor<'_> {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        self.inner.next_batch(until_ms, batch)
    }
}

impl Drop for LeavingCursor<'_> {
    fn drop(&mut self) {
        if self.left.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.left.budget.cancel();
        }
    }
}

/// `m{i, g, le, instance, job}` and as many series of `n{i, x}` and `target_info`, each with a
/// sample a step; values fall as labels rise.
fn source() -> MemorySource {
    let mut source = MemorySource::new();
    let mut add = |labels: Labels, value: f64| {
        for at in 0..=END_MS / STEP_MS {
            source.append(&labels, at * STEP_MS, value);
        }
    };
    for index in 0..SERIES {
        let (i, g, le) = (format!("{index:06}"), format!("g{}", index % 7), format!("{index}"));
        let value = (SERIES - index) as f64;
        let target = [("instance", i.as_str()), ("job", "j"), ("v", "1")];
        let m = [("__name__", "m"), ("i", &i), ("g", &g), ("le", &le)];
        add(Labels::from_pairs(m.into_iter().chain(target.into_iter().take(2))), value);
        add(Labels::from_pairs([("__name__", "n"), ("i", &i), ("x", "1")]), value);
        let info = [("__name__", "target_info")];
        add(Labels::from_pairs(info.into_iter().chain(target)), 1.0);
    }
    source
}

/// Runs queries, instant or over a range, whose client leaves when the last sample is read.
fn check(is_instant: bool, queries: &[&str]) {
    let inner = source();
    let engine = Engine::new(EngineOptions { threads: 1, ..EngineOptions::default() });
    let options = QueryOptions::default();
    for query in queries {
        let source = Arc::new(Leaving { inner: inner.clone(), open: Arc::default() });
        let found = if is_instant {
            block_on(engine.instant(source, query, END_MS, &options))
        } else {
            block_on(engine.range(source, query, 0, END_MS, STEP_MS, &options))
        };
        match found {
            Err(QueryError::Source(SourceError::Budget(BudgetError::Canceled))) => {}
            Err(error) => panic!("{query}: {error}"),
            Ok(_) => panic!("{query}: has an answer"),
        }
    }
}

#[test]
fn instant_queries_stop_after_their_client_has_left() {
    check(
        true,
        &[
            "sort(m)",
            "sort_desc(m)",
            "sort_by_label(m, \"g\")",
            "topk(5000, m)",
            "topk by (g) (10, m)",
            "count_values by (i) (\"v\", m)",
            "quantile by (i) (0.5, m)",
            "limit_ratio(0.9, m)",
            "label_replace(sort(m), \"a\", \"$1\", \"i\", \"(.*)\")",
            "label_join(sort(m), \"a\", \"-\", \"i\", \"g\")",
            "sum by (i) (m) * on (i) sum by (i) (n)",
            "(sort(m)) * on (i) group_left (x) sort(n)",
            "sort(m) + on (i) fill (0) sort(n)",
            "sort(m) or sort(n)",
            "histogram_quantile(0.9, sort(m))",
            "info(m)",
            "last_over_time(m[5m])[1m:]",
        ],
    );
}

#[test]
fn range_queries_stop_after_their_client_has_left() {
    check(
        false,
        &[
            "m",
            "rate(m[5m])",
            "topk(5000, m)",
            "limitk(5000, m)",
            "count_values(\"v\", m)",
            "quantile by (i) (0.5, m)",
            "stddev by (i) (m)",
            "m + on (i) fill (0) n",
            "m or n",
            "info(m)",
            "absent(m) or m",
        ],
    );
}
