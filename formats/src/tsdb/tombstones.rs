//! Deleted time ranges of a block, whose samples are still in its chunks.
//!
//! Source: `tsdb/tombstones/tombstones.go` of Prometheus.

use std::collections::HashMap;
use std::path::Path;

use model::TimeRange;
use model::varint::{take_varint, unzigzag};

use super::file::WindowedFile;
use crate::error::FormatError;

const MAGIC: u32 = 0x0130_ba30;

/// Maximum size of a file of tombstones, in bytes.
pub const TOMBSTONES_BYTES_MAX: u64 = 64 << 20;

/// Deleted time ranges by the reference of the series.
#[derive(Debug, Default)]
pub(super) struct Tombstones(HashMap<u64, Vec<TimeRange>>);

impl Tombstones {
    /// Reads a file; a missing one is empty.
    pub(super) fn read(path: &Path) -> Result<Tombstones, FormatError> {
        if !path.exists() {
            return Ok(Tombstones::default());
        }
        let mut file = WindowedFile::open(path)?;
        if file.len() > TOMBSTONES_BYTES_MAX {
            let detail = format!("{} bytes of tombstones, and no more than", file.len());
            return Err(file.damaged(0, format!("{detail} {TOMBSTONES_BYTES_MAX} are read")));
        }
        match (file.u32(0)?, file.bytes(4, 1)?[0]) {
            (MAGIC, 1) => {}
            (magic, version) => {
                let detail = format!("{magic:08x} and version {version} are not of tombstones");
                return Err(file.damaged(0, detail));
            }
        }
        let len = file.len().checked_sub(4 + 5);
        let len = len.ok_or_else(|| file.damaged(0, "the file is truncated"))?;
        file.check(5, len)?;
        let bytes = file.bytes(5, len as usize)?;
        let mut rest = bytes;
        let mut stones = Tombstones::default();
        while !rest.is_empty() {
            let at = 5 + (bytes.len() - rest.len()) as u64;
            let stone = take_stone(&mut rest);
            let (reference, interval) =
                stone.ok_or_else(|| FormatError::damaged(path, at, "a tombstone is truncated"))?;
            stones.0.entry(reference).or_default().push(interval);
        }
        Ok(stones)
    }

    /// Returns the deleted time ranges of a series.
    pub(super) fn of(&self, reference: u32) -> &[TimeRange] {
        self.0.get(&u64::from(reference)).map_or(&[], |intervals| intervals)
    }
}

fn take_stone(rest: &mut &[u8]) -> Option<(u64, TimeRange)> {
    let reference = take_varint(rest)?;
    let (start_ms, end_ms) = (unzigzag(take_varint(rest)?), unzigzag(take_varint(rest)?));
    Some((reference, TimeRange { start_ms, end_ms }))
}
