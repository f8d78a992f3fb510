//! Postings in memory: those of the head.

use std::collections::BTreeMap;
use std::ops::Bound;

use model::{BudgetError, Labels, Matcher, Watch};
use roaring::RoaringBitmap;

use super::{Lookup, Term, combine, term, wants};

/// Matching a value is so much more work than touching a byte of it.
const MATCH_WORK: usize = 256;

/// Postings of each label pair.
#[derive(Debug, Default)]
pub(crate) struct LabelIndex {
    all: RoaringBitmap,
    names: BTreeMap<Box<str>, BTreeMap<Box<str>, Ids>>,
}

/// A set of ids; most label pairs that are many have one id each.
#[derive(Debug)]
enum Ids {
    One(u32),
    Many(Box<RoaringBitmap>),
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
        Ok(combine(|| self.all.clone(), terms))
    }

    fn union(
        &self,
        matcher: &Matcher,
        term: Term,
        lookup: Lookup<'_>,
        watch: &mut Watch,
    ) -> Result<RoaringBitmap, BudgetError> {
        let mut union = RoaringBitmap::new();
        let Some(values) = self.names.get(matcher.name()) else { return Ok(union) };
        match lookup {
            Lookup::Values(wanted) => {
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
        Ok(union)
    }
}

impl Ids {
    fn insert(&mut self, id: u32) {
        match self {
            Ids::One(only) if *only == id => {}
            Ids::One(only) => *self = Ids::Many(Box::new([*only, id].into_iter().collect())),
            Ids::Many(ids) => {
                ids.insert(id);
            }
        }
    }

    /// Removes an id; whether none is left.
    fn remove(&mut self, id: u32) -> bool {
        match self {
            Ids::One(only) => *only == id,
            Ids::Many(ids) => {
                ids.remove(id);
                ids.is_empty()
            }
        }
    }

    fn add_to(&self, union: &mut RoaringBitmap) {
        match self {
            Ids::One(id) => {
                union.insert(*id);
            }
            Ids::Many(ids) => *union |= ids.as_ref(),
        }
    }
}
