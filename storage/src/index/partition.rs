//! Index of one sealed partition: postings, results of matchers, labels and runs, each read from
//! the LSM on first use.
//!
//! Ids of a partition are only ever added, and the index covers the first `series_count`: later
//! ones are left out, so the time of the read does not matter. All data is verified when it is
//! read, and damaged data is not kept.
//!
//! Futures that read the LSM take kilobytes, and moving them takes longer than a lookup. So they are
//! boxed where data is missing, and a future that finds its data in memory is small.

mod pages;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use foldhash::fast::RandomState;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use hashbrown::HashMap;
use model::{MatchOp, Matcher, SourceError};
use roaring::RoaringBitmap;
use smol_str::SmolStr;

use pages::LabelPage;

use super::cache::Usage;
use super::ids::Ids;
use super::postings::{decode_postings, parse_postings};
use super::results::{MatcherRef, Resolved, Results, SelectionRef};
use super::runs::RunIndex;
use super::{KnownLabels, Lookup, Term, combine, term, wants};
use crate::keys;
use crate::lock::lock;
use crate::lsm::Lsm;
use crate::parallel::yielder::Yielder;
use crate::sizes::Sizes;
use crate::window::PartitionId;

/// A range is read as a whole if more than its size divided by this is wanted.
const RANGE_SHARE: usize = 8;
/// All values of a label are read at once if the wanted ones, times this, exceed the series: a
/// separate scan costs as much as this many keys.
const VALUES_SHARE: usize = 16;
/// Bytes that an entry counts in addition to its own.
const ENTRY_BYTES: usize = 96;

/// Index of a partition in one state.
#[derive(Clone)]
pub(crate) struct PartitionIndex {
    pub(crate) partition: PartitionId,
    /// Number of the state of its series. Equal numbers mean equal series.
    pub(crate) state: u64,
    /// Number of registered series: ids start at 0.
    pub(crate) series_count: u32,
    /// Deleted ids, which are not used again.
    pub(crate) deleted: Arc<RoaringBitmap>,
    index: Arc<IndexContents>,
    /// Runs of each metric.
    pub(crate) runs: Arc<RunIndex>,
    pub(super) sizes: Sizes,
    usage: Arc<Usage>,
}

/// Postings and labels.
struct IndexContents {
    bytes: AtomicUsize,
    /// Names of all labels.
    names: Mutex<Option<Arc<[SmolStr]>>>,
    /// Values of each label.
    values: Mutex<HashMap<Box<str>, Arc<LabelValues>, RandomState>>,
    results: Mutex<Results>,
    /// Pages of the forward index.
    pages: Mutex<Vec<Option<LabelPage>>>,
    order: OnceLock<Order>,
}

/// Relation of the order of ids to that of labels. Series that are registered together have ids in
/// the order of their labels.
#[derive(Clone)]
pub(crate) enum Order {
    /// Ids are in the order of labels.
    ById,
    /// Rank of each id.
    Ranks(Arc<[u32]>),
}

/// Values of one label in order, with the ids of each.
pub(crate) type LabelValues = [(SmolStr, Ids)];

impl PartitionIndex {
    /// Creates an empty index.
    pub(crate) fn new(
        partition: PartitionId,
        state: u64,
        series_count: u32,
        deleted: Arc<RoaringBitmap>,
        results_max: usize,
        sizes: Sizes,
        usage: Arc<Usage>,
    ) -> PartitionIndex {
        let index = Arc::new(IndexContents::new(results_max));
        let runs = Arc::default();
        PartitionIndex { partition, state, series_count, deleted, index, runs, sizes, usage }
    }

    /// Returns the index with more series; full pages stay valid.
    pub(crate) fn with_series_count(&self, state: u64, series_count: u32) -> PartitionIndex {
        let index = IndexContents::new(self.results_max());
        let mut pages = lock(&self.index.pages).clone();
        pages.truncate((self.series_count.min(series_count) / self.sizes.page_ids) as usize);
        let bytes = pages.iter().flatten().map(|page| page.bytes).sum();
        index.bytes.store(bytes, Ordering::Relaxed);
        *lock(&index.pages) = pages;
        let (index, runs) = (Arc::new(index), Arc::clone(&self.runs));
        PartitionIndex { state, series_count, index, runs, ..self.clone() }
    }

    /// Returns the index without cached runs.
    pub(crate) fn without_cached_runs(&self) -> PartitionIndex {
        PartitionIndex { runs: Arc::default(), ..self.clone() }
    }

    /// Returns whether results are kept for later queries.
    pub(crate) fn is_cached(&self) -> bool {
        self.results_max() > 0
    }

    /// Returns the bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.index.bytes.load(Ordering::Relaxed) + self.runs.bytes()
    }

    /// Counts a hit or a miss.
    pub(super) fn count_lookup(&self, is_known: bool) {
        if is_known {
            self.usage.hit();
        } else {
            self.usage.miss();
        }
    }

    /// Returns the ids of the series that pass all matchers.
    pub(crate) async fn resolve(
        &self,
        lsm: &Lsm,
        matchers: &[Matcher],
        yielder: &mut Yielder,
    ) -> Result<RoaringBitmap, SourceError> {
        let wanted: Vec<_> = matchers
            .iter()
            .filter_map(|m| term(m).map(|(term, lookup)| (m, term, lookup)))
            .collect();
        if let Some(terms) = self.known_terms(&wanted) {
            self.count_lookup(true);
            return Ok(self.combined(&terms));
        }
        // Together: each waits for the object store.
        let reads: Vec<BoxFuture<'_, _>> = wanted
            .into_iter()
            .map(|(matcher, term, lookup)| {
                let mut yielder = yielder.fork();
                let read = async move {
                    let ids = self.ids(lsm, matcher, term, lookup, &mut yielder).await?;
                    Ok::<_, SourceError>((term, ids))
                };
                read.boxed()
            })
            .collect();
        let mut terms = Vec::with_capacity(reads.len());
        let mut reads = stream::iter(reads).buffered(lsm.reads_at_once());
        while let Some((term, ids)) = reads.try_next().await? {
            if term == Term::Keep && ids.is_empty() {
                return Ok(RoaringBitmap::new());
            }
            terms.push((term, ids));
        }
        Ok(self.combined(&terms))
    }

    /// Returns the ids of the terms of matchers, if all of them are known.
    fn known_terms(
        &self,
        wanted: &[(&Matcher, Term, Lookup<'_>)],
    ) -> Option<Vec<(Term, Arc<RoaringBitmap>)>> {
        let results = lock(&self.index.results);
        let known = |(matcher, term, _): &(&Matcher, Term, _)| {
            Some((*term, results.ids(MatcherRef::of(matcher))?))
        };
        wanted.iter().map(known).collect()
    }

    /// Combines the terms of matchers to the ids of series that exist.
    fn combined(&self, terms: &[(Term, Arc<RoaringBitmap>)]) -> RoaringBitmap {
        let mut ids = combine(|| (0..self.series_count).collect(), terms);
        ids -= &*self.deleted;
        ids
    }

    /// Returns whether the ids of a matcher's term are known.
    pub(super) fn knows(&self, matcher: &Matcher) -> bool {
        self.result(MatcherRef::of(matcher)).is_some()
            || self.known_values(matcher.name()).is_some()
    }

    /// Records that a matcher's term has no ids.
    pub(super) fn note_none(&self, matcher: &Matcher) {
        self.keep_result(MatcherRef::of(matcher), RoaringBitmap::new());
    }

    /// Returns the ids of a matcher's term.
    async fn ids(
        &self,
        lsm: &Lsm,
        matcher: &Matcher,
        term: Term,
        lookup: Lookup<'_>,
        yielder: &mut Yielder,
    ) -> Result<Arc<RoaringBitmap>, SourceError> {
        let key = MatcherRef::of(matcher);
        if let Some(known) = self.result(key) {
            self.count_lookup(true);
            return Ok(known);
        }
        match lookup {
            Lookup::Values(values) => match values[..] {
                [only] => self.ids_of_pair(lsm, matcher.name(), only).await,
                _ => {
                    let ids = self.ids_of_values(lsm, matcher.name(), &values, yielder).await?;
                    Ok(self.keep_result(key, ids))
                }
            },
            Lookup::Prefix(prefix) => {
                let ids = self.ids_of_prefix(lsm, matcher, term, prefix, yielder).await?;
                Ok(self.keep_result(key, ids))
            }
        }
    }

    /// Returns the ids with any of some values of a label.
    pub(super) async fn ids_of_values(
        &self,
        lsm: &Lsm,
        name: &str,
        values: &[&str],
        yielder: &mut Yielder,
    ) -> Result<RoaringBitmap, SourceError> {
        if values.len() * VALUES_SHARE > self.series_count as usize {
            self.label_values(lsm, name, yielder).await?;
        }
        let mut union = RoaringBitmap::new();
        let reads: Vec<BoxFuture<'_, _>> =
            values.iter().map(|value| self.ids_of_pair(lsm, name, value).boxed()).collect();
        let mut reads = stream::iter(reads).buffered(lsm.reads_at_once());
        while let Some(ids) = reads.try_next().await? {
            yielder.work(1).await?;
            union |= &*ids;
        }
        Ok(union)
    }

    /// Returns the ids of one label pair.
    async fn ids_of_pair(
        &self,
        lsm: &Lsm,
        name: &str,
        label_value: &str,
    ) -> Result<Arc<RoaringBitmap>, SourceError> {
        let key = MatcherRef { op: MatchOp::Equal, name, value: label_value };
        if let Some(known) = self.result(key) {
            self.count_lookup(true);
            return Ok(known);
        }
        let mut ids = RoaringBitmap::new();
        if let Some(table) = self.known_values(name) {
            self.count_lookup(true);
            if let Ok(at) = table.binary_search_by(|(value, _)| (**value).cmp(label_value)) {
                table[at].1.add_to(&mut ids);
            }
            return Ok(self.keep_result(key, ids));
        }
        self.count_lookup(false);
        let mut scan =
            lsm.scan_prefix(&keys::postings_of_pair(self.partition, name, label_value)).await?;
        while let Some((key, bytes)) = scan.next().await? {
            ids |= decode_postings(&key, &bytes)?;
        }
        Ok(self.keep_result(key, ids))
    }

    /// Returns the ids of a matcher's term among the values with a prefix.
    async fn ids_of_prefix(
        &self,
        lsm: &Lsm,
        matcher: &Matcher,
        term: Term,
        prefix: &str,
        yielder: &mut Yielder,
    ) -> Result<RoaringBitmap, SourceError> {
        let mut union = RoaringBitmap::new();
        let known = self.known_values(matcher.name());
        if known.is_some() || prefix.is_empty() {
            let table = match known {
                Some(table) => table,
                None => self.label_values(lsm, matcher.name(), yielder).await?,
            };
            let start = table.partition_point(|(value, _)| **value < *prefix);
            for (value, ids) in &table[start..] {
                if !value.starts_with(prefix) {
                    break;
                }
                yielder.work(1).await?;
                if wants(matcher, term, value) {
                    ids.add_to(&mut union);
                }
            }
            return Ok(union);
        }
        self.count_lookup(false);
        let prefix = keys::postings_of_value_prefix(self.partition, matcher.name(), prefix);
        let mut scan = lsm.scan_prefix(&prefix).await?;
        while let Some((key, bytes)) = scan.next().await? {
            yielder.work(1).await?;
            let (_, value) = parse_postings(&key)?;
            if wants(matcher, term, &value) {
                union |= decode_postings(&key, &bytes)?;
            }
        }
        Ok(union)
    }

    /// Returns all values of a label, in order.
    pub(crate) async fn label_values(
        &self,
        lsm: &Lsm,
        name: &str,
        yielder: &mut Yielder,
    ) -> Result<Arc<LabelValues>, SourceError> {
        if let Some(known) = self.known_values(name) {
            self.count_lookup(true);
            return Ok(known);
        }
        self.count_lookup(false);
        Box::pin(self.read_label_values(lsm, name, yielder)).await
    }

    /// Reads all values of a label, and keeps them.
    async fn read_label_values(
        &self,
        lsm: &Lsm,
        name: &str,
        yielder: &mut Yielder,
    ) -> Result<Arc<LabelValues>, SourceError> {
        let mut table: Vec<(SmolStr, Ids)> = Vec::new();
        let mut scan = lsm.scan_prefix(&keys::postings_of_name(self.partition, name)).await?;
        while let Some((key, bytes)) = scan.next().await? {
            yielder.work(1).await?;
            let (_, value) = parse_postings(&key)?;
            let mut ids = decode_postings(&key, &bytes)?;
            ids.remove_range(self.series_count..);
            ids -= &*self.deleted;
            if ids.is_empty() {
                continue;
            }
            match table.last_mut() {
                Some((last, known)) if last.as_str() == value => known.extend(ids),
                _ => table.push((value.into(), Ids::of(ids))),
            }
        }
        let table: Arc<LabelValues> = table.into();
        let bytes = ENTRY_BYTES + name.len() + table.iter().map(entry_bytes).sum::<usize>();
        if lock(&self.index.values).insert(name.into(), Arc::clone(&table)).is_none() {
            self.index.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(table)
    }

    /// Returns the names of all labels, in order.
    pub(crate) async fn names(
        &self,
        lsm: &Lsm,
        yielder: &mut Yielder,
    ) -> Result<Arc<[SmolStr]>, SourceError> {
        if let Some(known) = lock(&self.index.names).clone() {
            self.count_lookup(true);
            return Ok(known);
        }
        self.count_lookup(false);
        Box::pin(self.read_names(lsm, yielder)).await
    }

    /// Reads the names of all labels, and keeps them.
    async fn read_names(
        &self,
        lsm: &Lsm,
        yielder: &mut Yielder,
    ) -> Result<Arc<[SmolStr]>, SourceError> {
        let mut names: Vec<SmolStr> = Vec::new();
        let mut start = keys::postings(self.partition);
        let end = keys::postings_end(self.partition);
        // One scan per name, as a name may have any number of values.
        while let Some((key, bytes)) = lsm.first(&start, &end).await? {
            yielder.work(1).await?;
            let (name, _) = parse_postings(&key)?;
            start = keys::postings_after_name(self.partition, &name);
            let is_there = |id: u32| id < self.series_count && !self.deleted.contains(id);
            let is_registered = decode_postings(&key, &bytes)?.min().is_some_and(is_there);
            if is_registered || !self.label_values(lsm, &name, yielder).await?.is_empty() {
                names.push(name.into());
            }
        }
        let names: Arc<[SmolStr]> = names.into();
        let bytes =
            ENTRY_BYTES + names.iter().map(|name| size_of_val(name) + name.len()).sum::<usize>();
        if lock(&self.index.names).replace(Arc::clone(&names)).is_none() {
            self.index.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(names)
    }

    fn known_values(&self, name: &str) -> Option<Arc<LabelValues>> {
        lock(&self.index.values).get(name).cloned()
    }

    pub(super) fn result(&self, key: MatcherRef<'_>) -> Option<Arc<RoaringBitmap>> {
        lock(&self.index.results).ids(key)
    }

    pub(super) fn keep_result(
        &self,
        key: MatcherRef<'_>,
        mut ids: RoaringBitmap,
    ) -> Arc<RoaringBitmap> {
        ids.remove_range(self.series_count..);
        let ids = Arc::new(ids);
        self.keep(|results| results.keep_ids(key, Arc::clone(&ids)));
        ids
    }

    /// Changes the results of matchers, and accounts for the bytes.
    fn keep(&self, change: impl FnOnce(&mut Results)) {
        let mut results = lock(&self.index.results);
        let before = results.bytes();
        change(&mut results);
        self.index.bytes.fetch_add(results.bytes(), Ordering::Relaxed);
        self.index.bytes.fetch_sub(before, Ordering::Relaxed);
    }

    fn results_max(&self) -> usize {
        lock(&self.index.results).bytes_max()
    }

    /// Returns the series that pass all matchers, if an earlier query has resolved them.
    pub(super) fn known_series(&self, selection: &SelectionRef<'_>) -> Option<Arc<Resolved>> {
        lock(&self.index.results).series(selection)
    }

    /// Returns the series that pass all matchers.
    pub(crate) async fn series(
        &self,
        lsm: &Lsm,
        known: &Arc<impl KnownLabels>,
        matchers: &[Matcher],
        yielder: &mut Yielder,
    ) -> Result<Arc<Resolved>, SourceError> {
        match self.kept_series(matchers) {
            Some(kept) => Ok(kept),
            None => Box::pin(self.find_series(lsm, known, matchers, yielder)).await,
        }
    }

    /// Returns the series that pass all matchers, if an earlier query has resolved them. Counts them
    /// as a hit.
    pub(crate) fn kept_series(&self, matchers: &[Matcher]) -> Option<Arc<Resolved>> {
        let kept = self.known_series(&SelectionRef::of(matchers))?;
        self.count_lookup(true);
        Some(kept)
    }

    /// Keeps all series that pass the matchers, for later queries.
    pub(crate) fn keep_series(&self, matchers: &[Matcher], series: &Arc<Resolved>) {
        self.keep(|results| results.keep_series(matchers, Arc::clone(series)));
    }

    /// Finds the series that pass all matchers, and keeps them.
    async fn find_series(
        &self,
        lsm: &Lsm,
        known: &Arc<impl KnownLabels>,
        matchers: &[Matcher],
        yielder: &mut Yielder,
    ) -> Result<Arc<Resolved>, SourceError> {
        let ids = self.resolve(lsm, matchers, yielder).await?;
        let labels = self.labels_of(lsm, known, &ids, yielder).await?;
        let series = Arc::new(Resolved::new(labels));
        self.keep_series(matchers, &series);
        Ok(series)
    }
}

impl IndexContents {
    fn new(results_max: usize) -> IndexContents {
        IndexContents {
            bytes: AtomicUsize::new(ENTRY_BYTES),
            names: Mutex::default(),
            values: Mutex::default(),
            results: Mutex::new(Results::new(results_max)),
            pages: Mutex::default(),
            order: OnceLock::new(),
        }
    }
}

/// Returns the bytes of a label value with its ids.
pub(crate) fn entry_bytes((value, ids): &(SmolStr, Ids)) -> usize {
    value.len() + 40 + ids.heap_bytes()
}
