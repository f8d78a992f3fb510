//! Metadata changed by a commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Batch, BatchMetadata, MetricMetadata};

use super::table::{Table, with_entry};
use super::{ENTRY_TEXT_BYTES_MAX, Metadata};
use crate::keys;
use crate::outcome::AppendOutcome;

/// The metrics that a commit changes, and their new entries.
#[derive(Default)]
pub(crate) struct MetadataStage(BTreeMap<Arc<str>, Vec<MetricMetadata>>);

impl MetadataStage {
    /// Returns whether nothing has changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins a commit.
    pub(crate) fn begin(&mut self) {
        self.0.clear();
    }

    pub(super) fn changed(&self) -> impl Iterator<Item = (&Arc<str>, &[MetricMetadata])> {
        self.0.iter().map(|(metric, entries)| (metric, &entries[..]))
    }

    /// Empties the stage and returns its entries.
    pub(super) fn take(&mut self) -> BTreeMap<Arc<str>, Vec<MetricMetadata>> {
        std::mem::take(&mut self.0)
    }

    /// Decides on the metadata of a write.
    pub(crate) fn decide(
        &mut self,
        metadata: &Metadata,
        batch: &Batch,
        outcome: &mut AppendOutcome,
    ) {
        if batch.metadata.is_empty() {
            return;
        }
        let mut table = metadata.lock();
        for brought in &batch.metadata {
            let text_bytes = brought.help.len() + brought.unit.len();
            if brought.metric.is_empty()
                || brought.metric.len() > keys::VALUE_BYTES_MAX
                || text_bytes > ENTRY_TEXT_BYTES_MAX
            {
                outcome.metadata_dropped += 1;
                continue;
            }
            outcome.metadata_accepted += 1;
            self.decide_one(&mut table, brought);
        }
    }

    fn decide_one(&mut self, table: &mut Table, brought: &BatchMetadata) {
        let BatchMetadata { metric, kind, help, unit } = brought;
        let is_known =
            |entry: &MetricMetadata| (entry.kind, &entry.help, &entry.unit) == (*kind, help, unit);
        let known = match self.0.get(metric.as_str()) {
            Some(staged) => Some(&staged[..]),
            None => table.entries(metric),
        };
        let known = known.unwrap_or_default();
        if known.iter().any(is_known) {
            table.hear(metric);
            return;
        }
        let entry = MetricMetadata { kind: *kind, help: help.clone(), unit: unit.clone() };
        let entries = with_entry(known, entry);
        self.0.insert(metric.as_str().into(), entries);
    }
}
