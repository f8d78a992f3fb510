//! What is known of metrics, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{KnownMetric, MetricMetadata};

use super::{ENTRIES_PER_METRIC_MAX, value};
use crate::keys;
use crate::value::corrupt;

/// Bytes that a metric or an entry counts beside its texts.
const ITEM_BYTES: usize = 128;
/// Where a limit is passed, this part of the metrics goes at once.
const EVICTED_PART: usize = 16;

/// How much there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Metrics.
    pub(super) metrics_max: usize,
    /// Bytes of names, texts and what holds them.
    pub(super) bytes_max: usize,
}

/// What there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TableStats {
    /// Metrics of which something is known.
    pub(crate) metrics: usize,
    /// Bytes that they take.
    pub(crate) bytes: usize,
    /// Metrics that had to go since the start.
    pub(crate) evicted: u64,
    /// Stored values that cannot be read.
    pub(crate) damaged: usize,
}

/// What is known of metrics.
pub(super) struct Table {
    limits: Limits,
    metrics: BTreeMap<Arc<str>, Known>,
    /// Higher than any number of a metric.
    next_number: u64,
    bytes: usize,
    evicted: u64,
    /// Keys of metrics that had to go and are still stored.
    dead: Vec<Vec<u8>>,
    /// Keys of values that cannot be read, and why.
    damaged: BTreeMap<Vec<u8>, String>,
}

struct Known {
    entries: Arc<[MetricMetadata]>,
    /// When it was last heard of, in the order of all.
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

    /// Takes in what a value says. The limits hold again after each.
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

    /// Lets go of what is not stored any more.
    pub(super) fn forget(&mut self, key: &[u8]) {
        self.damaged.remove(key);
        if let Some(metric) = keys::parse_metadata(key) {
            self.remove(&metric);
        }
    }

    /// Forgets what has been counted while values were read.
    pub(super) fn end_replay(&mut self) {
        self.evicted = 0;
    }

    /// Takes in what is stored now.
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

    /// Lets those go that have not been heard of for the longest, some at once, so that this is
    /// seldom done.
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

    /// The entries of a metric, if something is known of it.
    pub(super) fn entries(&self, metric: &str) -> Option<&[MetricMetadata]> {
        self.metrics.get(metric).map(|known| &known.entries[..])
    }

    /// Notes that a metric has been heard of, with nothing new.
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

    /// Keys of metrics that had to go.
    pub(super) fn dead(&self) -> &[Vec<u8>] {
        &self.dead
    }

    /// Forgets them: they are not stored any more.
    pub(super) fn forget_dead(&mut self) {
        self.dead.clear();
    }

    /// The number of the next metric that is written.
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// What is wrong with stored values.
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

/// Adds an entry that is not among others; the oldest goes where there are too many.
pub(super) fn with_entry(known: &[MetricMetadata], entry: MetricMetadata) -> Vec<MetricMetadata> {
    let excess = (known.len() + 1).saturating_sub(ENTRIES_PER_METRIC_MAX);
    known[excess..].iter().cloned().chain([entry]).collect()
}

fn known_bytes(metric: &str, entries: &[MetricMetadata]) -> usize {
    let texts = entries.iter().map(|entry| entry.help.len() + entry.unit.len() + ITEM_BYTES);
    metric.len() + ITEM_BYTES + texts.sum::<usize>()
}
