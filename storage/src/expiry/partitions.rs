//! Deleting partitions beyond the retention, and releasing their times for writes after the
//! retention has become longer or the clock was set back.

use std::sync::PoisonError;

use crate::block;
use crate::core::Core;
use crate::core::seal_state::SealState;
use crate::error::StoreError;
use crate::head::series::NONE;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};
use crate::meta;
use crate::value;
use crate::window::PartitionId;

/// Maximum number of keys deleted in one write.
const DELETE_KEYS: usize = 10_000;

/// Deletes partitions that end before the retention begins.
///
/// They are hidden first, also from a start during the deletion. The entry of a partition is
/// deleted last, so that an interrupted deletion is repeated. Times that only a previous retention
/// excluded are not deleted, but released.
pub(crate) async fn delete_expired(core: &Core) -> Result<(), StoreError> {
    let keeping = core.keeping();
    let mut state = core.sealing.lock().await;
    let by_time = core.floor_partition(core.observe_retention_time());
    let by_size = keeping.bytes.and_then(|bytes_max| first_that_fits(core, bytes_max));
    let deleting = state.deleting_before.map(|(first_kept, _)| first_kept);
    let Some(first_kept) = by_time.max(by_size).max(deleting) else {
        release(core, &state);
        return Ok(());
    };
    core.head.changes.note_deleted_before(first_kept.start_ms());
    if let Some(by_size) = by_size {
        core.head.changes.note_deleted_by_size_before(by_size.start_ms());
    }
    // Earlier selections still see the samples before the boundary, and see all of them.
    let (first_kept, unread_from) =
        *state.deleting_before.get_or_insert_with(|| (first_kept, core.selections.next()));
    if !core.selections.have_ended_before(unread_from) {
        return Ok(());
    }
    let first_window = first_kept.first_window();
    let expired: Vec<PartitionId> = {
        let partitions = core.partitions.read().unwrap_or_else(PoisonError::into_inner);
        partitions.range(..first_kept).map(|(number, _)| *number).collect()
    };
    let has_open = {
        let mut log = core.log.lock().await;
        let mut has_open = false;
        for info in log.epochs.values_mut() {
            let before = info.windows.len();
            info.windows.retain(|window, _| *window >= first_window);
            has_open |= info.windows.len() < before;
        }
        if has_open {
            core.head.set_open(log.open_windows());
            core.head.for_each(|_, series| {
                series.drop_before(first_window);
                core.head.deactivate_if_empty(series);
            });
            // Records of the deleted days are only in earlier epochs.
            if log.epochs.contains_key(&log.epoch) {
                log.epoch = log.epoch.next();
            }
        }
        has_open
    };
    if !expired.is_empty() || has_open {
        state.kept_from = Some(first_kept);
        let mut set = WriteSet::default();
        set.put(keys::KEPT_FROM.to_vec(), meta::encode_kept_from(first_kept));
        if let (Some(by_size), Some(bytes_max)) = (by_size, keeping.bytes) {
            // After the deletion, the size of the files no longer exceeds the limit.
            let bytes = meta::encode_kept_by_size(by_size.min(first_kept), bytes_max);
            set.put(keys::KEPT_BY_SIZE.to_vec(), bytes);
        }
        core.lsm.commit(set).await?;
    }
    for partition in &expired {
        let partition = *partition;
        let watermarks: Vec<Vec<u8>> = partition.windows().map(keys::watermark).collect();
        delete_partition(core, partition, &watermarks).await?;
        core.remove_partition(partition);
        core.counters.note_deleted();
        tracing::info!(day = partition.date(), "deleted a day beyond the retention");
    }
    core.lsm.drop_partitions_before(first_kept);
    state.watermarks.retain(|window, _| *window >= first_window);
    state.deleting_before = None;
    super::dead_log::drop_dead_log(core, &mut state).await?;
    release(core, &state);
    Ok(())
}

/// Releases hidden and deleted days within the current retention for reads and writes.
///
/// Does nothing while the log has records of deleted days, since a replay would restore them.
fn release(core: &Core, state: &SealState) {
    let Some(floor_ms) = releasable_from_ms(core).filter(|_| state.kept_from.is_none()) else {
        return;
    };
    // Before any write: SSTs of deleted days are deleted without checking their contents.
    core.lsm.keep_partitions_from(PartitionId::of(floor_ms));
    core.head.for_each(|_, series| series.id_in_partition = NONE);
    core.head.changes.release_deleted(floor_ms);
    tracing::info!("released days that an earlier retention excluded for reads and writes");
}

/// Returns the start of the current retention by time, if times after it are hidden and may be
/// released. Returns `None` while a limit by time is set and not confirmed.
fn releasable_from_ms(core: &Core) -> Option<i64> {
    let time = core.observe_retention_time();
    if core.keeping().time_ms.is_some() && time.reference_ms.is_none() {
        return None;
    }
    let first_kept = core.floor_partition(time);
    let floor_ms = first_kept.map_or(i64::MIN, PartitionId::start_ms);
    let changes = &core.head.changes;
    (changes.first_writable_ms(floor_ms) < changes.kept_from_ms()).then_some(floor_ms)
}

/// Returns whether records of deleted days prevent the release of days, until these records are
/// sealed.
pub(crate) async fn has_deleted_records(core: &Core) -> bool {
    let state = core.sealing.lock().await;
    state.deleting_before.is_none()
        && state.kept_from.is_some()
        && releasable_from_ms(core).is_some()
}

/// Hides the days that the size limit has deleted before a start or is about to delete, and
/// refuses writes to them. `kept` is the stored first kept partition with the limit of that time.
///
/// Returns whether `kept` is obsolete: the size limit was removed or raised, so the deleted days
/// may be written to again.
pub(crate) fn hide_by_size(core: &Core, kept: Option<(PartitionId, u64)>) -> bool {
    let bytes_max = core.keeping().bytes;
    let is_in_force = |of_bytes: u64| bytes_max.is_some_and(|bytes_max| bytes_max <= of_bytes);
    let deleted = kept.filter(|(_, of_bytes)| is_in_force(*of_bytes)).map(|(first, _)| first);
    let due = bytes_max.and_then(|bytes_max| first_that_fits(core, bytes_max));
    if let Some(first_kept) = deleted.max(due) {
        core.head.changes.note_deleted_by_size_before(first_kept.start_ms());
    }
    kept.is_some() && deleted.is_none()
}

/// Returns the first partition to keep, if all files exceed `bytes_max`: the rest fits the limit,
/// or is only the newest partition.
fn first_that_fits(core: &Core, bytes_max: u64) -> Option<PartitionId> {
    let (partitions, others) = core.lsm.live_bytes();
    let mut bytes = others + partitions.values().sum::<u64>();
    let (newest, _) = partitions.last_key_value()?;
    let mut first_kept = None;
    for (partition, of_partition) in partitions.range(..newest) {
        if bytes <= bytes_max {
            break;
        }
        bytes -= of_partition;
        first_kept = Some(partition.next());
    }
    first_kept
}

/// Deletes all keys of a partition; its entry is deleted last, together with the given keys.
pub(crate) async fn delete_partition(
    core: &Core,
    partition: PartitionId,
    with_entry: &[Vec<u8>],
) -> Result<(), StoreError> {
    let mut set = WriteSet::default();
    let mut count = 0;
    let mut scan = core.lsm.scan_prefix(&keys::postings(partition)).await?;
    while let Some((key, _)) = scan.next().await? {
        let (name, label_value) = keys::parse_postings(&key)
            .ok_or_else(|| value::corrupt(&key, "malformed postings key"))?;
        set.delete(&keys::dictionary_entry(&name, &label_value, partition));
        count += 1;
        if count % DELETE_KEYS == 0 {
            core.lsm.commit(std::mem::take(&mut set)).await?;
        }
    }
    core.lsm.commit(set).await?;
    delete_blocks(core, partition).await?;
    let start = keys::directories(partition);
    let end = keys::partition(partition.next());
    delete_range(&core.lsm, &start, &end).await?;
    let mut set = WriteSet::default();
    set.delete(&keys::partition_entry(partition));
    set.delete(&keys::deleted_ids(partition));
    with_entry.iter().for_each(|key| set.delete(key));
    core.lsm.commit(set).await
}

/// Deletes the blocks that the run directories list and their summaries, without reading them.
async fn delete_blocks(core: &Core, partition: PartitionId) -> Result<(), StoreError> {
    let mut set = WriteSet::default();
    let mut count = 0;
    let mut scan = core.lsm.scan_prefix(&keys::directories(partition)).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let (metric, index, epoch) = keys::parse_directory(&key)
            .ok_or_else(|| value::corrupt(&key, "malformed directory key"))?;
        let window = partition.window(index);
        for entry in block::decode_directory(&key, &bytes)? {
            let block = keys::block(metric, window, epoch, entry.first_id);
            set.delete(&block);
            // Older blocks have no summaries.
            set.delete(&keys::summaries_of_block(&block));
            count += 2;
        }
        if count >= DELETE_KEYS {
            core.lsm.commit(std::mem::take(&mut set)).await?;
            count = 0;
        }
    }
    core.lsm.commit(set).await
}

/// Deletes the keys from `start` up to but excluding `end`.
async fn delete_range(lsm: &Lsm, start: &[u8], end: &[u8]) -> Result<(), StoreError> {
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
