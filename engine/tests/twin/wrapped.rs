//! Source in memory whose cursors are wrapped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use model::memory::MemorySource;
use model::{
    BoxFuture, Budget, Cursor, DerivedValues, Labels, MetadataQuery, Selection, SeriesSet, SmolStr,
    Source, SourceError,
};

/// Wraps the cursor of a series.
pub(crate) type Wrap =
    Arc<dyn for<'a> Fn(Box<dyn Cursor + 'a>) -> Box<dyn Cursor + 'a> + Send + Sync>;

/// Source with wrapped cursors.
pub(crate) struct Wrapped {
    source: Arc<MemorySource>,
    wrap: Wrap,
    /// Values derived from each list of series, for later queries; `None` keeps none.
    derived: Option<Mutex<BTreeMap<Vec<Labels>, Arc<DerivedValues>>>>,
    labels_read: Arc<AtomicUsize>,
}

impl Wrapped {
    pub(crate) fn new(source: Arc<MemorySource>, wrap: Wrap) -> Wrapped {
        Wrapped { source, wrap, derived: None, labels_read: Arc::default() }
    }

    /// Creates a source that keeps what queries derive from its series, and leaves cursors as they
    /// are.
    pub(crate) fn deriving(source: Arc<MemorySource>) -> Wrapped {
        let derived = Some(Mutex::default());
        Wrapped { derived, ..Wrapped::new(source, Arc::new(|cursor| cursor)) }
    }

    /// Returns how many times queries read the labels of a series.
    pub(crate) fn labels_read(&self) -> usize {
        self.labels_read.load(Ordering::Relaxed)
    }
}

struct WrappedSet {
    set: Arc<dyn SeriesSet>,
    wrap: Wrap,
    derived: Option<Arc<DerivedValues>>,
    labels_read: Arc<AtomicUsize>,
}

impl Source for Wrapped {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        Box::pin(async move {
            let set = self.source.select(selection, budget).await?;
            let labels = || (0..set.len()).map(|index| set.labels(index).clone()).collect();
            let derived = self.derived.as_ref().map(|derived| {
                let mut derived = derived.lock().expect("no test panics while it is locked");
                let values = derived.entry(labels());
                Arc::clone(values.or_insert_with(|| Arc::new(DerivedValues::new(1 << 20))))
            });
            let (wrap, labels_read) = (Arc::clone(&self.wrap), Arc::clone(&self.labels_read));
            Ok(Arc::new(WrappedSet { set, wrap, derived, labels_read }) as Arc<dyn SeriesSet>)
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
        self.set.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        self.labels_read.fetch_add(1, Ordering::Relaxed);
        self.set.labels(series_index)
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        (self.wrap)(self.set.cursor(series_index))
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.set.sample_count_estimate(series_index)
    }

    fn encoded_bytes(&self) -> usize {
        self.set.encoded_bytes()
    }

    fn has_histograms(&self, series_index: usize) -> bool {
        self.set.has_histograms(series_index)
    }

    fn derived(&self) -> Option<&DerivedValues> {
        self.derived.as_deref()
    }
}
