//! Loaded series of one selection.

use std::fmt;
use std::sync::{Arc, OnceLock};

use model::{Cursor, DerivedValues, Labels, Reservation, SeriesSet, TimeRange, prefetch};

use super::kept::HeldOnce;
use super::order::PARTS_AHEAD;
use crate::samples::columns::ColumnCache;
use crate::samples::cursor::PartsCursor;
use crate::samples::series_parts::SeriesParts;
use crate::summary::edges::Edges;

/// Loaded series of one query.
pub(crate) struct LoadedSet {
    pub(crate) loaded: Arc<LoadedSeries>,
    pub(crate) range: TimeRange,
    /// Caches decoded columns. Those of a set that exceeds its limit evict no others.
    pub(crate) columns: Arc<ColumnCache>,
    /// Memory charge, released on drop.
    pub(crate) _charge: Reservation,
}

/// Loaded series, sorted by labels.
pub(crate) struct LoadedSeries {
    pub(crate) series: Vec<(Labels, SeriesParts)>,
    /// Bytes of the samples.
    pub(crate) encoded_bytes: usize,
    /// Minimum bytes of all columns, if they were cached.
    pub(crate) column_bytes: usize,
    /// True if samples may be missing that the selection's windows do not need.
    pub(crate) is_partial: bool,
    /// Boundaries of the wanted windows, if there may be summaries in place of samples.
    pub(crate) edges: Option<Edges>,
    /// True if any series may have histograms; computed on first use.
    pub(crate) has_histograms: OnceLock<bool>,
    /// Bytes that each query charges for them.
    pub(crate) charged_bytes: u64,
    pub(crate) held: HeldOnce,
}

impl fmt::Debug for LoadedSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedSeries").field("len", &self.series.len()).finish_non_exhaustive()
    }
}

impl Drop for LoadedSeries {
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

impl SeriesSet for LoadedSet {
    fn len(&self) -> usize {
        self.loaded.series.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        &self.loaded.series[series_index].0
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        let (labels, parts) = &self.loaded.series[series_index];
        let TimeRange { start_ms, end_ms } = self.range;
        let columns = self.columns.for_selection(self.loaded.column_bytes);
        let cursor = PartsCursor::new(labels, parts, start_ms, end_ms, Some(columns));
        match &self.loaded.edges {
            Some(edges) if parts.has_summaries() => Box::new(cursor.over_summaries(edges)),
            _ => Box::new(cursor),
        }
    }

    fn prefetch(&self, series_index: usize, ahead: usize) {
        let Some(series) = self.loaded.series.get(series_index) else { return };
        match ahead {
            0 => series.1.fetch_samples(),
            1 => series.1.fetch(),
            _ => prefetch(series),
        }
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.loaded.series[series_index].1.sample_count()
    }

    fn has_histograms(&self, series_index: usize) -> bool {
        self.loaded.series[series_index].1.has_histograms()
    }

    fn has_any_histograms(&self) -> bool {
        let LoadedSeries { series, has_histograms, .. } = &*self.loaded;
        let any = || series.iter().any(|(_, parts)| parts.has_histograms());
        *has_histograms.get_or_init(any)
    }

    fn derived(&self) -> Option<&DerivedValues> {
        self.loaded.held.get().map(|held| &held.derived)
    }

    fn encoded_bytes(&self) -> usize {
        self.loaded.encoded_bytes
    }
}
