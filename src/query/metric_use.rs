//! Time of the last query of each metric since the start of the server.
//!
//! [`noting`] wraps a source and notes the metrics of all selections whose matchers name one: those of
//! queries, remote reads and federation, and not lookups of series and labels.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use model::{
    Answer, BoxFuture, Budget, ExemplarQuery, KnownMetric, Labels, METRIC_NAME, MatchOp,
    MetadataQuery, Selection, SeriesExemplars, SeriesSet, SmolStr, Source, SourceError,
};

use super::active::Client;
use super::scoped::{Fact, ScopedFacts};
use crate::tenancy::Scope;

/// Maximum number of metrics; beyond it, those that were not queried for the longest time are
/// evicted.
const METRICS_MAX: usize = 20_000;
/// Maximum bytes of the name of a metric; longer ones are not noted.
const NAME_BYTES_MAX: usize = 512;

/// Times of the last queries of metrics.
#[derive(Debug)]
pub(crate) struct MetricUses {
    began: Instant,
    uses: Mutex<ScopedFacts<MetricUse>>,
}

/// Queries of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MetricUse {
    /// Number of selections.
    pub(crate) count: u64,
    /// Last selection by the system clock.
    pub(crate) last: SystemTime,
    /// Last selection, in seconds since the start of the server.
    last_seconds: f64,
}

impl Fact for MetricUse {
    fn worth(&self, _: f64) -> f64 {
        self.last_seconds
    }
}

impl Default for MetricUses {
    fn default() -> Self {
        MetricUses { began: Instant::now(), uses: Mutex::new(ScopedFacts::new(METRICS_MAX)) }
    }
}

impl MetricUses {
    fn note(&self, scope: Option<&Scope>, selection: &Selection) {
        for matcher in &selection.matchers {
            let is_metric = matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal;
            if is_metric && matcher.value().len() <= NAME_BYTES_MAX {
                self.note_metric(scope, matcher.value());
            }
        }
    }

    fn note_metric(&self, scope: Option<&Scope>, metric: &str) {
        let (last, last_seconds) = (SystemTime::now(), self.began.elapsed().as_secs_f64());
        let new = || MetricUse { count: 0, last, last_seconds };
        self.uses().update(scope, metric, last_seconds, new, |used| {
            *used = MetricUse { count: used.count + 1, last, last_seconds };
        });
    }

    /// Returns the queries of metrics that a client may see, in the order of the names.
    pub(crate) fn visible_to<'n>(
        &self,
        client: &Client,
        metrics: impl IntoIterator<Item = &'n str>,
    ) -> Vec<Option<MetricUse>> {
        let uses = self.uses();
        let is_visible = |scope: Option<&Scope>| Client::of_scope(scope).is_visible_to(client);
        let joined = |a: MetricUse, b: MetricUse| MetricUse {
            count: a.count + b.count,
            ..if a.last_seconds >= b.last_seconds { a } else { b }
        };
        let scopes = uses.by_text(is_visible);
        let of_metric = |metric: &str| {
            scopes.iter().filter_map(|uses| uses.get(metric)).copied().reduce(joined)
        };
        metrics.into_iter().map(of_metric).collect()
    }

    fn uses(&self) -> MutexGuard<'_, ScopedFacts<MetricUse>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a source that notes the metrics of selections for a client's scope.
pub(crate) fn noting(
    inner: Arc<dyn Source>,
    uses: &Arc<MetricUses>,
    client: &Client,
) -> Arc<dyn Source> {
    Arc::new(NotingSource { inner, uses: Arc::clone(uses), scope: client.scope().cloned() })
}

/// Source that notes the metrics of selections.
struct NotingSource {
    inner: Arc<dyn Source>,
    uses: Arc<MetricUses>,
    scope: Option<Scope>,
}

impl Source for NotingSource {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        self.uses.note(self.scope.as_ref(), selection);
        self.inner.select(selection, budget)
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

    fn version(&self) -> Option<u64> {
        self.inner.version()
    }

    fn unchanged_since(&self, version: u64) -> Range<i64> {
        self.inner.unchanged_since(version)
    }

    fn exemplars(
        &self,
        query: &ExemplarQuery,
        budget: &Budget,
    ) -> Result<Answer<SeriesExemplars>, SourceError> {
        self.inner.exemplars(query, budget)
    }

    fn metadata(&self, metric: Option<&str>, limit: usize) -> Answer<KnownMetric> {
        self.inner.metadata(metric, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_queried_metrics_are_evicted() {
        let uses = MetricUses::default();
        let client = Client::default();
        for number in 0..METRICS_MAX {
            uses.note_metric(None, &format!("m{number}"));
        }
        uses.note_metric(None, "m0");
        uses.note_metric(None, "new");
        let found = uses.visible_to(&client, ["m0", "new", "m1"]);
        let counts: Vec<_> = found.iter().map(|used| used.map(|used| used.count)).collect();
        assert_eq!(counts, [Some(2), Some(1), None]);
    }
}
