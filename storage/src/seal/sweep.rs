//! Removing series without samples from the index of a day: their postings and labels, or the
//! whole day.
//!
//! No selection reads these entries: selections since the deletion skip the ids, and all earlier
//! selections have ended. The ids are not reused: their labels become blank.

use roaring::RoaringBitmap;

use crate::block::page;
use crate::core::Core;
use crate::error::StoreError;
use crate::expiry;
use crate::index::decode_postings;
use crate::keys;
use crate::lsm::WriteSet;
use crate::sizes::Sizes;
use crate::value;
use crate::window::PartitionId;

/// Removes the ids without samples from the index of a partition, or deletes the partition if no
/// other ids are left. The caller blocks the registration of series.
pub(super) async fn sweep_index(core: &Core, partition: PartitionId) -> Result<(), StoreError> {
    let Some(index) = core.partition(partition) else { return Ok(()) };
    if index.deleted.len() == u64::from(index.series_count) {
        // The watermarks are kept: the log may still have records of the day.
        expiry::delete_partition(core, partition, &[]).await?;
        core.remove_partition(partition);
        core.counters.note_deleted();
        tracing::info!(partition = partition.number(), "deleted a day without samples");
        return Ok(());
    }
    sweep_postings(core, partition, &index.deleted).await?;
    sweep_labels(core, partition, &index.deleted).await
}

/// Deletes postings that list only removed ids, and their dictionary entries.
async fn sweep_postings(
    core: &Core,
    partition: PartitionId,
    deleted: &RoaringBitmap,
) -> Result<(), StoreError> {
    let (mut set, mut count) = (WriteSet::default(), 0);
    let mut scan = core.lsm.scan_prefix(&keys::postings(partition)).await?;
    let mut pair: Option<((String, String), bool)> = None;
    loop {
        let next = scan.next().await?;
        let next_pair = match &next {
            Some((key, _)) => Some(
                keys::parse_postings(key)
                    .ok_or_else(|| value::corrupt(key, "malformed postings key"))?,
            ),
            None => None,
        };
        if let Some(((name, label_value), is_left)) =
            pair.take_if(|(known, _)| Some(&*known) != next_pair.as_ref())
        {
            if !is_left {
                // With the postings: without them, the dictionary entry would never be found.
                set.delete(&keys::dictionary_entry(&name, &label_value, partition));
            }
            if count >= core.options.sizes.delete_keys {
                core.lsm.commit(std::mem::take(&mut set)).await?;
                count = 0;
            }
        }
        let (Some((key, bytes)), Some(next_pair)) = (next, next_pair) else { break };
        let (_, is_left) = pair.get_or_insert((next_pair, false));
        if decode_postings(&key, &bytes)?.is_subset(deleted) {
            set.delete(&key);
            count += 1;
        } else {
            *is_left = true;
        }
    }
    core.lsm.commit(set).await
}

/// Rewrites pages of the forward index without the labels of removed ids.
async fn sweep_labels(
    core: &Core,
    partition: PartitionId,
    deleted: &RoaringBitmap,
) -> Result<(), StoreError> {
    let Sizes { page_ids, write_bytes, .. } = core.options.sizes;
    let (mut set, mut bytes_of_set) = (WriteSet::default(), 0);
    let mut scan = core.lsm.scan_prefix(&keys::forward(partition)).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let page = keys::parse_forward_page(&key)
            .ok_or_else(|| value::corrupt(&key, "malformed forward index key"))?;
        let first_id = page * page_ids;
        if deleted.range_cardinality(first_id..first_id.saturating_add(page_ids)) == 0 {
            continue;
        }
        let mut labels = page::decode(&key, &bytes)?;
        let mut has_changed = false;
        for (at, labels) in labels.iter_mut().enumerate() {
            if deleted.contains(first_id + at as u32) && !labels.as_bytes().is_empty() {
                *labels = model::Labels::default();
                has_changed = true;
            }
        }
        if has_changed {
            let page = page::encode(&key, labels.iter());
            bytes_of_set += page.len();
            set.put(key.to_vec(), page);
        }
        if bytes_of_set >= write_bytes {
            core.lsm.commit(std::mem::take(&mut set)).await?;
            bytes_of_set = 0;
        }
    }
    core.lsm.commit(set).await
}
