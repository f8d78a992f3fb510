//! Postings in memory: those of the head.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use model::{BudgetError, Checkpoint, Labels, Matcher};
use roaring::RoaringBitmap;
use smol_str::SmolStr;

use super::ids::Ids;
use super::{Lookup, Term, combine, term, wants};

/// Matching a value is so much more work than touching a byte of it.
const MATCH_WORK: usize = 256;

/// Postings of each label pair.
#[derive(Debug, Default)]
pub(crate) struct LabelIndex {
    all: RoaringBitmap,
    /// Short values lie in the tree itself: to list them is to walk through its nodes, where a place
    /// of its own for each would be a cache miss.
    names: BTreeMap<Box<str>, BTreeMap<SmolStr, Ids>>,
    /// Bytes of the values, of their ids and of what the tree adds to each.
    bytes: usize,
}

/// Bytes of a value in the tree, a fuller node and the allocator included.
const VALUE_BYTES: usize = 80;
/// What a longer one takes elsewhere, beside its own bytes.
const LONG_VALUE_BYTES: usize = 32;
/// Bytes of an id among others; two mostly, and more where they lie apart.
const ID_BYTES: usize = 4;

fn value_bytes(value: &SmolStr) -> usize {
    VALUE_BYTES + if value.is_heap_allocated() { LONG_VALUE_BYTES + value.len() } else { 0 }
}

impl LabelIndex {
    /// Files a series under its labels.
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

    /// About how many bytes it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The ids that pass every matcher.
    ///
    /// Errors: those of the watch.
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

    /// The names of all labels, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(|name| &**name)
    }

    /// The values of a label in order, with the ids of each.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = (&str, &Ids)> {
        self.names.get(name).into_iter().flatten().map(|(value, ids)| (value.as_str(), ids))
    }

    /// How many values a label has.
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
