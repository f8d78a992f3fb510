//! The values that a seal writes: series blocks, run directories, and pages of the forward index.
//!
//! A block holds 16 to 64 series of one metric, sorted by id (and so, but for latecomers, by
//! labels). A block counts only if its run's directory lists it.
//!
//! Layouts: "Series block", "Run directory" and "Page of the forward index" in `docs/formats.md`.

mod edits;
pub(crate) mod page;
mod shared_times;

use std::ops::Range;

use bytes::Bytes;
use model::TimeRange;

use self::shared_times::SharedTimes;
use crate::chunk::CHUNK_PADDING_BYTES;
use crate::error::StoreError;
use crate::keys;
use crate::summary::codec::SummaryBuilder;
use crate::value;
use crate::varint::{push_varint, take_count, take_u32, take_varint, unzigzag, zigzag};

/// Bytes of frames from which a block is full.
pub(crate) const BLOCK_BYTES: usize = 48 << 10;
/// Summaries are written next to samples if they have at most this part of the bytes of all frames.
const SUMMARIES_SHARE: usize = 5;
/// Summaries with at most a byte for this many samples are also written. Samples may have few bits.
const SAMPLES_PER_SUMMARY_BYTE: usize = 12;
const VERSION: u8 = 1;
/// Version of blocks whose series share times.
const VERSION_SHARED: u8 = 2;

/// A block, as its run's directory lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    /// Lowest id.
    pub(crate) first_id: u32,
    /// Highest id.
    pub(crate) last_id: u32,
    /// Bytes of the value; 0 if the retention has deleted the samples and kept their summaries.
    pub(crate) bytes: u32,
    /// Earliest time.
    pub(crate) min_ms: i64,
    /// Latest time.
    pub(crate) max_ms: i64,
}

impl BlockEntry {
    /// Returns whether only the summaries of the block are left.
    pub(crate) fn is_summarized(&self) -> bool {
        self.bytes == 0
    }
}

/// Collects the series of one block.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    series_max: usize,
    /// Id and length of the frames of each series.
    series: Vec<(u32, usize)>,
    frames: Vec<u8>,
    times: Option<TimeRange>,
    summaries: SummaryBuilder,
}

/// Values of a block.
#[derive(Debug)]
pub(crate) struct BuiltBlock {
    pub(crate) entry: BlockEntry,
    /// Keys and values: the block, and its summaries if it has any.
    pub(crate) values: Vec<(Vec<u8>, Vec<u8>)>,
}

impl BuiltBlock {
    /// Returns the bytes of the values.
    pub(crate) fn bytes(&self) -> usize {
        self.values.iter().map(|(_, value)| value.len()).sum()
    }
}

impl BlockBuilder {
    /// Returns a builder of a block with a maximum number of series.
    pub(crate) fn new(series_max: usize) -> BlockBuilder {
        BlockBuilder {
            series_max,
            series: Vec::new(),
            frames: Vec::new(),
            times: None,
            summaries: SummaryBuilder::default(),
        }
    }

    /// Adds a series: ids ascend. `frames` stand end to end.
    pub(crate) fn push(&mut self, id: u32, frames: &[u8], times: TimeRange) {
        self.series.push((id, frames.len()));
        self.frames.extend_from_slice(frames);
        self.summaries.push(id, frames);
        self.times = Some(self.times.map_or(times, |all| all.join(times)));
    }

    /// Returns the first id, if there is a series.
    pub(crate) fn first_id(&self) -> Option<u32> {
        self.series.first().map(|(id, _)| *id)
    }

    /// Returns whether the block is full.
    pub(crate) fn is_full(&self) -> bool {
        self.series.len() >= self.series_max || self.frames.len() >= BLOCK_BYTES
    }

    /// Returns the values and the directory entry of the block. There must be a series.
    pub(crate) fn finish(self, key: Vec<u8>) -> BuiltBlock {
        let shared = SharedTimes::find(&self.series, &self.frames);
        let mut header = vec![if shared.is_some() { VERSION_SHARED } else { VERSION }];
        if shared.is_some() {
            push_varint(&mut header, self.frames.len() as u64);
        }
        push_varint(&mut header, self.series.len() as u64);
        let mut before = -1;
        for (at, (id, len)) in self.series.iter().enumerate() {
            push_varint(&mut header, (i64::from(*id) - before - 1) as u64);
            push_varint(&mut header, *len as u64);
            if let Some(shared) = &shared {
                shared.describe(at, &mut header);
            }
            before = i64::from(*id);
        }
        let len_bytes = (header.len() as u32).to_le_bytes();
        let mut bytes = Vec::with_capacity(24 + header.len() + self.frames.len());
        bytes.extend_from_slice(&header_checksum(&key, len_bytes, &header).to_le_bytes());
        bytes.extend_from_slice(&len_bytes);
        bytes.extend_from_slice(&header);
        match &shared {
            Some(shared) => shared.write_own(&self.frames, &mut bytes),
            None => bytes.extend_from_slice(&self.frames),
        }
        bytes.extend_from_slice(&[0; CHUNK_PADDING_BYTES]);
        let entry = BlockEntry { bytes: bytes.len() as u32, ..self.summarized_entry() };
        let summary_key = keys::summaries_of_block(&key);
        let samples = self.summaries.sample_count();
        // The others would cost more than they save.
        let is_small = |summaries: &Vec<u8>| {
            summaries.len() * SUMMARIES_SHARE <= self.frames.len()
                || summaries.len() * SAMPLES_PER_SUMMARY_BYTE <= samples
        };
        let summaries = self.summaries.finish(&summary_key).filter(is_small);
        let mut values = vec![(key, bytes)];
        values.extend(summaries.map(|summaries| (summary_key, summaries)));
        BuiltBlock { entry, values }
    }

    /// Returns the values and the directory entry of a block of which only the summaries are kept.
    ///
    /// Panics: a series has no summaries.
    pub(crate) fn finish_summarized(self, key: &[u8]) -> BuiltBlock {
        assert!(self.summaries.is_complete(), "the samples of a series would be lost");
        let entry = self.summarized_entry();
        let summary_key = keys::summaries_of_block(key);
        let summaries = self.summaries.finish(&summary_key).expect("each series has summaries");
        BuiltBlock { entry, values: vec![(summary_key, summaries)] }
    }

    fn summarized_entry(&self) -> BlockEntry {
        let times = self.times.unwrap_or(TimeRange::new(0, 0));
        let TimeRange { start_ms: min_ms, end_ms: max_ms } = times;
        let first_id = self.first_id().unwrap_or_default();
        let last_id = self.series.last().map_or(first_id, |(id, _)| *id);
        BlockEntry { first_id, last_id, bytes: 0, min_ms, max_ms }
    }
}

/// Series of a block.
pub(crate) struct DecodedBlock {
    /// The value, or all frames of a block of version 2.
    bytes: Bytes,
    /// Id of each series, and range of its frames.
    series: Vec<(u32, Range<usize>)>,
}

impl DecodedBlock {
    /// Decodes a block.
    ///
    /// Errors: a damaged header. Frames have their own checksums.
    pub(crate) fn new(key: &[u8], bytes: &Bytes) -> Result<DecodedBlock, StoreError> {
        let cut = || value::corrupt(key, format!("block of {} bytes is cut short", bytes.len()));
        let (stored, rest) = bytes.split_first_chunk::<4>().ok_or_else(cut)?;
        let (len_bytes, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let header_len = u32::from_le_bytes(*len_bytes) as usize;
        let (header, frames) = rest.split_at_checked(header_len).ok_or_else(cut)?;
        let (expected, found) =
            (u32::from_le_bytes(*stored), header_checksum(key, *len_bytes, header));
        if expected != found {
            let detail = format!("checksum {found:#010x} differs from the stored {expected:#010x}");
            return Err(value::corrupt(key, detail));
        }
        let frames_len = frames.len().checked_sub(CHUNK_PADDING_BYTES).ok_or_else(cut)?;
        let start = 8 + header_len;
        let decoded = match header.split_first() {
            Some((&VERSION, rest)) => decode_header(rest, start, start + frames_len)
                .map(|series| DecodedBlock { bytes: bytes.clone(), series }),
            Some((&VERSION_SHARED, rest)) => shared_times::expand(rest, &frames[..frames_len])
                .map(|(series, bytes)| DecodedBlock { bytes: bytes.into(), series }),
            Some((version, _)) => Err(format!("unknown version {version}")),
            None => Err("block header is empty".to_owned()),
        };
        decoded.map_err(|detail| value::corrupt(key, detail))
    }

    /// Returns the bytes in memory.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the ids of the series, which ascend.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.series.iter().map(|(id, _)| *id)
    }

    /// Returns each series with its frames, end to end.
    pub(crate) fn frames(&self) -> impl Iterator<Item = (u32, Bytes)> {
        self.series.iter().map(|(id, range)| (*id, self.bytes.slice(range.clone())))
    }
}

/// Decodes the header of a block after its version: the series of the frames from `start` to `end`.
fn decode_header(
    mut rest: &[u8],
    mut start: usize,
    end: usize,
) -> Result<Vec<(u32, Range<usize>)>, String> {
    let rest = &mut rest;
    let mut series = Vec::new();
    let mut before = -1;
    for _ in 0..take_count(rest)? {
        let id = take_id(rest, before)?;
        before = i64::from(id);
        let len = usize::try_from(take_varint(rest)?).unwrap_or(usize::MAX);
        if len > end - start {
            return Err(format!("frames of series {id} run past the end"));
        }
        series.push((id, start..start + len));
        start += len;
    }
    if start != end {
        return Err(format!("{} bytes follow the last series", end - start));
    }
    Ok(series)
}

fn header_checksum(key: &[u8], len_bytes: [u8; 4], header: &[u8]) -> u32 {
    let sum = crc32c::crc32c_append(crc32c::crc32c(key), &len_bytes);
    crc32c::crc32c_append(sum, header)
}

fn take_id(rest: &mut &[u8], before: i64) -> Result<u32, String> {
    let distance = i64::try_from(take_varint(rest)?).unwrap_or(i64::MAX);
    (before + 1)
        .checked_add(distance)
        .and_then(|id| u32::try_from(id).ok())
        .ok_or_else(|| "series id out of range".to_owned())
}

/// Encodes a run directory.
pub(crate) fn encode_directory(key: &[u8], entries: &[BlockEntry]) -> Vec<u8> {
    let mut body = Vec::with_capacity(entries.len() * 20);
    push_varint(&mut body, entries.len() as u64);
    let mut before = -1;
    for entry in entries {
        push_varint(&mut body, (i64::from(entry.first_id) - before - 1) as u64);
        push_varint(&mut body, u64::from(entry.last_id - entry.first_id));
        push_varint(&mut body, u64::from(entry.bytes));
        push_varint(&mut body, zigzag(entry.min_ms));
        push_varint(&mut body, entry.max_ms.abs_diff(entry.min_ms));
        before = i64::from(entry.last_id);
    }
    value::encode(key, &body)
}

/// Decodes the blocks that a run directory lists.
pub(crate) fn decode_directory(key: &[u8], bytes: &[u8]) -> Result<Vec<BlockEntry>, StoreError> {
    let mut rest = value::decode(key, bytes)?;
    let mut read = || {
        let rest = &mut rest;
        let mut before = -1;
        (0..take_count(rest)?)
            .map(|_| {
                let first_id = take_id(rest, before)?;
                let last_id = take_id(rest, i64::from(first_id) - 1)?;
                let bytes = take_u32(rest)?;
                let min_ms = unzigzag(take_varint(rest)?);
                let max_ms =
                    min_ms.checked_add_unsigned(take_varint(rest)?).ok_or("time out of range")?;
                before = i64::from(last_id);
                Ok(BlockEntry { first_id, last_id, bytes, min_ms, max_ms })
            })
            .collect::<Result<Vec<_>, String>>()
    };
    read().map_err(|detail| value::corrupt(key, detail))
}
