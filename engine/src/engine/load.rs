//! Loading the selections of a query.

use std::sync::Arc;
use std::time::Instant;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use model::{BoxFuture, Budget, ObjectStoreCost, Selection, SeriesSet, Source, SourceError};

use crate::exec::selector::bucketless::BucketlessSet;
use crate::plan::LoadCost;
use crate::steps::BucketlessLook;

/// Maximum number of selectors of one query that load at a time.
const SELECTIONS_LOADING_MAX: usize = 16;

/// Loads all selections of a query concurrently; equal selections are loaded once.
pub(super) async fn load(
    source: &dyn Source,
    selections: &[Selection],
    budget: &Budget,
) -> Result<Vec<Arc<dyn SeriesSet>>, SourceError> {
    let mut distinct: Vec<&Selection> = Vec::new();
    let mut places = Vec::with_capacity(selections.len());
    for selection in selections {
        let place = distinct.iter().position(|known| is_same(known, selection));
        places.push(place.unwrap_or(distinct.len()));
        if place.is_none() {
            distinct.push(selection);
        }
    }
    // Made before they are polled: a stream that calls a closure is not seen to be `Send`.
    let loading: Vec<BoxFuture<'_, _>> =
        distinct.into_iter().map(|selection| source.select(selection, budget)).collect();
    let sets: Vec<Arc<dyn SeriesSet>> =
        stream::iter(loading).buffered(SELECTIONS_LOADING_MAX).try_collect().await?;
    Ok(places.into_iter().map(|place| Arc::clone(&sets[place])).collect())
}

/// Loads all selections of a query one after the other; returns the cost of each, too.
pub(super) async fn load_one_by_one(
    source: &dyn Source,
    selections: &[Selection],
    budget: &Budget,
) -> Result<(Vec<Arc<dyn SeriesSet>>, Vec<LoadCost>), SourceError> {
    let mut sets: Vec<Arc<dyn SeriesSet>> = Vec::with_capacity(selections.len());
    let mut costs = Vec::with_capacity(selections.len());
    for (index, selection) in selections.iter().enumerate() {
        let known = selections[..index].iter().position(|known| is_same(known, selection));
        if let Some(known) = known {
            sets.push(Arc::clone(&sets[known]));
            costs.push(LoadCost::default());
            continue;
        }
        let (started, before) = (Instant::now(), budget.object_store_cost());
        sets.push(source.select(selection, budget).await?);
        let after = budget.object_store_cost();
        costs.push(LoadCost {
            elapsed: started.elapsed(),
            object_store: ObjectStoreCost {
                reads: after.reads - before.reads,
                read_bytes: after.read_bytes - before.read_bytes,
                cached_bytes: after.cached_bytes - before.cached_bytes,
            },
        });
    }
    Ok((sets, costs))
}

/// Returns whether two selections load the same series.
fn is_same(a: &Selection, b: &Selection) -> bool {
    let form = |selection: &Selection| (selection.times, selection.only_newest, selection.windows);
    form(a) == form(b) && a.matchers == b.matchers
}

/// Drops the buckets of histograms in selections that do not need them.
pub(super) fn without_buckets(
    sets: Vec<Arc<dyn SeriesSet>>,
    looks: &[Option<BucketlessLook>],
) -> Vec<Arc<dyn SeriesSet>> {
    let reduced = |(set, look): (Arc<dyn SeriesSet>, &Option<BucketlessLook>)| match look {
        Some(look) if set.has_any_histograms() => Arc::new(BucketlessSet::new(set, *look)),
        _ => set,
    };
    sets.into_iter().zip(looks).map(reduced).collect()
}
