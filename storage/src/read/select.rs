//! Resolving and loading: `model::Source` for the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{
    BoxFuture, Budget, Labels, Matcher, MetadataQuery, Selection, SeriesSet, Source, SourceError,
};

use super::cursor::SeriesParts;
use super::set::{Charge, LoadedSet};
use crate::head::series::Part;
use crate::index::partition::{self, Loaded};
use crate::store::{Inner, Store};

/// Bytes that a series counts beside its samples.
const SERIES_BYTES: usize = 128;
/// Series between two looks at the deadline.
const CHECK_EVERY: usize = 1024;

impl Source for Store {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        Box::pin(async move {
            let set = select(self.inner(), selection, budget).await?;
            Ok(Arc::new(set) as Arc<dyn SeriesSet>)
        })
    }

    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        Box::pin(async move {
            let labels = matching_labels(self.inner(), query, budget).await?;
            Ok(limited(labels, query.limit))
        })
    }

    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<String>, SourceError>> {
        Box::pin(async move {
            let labels = matching_labels(self.inner(), query, budget).await?;
            let names: BTreeSet<&str> =
                labels.iter().flat_map(|l| l.iter().map(|(name, _)| name)).collect();
            Ok(limited(names.into_iter().map(str::to_owned), query.limit))
        })
    }

    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<String>, SourceError>> {
        Box::pin(async move {
            let labels = matching_labels(self.inner(), query, budget).await?;
            let values: BTreeSet<&str> =
                labels.iter().map(|l| l.get(name)).filter(|value| !value.is_empty()).collect();
            Ok(limited(values.into_iter().map(str::to_owned), query.limit))
        })
    }
}

fn limited<T>(items: impl IntoIterator<Item = T>, limit: usize) -> Vec<T> {
    items.into_iter().take(if limit == 0 { usize::MAX } else { limit }).collect()
}

/// The parts of one series that have been found, sealed ones before those of the head.
struct Found {
    labels: Labels,
    parts: Vec<Part>,
}

async fn select(
    inner: &Inner,
    selection: &Selection,
    budget: &Budget,
) -> Result<LoadedSet, SourceError> {
    let (start_ms, end_ms) = (selection.start_ms.max(inner.visible_min_ms()), selection.end_ms);
    let mut charge = Charge::new(budget);
    let head = select_head(inner, &selection.matchers, start_ms, end_ms, &mut charge, budget)?;
    let mut found = Vec::new();
    let partitions = inner.partitions_between(start_ms, end_ms);
    let partitions = partition::prune(&inner.lsm, partitions, &selection.matchers).await?;
    for partition in partitions {
        budget.check()?;
        let Loaded { series } = partition::load(
            &inner.lsm,
            partition,
            &selection.matchers,
            (start_ms, end_ms),
            &mut |bytes| charge.add(bytes).map_err(SourceError::from),
            budget,
        )
        .await?;
        found.extend(series.into_iter().map(|(labels, parts)| Found { labels, parts }));
    }
    found.extend(head);
    budget.check()?;
    // Stable: of one series the sealed parts stay before those of the head, and the earlier
    // partition before the later one.
    found.sort_by(|a, b| a.labels.cmp(&b.labels));
    let mut series: Vec<(Labels, SeriesParts)> = Vec::new();
    let mut encoded_bytes = 0;
    let mut rest = found.into_iter().peekable();
    while let Some(Found { labels, mut parts }) = rest.next() {
        while let Some(same) = rest.next_if(|next| next.labels == labels) {
            parts.extend(same.parts);
        }
        let parts = SeriesParts::new(parts, start_ms, end_ms, &labels)?;
        if parts.is_empty() {
            continue;
        }
        encoded_bytes += parts.bytes();
        series.push((labels, parts));
    }
    budget.charge_series(series.len() as u64)?;
    Ok(LoadedSet { series, start_ms, end_ms, encoded_bytes, _charge: charge })
}

/// Copies what the head holds of the series that match.
fn select_head(
    inner: &Inner,
    matchers: &[Matcher],
    start_ms: i64,
    end_ms: i64,
    charge: &mut Charge,
    budget: &Budget,
) -> Result<Vec<Found>, SourceError> {
    let mut found = Vec::new();
    let mut result = Ok(());
    inner.head.for_each_matching(matchers, |_, series| {
        if result.is_err() || !series.overlaps(start_ms, end_ms) {
            return;
        }
        let mut parts = Vec::new();
        series.parts(start_ms, end_ms, &mut parts);
        let bytes: usize = parts.iter().map(Part::bytes).sum();
        result = charge.add(bytes + SERIES_BYTES);
        if found.len() % CHECK_EVERY == 0 && result.is_ok() {
            result = budget.check();
        }
        found.push(Found { labels: series.labels.clone(), parts });
    });
    result?;
    Ok(found)
}

/// The label sets that pass any of the selectors, sorted, each once.
async fn matching_labels(
    inner: &Inner,
    query: &MetadataQuery,
    budget: &Budget,
) -> Result<BTreeSet<Labels>, SourceError> {
    let (start_ms, end_ms) = (query.start_ms.max(inner.visible_min_ms()), query.end_ms);
    let mut charge = Charge::new(budget);
    let mut labels = BTreeSet::new();
    let any = [Vec::new()];
    let selectors = if query.selectors.is_empty() { &any[..] } else { &query.selectors[..] };
    for matchers in selectors {
        let mut result = Ok(());
        inner.head.for_each_matching(matchers, |_, series| {
            if result.is_ok()
                && series.overlaps(start_ms, end_ms)
                && labels.insert(series.labels.clone())
            {
                result = charge.add(SERIES_BYTES);
            }
        });
        result?;
        let partitions = inner.partitions_between(start_ms, end_ms);
        for partition in partition::prune(&inner.lsm, partitions, matchers).await? {
            budget.check()?;
            let ids = partition::resolve(&inner.lsm, partition, matchers).await?;
            for (_, found) in partition::labels_of(&inner.lsm, partition, &ids).await? {
                if !labels.contains(&found) {
                    charge.add(SERIES_BYTES + found.as_bytes().len())?;
                    labels.insert(found);
                }
            }
        }
    }
    Ok(labels)
}
