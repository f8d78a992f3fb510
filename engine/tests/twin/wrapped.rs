//! Source in memory whose cursors are wrapped.

use std::sync::Arc;

use model::memory::MemorySource;
use model::{
    BoxFuture, Budget, Cursor, Labels, MetadataQuery, Selection, SeriesSet, SmolStr, Source,
    SourceError,
};

/// Wraps the cursor of a series.
pub(crate) type Wrap =
    Arc<dyn for<'a> Fn(Box<dyn Cursor + 'a>) -> Box<dyn Cursor + 'a> + Send + Sync>;

/// Source with wrapped cursors.
pub(crate) struct Wrapped {
    pub(crate) source: Arc<MemorySource>,
    pub(crate) wrap: Wrap,
}

struct WrappedSet(Arc<dyn SeriesSet>, Wrap);

impl Source for Wrapped {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        Box::pin(async move {
            let set = self.source.select(selection, budget).await?;
            Ok(Arc::new(WrappedSet(set, Arc::clone(&self.wrap))) as Arc<dyn SeriesSet>)
        })
    }

    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        self.source.series(query, budget)
    }

    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        self.source.label_names(query, budget)
    }

    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        self.source.label_values(name, query, budget)
    }
}

impl SeriesSet for WrappedSet {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        self.0.labels(series_index)
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        (self.1)(self.0.cursor(series_index))
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.0.sample_count_estimate(series_index)
    }

    fn encoded_bytes(&self) -> usize {
        self.0.encoded_bytes()
    }

    fn has_histograms(&self, series_index: usize) -> bool {
        self.0.has_histograms(series_index)
    }
}
