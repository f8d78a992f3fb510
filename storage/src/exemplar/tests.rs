//! The ring against a naive twin, and replay of stored values.

use std::collections::BTreeMap;

use model::{Exemplar, Labels, TimeRange};
use proptest::prelude::*;

use super::ring::{Limits, Ring};
use super::{AcceptedExemplar, value};
use crate::keys;

const LIMITS: Limits = Limits { exemplars_max: 7, per_series_max: 4, bytes_max: usize::MAX };

fn taken(series: u8, timestamp_ms: i64, number: usize) -> AcceptedExemplar {
    let labels = Labels::from_pairs([("n", series.to_string())]);
    let own = Labels::from_pairs([("trace_id", number.to_string())]);
    (labels, Exemplar { labels: own, timestamp_ms, value: number as f64 })
}

/// Returns everything in a ring, by series.
fn contents(ring: &Ring) -> BTreeMap<Labels, Vec<Exemplar>> {
    let series = ring.series_between(TimeRange::ALL);
    let of = |labels: &Labels| ring.exemplars_between(labels, TimeRange::ALL);
    series.into_iter().map(|labels| (labels.clone(), of(&labels))).collect()
}

/// A ring and the values that it expects in the store.
struct Stored {
    ring: Ring,
    values: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Stored {
    fn new(limits: Limits) -> Stored {
        Stored { ring: Ring::new(limits), values: BTreeMap::new() }
    }

    fn commit(&mut self, taken: Vec<AcceptedExemplar>) {
        for key in self.ring.dead() {
            self.values.remove(key);
        }
        self.ring.forget_dead();
        let key = keys::exemplars(self.ring.next_number());
        let bytes = value::encode(&key, &taken);
        let len = bytes.len();
        if !taken.is_empty() {
            self.values.insert(key, bytes);
        }
        self.ring.apply(taken, len);
    }

    fn replayed(&self, limits: Limits) -> Stored {
        let mut ring = Ring::new(limits);
        for (key, bytes) in &self.values {
            ring.replay(key, bytes);
        }
        Stored { ring, values: self.values.clone() }
    }
}

/// A ring with the same rules and no index.
#[derive(Default)]
struct Twin(Vec<AcceptedExemplar>);

impl Twin {
    fn add(&mut self, (labels, exemplar): AcceptedExemplar, limits: Limits) {
        self.0.push((labels.clone(), exemplar));
        let own = || self.0.iter().enumerate().filter(|(_, (other, _))| *other == labels);
        if own().count() > limits.per_series_max {
            let first = own().next().map(|(at, _)| at);
            self.0.remove(first.expect("there is one at least"));
        }
        if self.0.len() > limits.exemplars_max {
            self.0.remove(0);
        }
    }

    fn contents(&self) -> BTreeMap<Labels, Vec<Exemplar>> {
        let mut contents: BTreeMap<Labels, Vec<Exemplar>> = BTreeMap::new();
        for (labels, exemplar) in &self.0 {
            contents.entry(labels.clone()).or_default().push(exemplar.clone());
        }
        for exemplars in contents.values_mut() {
            exemplars.sort_by_key(|exemplar| exemplar.timestamp_ms);
        }
        contents
    }
}

fn commits() -> impl Strategy<Value = Vec<Vec<(u8, i64)>>> {
    let commit = proptest::collection::vec((0_u8..4, 0_i64..9), 0..10);
    proptest::collection::vec(commit, 1..12)
}

proptest! {
    #[test]
    fn ring_holds_what_a_naive_one_holds(commits in commits()) {
        let mut stored = Stored::new(LIMITS);
        let mut twin = Twin::default();
        let mut number = 0;
        for commit in &commits {
            let mut all = Vec::new();
            for (series, timestamp_ms) in commit {
                all.push(taken(*series, *timestamp_ms, number));
                number += 1;
            }
            all.iter().for_each(|taken| twin.add(taken.clone(), LIMITS));
            stored.commit(all);
            prop_assert_eq!(contents(&stored.ring), twin.contents());
            prop_assert_eq!(stored.ring.stats().exemplars, twin.0.len());
        }
        stored.commit(Vec::new());
        // A value is stored while one of its exemplars is there, and no longer.
        prop_assert!(stored.values.len() <= LIMITS.exemplars_max);
        let replayed = stored.replayed(LIMITS);
        prop_assert_eq!(contents(&replayed.ring), twin.contents(), "as it was, after a restart");
        prop_assert!(number == 0 || replayed.ring.next_number() == number as u64);
        prop_assert_eq!(replayed.ring.stats(), stored.ring.stats());
    }
}

#[test]
fn bytes_bound_the_ring_and_what_is_stored() {
    let limits = Limits { exemplars_max: 100, per_series_max: 100, bytes_max: 2000 };
    let mut stored = Stored::new(limits);
    for number in 0..100 {
        stored.commit(vec![taken((number % 3) as u8, number, number as usize)]);
        assert!(stored.ring.stats().bytes <= 2000);
    }
    let few = stored.ring.stats().exemplars;
    assert!((2..20).contains(&few), "{few}");
    // One series grows in every commit, another fills its share in each.
    let limits = Limits { exemplars_max: 1000, per_series_max: 10, bytes_max: 100_000 };
    let mut stored = Stored::new(limits);
    for number in 0..400 {
        let busy = (0..20).map(|at| taken(1, number * 100 + at, 0));
        stored
            .commit(busy.chain([taken(0, number, 0), taken((number % 250) as u8, 0, 0)]).collect());
        let bytes: usize = stored.values.values().map(Vec::len).sum();
        let slack = stored.values.values().map(Vec::len).max().unwrap_or(0) * 2;
        assert!(bytes <= 100_000 + slack, "{bytes}");
    }
}

#[test]
fn lower_limits_hold_after_a_restart() {
    let mut stored = Stored::new(LIMITS);
    for number in 0..7 {
        stored.commit(vec![taken(number as u8, number, number as usize)]);
    }
    let replayed = stored.replayed(Limits { exemplars_max: 2, ..LIMITS });
    let held: Vec<f64> =
        contents(&replayed.ring).into_values().flatten().map(|e| e.value).collect();
    assert_eq!(held, [5.0, 6.0]);
    assert_eq!(replayed.ring.dead().len(), 5);
    let none = stored.replayed(Limits { exemplars_max: 0, ..LIMITS });
    assert_eq!(none.ring.stats().exemplars, 0);
    assert_eq!(none.ring.dead().len(), 7, "turning exemplars off deletes stored values");
}

#[test]
fn numbers_after_a_damaged_value_are_not_reused() {
    for is_last in [false, true] {
        let mut stored = Stored::new(LIMITS);
        let many = (0..5).map(|at| taken(0, at, at as usize)).take(3).collect();
        stored.commit(many);
        if !is_last {
            stored.commit(vec![taken(1, 9, 9)]);
        }
        let (key, bytes) = stored.values.first_key_value().unwrap();
        let (key, mut damaged) = (key.clone(), bytes.clone());
        damaged[5] ^= 1;
        stored.values.insert(key.clone(), damaged);
        let mut replayed = stored.replayed(LIMITS);
        assert_eq!(replayed.ring.stats().exemplars, usize::from(!is_last));
        let named: Vec<String> = replayed.ring.damages().map(str::to_owned).collect();
        assert_eq!(named.len(), 1);
        assert!(named[0].contains(&keys::printable(&key)), "{named:?}");
        assert!(replayed.ring.next_number() >= stored.ring.next_number());
        // It is evicted as the older ones are.
        for number in 0..20 {
            replayed.commit(vec![taken(number % 5, i64::from(number), 0)]);
        }
        assert_eq!(replayed.ring.damages().count(), 0);
        assert!(!replayed.values.contains_key(&key));
    }
}
