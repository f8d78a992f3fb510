//! Loaded series of one selection.

use std::sync::Arc;

use model::{Cursor, Labels, Reservation, SeriesSet, prefetch};

use super::order::PARTS_AHEAD;
use crate::samples::columns::ColumnCache;
use crate::samples::cursor::PartsCursor;
use crate::samples::series_parts::SeriesParts;

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
    pub(crate) _charge: Reservation,
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
