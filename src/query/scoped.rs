//! Maps by scope and text with a maximum number of entries, for facts about queries since the start.

use std::collections::HashMap;

use crate::tenancy::Scope;

/// Share of the entries of a scope that are evicted together, so that an eviction is cheap on
/// average.
const EVICTED_SHARE: usize = 16;

/// Maximum number of scopes. A client that may name many tenants could otherwise add one with each
/// request; facts of further scopes are not kept.
const SCOPES_MAX: usize = 2_000;

/// Fact about a text.
pub(super) trait Fact {
    /// Returns the value of the fact; facts with the smallest values are evicted.
    ///
    /// Units: seconds since the start of the server.
    fn worth(&self, now_seconds: f64) -> f64;
}

/// Facts by scope and text. Beyond the maximum, those of the scope with the most entries are
/// evicted, so that no tenant evicts the entries of another one that has fewer.
#[derive(Debug)]
pub(super) struct ScopedFacts<F> {
    entries_max: usize,
    scopes: HashMap<Option<Scope>, HashMap<Box<str>, F>>,
    count: usize,
}

impl<F: Fact> ScopedFacts<F> {
    /// Returns an empty map.
    pub(super) fn new(entries_max: usize) -> ScopedFacts<F> {
        ScopedFacts { entries_max, scopes: HashMap::new(), count: 0 }
    }

    /// Changes the fact about a text, or adds one.
    pub(super) fn update(
        &mut self,
        scope: Option<&Scope>,
        text: &str,
        now_seconds: f64,
        new: impl FnOnce() -> F,
        change: impl FnOnce(&mut F),
    ) {
        let key = scope.cloned();
        if let Some(fact) = self.scopes.get_mut(&key).and_then(|facts| facts.get_mut(text)) {
            change(fact);
            return;
        }
        if self.scopes.len() >= SCOPES_MAX && !self.scopes.contains_key(&key) {
            return;
        }
        if self.count >= self.entries_max {
            self.evict(now_seconds);
        }
        let mut fact = new();
        change(&mut fact);
        self.scopes.entry(key).or_default().insert(text.into(), fact);
        self.count += 1;
    }

    /// Removes the facts with the smallest values from the scope with the most entries.
    fn evict(&mut self, now_seconds: f64) {
        let Some((scope, facts)) = self.scopes.iter_mut().max_by_key(|(_, facts)| facts.len())
        else {
            return;
        };
        let mut worths: Vec<f64> = facts.values().map(|fact| fact.worth(now_seconds)).collect();
        let mut evicted = (worths.len() / EVICTED_SHARE).max(1);
        let (_, limit, _) = worths.select_nth_unstable_by(evicted - 1, f64::total_cmp);
        let (limit, before) = (*limit, facts.len());
        // Many facts may be worth the same.
        facts.retain(|_, fact| {
            let is_kept = evicted == 0 || fact.worth(now_seconds) > limit;
            evicted -= usize::from(!is_kept);
            is_kept
        });
        self.count -= before - facts.len();
        if facts.is_empty() {
            let scope = scope.clone();
            self.scopes.remove(&scope);
        }
    }

    /// Returns the facts of all scopes that pass a filter, in any order.
    pub(super) fn visible(
        &self,
        is_visible: impl Fn(Option<&Scope>) -> bool,
    ) -> impl Iterator<Item = (Option<&Scope>, &str, &F)> {
        let scopes = self.scopes.iter().map(|(scope, facts)| (scope.as_ref(), facts));
        let scopes = scopes.filter(move |(scope, _)| is_visible(*scope));
        scopes
            .flat_map(|(scope, facts)| facts.iter().map(move |(text, fact)| (scope, &**text, fact)))
    }

    /// Returns the facts of each scope that passes a filter, by text.
    pub(super) fn by_text(
        &self,
        is_visible: impl Fn(Option<&Scope>) -> bool,
    ) -> Vec<&HashMap<Box<str>, F>> {
        let scopes = self.scopes.iter().filter(|(scope, _)| is_visible(scope.as_ref()));
        scopes.map(|(_, facts)| facts).collect()
    }
}
