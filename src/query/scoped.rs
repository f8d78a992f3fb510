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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::tenancy::{Tenancy, TenantTable};

    struct Uses(usize);

    impl Fact for Uses {
        fn worth(&self, _: f64) -> f64 {
            self.0 as f64
        }
    }

    fn tenant(number: usize) -> Scope {
        let tenancy = Tenancy::new("tenant", "tenant", false, Arc::new(TenantTable::new()));
        let name = HeaderValue::from_str(&format!("tenant-{number}")).unwrap();
        let headers = HeaderMap::from_iter([("tenant".parse().unwrap(), name)]);
        Scope::Tenants(tenancy.unwrap().tenants(&headers).unwrap().unwrap())
    }

    fn use_once(facts: &mut ScopedFacts<Uses>, scope: Option<&Scope>, text: &str) {
        facts.update(scope, text, 0.0, || Uses(0), |uses| uses.0 += 1);
    }

    fn uses(facts: &ScopedFacts<Uses>, scope: &Scope) -> Vec<(String, usize)> {
        let visible = facts.visible(|of| of == Some(scope));
        visible.map(|(_, text, uses)| (text.to_owned(), uses.0)).collect()
    }

    #[test]
    fn facts_of_scopes_beyond_the_maximum_are_not_kept() {
        let mut facts = ScopedFacts::new(usize::MAX);
        for number in 0..SCOPES_MAX {
            use_once(&mut facts, Some(&tenant(number)), "a");
        }
        use_once(&mut facts, Some(&tenant(SCOPES_MAX)), "a");
        use_once(&mut facts, None, "a");
        assert_eq!((facts.scopes.len(), facts.count), (SCOPES_MAX, SCOPES_MAX));
        assert!(uses(&facts, &tenant(SCOPES_MAX)).is_empty());
        // Known scopes get further facts.
        use_once(&mut facts, Some(&tenant(7)), "a");
        use_once(&mut facts, Some(&tenant(7)), "b");
        let mut known = uses(&facts, &tenant(7));
        known.sort();
        assert_eq!(known, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    }

    #[test]
    fn a_scope_without_facts_makes_room_for_another() {
        let mut facts = ScopedFacts::new(SCOPES_MAX);
        for number in 0..SCOPES_MAX {
            use_once(&mut facts, Some(&tenant(number)), "a");
        }
        // The new fact of a known scope evicts the only one of some scope.
        use_once(&mut facts, Some(&tenant(0)), "b");
        assert_eq!((facts.scopes.len() < SCOPES_MAX, facts.count), (true, SCOPES_MAX));
        use_once(&mut facts, Some(&tenant(SCOPES_MAX)), "a");
        assert_eq!(uses(&facts, &tenant(SCOPES_MAX)), [("a".to_owned(), 1)]);
    }
}
