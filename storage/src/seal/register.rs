//! Assigning ids to the series of a partition, and adding them to its index.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::{Labels, sort_label_sets};
use roaring::RoaringBitmap;

use super::series::SealedSeries;
use crate::block::page;
use crate::core::Core;
use crate::error::StoreError;
use crate::head::series::NONE;
use crate::index::encode_postings;
use crate::keys;
use crate::lsm::WriteSet;
use crate::value;
use crate::window::PartitionId;

/// Sets the ids of the series in the partition.
pub(super) async fn register(
    core: &Core,
    partition: PartitionId,
    sealed: &mut [SealedSeries],
) -> Result<(), StoreError> {
    let unknown = sealed.iter().enumerate().filter(|(_, entry)| entry.id == NONE);
    let mut new: Vec<(Labels, usize)> =
        unknown.map(|(at, entry)| (entry.labels.clone(), at)).collect();
    let mut series_count = core.series_count(partition);
    if series_count > 0 && !new.is_empty() {
        new = find_known(core, partition, series_count, new, sealed).await?;
    }
    for group in sort_label_sets(new).chunks(core.options.sizes.register_series_max) {
        write_group(core, partition, series_count, group).await?;
        for (_, at) in group {
            sealed[*at].id = series_count;
            series_count += 1;
        }
        core.set_series_count(partition, series_count);
    }
    for entry in sealed.iter() {
        if let Some(series) = core.head.shard(entry.slot).series(entry.slot) {
            series.partition = partition;
            series.id_in_partition = entry.id;
        }
    }
    Ok(())
}

/// Sets the ids of registered series, and returns the others.
async fn find_known(
    core: &Core,
    partition: PartitionId,
    series_count: u32,
    unknown: Vec<(Labels, usize)>,
    sealed: &mut [SealedSeries],
) -> Result<Vec<(Labels, usize)>, StoreError> {
    let mut unknown: HashMap<Labels, usize> = unknown.into_iter().collect();
    let page_ids = core.options.sizes.page_ids;
    let deleted =
        core.partition(partition).map(|index| Arc::clone(&index.deleted)).unwrap_or_default();
    let mut scan = core.lsm.scan_prefix(&keys::forward(partition)).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let page = keys::parse_forward_page(&key)
            .ok_or_else(|| value::corrupt(&key, "malformed forward index key"))?;
        for (at, labels) in page::decode(&key, &bytes)?.into_iter().enumerate() {
            let id = page * page_ids + at as u32;
            if id < series_count
                && !deleted.contains(id)
                && let Some(at) = unknown.remove(&labels)
            {
                sealed[at].id = id;
            }
        }
    }
    Ok(unknown.into_iter().collect())
}

/// Adds new series to the index, with ids from `base_id` on.
async fn write_group(
    core: &Core,
    partition: PartitionId,
    base_id: u32,
    new: &[(Labels, usize)],
) -> Result<(), StoreError> {
    let page_ids = core.options.sizes.page_ids;
    let mut set = WriteSet::default();
    let end_id = base_id + new.len() as u32;
    let first_page = base_id / page_ids;
    let mut before = Vec::new();
    if !base_id.is_multiple_of(page_ids) {
        let key = keys::forward_page(partition, first_page);
        let bytes = core.lsm.get(&key).await?;
        let bytes = bytes.ok_or_else(|| value::corrupt(&key, "page is missing"))?;
        before = page::decode(&key, &bytes)?;
        before.truncate((base_id % page_ids) as usize);
    }
    let all: Vec<&Labels> = before.iter().chain(new.iter().map(|(labels, _)| labels)).collect();
    for (at, page) in all.chunks(page_ids as usize).enumerate() {
        let key = keys::forward_page(partition, first_page + at as u32);
        let bytes = page::encode(&key, page.iter().copied());
        set.put(key, bytes);
    }
    let mut postings: BTreeMap<(&str, &str), RoaringBitmap> = BTreeMap::new();
    for (at, (labels, _)) in new.iter().enumerate() {
        for pair in labels.iter() {
            postings.entry(pair).or_default().insert(base_id + at as u32);
        }
    }
    for ((name, label_value), ids) in postings {
        let key = keys::postings_entry(partition, name, label_value, base_id);
        let bytes = encode_postings(&key, &ids);
        set.put(key, bytes);
        set.put(keys::dictionary_entry(name, label_value, partition), Vec::new());
    }
    let key = keys::partition_entry(partition);
    let bytes = value::encode_u32(&key, end_id);
    set.put(key, bytes);
    core.lsm.commit(set).await
}
