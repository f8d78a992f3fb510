//! Decodes the frames of a run to a column.

use std::cell::RefCell;
use std::sync::Arc;

use super::columns::{Column, KeptColumn, SelectionColumns};
use super::merged::MergedFloats;
use super::part::{Floats, Run};
use crate::chunk::{self, ChunkError, Decoder};

/// Returns the column of a run.
pub(super) fn column_of(
    run: &Run,
    columns: SelectionColumns<'_>,
) -> Result<Arc<KeptColumn>, ChunkError> {
    match run.column_slot.column() {
        // A longer column also has samples of later parts.
        Some(column) if column.max_ms() == run.max_ms => Ok(column),
        _ => Ok(columns.add(&run.column_slot, decoded(run)?)),
    }
}

/// Decodes the samples of a run.
pub(super) fn decoded(run: &Run) -> Result<Column, ChunkError> {
    type Decoded = (Vec<i64>, Vec<f64>, Vec<i64>);
    thread_local! {
        static DECODED: RefCell<Decoded> = RefCell::default();
    }
    DECODED.with_borrow_mut(|(timestamps, values, starts)| {
        timestamps.clear();
        values.clear();
        starts.clear();
        if let Some(before) = &run.before {
            before.unpack(timestamps, values, starts);
        }
        let first = timestamps.len();
        for frames in &run.frames {
            decode_frames(frames, timestamps, values, starts)?;
        }
        if let Some(before) = &run.before {
            let repeated =
                timestamps[first..].partition_point(|time_ms| *time_ms <= before.max_ms());
            timestamps.drain(first..first + repeated);
            values.drain(first..first + repeated);
            let known = starts.len();
            starts.drain(first.min(known)..(first + repeated).min(known));
        }
        let Some(late) = &run.late else { return Ok(Column::new(timestamps, values, starts)) };
        let mut merged = MergedFloats::default();
        merged.add_later(timestamps, values, starts);
        for frames in &late.frames {
            timestamps.clear();
            values.clear();
            starts.clear();
            decode_frames(frames, timestamps, values, starts)?;
            merged.add_later(timestamps, values, starts);
        }
        let Floats { samples, starts } = &late.floats;
        let (timestamps, values): (Vec<_>, Vec<_>) = samples.iter().copied().unzip();
        merged.add_later(&timestamps, &values, starts);
        Ok(Column::new(merged.timestamps(), merged.values(), merged.starts()))
    })
}

/// Appends the samples of frames that stand end to end.
fn decode_frames(
    frames: &[u8],
    timestamps: &mut Vec<i64>,
    values: &mut Vec<f64>,
    starts: &mut Vec<i64>,
) -> Result<(), ChunkError> {
    for frame in chunk::frames(frames) {
        let (offset, header) = frame?;
        let bytes = &frames[offset..];
        header.verify(bytes)?;
        Decoder::new(bytes, &header)?.read_all(timestamps, values, starts)?;
    }
    Ok(())
}
