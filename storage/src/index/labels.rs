//! Postings in memory: those of the head.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use model::{BudgetError, Labels, Matcher, Watch};
use roaring::RoaringBitmap;

use super::ids::Ids;
use super::{Lookup, Term, combine, term, wants};

/// Matching a value is so much more work than touching a byte of it.
const MATCH_WORK: usize = 256;

/// Postings of each label pair.
#[derive(Debug, Default)]
pub(crate) struct LabelIndex {
    all: RoaringBitmap,
    names: BTreeMap<Box<str>, BTreeMap<Box<str>, Ids>>,
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
                Some(ids) => ids.insert(id),
                None => {
                    values.insert(value.into(), Ids::One(id));
                }
            }
        }
    }

    /// Removes a series.
    pub(crate) fn remove(&mut self, id: u32, labels: &Labels) {
        self.all.remove(id);
        for (name, value) in labels.iter() {
            let Some(values) = self.names.get_mut(name) else { continue };
            if values.get_mut(value).is_some_and(|ids| ids.remove(id)) {
                values.remove(value);
            }
            if values.is_empty() {
                self.names.remove(name);
            }
        }
    }

    /// The ids that pass every matcher.
    ///
    /// Errors: those of the watch.
    pub(crate) fn select(
        &self,
        matchers: &[Matcher],
        watch: &mut Watch,
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
        self.names.get(name).into_iter().flatten().map(|(value, ids)| (&**value, ids))
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
        watch: &mut Watch,
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
