//! The store as a source of queries.

use std::ops::Range;
use std::sync::Arc;

use model::{
    Answer, BoxFuture, Budget, ExemplarQuery, KnownMetric, Labels, MetadataQuery, Selection,
    SeriesExemplars, SeriesSet, SmolStr, Source, SourceError,
};

use super::Store;
use crate::read::cardinality::{self, CardinalityQuery, DayCardinality};
use crate::read::days::{DayBlocks, day_blocks};
use crate::read::names;
use crate::read::select::{Pin, is_lost, select};
use crate::read::series;

impl Store {
    /// Reads under a pin, and once more under a new one if a follower has replaced missing SSTs.
    async fn read_twice<T, F>(&self, pin: Pin, read: impl Fn(Pin) -> F) -> Result<T, SourceError>
    where
        F: Future<Output = Result<T, SourceError>>,
    {
        let first = read(pin).await;
        if !self.has_other_files(is_lost(&first)).await {
            return first;
        }
        read(Pin::new(&self.core)).await
    }

    /// Counts the series of a day and of the day before by metric and label, without reading
    /// samples.
    ///
    /// Errors: the lookup exceeds its budget, or the index cannot be read.
    pub async fn day_cardinality(
        &self,
        query: &CardinalityQuery,
        budget: &Budget,
    ) -> Result<DayCardinality, SourceError> {
        let pin = Pin::new(&self.core);
        self.read_twice(pin, move |pin| async move {
            cardinality::cardinality(&self.core, &pin, query, budget).await
        })
        .await
    }

    /// Counts the blocks of at most `days_max` of the newest sealed days, the newest first. Reads
    /// run directories, not blocks.
    ///
    /// Errors: the lookup exceeds its budget, or the directories cannot be read.
    pub async fn day_blocks(
        &self,
        days_max: usize,
        budget: &Budget,
    ) -> Result<Vec<DayBlocks>, SourceError> {
        let pin = Pin::new(&self.core);
        let read = move |pin| async move { day_blocks(&self.core, &pin, days_max, budget).await };
        self.read_twice(pin, read).await
    }
}

impl Source for Store {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        // All selections of a query are made before the first is polled: they see the same times.
        let pin = Pin::new(&self.core);
        Box::pin(self.read_twice(pin, move |pin| select(&self.core, pin, selection, budget)))
    }

    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        let pin = Pin::new(&self.core);
        Box::pin(self.read_twice(pin, move |pin| async move {
            series::series(&self.core, &pin, query, budget).await
        }))
    }

    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        let pin = Pin::new(&self.core);
        Box::pin(self.read_twice(pin, move |pin| async move {
            names::label_names(&self.core, &pin, query, budget).await
        }))
    }

    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        let pin = Pin::new(&self.core);
        Box::pin(self.read_twice(pin, move |pin| async move {
            names::label_values(&self.core, &pin, name, query, budget).await
        }))
    }

    fn version(&self) -> Option<u64> {
        Some(self.core.head.changes.version())
    }

    fn unchanged_since(&self, version: u64) -> Range<i64> {
        let changes = &self.core.head.changes;
        let start_ms = self.core.observe_visible_min_ms().max(changes.expired_since(version));
        start_ms..changes.earliest_since(version)
    }

    fn exemplars(
        &self,
        query: &ExemplarQuery,
        budget: &Budget,
    ) -> Result<Answer<SeriesExemplars>, SourceError> {
        Ok(self.core.exemplar_ring.select(query, budget)?)
    }

    fn metadata(&self, metric: Option<&str>, limit: usize) -> Answer<KnownMetric> {
        self.core.metadata.list(metric, limit)
    }
}
