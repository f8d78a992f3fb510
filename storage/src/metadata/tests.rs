//! The table and its limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{MetricKind, MetricMetadata};

use super::table::{Limits, Table, with_entry};
use super::{ENTRIES_PER_METRIC_MAX, value};
use crate::keys;

fn entry(help: &str) -> MetricMetadata {
    MetricMetadata { kind: MetricKind::Gauge, help: help.to_owned(), unit: String::new() }
}

fn apply(table: &mut Table, metrics: &[String], help: &str) {
    let changed: BTreeMap<Arc<str>, Vec<MetricMetadata>> =
        metrics.iter().map(|metric| (metric.as_str().into(), vec![entry(help)])).collect();
    table.apply(changed);
}

fn names(table: &Table) -> Vec<String> {
    table.list(None, usize::MAX).into_iter().map(|known| known.metric.to_string()).collect()
}

#[test]
fn metrics_not_seen_for_the_longest_are_evicted_first() {
    let mut table = Table::new(Limits { metrics_max: 4, bytes_max: usize::MAX });
    let metrics: Vec<String> = ["d", "c", "b", "a"].map(str::to_owned).to_vec();
    for metric in &metrics {
        apply(&mut table, std::slice::from_ref(metric), "");
    }
    table.hear("d");
    apply(&mut table, &["e".to_owned()], "");
    assert_eq!(names(&table), ["a", "b", "d", "e"]);
    assert_eq!(table.dead(), [keys::metadata("c")]);
    assert_eq!((table.stats().metrics, table.stats().evicted), (4, 1));
    // A new entry of a known metric needs no room.
    apply(&mut table, &["a".to_owned()], "other");
    assert_eq!(names(&table), ["a", "b", "d", "e"]);
}

#[test]
fn bytes_are_bounded() {
    let mut table = Table::new(Limits { metrics_max: 1000, bytes_max: 10_000 });
    for number in 0..200 {
        apply(&mut table, &[format!("m{number}")], &"x".repeat(number));
        assert!(table.stats().bytes <= 10_000);
    }
    assert!(names(&table).contains(&"m199".to_owned()));
    assert!(table.stats().metrics > 10);
    let all: Vec<String> = (0..200).map(|number| format!("m{number}")).collect();
    apply(&mut table, &all, "");
    assert!(table.stats().bytes <= 10_000);
}

#[test]
fn entries_of_a_metric_are_bounded_and_the_oldest_is_evicted() {
    let mut entries = Vec::new();
    for number in 0..ENTRIES_PER_METRIC_MAX + 2 {
        entries = with_entry(&entries, entry(&number.to_string()));
    }
    assert_eq!(entries.len(), ENTRIES_PER_METRIC_MAX);
    assert_eq!(entries[0], entry("2"));
}

#[test]
fn the_order_is_kept_over_a_restart() {
    let mut table = Table::new(Limits { metrics_max: 2, bytes_max: usize::MAX });
    // The first by key is the last that was written.
    for (metric, number) in [("a", 7), ("b", 6)] {
        let key = keys::metadata(metric);
        table.replay(&key, &value::encode(&key, number, &[entry("")]));
    }
    assert_eq!(table.next_number(), 8);
    apply(&mut table, &["c".to_owned()], "");
    assert_eq!(names(&table), ["a", "c"]);
}
