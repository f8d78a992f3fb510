//! Records of the store about itself, below the letter `m`: format, owner, log epochs, watermarks of
//! windows, registered series, intents.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;

use crate::delete::{self, Tombstone};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::index::decode_postings;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};
use crate::retention::Keeping;
use crate::value;
use crate::varint::{push_varint, take_bytes, take_count, take_varint};
use crate::window::{PartitionId, Window};

/// Format of a store that this version writes to. 1 had no marker; 2 has deletes, which an older
/// version would undo; 3 has summaries in place of samples, which an older version would miss; 4
/// has edited labels, blocks with shared times, and packed floats with shifts, markers and starts,
/// which an older version cannot read.
pub(crate) const FORMAT: u32 = 4;

/// Records of the store about itself.
#[derive(Debug, Default)]
pub(crate) struct Meta {
    /// Format of the store.
    pub(crate) format: u32,
    /// Process that wrote to the store last, if it was not closed.
    pub(crate) owner: Option<String>,
    /// The first log epoch whose records count.
    pub(crate) first_epoch: Epoch,
    /// An epoch that no run and no record has.
    pub(crate) next_epoch: Epoch,
    /// Records per log epoch at the start before.
    pub(crate) records: Vec<(Epoch, u64)>,
    /// Epoch up to which a window is sealed.
    pub(crate) watermarks: BTreeMap<Window, Epoch>,
    /// Number of series registered in each partition.
    pub(crate) partitions: BTreeMap<PartitionId, u32>,
    /// First partition that is kept, if the deletion of those before it was interrupted, or the log
    /// may have had records of them.
    pub(crate) kept_from: Option<PartitionId>,
    /// Tombstones of deletes.
    pub(crate) tombstones: Vec<Tombstone>,
    /// First partition that is kept by the size limit, and that limit in bytes.
    pub(crate) kept_by_size: Option<(PartitionId, u64)>,
    /// Partitions whose samples are replaced by summaries.
    pub(crate) summarized: Option<Summarized>,
    /// Progress of the retention rules.
    pub(crate) rules: Keeping,
    /// Deleted ids by partition.
    pub(crate) deleted_ids: BTreeMap<PartitionId, RoaringBitmap>,
}

impl Meta {
    /// Returns whether the samples of a window in a log epoch are not sealed.
    pub(crate) fn is_open(&self, window: Window, epoch: Epoch) -> bool {
        epoch >= self.first_epoch
            && self.watermarks.get(&window).is_none_or(|sealed| *sealed < epoch)
    }

    /// Returns the time before which summaries replace samples; the minimum if there is none.
    pub(crate) fn summarized_before_ms(&self) -> i64 {
        self.summarized.map_or(i64::MIN, |summarized| summarized.before.start_ms())
    }

    /// Returns the records found by the last start in each log epoch that still counts.
    pub(crate) fn known_records(&self) -> Vec<(Epoch, u64)> {
        let counts = |(epoch, count): &&(Epoch, u64)| *epoch >= self.first_epoch && *count > 0;
        self.records.iter().filter(counts).copied().collect()
    }
}

/// Reads the records of the store about itself.
///
/// Errors: [`StoreError::NewerFormat`].
pub(crate) async fn read_meta(lsm: &Lsm) -> Result<Meta, StoreError> {
    let mut meta = Meta { format: 1, ..Meta::default() };
    if let Some(bytes) = lsm.get(keys::FORMAT).await? {
        meta.format = value::decode_u32(keys::FORMAT, &bytes)?;
        if meta.format > FORMAT {
            let (found, supported) = (meta.format, FORMAT);
            return Err(StoreError::NewerFormat { found, supported });
        }
    }
    if let Some(bytes) = lsm.get(keys::OWNER).await? {
        let owner = value::decode(keys::OWNER, &bytes)?;
        meta.owner = Some(String::from_utf8_lossy(owner).into_owned());
    }
    if let Some(bytes) = lsm.get(keys::EPOCH).await? {
        (meta.next_epoch, meta.first_epoch) = decode_epochs(&bytes)?;
    }
    if let Some(bytes) = lsm.get(keys::KEPT_FROM).await? {
        meta.kept_from = Some(decode_kept_from(&bytes)?);
    }
    if let Some(bytes) = lsm.get(keys::KEPT_BY_SIZE).await? {
        meta.kept_by_size = Some(decode_kept_by_size(&bytes)?);
    }
    if let Some(bytes) = lsm.get(keys::SUMMARIZED).await? {
        meta.summarized = Some(Summarized::decode(&bytes)?);
    }
    if let Some(bytes) = lsm.get(keys::RULES).await? {
        meta.rules = Keeping::decode(&bytes)?;
    }
    if let Some(bytes) = lsm.get(keys::RECORDS).await? {
        meta.records = decode_records(&bytes)?;
    }
    meta.partitions = read_numbers(lsm, keys::PARTITIONS_PREFIX, PartitionId::new, |n| n).await?;
    meta.watermarks = read_numbers(lsm, keys::WATERMARKS_PREFIX, Window::new, Epoch::new).await?;
    let mut scan = lsm.scan_prefix(keys::TOMBSTONES_PREFIX).await?;
    while let Some((key, bytes)) = scan.next().await? {
        meta.tombstones.push(delete::decode(&key, &bytes)?);
    }
    let mut scan = lsm.scan_prefix(keys::DELETED_IDS_PREFIX).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let partition = keys::parse_ordered(&key, keys::DELETED_IDS_PREFIX)
            .ok_or_else(|| value::corrupt(&key, "malformed key"))?;
        meta.deleted_ids.insert(PartitionId::new(partition), decode_postings(&key, &bytes)?);
    }
    Ok(meta)
}

/// Partitions whose samples are replaced by summaries: all before one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summarized {
    pub(crate) before: PartitionId,
    /// Set once the last of them has been summarized as a whole.
    pub(crate) is_whole: bool,
}

impl Summarized {
    /// Returns the value of [`keys::SUMMARIZED`].
    pub(crate) fn encode(self) -> Vec<u8> {
        let number = self.before.number().to_le_bytes();
        value::encode(keys::SUMMARIZED, &[&number[..], &[u8::from(self.is_whole)]].concat())
    }

    fn decode(bytes: &[u8]) -> Result<Summarized, StoreError> {
        let body = value::decode(keys::SUMMARIZED, bytes)?;
        match body.split_first_chunk::<8>() {
            Some((number, [is_whole @ (0 | 1)])) => {
                let before = PartitionId::new(i64::from_le_bytes(*number));
                Ok(Summarized { before, is_whole: *is_whole == 1 })
            }
            _ => Err(value::corrupt(keys::SUMMARIZED, "neither a day nor its state")),
        }
    }
}

/// Encodes the value of [`keys::KEPT_FROM`].
pub(crate) fn encode_kept_from(partition: PartitionId) -> Vec<u8> {
    value::encode(keys::KEPT_FROM, &partition.number().to_le_bytes())
}

fn decode_kept_from(bytes: &[u8]) -> Result<PartitionId, StoreError> {
    let body = value::decode(keys::KEPT_FROM, bytes)?;
    let body = body.try_into().map_err(|_| value::corrupt(keys::KEPT_FROM, "not 8 bytes"))?;
    Ok(PartitionId::new(i64::from_le_bytes(body)))
}

/// Encodes the value of [`keys::KEPT_BY_SIZE`].
pub(crate) fn encode_kept_by_size(partition: PartitionId, bytes_max: u64) -> Vec<u8> {
    let body = [partition.number().to_le_bytes(), bytes_max.to_le_bytes()].concat();
    value::encode(keys::KEPT_BY_SIZE, &body)
}

fn decode_kept_by_size(bytes: &[u8]) -> Result<(PartitionId, u64), StoreError> {
    let body = value::decode(keys::KEPT_BY_SIZE, bytes)?;
    match body.as_chunks::<8>() {
        ([partition, bytes_max], []) => {
            Ok((PartitionId::new(i64::from_le_bytes(*partition)), u64::from_le_bytes(*bytes_max)))
        }
        _ => Err(value::corrupt(keys::KEPT_BY_SIZE, "not 16 bytes")),
    }
}

/// Encodes the value of [`keys::RECORDS`].
pub(crate) fn encode_records(records: &[(Epoch, u64)]) -> Vec<u8> {
    let mut body = Vec::new();
    push_varint(&mut body, records.len() as u64);
    for (epoch, count) in records {
        push_varint(&mut body, u64::from(epoch.number()));
        push_varint(&mut body, *count);
    }
    value::encode(keys::RECORDS, &body)
}

fn decode_records(bytes: &[u8]) -> Result<Vec<(Epoch, u64)>, StoreError> {
    let mut rest = value::decode(keys::RECORDS, bytes)?;
    let mut read = || {
        (0..take_count(&mut rest)?)
            .map(|_| {
                let epoch = take_varint(&mut rest)?;
                let epoch = u32::try_from(epoch).map_err(|_| "not an epoch".to_owned())?;
                Ok((Epoch::new(epoch), take_varint(&mut rest)?))
            })
            .collect::<Result<Vec<_>, String>>()
    };
    read().map_err(|detail| value::corrupt(keys::RECORDS, detail))
}

/// Checks a key of the store's records about itself, and its value.
pub(crate) fn check_entry(key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
    let malformed = || value::corrupt(key, "malformed key");
    let numbered = |prefix: &[u8]| keys::parse_ordered(key, prefix).ok_or_else(malformed);
    match key.get(..2).unwrap_or_default() {
        _ if key == keys::EPOCH => decode_epochs(bytes).map(drop),
        _ if key == keys::FORMAT => value::decode_u32(key, bytes).map(drop),
        _ if key == keys::OWNER => value::decode(key, bytes).map(drop),
        _ if key == keys::KEPT_FROM => decode_kept_from(bytes).map(drop),
        _ if key == keys::KEPT_BY_SIZE => decode_kept_by_size(bytes).map(drop),
        _ if key == keys::SUMMARIZED => Summarized::decode(bytes).map(drop),
        _ if key == keys::RECORDS => decode_records(bytes).map(drop),
        _ if key == keys::RULES => Keeping::decode(bytes).map(drop),
        keys::PARTITIONS_PREFIX => {
            numbered(keys::PARTITIONS_PREFIX)?;
            value::decode_u32(key, bytes).map(drop)
        }
        keys::WATERMARKS_PREFIX => {
            numbered(keys::WATERMARKS_PREFIX)?;
            value::decode_u32(key, bytes).map(drop)
        }
        keys::DELETED_IDS_PREFIX => {
            numbered(keys::DELETED_IDS_PREFIX)?;
            decode_postings(key, bytes).map(drop)
        }
        keys::INTENTS_PREFIX => decode_intent(key, bytes).map(drop),
        keys::TOMBSTONES_PREFIX => delete::decode(key, bytes).map(drop),
        keys::NOTES_PREFIX => {
            keys::parse_note(key).ok_or_else(malformed)?;
            value::decode(key, bytes).map(drop)
        }
        _ => Err(value::corrupt(key, "unknown kind of key")),
    }
}

/// Reads the numbers below a prefix, by the partitions or windows of their keys.
async fn read_numbers<K: Ord, V>(
    lsm: &Lsm,
    prefix: &[u8],
    key_of: fn(i64) -> K,
    value_of: fn(u32) -> V,
) -> Result<BTreeMap<K, V>, StoreError> {
    let mut numbers = BTreeMap::new();
    let mut scan = lsm.scan_prefix(prefix).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let of = keys::parse_ordered(&key, prefix)
            .ok_or_else(|| value::corrupt(&key, "malformed key"))?;
        numbers.insert(key_of(of), value_of(value::decode_u32(&key, &bytes)?));
    }
    Ok(numbers)
}

/// Encodes the value of [`keys::EPOCH`].
pub(crate) fn encode_epochs(next: Epoch, first: Epoch) -> Vec<u8> {
    value::encode(keys::EPOCH, &[next, first].map(|epoch| epoch.number().to_le_bytes()).concat())
}

fn decode_epochs(bytes: &[u8]) -> Result<(Epoch, Epoch), StoreError> {
    let body = value::decode(keys::EPOCH, bytes)?;
    match body.as_chunks::<4>() {
        ([next, first], []) => {
            let epoch = |bytes: &[u8; 4]| Epoch::new(u32::from_le_bytes(*bytes));
            Ok((epoch(next), epoch(first)))
        }
        _ => Err(value::corrupt(keys::EPOCH, format!("expected 8 bytes, found {}", body.len()))),
    }
}

/// Lists blocks that do not count yet, or no longer count. Returns the key.
pub(crate) fn put_intent(
    set: &mut WriteSet,
    epoch: Epoch,
    count: &mut u32,
    blocks: &[Vec<u8>],
) -> Vec<u8> {
    let key = keys::intent(epoch, *count);
    *count += 1;
    let bytes = encode_intent(&key, blocks);
    set.put(key.clone(), bytes);
    key
}

/// Encodes an intent.
fn encode_intent(key: &[u8], blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    push_varint(&mut body, blocks.len() as u64);
    for block in blocks {
        push_varint(&mut body, block.len() as u64);
        body.extend_from_slice(block);
    }
    value::encode(key, &body)
}

pub(crate) fn decode_intent(key: &[u8], bytes: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut rest = value::decode(key, bytes)?;
    let mut read = || {
        let rest = &mut rest;
        (0..take_count(rest)?)
            .map(|_| take_bytes(rest).map(<[u8]>::to_vec))
            .collect::<Result<Vec<_>, String>>()
    };
    read().map_err(|detail| value::corrupt(key, detail))
}
