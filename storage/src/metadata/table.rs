//! Metadata in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{KnownMetric, MetricMetadata};

use super::{ENTRIES_PER_METRIC_MAX, value};
use crate::keys;
use crate::value::corrupt;

/// Bytes that a metric or an entry counts in addition to its texts.
const ITEM_BYTES: usize = 128;
/// Share of the metrics that is evicted at once when a limit is exceeded: one in this number.
const EVICTED_PART: usize = 16;

/// Limits of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum number of metrics.
    pub(super) metrics_max: usize,
    /// Maximum bytes of names, texts and the structures that hold them.
    pub(super) bytes_max: usize,
}

/// Counters of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TableStats {
    /// Metrics with metadata.
    pub(crate) metrics: usize,
    /// Bytes in memory.
    pub(crate) bytes: usize,
    /// Metrics evicted since the start.
    pub(crate) evicted: u64,
    /// Stored values that cannot be read.
    pub(crate) damaged: usize,
}

/// Table of metadata by metric.
pub(super) struct Table {
    limits: Limits,
    metrics: BTreeMap<Arc<str>, Known>,
    /// Higher than the number of any metric.
    next_number: u64,
    bytes: usize,
    evicted: u64,
    /// Keys of evicted metrics that are still stored.
    dead: Vec<Vec<u8>>,
    /// Keys of unreadable values, and the reasons.
    damaged: BTreeMap<Vec<u8>, String>,
}

struct Known {
    entries: Arc<[MetricMetadata]>,
    /// Order in which the metrics were last seen.
    heard: u64,
}

impl Table {
    pub(super) fn new(limits: Limits) -> Table {
        Table {
            limits,
            metrics: BTreeMap::new(),
            next_number: 0,
            bytes: 0,
            evicted: 0,
            dead: Vec::new(),
            damaged: BTreeMap::new(),
        }
    }

    /// Applies a stored value, and enforces the limits.
    pub(super) fn replay(&mut self, key: &[u8], bytes: &[u8]) {
        let metric = keys::parse_metadata(key).ok_or_else(|| corrupt(key, "malformed key"));
        let decoded = metric.and_then(|metric| Ok((metric, value::decode(key, bytes)?)));
        match decoded {
            Ok((metric, (number, entries))) => {
                self.damaged.remove(key);
                self.next_number = self.next_number.max(number.saturating_add(1));
                self.insert(metric.into(), entries.into(), number);
                self.make_room();
            }
            Err(error) => {
                tracing::error!(%error, "stored metadata cannot be read; the rest is kept");
                self.damaged.insert(key.to_vec(), format!("metadata is missing: {error}"));
            }
        }
    }

    /// Removes a metric that is not stored any more.
    pub(super) fn forget(&mut self, key: &[u8]) {
        self.damaged.remove(key);
        if let Some(metric) = keys::parse_metadata(key) {
            self.remove(&metric);
        }
    }

    /// Resets the counters after the values have been read.
    pub(super) fn end_replay(&mut self) {
        self.evicted = 0;
    }

    /// Applies changes that are durable.
    pub(super) fn apply(&mut self, changed: BTreeMap<Arc<str>, Vec<MetricMetadata>>) {
        for (metric, entries) in changed {
            self.damaged.remove(&keys::metadata(&metric));
            let number = self.next_number;
            self.next_number = number.saturating_add(1);
            self.insert(metric, entries.into(), number);
        }
        self.make_room();
    }

    fn insert(&mut self, metric: Arc<str>, entries: Arc<[MetricMetadata]>, heard: u64) {
        self.remove(&metric);
        self.bytes += known_bytes(&metric, &entries);
        self.metrics.insert(metric, Known { entries, heard });
    }

    fn remove(&mut self, metric: &str) {
        if let Some(known) = self.metrics.remove(metric) {
            self.bytes -= known_bytes(metric, &known.entries);
        }
    }

    /// Evicts metrics not seen for the longest time, several at once, so that it runs seldom.
    fn make_room(&mut self) {
        while self.metrics.len() > self.limits.metrics_max || self.bytes > self.limits.bytes_max {
            let mut by_age: Vec<(u64, Arc<str>)> =
                self.metrics.iter().map(|(metric, k)| (k.heard, Arc::clone(metric))).collect();
            let count = by_age.len().div_ceil(EVICTED_PART);
            by_age.select_nth_unstable(count - 1);
            for (_, metric) in &by_age[..count] {
                self.remove(metric);
                self.dead.push(keys::metadata(metric));
                self.evicted += 1;
            }
        }
    }

    /// Returns the entries of a metric, if there are any.
    pub(super) fn entries(&self, metric: &str) -> Option<&[MetricMetadata]> {
        self.metrics.get(metric).map(|known| &known.entries[..])
    }

    /// Marks a metric as updated most recently, with unchanged entries.
    pub(super) fn hear(&mut self, metric: &str) {
        if let Some(known) = self.metrics.get_mut(metric) {
            known.heard = self.next_number;
            self.next_number = self.next_number.saturating_add(1);
        }
    }

    pub(super) fn list(&self, metric: Option<&str>, limit: usize) -> Vec<KnownMetric> {
        let known = |(metric, known): (&Arc<str>, &Known)| KnownMetric {
            metric: Arc::clone(metric),
            entries: Arc::clone(&known.entries),
        };
        match metric {
            Some(metric) => {
                self.metrics.get_key_value(metric).map(known).into_iter().take(limit).collect()
            }
            None => self.metrics.iter().take(limit).map(known).collect(),
        }
    }

    /// Returns the keys of evicted metrics that are still stored.
    pub(super) fn dead(&self) -> &[Vec<u8>] {
        &self.dead
    }

    /// Clears them once they are deleted from the store.
    pub(super) fn forget_dead(&mut self) {
        self.dead.clear();
    }

    /// Returns the number of the next metric that is written.
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Returns the errors of damaged values.
    pub(super) fn damages(&self) -> impl Iterator<Item = &str> {
        self.damaged.values().map(String::as_str)
    }

    pub(super) fn stats(&self) -> TableStats {
        TableStats {
            metrics: self.metrics.len(),
            bytes: self.bytes,
            evicted: self.evicted,
            damaged: self.damaged.len(),
        }
    }
}

/// Appends a new entry to those of a metric, and drops the oldest beyond the maximum.
pub(super) fn with_entry(known: &[MetricMetadata], entry: MetricMetadata) -> Vec<MetricMetadata> {
    let excess = (known.len() + 1).saturating_sub(ENTRIES_PER_METRIC_MAX);
    known[excess..].iter().cloned().chain([entry]).collect()
}

fn known_bytes(metric: &str, entries: &[MetricMetadata]) -> usize {
    let texts = entries.iter().map(|entry| entry.help.len() + entry.unit.len() + ITEM_BYTES);
    metric.len() + ITEM_BYTES + texts.sum::<usize>()
}
