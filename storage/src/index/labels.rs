//! Postings of the head, in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use model::{BudgetError, Checkpoint, Labels, Matcher};
use roaring::RoaringBitmap;
use smol_str::SmolStr;

use super::ids::Ids;
use super::{Lookup, Term, combine, term, wants};

/// Work of matching a value, in bytes touched.
const MATCH_WORK: usize = 256;

/// Postings of each label pair.
#[derive(Debug, Default)]
pub(crate) struct LabelIndex {
    all: RoaringBitmap,
    /// `SmolStr` keeps short values inside the B-tree nodes, so that listing them causes no cache
    /// misses.
    names: BTreeMap<Box<str>, BTreeMap<SmolStr, Ids>>,
    /// Bytes of the values, their ids and the nodes.
    bytes: usize,
}

/// Bytes of a value in the B-tree, with the share of its node and of the allocator.
const VALUE_BYTES: usize = 80;
/// Bytes of a long value on the heap, in addition to its own.
const LONG_VALUE_BYTES: usize = 32;
/// Bytes of an id in a bitmap: mostly two, more in sparse ones.
const ID_BYTES: usize = 4;

fn value_bytes(value: &SmolStr) -> usize {
    VALUE_BYTES + if value.is_heap_allocated() { LONG_VALUE_BYTES + value.len() } else { 0 }
}

impl LabelIndex {
    /// Adds a series to the postings of its labels.
    pub(crate) fn insert(&mut self, id: u32, labels: &Labels) {
        self.all.insert(id);
        for (name, value) in labels.iter() {
            if !self.names.contains_key(name) {
                self.names.insert(name.into(), BTreeMap::new());
            }
            let Some(values) = self.names.get_mut(name) else { continue };
            match values.get_mut(value) {
                Some(ids) => {
                    ids.insert(id);
                    self.bytes += ID_BYTES;
                }
                None => {
                    let value = SmolStr::new(value);
                    self.bytes += value_bytes(&value);
                    values.insert(value, Ids::One(id));
                }
            }
        }
    }

    /// Removes a series.
    pub(crate) fn remove(&mut self, id: u32, labels: &Labels) {
        self.all.remove(id);
        for (name, value) in labels.iter() {
            let Some(values) = self.names.get_mut(name) else { continue };
            let Some(ids) = values.get_mut(value) else { continue };
            let removed = if ids.remove(id) { values.remove_entry(value) } else { None };
            let freed = removed.map_or(ID_BYTES, |(value, _)| value_bytes(&value));
            self.bytes = self.bytes.saturating_sub(freed);
            if values.is_empty() {
                self.names.remove(name);
            }
        }
    }

    /// Returns the approximate size in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the ids that pass all matchers.
    ///
    /// Errors: those of the checkpoint.
    pub(crate) fn select(
        &self,
        matchers: &[Matcher],
        watch: &mut Checkpoint,
    ) -> Result<RoaringBitmap, BudgetError> {
        let mut terms = Vec::new();
        for matcher in matchers {
            let Some((term, lookup)) = term(matcher) else { continue };
            terms.push((term, self.union(matcher, term, lookup, watch)?));
        }
        Ok(combine(|| self.all.clone(), &terms))
    }

    /// Returns the names of all labels, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(|name| &**name)
    }

    /// Returns the values of a label in order, with the ids of each.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = (&SmolStr, &Ids)> {
        self.names.get(name).into_iter().flatten()
    }

    /// Returns the values of a label after one, or all of them, in order, with the ids of each.
    pub(crate) fn values_after(
        &self,
        name: &str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&SmolStr, &Ids)> {
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.names.get(name).into_iter().flat_map(move |values| values.range::<str, _>(range))
    }

    /// Returns the ids of a label pair, if there are any.
    pub(crate) fn ids(&self, name: &str, value: &str) -> Option<&Ids> {
        self.names.get(name)?.get(value)
    }

    /// Returns the number of values of a label.
    pub(crate) fn value_count(&self, name: &str) -> usize {
        self.names.get(name).map_or(0, BTreeMap::len)
    }

    fn union(
        &self,
        matcher: &Matcher,
        term: Term,
        lookup: Lookup<'_>,
        watch: &mut Checkpoint,
    ) -> Result<Cow<'_, RoaringBitmap>, BudgetError> {
        let mut union = RoaringBitmap::new();
        let Some(values) = self.names.get(matcher.name()) else { return Ok(Cow::Owned(union)) };
        match lookup {
            Lookup::Values(wanted) => {
                if let [only] = wanted[..]
                    && let Some(Ids::Many(ids)) = values.get(only)
                {
                    return Ok(Cow::Borrowed(ids));
                }
                for value in wanted {
                    watch.work(MATCH_WORK)?;
                    if let Some(ids) = values.get(value) {
                        ids.add_to(&mut union);
                    }
                }
            }
            Lookup::Prefix(prefix) => {
                let range = (Bound::Included(prefix), Bound::Unbounded);
                for (value, ids) in values.range::<str, _>(range) {
                    if !value.starts_with(prefix) {
                        break;
                    }
                    watch.work(MATCH_WORK + value.len())?;
                    if wants(matcher, term, value) {
                        ids.add_to(&mut union);
                    }
                }
            }
        }
        Ok(Cow::Owned(union))
    }
}
