//! Pages of the forward index: labels by id, and the order of ids.

use std::cmp::Ordering;
use std::iter::Copied;
use std::ops::Range;
use std::slice::Iter;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use model::{Labels, SourceError};
use roaring::RoaringBitmap;

use super::{ENTRY_BYTES, Order, PartitionIndex, RANGE_SHARE};
use crate::block::page;
use crate::error::StoreError;
use crate::index::KnownLabels;
use crate::keys;
use crate::lock::lock;
use crate::lsm::{Lsm, Scan};
use crate::parallel::shares::{apart, share_count};
use crate::parallel::yielder::Yielder;
use crate::value;

/// Labels of a page of the forward index.
#[derive(Clone)]
pub(super) struct LabelPage {
    labels: Arc<[Labels]>,
    /// Bytes in memory, except those of shared labels.
    pub(super) bytes: usize,
}

/// Page of the forward index as it was read.
struct EncodedPage {
    number: u32,
    key: Bytes,
    value: Bytes,
}

impl PartitionIndex {
    /// Returns the labels of some ids, ascending by id; shared with labels in memory.
    pub(crate) async fn labels_of(
        &self,
        lsm: &Lsm,
        known: &Arc<impl KnownLabels>,
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
                    let known = known.get(page as usize).and_then(Option::as_ref);
                    pages.push((page, known.map(|known| Arc::clone(&known.labels))));
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
        let pages: Vec<LabelPage> =
            lock(&self.index.pages).iter().cloned().collect::<Option<_>>()?;
        let labels: Vec<&Labels> = pages.iter().flat_map(|page| page.labels.iter()).collect();
        if labels.len() != self.series_count as usize {
            return None;
        }
        let order = self.index.order.get_or_init(|| order_of(&labels));
        Some(order.clone())
    }

    /// Counts the bytes of labels again, of which the known ones were shared when they were read.
    pub(in crate::index) fn count_again(&self, known: &impl KnownLabels) {
        let pages = lock(&self.index.pages).clone();
        for (number, page) in pages.into_iter().enumerate() {
            if let Some(LabelPage { labels, .. }) = page {
                let is_shared = |own: &Labels| {
                    known.labels_of(own.as_bytes()).is_some_and(|known| known.is_clone_of(own))
                };
                let bytes = labels.iter().map(|own| labels_bytes(own, is_shared(own)));
                let bytes = ENTRY_BYTES + bytes.sum::<usize>();
                self.keep_page(number, LabelPage { labels, bytes });
            }
        }
    }

    /// Reads pages, given in order, and keeps them.
    async fn read_pages<K: KnownLabels>(
        &self,
        lsm: &Lsm,
        known: &Arc<K>,
        pages: &[u32],
        yielder: &mut Yielder,
    ) -> Result<Vec<Arc<[Labels]>>, SourceError> {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else {
            return Ok(Vec::new());
        };
        let encoded = match pages.len() * RANGE_SHARE > (last - first) as usize {
            true => self.scan_pages(lsm, pages, *first..last + 1).boxed(),
            false => self.get_pages(lsm, pages).boxed(),
        };
        let page_ids = self.sizes.page_ids as usize;
        let at_once = (self.sizes.inline_series_max / page_ids).max(1);
        let is_inline = pages.len() <= at_once;
        let mut decoded = encoded
            .try_chunks(at_once)
            .map_err(|error| SourceError::from(error.1))
            .map_ok(|encoded| self.decode_pages(known, encoded, is_inline))
            // Each thread has the next pages at hand when it has decoded some.
            .try_buffered(2 * share_count(&self.sizes, pages.len() * page_ids));
        let mut found = Vec::with_capacity(pages.len());
        while let Some(decoded) = decoded.try_next().await? {
            yielder.work(decoded.len() * page_ids).await?;
            for (number, page) in decoded {
                found.push(Arc::clone(&page.labels));
                self.keep_page(number as usize, page);
            }
        }
        Ok(found)
    }

    /// Reads pages together, and those between them.
    fn scan_pages<'a>(
        &'a self,
        lsm: &'a Lsm,
        pages: &'a [u32],
        range: Range<u32>,
    ) -> impl Stream<Item = Result<EncodedPage, StoreError>> + Send + 'a {
        let opening = async move {
            let start = keys::forward_page(self.partition, range.start);
            let end = keys::forward_page(self.partition, range.end);
            lsm.scan(&start, &end).await
        };
        let next_wanted = move |(mut scan, mut wanted): (Scan, Copied<Iter<'a, u32>>)| async move {
            let Some(number) = wanted.next() else { return Ok(None) };
            while let Some((key, value)) = scan.next().await? {
                let found = keys::parse_forward_page(&key)
                    .ok_or_else(|| value::corrupt(&key, "malformed forward index key"))?;
                match found.cmp(&number) {
                    Ordering::Less => {}
                    Ordering::Equal => {
                        let page = EncodedPage { number, key, value };
                        return Ok(Some((page, (scan, wanted))));
                    }
                    Ordering::Greater => break,
                }
            }
            Err(self.missing(number))
        };
        stream::once(opening)
            .map_ok(move |scan| stream::try_unfold((scan, pages.iter().copied()), next_wanted))
            .try_flatten()
    }

    /// Reads each page by its key.
    fn get_pages<'a>(
        &'a self,
        lsm: &'a Lsm,
        pages: &'a [u32],
    ) -> impl Stream<Item = Result<EncodedPage, StoreError>> + Send + 'a {
        let get = move |number: u32| async move {
            let key = keys::forward_page(self.partition, number);
            let value = lsm.get_present(&key).await?.ok_or_else(|| self.missing(number))?;
            Ok(EncodedPage { number, key: Bytes::from(key), value })
        };
        stream::iter(pages.iter().copied()).map(get).buffered(lsm.reads_at_once())
    }

    fn missing(&self, page: u32) -> StoreError {
        value::corrupt(&keys::forward_page(self.partition, page), "page is missing")
    }

    /// Decodes pages; unless they are few, outside the threads of the runtime.
    async fn decode_pages<K: KnownLabels>(
        &self,
        known: &Arc<K>,
        pages: Vec<EncodedPage>,
        is_inline: bool,
    ) -> Result<Vec<(u32, LabelPage)>, SourceError> {
        let (known, page_ids, series_count) =
            (Arc::clone(known), self.sizes.page_ids, self.series_count);
        let decode = move || {
            let decoded = |page: EncodedPage| {
                let len = (series_count - page.number * page_ids).min(page_ids) as usize;
                Ok((page.number, page.decode(&*known, len)?))
            };
            pages.into_iter().map(decoded).collect::<Result<_, StoreError>>()
        };
        Ok(if is_inline { decode() } else { apart(decode).await? }?)
    }

    /// Keeps a page instead of one that was read before.
    fn keep_page(&self, number: usize, page: LabelPage) {
        let mut pages = lock(&self.index.pages);
        if pages.len() <= number {
            pages.resize_with(number + 1, || None);
        }
        self.index.bytes.fetch_add(page.bytes, Relaxed);
        if let Some(before) = pages[number].replace(page) {
            self.index.bytes.fetch_sub(before.bytes, Relaxed);
        }
    }
}

impl EncodedPage {
    /// Decodes the first labels, shared with the known ones.
    fn decode(&self, known: &impl KnownLabels, len: usize) -> Result<LabelPage, StoreError> {
        let mut bytes = ENTRY_BYTES;
        let mut labels = page::decode_as(&self.key, &self.value, |packed| {
            let shared = known.labels_of(packed);
            let is_shared = shared.is_some();
            let labels = shared.unwrap_or_else(|| Labels::from_checked_bytes(packed));
            bytes += labels_bytes(&labels, is_shared);
            labels
        })?;
        labels.truncate(len);
        Ok(LabelPage { labels: labels.into(), bytes })
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

/// Returns the bytes that labels add to a page and its order. Shared ones are counted by their owner.
fn labels_bytes(labels: &Labels, is_shared: bool) -> usize {
    let own_bytes = if is_shared { 0 } else { labels.as_bytes().len() + 2 * size_of::<usize>() };
    size_of::<Labels>() + size_of::<u32>() + own_bytes
}
