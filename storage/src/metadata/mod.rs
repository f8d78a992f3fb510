//! What metrics are: one value for each, written with the log record of the commit that says
//! something new of it.
//!
//! A metric has several entries where senders say different things of it. All is bounded; what
//! has not been heard of for the longest goes first. To hear the same again writes nothing. A
//! start reads all values; one that is damaged is named in the log and in every answer until
//! its metric is heard of again.

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

pub(crate) use stage::Stage;
pub(crate) use table::TableStats;
use table::{Limits, Table};

/// The most metrics of which something is known.
pub const METRICS_MAX: usize = 100_000;
/// The most entries of a metric.
pub const ENTRIES_PER_METRIC_MAX: usize = 10;
/// The most bytes of names, texts and what holds them.
pub const METADATA_BYTES_MAX: usize = 64 << 20;
/// The most bytes of the texts of one entry; a longer one is dropped.
pub const ENTRY_TEXT_BYTES_MAX: usize = 16 << 10;

/// What is known of metrics.
pub(crate) struct Metadata(Mutex<Table>);

/// Checks a key and its value.
pub(crate) fn check_entry(key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
    keys::parse_metadata(key).ok_or_else(|| crate::value::corrupt(key, "malformed key"))?;
    value::decode(key, bytes).map(drop)
}

impl Metadata {
    /// Nothing.
    pub(crate) fn new() -> Metadata {
        Metadata(Mutex::new(Table::new(Limits {
            metrics_max: METRICS_MAX,
            bytes_max: METADATA_BYTES_MAX,
        })))
    }

    /// Reads what is stored.
    pub(crate) async fn open(lsm: &Lsm) -> Result<Metadata, StoreError> {
        let metadata = Metadata::new();
        let mut scan = lsm.scan_prefix(keys::METADATA_PREFIX).await?;
        while let Some((key, bytes)) = scan.next().await? {
            metadata.lock().replay(&key, &bytes);
        }
        metadata.lock().end_replay();
        Ok(metadata)
    }

    /// Takes in what another process has stored of a metric, or that it has let go of it.
    pub(crate) fn follow(&self, key: &[u8], bytes: Option<&Bytes>) {
        let mut table = self.lock();
        match bytes {
            Some(bytes) => table.replay(key, bytes),
            None => table.forget(key),
        }
        // Whoever writes takes them from the store.
        table.forget_dead();
    }

    /// Reads all that another process has stored, in place of what is here.
    pub(crate) async fn read_anew(&self, lsm: &Lsm) -> Result<(), StoreError> {
        let read = Metadata::open(lsm).await?;
        std::mem::swap(&mut *self.lock(), &mut *read.lock());
        Ok(())
    }

    /// What is known of one metric, or of the first so many in the order of their names.
    pub(crate) fn list(&self, metric: Option<&str>, limit: usize) -> Answer<KnownMetric> {
        let table = self.lock();
        Answer { found: table.list(metric, limit), warnings: bounded(table.damages()) }
    }

    /// What there is.
    pub(crate) fn stats(&self) -> TableStats {
        self.lock().stats()
    }

    /// Adds to a write what is new, and takes away what has had to go.
    pub(crate) fn put(&self, stage: &Stage, set: &mut WriteSet) {
        let table = self.lock();
        for key in table.dead() {
            set.delete(key);
        }
        for (number, (metric, entries)) in stage.changed().enumerate() {
            let key = keys::metadata(metric);
            let bytes = value::encode(&key, table.next_number() + number as u64, entries);
            // After the deletions: what had to go may have come back.
            set.put(key, bytes);
        }
    }

    /// Takes in what is durable now.
    pub(crate) fn apply(&self, stage: &mut Stage) {
        let mut table = self.lock();
        table.forget_dead();
        table.apply(stage.take());
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
