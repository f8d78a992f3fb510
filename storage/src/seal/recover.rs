//! What a start needs to know of earlier seals, and what it cleans up behind them.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;

use super::State;
use crate::delete::{self, Tombstone};
use crate::error::StoreError;
use crate::head::record::{push_varint, take_count};
use crate::index::decode_postings;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};
use crate::store::Inner;
use crate::value;

/// Keys that are deleted in one write.
const DELETE_KEYS: usize = 10_000;

/// The format that is written. 1 was without the marker; 2 has deletes, which a version that does
/// not know them would take back.
pub(crate) const FORMAT: u32 = 2;

/// What the store says of itself.
#[derive(Debug, Default)]
pub(crate) struct Meta {
    /// In which format it has been written.
    pub(crate) format: u32,
    /// Who wrote to the store last, if it was not closed.
    pub(crate) owner: Option<String>,
    /// The first log epoch whose records count.
    pub(crate) first_epoch: u32,
    /// An epoch that no run and no record has.
    pub(crate) next_epoch: u32,
    /// The epoch up to which a window is sealed.
    pub(crate) watermarks: BTreeMap<i64, u32>,
    /// How many series are registered in each partition.
    pub(crate) partitions: BTreeMap<i64, u32>,
    /// The first partition that is kept, if the deletion of those before it was cut off.
    pub(crate) kept_from: Option<i64>,
    /// What has been deleted.
    pub(crate) tombstones: Vec<Tombstone>,
    /// Ids of which nothing is left, by partition.
    pub(crate) gone: BTreeMap<i64, RoaringBitmap>,
}

/// Reads what the store says of itself, and deletes what a seal that was cut off has left.
pub(crate) async fn recover(lsm: &Lsm) -> Result<Meta, StoreError> {
    let mut meta = Meta { format: 1, ..Meta::default() };
    if let Some(bytes) = lsm.get(keys::FORMAT).await? {
        meta.format = value::decode_u32(keys::FORMAT, &bytes)?;
        if meta.format > FORMAT {
            return Err(StoreError::NewerFormat { found: meta.format, supported: FORMAT });
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
    meta.partitions = read_numbers(lsm, keys::PARTITIONS_PREFIX).await?;
    meta.watermarks = read_numbers(lsm, keys::WATERMARKS_PREFIX).await?;
    let mut scan = lsm.scan_prefix(keys::TOMBSTONES_PREFIX).await?;
    while let Some((key, bytes)) = scan.next().await? {
        meta.tombstones.push(delete::decode(&key, &bytes)?);
    }
    let mut scan = lsm.scan_prefix(keys::GONE_PREFIX).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let partition = keys::parse_ordered(&key, keys::GONE_PREFIX)
            .ok_or_else(|| value::corrupt(&key, "malformed key"))?;
        meta.gone.insert(partition, decode_postings(&key, &bytes)?);
    }
    let mut scan = lsm.scan_prefix(keys::INTENTS_PREFIX).await?;
    let mut intents = Vec::new();
    while let Some((key, bytes)) = scan.next().await? {
        intents.push((key, bytes));
    }
    for (key, bytes) in intents {
        undo_intent(lsm, &key, &bytes).await?;
    }
    lsm.drop_log_before(meta.first_epoch);
    Ok(meta)
}

/// The value of [`keys::KEPT_FROM`].
pub(super) fn encode_kept_from(partition: i64) -> Vec<u8> {
    value::encode(keys::KEPT_FROM, &partition.to_le_bytes())
}

fn decode_kept_from(bytes: &[u8]) -> Result<i64, StoreError> {
    let body = value::decode(keys::KEPT_FROM, bytes)?;
    let body = body.try_into().map_err(|_| value::corrupt(keys::KEPT_FROM, "not 8 bytes"))?;
    Ok(i64::from_le_bytes(body))
}

/// Deletes the blocks of an intent that no directory lists, and the intent.
pub(super) async fn undo_intent(lsm: &Lsm, key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
    let mut set = WriteSet::default();
    for block in decode_intent(key, bytes)? {
        // A seal that failed and was repeated by the same process may have published them.
        let directory = keys::directory_of_block(&block)
            .ok_or_else(|| value::corrupt(key, "malformed block key"))?;
        if lsm.get(&directory).await?.is_none() {
            set.delete(&block);
        }
    }
    set.delete(key);
    lsm.commit(set).await
}

/// Deletes every key from `start` on and before `end`.
pub(super) async fn delete_range(lsm: &Lsm, start: &[u8], end: &[u8]) -> Result<(), StoreError> {
    let mut scan = lsm.scan(start, end).await?;
    let mut found = Vec::new();
    while let Some((key, _)) = scan.next().await? {
        found.push(key);
    }
    for group in found.chunks(DELETE_KEYS) {
        let mut set = WriteSet::default();
        for key in group {
            set.delete(key);
        }
        lsm.commit(set).await?;
    }
    Ok(())
}

/// Lets go of log epochs of which nothing is open any more.
pub(crate) async fn drop_dead_log(inner: &Inner, state: &mut State) -> Result<(), StoreError> {
    let (current, first) = {
        let mut log = inner.log.lock().await;
        let current = log.epoch;
        // In order: what counts is everything from the first epoch on.
        while let Some((epoch, info)) = log.epochs.first_key_value()
            && *epoch < current
            && info.windows.is_empty()
        {
            log.epochs.pop_first();
        }
        inner.counters.note_log(log.bytes(), log.newest_ms);
        (current, log.epochs.first_key_value().map_or(current, |(epoch, _)| *epoch))
    };
    if first > state.first_epoch {
        let mut set = WriteSet::default();
        set.put(keys::EPOCH.to_vec(), encode_epochs(current, first));
        inner.lsm.commit(set).await?;
        state.first_epoch = first;
    }
    inner.lsm.drop_log_before(state.first_epoch);
    Ok(())
}

async fn read_numbers(lsm: &Lsm, prefix: &[u8]) -> Result<BTreeMap<i64, u32>, StoreError> {
    let mut numbers = BTreeMap::new();
    let mut scan = lsm.scan_prefix(prefix).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let of = keys::parse_ordered(&key, prefix)
            .ok_or_else(|| value::corrupt(&key, "malformed key"))?;
        numbers.insert(of, value::decode_u32(&key, &bytes)?);
    }
    Ok(numbers)
}

/// The value of [`keys::EPOCH`]: both numbers, 4 bytes each, little endian.
pub(crate) fn encode_epochs(next: u32, first: u32) -> Vec<u8> {
    value::encode(keys::EPOCH, &[next.to_le_bytes(), first.to_le_bytes()].concat())
}

fn decode_epochs(bytes: &[u8]) -> Result<(u32, u32), StoreError> {
    let body = value::decode(keys::EPOCH, bytes)?;
    match body.as_chunks::<4>() {
        ([next, first], []) => Ok((u32::from_le_bytes(*next), u32::from_le_bytes(*first))),
        _ => Err(value::corrupt(keys::EPOCH, format!("expected 8 bytes, found {}", body.len()))),
    }
}

/// The value of an intent: how many keys, and each with its length in front, as varints.
pub(super) fn encode_intent(key: &[u8], blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    push_varint(&mut body, blocks.len() as u64);
    for block in blocks {
        push_varint(&mut body, block.len() as u64);
        body.extend_from_slice(block);
    }
    value::encode(key, &body)
}

fn decode_intent(key: &[u8], bytes: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut rest = value::decode(key, bytes)?;
    let mut read = || {
        let rest = &mut rest;
        (0..take_count(rest)?)
            .map(|_| {
                let len = take_count(rest)?;
                let (block, tail) = rest.split_at_checked(len).ok_or("cut short in a key")?;
                *rest = tail;
                Ok(block.to_vec())
            })
            .collect::<Result<Vec<_>, String>>()
    };
    read().map_err(|detail| value::corrupt(key, detail))
}
