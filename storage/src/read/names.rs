//! Names and values of labels, from postings, without building label sets.
//!
//! As in Prometheus, the time range selects by the coverage of the index: series of a partition
//! that overlaps the range, and those of the head if it has samples near.

use std::cmp::Ordering;
use std::sync::Arc;

use model::{
    Budget, BudgetError, Checkpoint, Labels, Matcher, MetadataQuery, Reservation, SourceError,
};

use smol_str::SmolStr;

use super::select::Pin;
use crate::core::Core;
use crate::index::lists::ListKey;
use crate::index::partition::PartitionIndex;
use crate::index::results::Resolved;
use crate::index::{Candidate, Ids, is_restricted, prune};
use crate::lsm::Lsm;
use crate::parallel::yielder::Yielder;

/// Bytes that a text counts in addition to its own.
const TEXT_BYTES: usize = 32;
/// Work of merging a text, in bytes touched.
const TEXT_WORK: usize = 64;
/// Maximum number of series for which labels are read instead of all postings.
const LABELS_MAX: u64 = 1024;

/// Kind of the listed texts.
#[derive(Clone, Copy)]
enum ListedNames<'a> {
    Names,
    /// The values of a label.
    Values(&'a str),
}

impl<'a> ListedNames<'a> {
    fn label(self) -> Option<&'a str> {
        match self {
            ListedNames::Names => None,
            ListedNames::Values(name) => Some(name),
        }
    }
}

/// Returns the sorted label names of matching series.
pub(crate) async fn label_names(
    core: &Core,
    pin: &Pin,
    query: &MetadataQuery,
    budget: &Budget,
) -> Result<Vec<SmolStr>, SourceError> {
    list(core, pin, ListedNames::Names, query, budget).await
}

/// Returns the sorted values of a label among matching series.
pub(crate) async fn label_values(
    core: &Core,
    pin: &Pin,
    name: &str,
    query: &MetadataQuery,
    budget: &Budget,
) -> Result<Vec<SmolStr>, SourceError> {
    list(core, pin, ListedNames::Values(name), query, budget).await
}

async fn list(
    core: &Core,
    pin: &Pin,
    wanted: ListedNames<'_>,
    query: &MetadataQuery,
    budget: &Budget,
) -> Result<Vec<SmolStr>, SourceError> {
    let range = pin.visible(query.times);
    let limit = if query.limit == 0 { usize::MAX } else { query.limit };
    let mut union = Union::new(limit, budget);
    let mut yielder = Yielder::new(budget);
    let any = [Vec::new()];
    let selectors = if query.selectors.is_empty() { &any[..] } else { &query.selectors[..] };
    for matchers in selectors {
        if range.start_ms <= range.end_ms && !core.head.is_beside(range.start_ms, range.end_ms) {
            let mut watch = Checkpoint::new(budget);
            let found = match wanted {
                ListedNames::Names => core.head.label_names(matchers, limit, &mut watch)?,
                ListedNames::Values(name) => {
                    core.head.label_values(name, matchers, limit, &mut watch)?
                }
            };
            union.add_own(found)?;
        }
        let (lsm, partitions) = core.partitions_between(range);
        let key = ListKey::of(wanted.label(), matchers, &partitions);
        if let Some(kept) = key.as_ref().and_then(|key| core.kept_texts.find(key)) {
            union.add(kept.iter())?;
            continue;
        }
        let lsm = lsm.for_query(budget);
        // A list that is kept has nothing of the head.
        let mut of_days = key.is_some().then(|| Union::new(limit, budget));
        for Candidate { index, known } in prune(&lsm, partitions, matchers, budget).await? {
            budget.check()?;
            let sealed = Sealed { core, lsm: &lsm, index: &index, matchers, known };
            let to = of_days.as_mut().unwrap_or(&mut union);
            sealed.add_to(to, wanted, &mut yielder).await?;
        }
        if let (Some(key), Some(of_days)) = (key, of_days) {
            if of_days.texts.len() < limit {
                core.kept_texts.keep(key, &of_days.texts);
            }
            union.add_union(of_days)?;
        }
    }
    core.index.trim();
    Ok(union.texts)
}

/// Matching series of one partition.
struct Sealed<'a> {
    core: &'a Core,
    lsm: &'a Lsm,
    index: &'a PartitionIndex,
    matchers: &'a [Matcher],
    known: Option<Arc<Resolved>>,
}

impl Sealed<'_> {
    async fn add_to(
        self,
        union: &mut Union,
        wanted: ListedNames<'_>,
        yielder: &mut Yielder,
    ) -> Result<(), SourceError> {
        let lsm = self.lsm;
        if !is_restricted(self.matchers) {
            match wanted {
                ListedNames::Names => {
                    let names = self.index.names(lsm, yielder).await?;
                    union.add(names.iter())?;
                }
                ListedNames::Values(name) => {
                    let table = self.index.label_values(lsm, name, yielder).await?;
                    union.add(table.iter().map(|(value, _)| value))?;
                }
            }
            return Ok(());
        }
        if let Some(series) = self.known.filter(|series| series.labels.len() as u64 <= LABELS_MAX) {
            return Ok(union.add_known(wanted, series)?);
        }
        let ids = self.index.resolve(lsm, self.matchers, yielder).await?;
        if ids.len() <= LABELS_MAX {
            let head = &self.core.head;
            let series = self.index.series(lsm, head, self.matchers, yielder).await?;
            return Ok(union.add_of(wanted, &series.labels)?);
        }
        // If there are fewer series than values, read the labels of the series.
        if let ListedNames::Values(name) = wanted
            && ids.len() < self.index.label_values(lsm, name, yielder).await?.len() as u64
        {
            let series = self.index.labels_of(lsm, &self.core.head, &ids, yielder).await?;
            return Ok(union.add_of(wanted, &series)?);
        }
        match wanted {
            ListedNames::Names => {
                let mut found = Vec::new();
                let names = self.index.names(lsm, yielder).await?;
                for name in names.iter() {
                    let table = self.index.label_values(lsm, name, yielder).await?;
                    yielder.work(1).await?;
                    if table.iter().any(|(_, of_value)| of_value.intersects(&ids)) {
                        found.push(name);
                    }
                }
                union.add(found.into_iter())?;
            }
            ListedNames::Values(name) => {
                let table = self.index.label_values(lsm, name, yielder).await?;
                let is_found = |of_value: &Ids| of_value.intersects(&ids);
                let found = table.iter().filter(|(_, of_value)| is_found(of_value));
                union.add(found.map(|(value, _)| value))?;
            }
        }
        Ok(())
    }
}

/// Text of an index or of a label set.
trait Text {
    fn as_str(&self) -> &str;

    /// Returns the text for the list; that of an index is shared if it is long.
    fn shared(&self) -> SmolStr;
}

impl Text for &SmolStr {
    fn as_str(&self) -> &str {
        SmolStr::as_str(self)
    }

    fn shared(&self) -> SmolStr {
        SmolStr::clone(self)
    }
}

impl Text for &str {
    fn as_str(&self) -> &str {
        self
    }

    fn shared(&self) -> SmolStr {
        SmolStr::new(self)
    }
}

/// Sorted, distinct texts up to a limit.
struct Union {
    texts: Vec<SmolStr>,
    /// Series whose texts were added last.
    added: Option<Arc<Resolved>>,
    limit: usize,
    charge: Reservation,
    watch: Checkpoint,
}

impl Union {
    fn new(limit: usize, budget: &Budget) -> Union {
        let (charge, watch) = (Reservation::empty(budget), Checkpoint::new(budget));
        Union { texts: Vec::new(), added: None, limit, charge, watch }
    }

    /// Adds sorted, distinct texts.
    ///
    /// Errors: those of the budget.
    fn add_own(&mut self, sorted: Vec<SmolStr>) -> Result<(), BudgetError> {
        if !self.texts.is_empty() || sorted.len() > self.limit {
            return self.add(sorted.iter());
        }
        self.watch.work(TEXT_WORK.saturating_mul(sorted.len()))?;
        self.charge.grow(sorted.iter().map(|text| TEXT_BYTES + text.len()).sum::<usize>() as u64)?;
        self.texts = sorted;
        Ok(())
    }

    /// Adds the texts of another union, and its charge if it takes them as they are.
    ///
    /// Errors: those of the budget.
    fn add_union(&mut self, other: Union) -> Result<(), BudgetError> {
        if !self.texts.is_empty() {
            return self.add(other.texts.iter());
        }
        self.texts = other.texts;
        self.charge.absorb(other.charge);
        Ok(())
    }

    /// Adds the requested texts of the series of a partition; most have those of the one before.
    ///
    /// Errors: those of the budget.
    fn add_known(
        &mut self,
        wanted: ListedNames<'_>,
        series: Arc<Resolved>,
    ) -> Result<(), BudgetError> {
        if self.added.as_ref().is_none_or(|added| !added.has_series_of(&series)) {
            self.add_of(wanted, &series.labels)?;
            self.added = Some(series);
        }
        Ok(())
    }

    /// Adds the requested texts of some series.
    ///
    /// Errors: those of the budget.
    fn add_of(
        &mut self,
        wanted: ListedNames<'_>,
        series: &[(u32, Labels)],
    ) -> Result<(), BudgetError> {
        match wanted {
            // Most series of a selection have the same names.
            ListedNames::Names => series
                .iter()
                .try_for_each(|(_, labels)| self.add(labels.iter().map(|(name, _)| name))),
            ListedNames::Values(name) => {
                let values = series.iter().map(|(_, labels)| labels.get(name));
                let mut values: Vec<&str> = values.filter(|value| !value.is_empty()).collect();
                values.sort_unstable();
                values.dedup();
                self.add(values.into_iter())
            }
        }
    }

    /// Returns whether all of the sorted texts are known. Partitions mostly have the same ones.
    fn has_all<T: Text>(&mut self, sorted: impl Iterator<Item = T>) -> Result<bool, BudgetError> {
        let mut known = self.texts.iter();
        for text in sorted {
            self.watch.work(TEXT_WORK)?;
            let next = known.find(|known| known.as_str() >= text.as_str());
            if next.is_none_or(|next| next.as_str() != text.as_str()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds sorted texts.
    ///
    /// Errors: those of the budget.
    fn add<T: Text>(&mut self, sorted: impl Iterator<Item = T> + Clone) -> Result<(), BudgetError> {
        if self.has_all(sorted.clone())? {
            return Ok(());
        }
        let mut known = std::mem::take(&mut self.texts).into_iter().peekable();
        let mut sorted = sorted.peekable();
        while self.texts.len() < self.limit {
            self.watch.work(TEXT_WORK)?;
            let order = match (known.peek(), sorted.peek()) {
                (Some(known), Some(text)) => known.as_str().cmp(text.as_str()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            if order.is_eq() {
                sorted.next();
            }
            if order.is_le() {
                self.texts.extend(known.next());
            } else if let Some(text) = sorted.next() {
                self.charge.grow((TEXT_BYTES + text.as_str().len()) as u64)?;
                self.texts.push(text.shared());
            }
        }
        Ok(())
    }
}
