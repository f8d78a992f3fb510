//! Metadata of metrics: one value per metric, written with the log record of the commit that
//! changes it.
//!
//! A metric has several entries if senders disagree. All is bounded; metrics not seen for the
//! longest time are evicted first. Known metadata is not written again. A start reads all values. A
//! damaged one is logged and reported in every answer until its metric is sent again.

mod stage;
mod table;
#[cfg(test)]
mod tests;
mod value;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use model::{Answer, KnownMetric};

use crate::error::StoreError;
use crate::exemplar::bounded;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};

pub(crate) use stage::MetadataStage;
pub(crate) use table::TableStats;
use table::{Limits, Table};

/// Maximum number of metrics with metadata.
pub const METRICS_MAX: usize = 100_000;
/// Maximum number of entries of a metric.
pub const ENTRIES_PER_METRIC_MAX: usize = 10;
/// Maximum bytes of names, texts and the structures that hold them.
pub const METADATA_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes of the texts of one entry; a longer one is dropped.
pub const ENTRY_TEXT_BYTES_MAX: usize = 16 << 10;

/// Metadata of all metrics.
pub(crate) struct Metadata(Mutex<Table>);

/// Checks a key and its value.
pub(crate) fn check_entry(key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
    keys::parse_metadata(key).ok_or_else(|| crate::value::corrupt(key, "malformed key"))?;
    value::decode(key, bytes).map(drop)
}

impl Metadata {
    /// Returns an empty table.
    pub(crate) fn new() -> Metadata {
        Metadata(Mutex::new(Table::new(Limits {
            metrics_max: METRICS_MAX,
            bytes_max: METADATA_BYTES_MAX,
        })))
    }

    /// Reads the stored metadata.
    pub(crate) async fn open(lsm: &Lsm) -> Result<Metadata, StoreError> {
        let metadata = Metadata::new();
        let mut scan = lsm.scan_prefix(keys::METADATA_PREFIX).await?;
        while let Some((key, bytes)) = scan.next().await? {
            metadata.lock().replay(&key, &bytes);
        }
        metadata.lock().end_replay();
        Ok(metadata)
    }

    /// Applies an update or a removal that another process has stored.
    pub(crate) fn follow(&self, key: &[u8], bytes: Option<&Bytes>) {
        let mut table = self.lock();
        match bytes {
            Some(bytes) => table.replay(key, bytes),
            None => table.forget(key),
        }
        // The writer deletes them from the store.
        table.forget_dead();
    }

    /// Replaces all metadata by that which another process has stored.
    pub(crate) async fn reload(&self, lsm: &Lsm) -> Result<(), StoreError> {
        let read = Metadata::open(lsm).await?;
        std::mem::swap(&mut *self.lock(), &mut *read.lock());
        Ok(())
    }

    /// Returns the metadata of one metric, or of the first `limit` metrics by name.
    pub(crate) fn list(&self, metric: Option<&str>, limit: usize) -> Answer<KnownMetric> {
        let table = self.lock();
        Answer { found: table.list(metric, limit), warnings: bounded(table.damages()) }
    }

    /// Returns the counters of the table.
    pub(crate) fn stats(&self) -> TableStats {
        self.lock().stats()
    }

    /// Adds changed metrics to a write, and deletes evicted ones.
    pub(crate) fn put(&self, stage: &MetadataStage, set: &mut WriteSet) {
        let table = self.lock();
        for key in table.dead() {
            set.delete(key);
        }
        for (number, (metric, entries)) in stage.changed().enumerate() {
            let key = keys::metadata(metric);
            let bytes = value::encode(&key, table.next_number() + number as u64, entries);
            // After the deletions: an evicted metric may have come back.
            set.put(key, bytes);
        }
    }

    /// Applies the changes that are durable now.
    pub(crate) fn apply(&self, stage: &mut MetadataStage) {
        let mut table = self.lock();
        table.forget_dead();
        table.apply(stage.take());
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
