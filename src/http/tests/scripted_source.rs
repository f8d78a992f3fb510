//! Source whose answer depends on the metric that a query selects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::memory::MemorySource;
use model::{
    BoxFuture, Budget, BudgetError, Labels, METRIC_NAME, MetadataQuery, Selection, SeriesSet,
    SmolStr, Source, SourceError,
};

/// Reads of the object store that the metric `cold` takes.
const COLD_READS: u64 = 1000;

/// Some series, and metrics that fail, take resources, or never load.
pub(crate) struct ScriptedSource {
    series: MemorySource,
    /// Set when a selection of `forever` is dropped.
    pub(super) is_dropped: Arc<AtomicBool>,
}

/// Records that a future is dropped.
struct DropNote(Arc<AtomicBool>);

impl Drop for DropNote {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Default for ScriptedSource {
    fn default() -> Self {
        let mut series = MemorySource::new();
        for (name, job) in [("up", "a"), ("up", "b"), ("down", "a<b")] {
            series.append(&Labels::from_pairs([(METRIC_NAME, name), ("job", job)]), 1000, 1.0);
        }
        series.append(&Labels::from_pairs([(METRIC_NAME, "late"), ("a.b", "x")]), 50_000, 1.0);
        ScriptedSource { series, is_dropped: Arc::default() }
    }
}

impl ScriptedSource {
    /// Returns the series of a scripted metric, none for others.
    async fn scripted(
        &self,
        metric: &str,
        selection: &Selection,
        budget: &Budget,
    ) -> Result<MemorySource, SourceError> {
        let mut series = MemorySource::new();
        match metric {
            "long" => budget.charge_series(10_000)?,
            "forever" => {
                budget.charge_series(10_000)?;
                let _note = DropNote(Arc::clone(&self.is_dropped));
                futures::future::pending::<()>().await;
            }
            "cold" => {
                (0..COLD_READS).for_each(|_| budget.note_object_store_read());
                budget.check_object_store()?;
            }
            "samples" => budget.charge_samples(11)?,
            "canceled" => return Err(BudgetError::Canceled.into()),
            "timeout" => {
                let timeout = budget.limits().timeout.unwrap_or_default();
                return Err(BudgetError::TimedOut(timeout).into());
            }
            "unavailable" => return Err(SourceError::Unavailable("no answer".to_owned())),
            "corrupt" => {
                return Err(SourceError::Corrupt {
                    series: "{a=\"b\"}".to_owned(),
                    location: "block 7".to_owned(),
                    detail: "checksum".to_owned(),
                });
            }
            "ratio" => {
                for (job, value) in [("a", 1.0), ("b", 0.5)] {
                    let labels = Labels::from_pairs([(METRIC_NAME, metric), ("job", job)]);
                    series.append(&labels, selection.times.end_ms - 1, 0.0);
                    series.append(&labels, selection.times.end_ms, value);
                }
            }
            // One sample, whose value is the length of the selected range.
            "length_ms" => {
                let (start_ms, end_ms) = (selection.times.start_ms, selection.times.end_ms);
                let labels = Labels::from_pairs([(METRIC_NAME, metric)]);
                series.append(&labels, end_ms, (end_ms - start_ms + 1) as f64);
            }
            _ => {}
        }
        Ok(series)
    }
}

impl Source for ScriptedSource {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        Box::pin(async move {
            let metric = selection.matchers.iter().find(|matcher| matcher.name() == METRIC_NAME);
            let metric = metric.map_or("", |matcher| matcher.value());
            let scripted = self.scripted(metric, selection, budget).await?;
            let is_scripted = scripted.iter().next().is_some();
            let source = if is_scripted { &scripted } else { &self.series };
            source.select(selection, budget).await
        })
    }

    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        self.series.series(query, budget)
    }

    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        self.series.label_names(query, budget)
    }

    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        self.series.label_values(name, query, budget)
    }
}
