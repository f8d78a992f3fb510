//! Pages of the forward index: labels by id, and the order of ids.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use model::{Labels, SourceError};
use roaring::RoaringBitmap;

use super::{ENTRY_BYTES, Order, PartitionIndex, RANGE_SHARE, READS_MAX};
use crate::block;
use crate::error::StoreError;
use crate::index::KnownLabels;
use crate::keys;
use crate::lock::lock;
use crate::lsm::Lsm;
use crate::parallel::yielder::Yielder;
use crate::value;

impl PartitionIndex {
    /// Returns the labels of some ids, ascending by id; shared with labels in memory.
    pub(crate) async fn labels_of(
        &self,
        lsm: &Lsm,
        known: &impl KnownLabels,
        ids: &RoaringBitmap,
        yielder: &mut Yielder,
    ) -> Result<Vec<(u32, Labels)>, SourceError> {
        let page_ids = self.sizes.page_ids;
        let mut pages: Vec<(u32, Option<Arc<[Labels]>>)> = Vec::new();
        {
            let known = lock(&self.index.pages);
            for id in ids {
                // One division per page, not per id.
                if pages.last().is_none_or(|(last, _)| id - last * page_ids >= page_ids) {
                    let page = id / page_ids;
                    pages.push((page, known.get(page as usize).cloned().flatten()));
                }
            }
        }
        let missing: Vec<u32> =
            pages.iter().filter(|(_, labels)| labels.is_none()).map(|(page, _)| *page).collect();
        self.count_lookup(missing.is_empty());
        let mut read = match missing.is_empty() {
            true => Vec::new(),
            false => Box::pin(self.read_pages(lsm, known, &missing, yielder)).await?,
        }
        .into_iter();
        let mut found = Vec::with_capacity(ids.len() as usize);
        let mut ids = ids.iter().peekable();
        for (page, labels) in pages {
            let labels = labels.or_else(|| read.next()).unwrap_or_default();
            let first_id = page * page_ids;
            while let Some(id) = ids.next_if(|id| id - first_id < page_ids) {
                let labels = labels.get((id - first_id) as usize).ok_or_else(|| {
                    let key = keys::forward_page(self.partition, page);
                    value::corrupt(&key, format!("labels of series {id} are missing"))
                })?;
                found.push((id, labels.clone()));
            }
            yielder.work(1).await?;
        }
        Ok(found)
    }

    /// Returns whether [`PartitionIndex::order`] is known.
    pub(crate) fn has_order(&self) -> bool {
        self.index.order.get().is_some()
    }

    /// Returns the order of the labels, once all of them are known. The first call sorts them.
    pub(crate) fn order(&self) -> Option<Order> {
        if let Some(order) = self.index.order.get() {
            return Some(order.clone());
        }
        let pages: Vec<Arc<[Labels]>> =
            lock(&self.index.pages).iter().cloned().collect::<Option<_>>()?;
        let labels: Vec<&Labels> = pages.iter().flat_map(|page| page.iter()).collect();
        if labels.len() != self.series_count as usize {
            return None;
        }
        let order = self.index.order.get_or_init(|| order_of(&labels));
        Some(order.clone())
    }

    /// Reads pages, given in order, and keeps them.
    async fn read_pages(
        &self,
        lsm: &Lsm,
        known: &impl KnownLabels,
        pages: &[u32],
        yielder: &mut Yielder,
    ) -> Result<Vec<Arc<[Labels]>>, SourceError> {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else {
            return Ok(Vec::new());
        };
        let missing = |page: u32| {
            value::corrupt(&keys::forward_page(self.partition, page), "page is missing")
        };
        let page_work = self.sizes.page_ids as usize;
        let mut found = Vec::with_capacity(pages.len());
        if pages.len() * RANGE_SHARE > (last - first) as usize {
            let start = keys::forward_page(self.partition, *first);
            let end = keys::forward_page(self.partition, last + 1);
            let mut scan = lsm.scan(&start, &end).await?;
            let mut wanted = pages.iter().copied().peekable();
            while let Some((key, bytes)) = scan.next().await? {
                yielder.work(page_work).await?;
                let page = keys::parse_forward_page(&key)
                    .ok_or_else(|| value::corrupt(&key, "malformed forward index key"))?;
                if wanted.next_if_eq(&page).is_some() {
                    found.push(self.keep_page(known, page, &key, &bytes)?);
                }
            }
            if let Some(page) = wanted.next() {
                return Err(missing(page).into());
            }
        } else {
            let read = |page: u32| async move {
                let key = keys::forward_page(self.partition, page);
                let bytes = lsm.get_present(&key).await?;
                Ok::<_, StoreError>((page, Bytes::from(key), bytes))
            };
            let mut reads = stream::iter(pages.iter().copied()).map(read).buffered(READS_MAX);
            while let Some((page, key, bytes)) = reads.try_next().await? {
                yielder.work(page_work).await?;
                let bytes = bytes.ok_or_else(|| missing(page))?;
                found.push(self.keep_page(known, page, &key, &bytes)?);
            }
        }
        Ok(found)
    }

    fn keep_page(
        &self,
        known: &impl KnownLabels,
        page: u32,
        key: &[u8],
        bytes: &[u8],
    ) -> Result<Arc<[Labels]>, StoreError> {
        let page_ids = self.sizes.page_ids;
        let end = (self.series_count - page * page_ids).min(page_ids) as usize;
        let labels = block::decode_page(key, bytes)?.into_iter().take(end);
        let shared = labels.map(|own| known.labels_of(own.as_bytes()).unwrap_or(own));
        let labels: Arc<[Labels]> = shared.collect();
        let mut pages = lock(&self.index.pages);
        let page = page as usize;
        if pages.len() <= page {
            pages.resize_with(page + 1, || None);
        }
        if pages[page].replace(Arc::clone(&labels)).is_none() {
            self.index.bytes.fetch_add(page_bytes(&labels), Ordering::Relaxed);
        }
        Ok(labels)
    }
}

fn order_of(labels: &[&Labels]) -> Order {
    if labels.is_sorted() {
        return Order::ById;
    }
    let mut ids: Vec<u32> = (0..labels.len() as u32).collect();
    // The ids consist of a few sorted runs, which the sort detects.
    ids.sort_by_key(|id| labels[*id as usize]);
    let mut ranks = vec![0; ids.len()];
    for (rank, id) in ids.iter().enumerate() {
        ranks[*id as usize] = rank as u32;
    }
    Order::Ranks(ranks.into())
}

/// Returns the bytes of a page, including shared labels and the order of its ids.
pub(super) fn page_bytes(page: &[Labels]) -> usize {
    let labels_bytes = |labels: &Labels| labels.as_bytes().len() + size_of::<Labels>() + 20;
    ENTRY_BYTES + page.iter().map(labels_bytes).sum::<usize>()
}
