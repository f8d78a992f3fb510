//! Loaded series of one selection.

use std::sync::Arc;

use model::{Budget, Cursor, Labels, SeriesSet, prefetch};

use super::order::PARTS_AHEAD;
use crate::samples::columns::ColumnCache;
use crate::samples::cursor::{PartsCursor, SeriesParts};

/// Loaded series, sorted by labels.
pub(crate) struct LoadedSet {
    pub(crate) series: Vec<(Labels, SeriesParts)>,
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    /// Caches decoded columns.
    pub(crate) columns: Arc<ColumnCache>,
    /// Bytes of the samples.
    pub(crate) encoded_bytes: usize,
    /// Memory charge, released on drop.
    pub(crate) _charge: Charge,
}

impl Drop for LoadedSet {
    /// Drops one series at a time and prefetches the next: labels and columns are scattered in
    /// memory.
    fn drop(&mut self) {
        let mut rest = std::mem::take(&mut self.series).into_iter();
        loop {
            if let Some((labels, parts)) = rest.as_slice().get(PARTS_AHEAD) {
                prefetch(labels.as_bytes());
                parts.fetch();
            }
            if rest.next().is_none() {
                return;
            }
        }
    }
}

/// Charge of memory to a budget, released on drop.
pub(crate) struct Charge {
    budget: Budget,
    bytes: u64,
}

impl Charge {
    /// Creates an empty charge.
    pub(crate) fn new(budget: &Budget) -> Charge {
        Charge { budget: budget.clone(), bytes: 0 }
    }

    /// Charges bytes that are about to be allocated.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), model::BudgetError> {
        self.bytes += bytes as u64;
        self.budget.charge_memory(bytes as u64)
    }

    /// Takes over another charge of the same budget.
    pub(crate) fn absorb(&mut self, mut other: Charge) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release_memory(self.bytes);
    }
}

impl SeriesSet for LoadedSet {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        &self.series[series_index].0
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        let (labels, parts) = &self.series[series_index];
        let columns = Some(&*self.columns);
        Box::new(PartsCursor::new(labels, parts, self.start_ms, self.end_ms, columns))
    }

    fn prefetch(&self, series_index: usize, ahead: usize) {
        let Some(series) = self.series.get(series_index) else { return };
        match ahead {
            0 => series.1.fetch_samples(),
            1 => series.1.fetch(),
            _ => prefetch(series),
        }
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.series[series_index].1.sample_count()
    }

    fn has_histograms(&self, series_index: usize) -> bool {
        self.series[series_index].1.has_histograms()
    }

    fn encoded_bytes(&self) -> usize {
        self.encoded_bytes
    }
}
