//! Decodes the frames of a run to a column.

use std::cell::RefCell;
use std::sync::Arc;

use super::columns::{Column, ColumnCache, KeptColumn};
use super::part::Run;
use crate::chunk::{self, ChunkError, Decoder};

/// Returns the column of a run, and caches it for later queries.
pub(super) fn column_of(run: &Run, columns: &ColumnCache) -> Result<Arc<KeptColumn>, ChunkError> {
    match run.column_slot.column() {
        Some(column) if column.max_ms() >= run.max_ms => Ok(column),
        _ => Ok(columns.put(&run.column_slot, decoded(run)?)),
    }
}

/// Decodes the samples of a run.
pub(super) fn decoded(run: &Run) -> Result<Column, ChunkError> {
    type Decoded = (Vec<i64>, Vec<f64>);
    thread_local! {
        static DECODED: RefCell<Decoded> = const { RefCell::new((Vec::new(), Vec::new())) };
    }
    DECODED.with_borrow_mut(|(timestamps, values)| {
        timestamps.clear();
        values.clear();
        for frame in run.frames.iter().flat_map(|f| chunk::frames(f).map(move |at| (f, at))) {
            let (frames, at) = frame;
            let (offset, header) = at?;
            let bytes = &frames[offset..];
            header.verify(bytes)?;
            Decoder::new(bytes, &header)?.read_all(timestamps, values)?;
        }
        let Some(before) = &run.before else { return Ok(Column::new(timestamps, values)) };
        let first = timestamps.partition_point(|time_ms| *time_ms <= before.max_ms());
        let (mut all_timestamps, mut all_values) = before.samples();
        all_timestamps.extend_from_slice(&timestamps[first..]);
        all_values.extend_from_slice(&values[first..]);
        Ok(Column::new(&all_timestamps, &all_values))
    })
}
