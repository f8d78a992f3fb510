//! Packed labels of the last data point.
//!
//! The labels that all series of a data point share are packed once and then copied; the metric name
//! and `le` or `quantile` are inserted. At the next data point, only changed labels are packed.

use model::METRIC_NAME;
use model::labels::push_packed;

use super::labels::{LabelSet, Refusal};
use crate::limits::Limits;

/// Packed labels of a [`LabelSet`], up to the first label over a limit. They are of one series, so
/// their memory is not charged.
#[derive(Debug, Default)]
pub(super) struct PackedLabels {
    bytes: Vec<u8>,
    /// Start of each label.
    starts: Vec<usize>,
    /// Index at which the metric name is inserted; `None` if the set has a metric name.
    name_at: Option<usize>,
}

impl PackedLabels {
    /// Removes all labels.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
    }

    /// Changes the value at an index; if it has another length, removes the labels from there on.
    #[inline]
    pub(super) fn change(&mut self, at: usize, [held, value]: [&str; 2]) {
        let Some(start) = self.starts.get(at).copied() else { return };
        let end = self.starts.get(at + 1).copied().unwrap_or(self.bytes.len());
        if held.len() == value.len() {
            self.bytes[end - value.len()..end].copy_from_slice(value.as_bytes());
        } else {
            self.bytes.truncate(start);
            self.starts.truncate(at);
        }
    }

    /// Packs the labels of the set that are absent; the others must equal those of the set.
    #[inline]
    pub(super) fn complete(&mut self, set: &LabelSet<'_>, limits: &Limits) {
        if self.starts.is_empty() {
            self.name_at = set.position(METRIC_NAME).err();
        }
        let fits = limits.fits_label();
        for (name, value) in set.pairs_from(self.starts.len()) {
            if !fits(name, value) {
                break;
            }
            self.starts.push(self.bytes.len());
            push_packed(&mut self.bytes, name.as_bytes(), value.as_bytes());
        }
    }

    /// Size of the packed labels of the set, in bytes.
    #[inline]
    pub(super) fn len(&self, set: &LabelSet<'_>) -> usize {
        if self.starts.len() == set.len() { self.bytes.len() } else { set.packed_bytes() }
    }

    /// Like [`LabelSet::pack`] of the set.
    #[inline]
    pub(super) fn pack(
        &self,
        set: &LabelSet<'_>,
        metric: &str,
        more: Option<(&str, &str)>,
        limits: &Limits,
        arena: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let fits = limits.fits_label();
        let added = match more {
            None => Some((set.len(), None)),
            Some((name, value)) if fits(name, value) => {
                set.position(name).err().map(|at| (at, more))
            }
            Some(_) => None,
        };
        let count = set.len() + 1 + usize::from(more.is_some());
        let (Some(name_at), Some((more_at, more))) = (self.name_at, added) else {
            return set.pack(metric, more, limits, arena);
        };
        if self.starts.len() < set.len()
            || count > limits.labels_per_series_max
            || metric.is_empty()
            || !fits(METRIC_NAME, metric)
        {
            return set.pack(metric, more, limits, arena);
        }
        // All labels that can be added come after the metric name.
        let [name_start, more_start] =
            [name_at, more_at].map(|at| self.starts.get(at).copied().unwrap_or(self.bytes.len()));
        arena.extend_from_slice(&self.bytes[..name_start]);
        push_packed(arena, METRIC_NAME.as_bytes(), metric.as_bytes());
        arena.extend_from_slice(&self.bytes[name_start..more_start]);
        if let Some((name, value)) = more {
            push_packed(arena, name.as_bytes(), value.as_bytes());
            arena.extend_from_slice(&self.bytes[more_start..]);
        }
        Ok(())
    }
}
