//! The index of a block, version 2: series with references to their chunks.
//!
//! Source: `tsdb/docs/format/index.md` of Prometheus.

use std::path::Path;

use model::Labels;
use model::labels::{push_packed, quoted};
use model::varint::{take_varint, unzigzag};

use super::file::WindowedFile;
use super::symbols::SymbolTable;
use crate::error::FormatError;

const MAGIC: u32 = 0xbaaa_d700;
const HEADER_BYTES: u64 = 5;
const CONTENTS_BYTES: u64 = 6 * 8;
/// Maximum size of the entry of a series, in bytes: some hundred thousand chunks.
const SERIES_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of labels of a series, as few bytes refer to long texts.
const LABELS_MAX: u64 = 10_000;

/// Position of a chunk, and the time range of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkMeta {
    /// Timestamp of its first sample, ms since the epoch.
    pub min_ms: i64,
    /// Timestamp of its last sample.
    pub max_ms: i64,
    /// File number in the upper 32 bits, offset in the lower.
    pub(super) reference: u64,
}

/// An open index.
#[derive(Debug)]
pub(super) struct Index {
    /// File of series. Symbols and the list have windows of their own, as all three are read in
    /// order.
    file: WindowedFile,
    symbols: SymbolTable,
    list: WindowedFile,
    /// Offset of the list of all series.
    postings: u64,
    /// Number of series.
    series_count: u32,
}

/// A series in the index.
#[derive(Debug)]
pub(super) struct IndexedSeries {
    /// Reference of the series in tombstones.
    pub(super) reference: u32,
    pub(super) labels: Labels,
    pub(super) chunks: Vec<ChunkMeta>,
}

impl Index {
    /// Opens an index and checks its header, its symbols and the list of its series.
    pub(super) fn open(path: &Path) -> Result<Index, FormatError> {
        let mut file = WindowedFile::open(path)?;
        let version = match file.u32(0)? {
            MAGIC => file.bytes(4, 1)?[0],
            magic => return Err(file.damaged(0, format!("{magic:08x} is not that of an index"))),
        };
        if version != 2 {
            return Err(file.damaged(4, format!("index version {version} is not supported, 2 is")));
        }
        let contents = file.len().checked_sub(CONTENTS_BYTES + 4).filter(|at| *at >= HEADER_BYTES);
        let contents = contents.ok_or_else(|| file.damaged(0, "the index is truncated"))?;
        file.check(contents, CONTENTS_BYTES)?;
        let table = file.bytes(contents, CONTENTS_BYTES as usize)?;
        let entry = |number: usize| {
            let bytes = &table[8 * number..8 * number + 8];
            u64::from_be_bytes(bytes.try_into().expect("8 bytes are cut out"))
        };
        let (symbols, postings_table) = (entry(0), entry(5));
        let end = contents.saturating_sub(4);
        if symbols > end || postings_table > end {
            return Err(
                file.damaged(contents, "the table of contents points past the end of the file")
            );
        }
        let symbols = SymbolTable::read(WindowedFile::open(path)?, symbols)?;
        let (postings, series_count) = match find_postings(&mut file, postings_table)? {
            Some(at) => read_postings(&mut file, at)?,
            None => (0, 0),
        };
        let list = WindowedFile::open(path)?;
        Ok(Index { file, symbols, list, postings, series_count })
    }

    pub(super) fn series_count(&self) -> u32 {
        self.series_count
    }

    /// Returns a series by its number, which is below the count.
    pub(super) fn series(&mut self, number: u32) -> Result<IndexedSeries, FormatError> {
        let reference = self.list.u32(self.postings + 4 * u64::from(number))?;
        let offset = 16 * u64::from(reference);
        let (len, start) = self.file.varint(offset)?;
        if len > SERIES_BYTES_MAX {
            return Err(self.file.damaged(offset, format!("a series that takes {len} bytes")));
        }
        self.file.check(start, len)?;
        let bytes = self.file.bytes(start, len as usize)?.to_vec();
        let cut = |index: &Index| index.file.damaged(offset, "the series is truncated");
        let mut rest = &bytes[..];
        let pairs = take_symbols(&mut rest).ok_or_else(|| cut(self))?;
        let chunks = take_chunks(&mut rest).ok_or_else(|| cut(self))?;
        let labels = self.labels(&pairs, offset)?;
        Ok(IndexedSeries { reference, labels, chunks })
    }

    fn labels(&mut self, pairs: &[(u32, u32)], offset: u64) -> Result<Labels, FormatError> {
        let mut packed = Vec::new();
        for (name, value) in pairs {
            let (names, name) = self.symbols.get(*name)?;
            let (values, value) = self.symbols.get(*value)?;
            push_packed(&mut packed, names[name].as_bytes(), values[value].as_bytes());
        }
        match Labels::from_bytes(&packed) {
            Ok(labels) => Ok(labels),
            Err(_) => self.unsorted_labels(pairs, offset),
        }
    }

    /// Sorts labels and drops those with an empty value. Prometheus accepts blocks of others with
    /// such labels.
    #[cold]
    fn unsorted_labels(
        &mut self,
        pairs: &[(u32, u32)],
        offset: u64,
    ) -> Result<Labels, FormatError> {
        let mut labels: Vec<(Box<str>, Box<str>)> = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            let (names, name) = self.symbols.get(*name)?;
            let name = names[name].clone();
            let (values, value) = self.symbols.get(*value)?;
            labels.push((name, values[value].clone()));
        }
        let as_received: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        labels.sort_unstable();
        let duplicate = labels.windows(2).find(|pair| pair[0].0 == pair[1].0);
        let fault = match duplicate {
            Some(pair) => format!("duplicated label {}", pair[0].0),
            None if labels.iter().any(|(name, _)| name.is_empty()) => {
                "a label has an empty name".to_owned()
            }
            None => return Ok(Labels::from_pairs(labels)),
        };
        let as_received = as_received.join(", ");
        Err(self.file.damaged(offset, format!("series {{{as_received}}}: {fault}")))
    }
}

/// Finds the list of all series in the table of postings, where it has the empty label.
fn find_postings(file: &mut WindowedFile, table: u64) -> Result<Option<u64>, FormatError> {
    let len = u64::from(file.u32(table)?);
    file.check(table + 4, len)?;
    let (mut at, end) = (table + 8, table + 4 + len);
    for _ in 0..file.u32(table + 4)? {
        if at >= end {
            return Err(file.damaged(at, "the table of postings is truncated"));
        }
        let (parts, next) = file.varint(at)?;
        if parts != 2 {
            return Err(file.damaged(at, format!("a pair of {parts} texts")));
        }
        let (name_len, name) = file.varint(next)?;
        let value_at = name.saturating_add(name_len);
        let (value_len, value) = file.varint(value_at)?;
        let (offset, next) = file.varint(value.saturating_add(value_len))?;
        if name_len == 0 && value_len == 0 {
            return Ok(Some(offset));
        }
        at = next;
    }
    Ok(None)
}

/// Returns the offset of a list of series after its length, and the number of series.
fn read_postings(file: &mut WindowedFile, at: u64) -> Result<(u64, u32), FormatError> {
    let len = u64::from(file.u32(at)?);
    file.check(at + 4, len)?;
    let count = file.u32(at + 4)?;
    if len != 4 + 4 * u64::from(count) {
        return Err(file.damaged(at, format!("{count} series in {len} bytes")));
    }
    Ok((at + 8, count))
}

fn take_symbols(rest: &mut &[u8]) -> Option<Vec<(u32, u32)>> {
    let count = take_varint(rest)?;
    if count > LABELS_MAX {
        return None;
    }
    let mut number = || u32::try_from(take_varint(rest)?).ok();
    // The list grows with the bytes read, at least one for each number.
    (0..count).map(|_| Some((number()?, number()?))).collect()
}

fn take_chunks(rest: &mut &[u8]) -> Option<Vec<ChunkMeta>> {
    let count = take_varint(rest)?;
    let mut chunks: Vec<ChunkMeta> = Vec::new();
    for _ in 0..count {
        let (min_ms, max_ms, reference);
        match chunks.last() {
            None => {
                min_ms = unzigzag(take_varint(rest)?);
                max_ms = min_ms.checked_add_unsigned(take_varint(rest)?)?;
                reference = take_varint(rest)?;
            }
            Some(before) => {
                // An unsigned difference: for chunks that overlap, it wraps around.
                min_ms = before.max_ms.wrapping_add(take_varint(rest)? as i64);
                max_ms = min_ms.checked_add_unsigned(take_varint(rest)?)?;
                reference = before.reference.checked_add_signed(unzigzag(take_varint(rest)?))?;
            }
        }
        chunks.push(ChunkMeta { min_ms, max_ms, reference });
    }
    Some(chunks)
}
