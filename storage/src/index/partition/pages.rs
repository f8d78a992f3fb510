//! Pages of the forward index: labels by id, and the order of ids.

use std::cmp::Ordering;
use std::iter::Copied;
use std::ops::Range;
use std::slice::Iter;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use model::{Labels, SourceError};
use roaring::RoaringBitmap;

use super::{ENTRY_BYTES, Order, PartitionIndex, RANGE_SHARE, READS_MAX};
use crate::block::page;
use crate::error::StoreError;
use crate::index::KnownLabels;
use crate::keys;
use crate::lock::lock;
use crate::lsm::{Lsm, Scan};
use crate::parallel::shares::{apart, share_count};
use crate::parallel::yielder::Yielder;
use crate::value;

/// Number of labels of another page that are compared with those of a series.
const COMPARED_AHEAD: usize = 8;

/// Labels of a page of the forward index.
#[derive(Clone)]
pub(super) struct LabelPage {
    labels: Arc<[Labels]>,
    /// Bytes in memory, except those of shared labels.
    pub(super) bytes: usize,
}

/// The page of each number that was decoded last, in any partition: partitions mostly have the same
/// series at the same place.
#[derive(Debug, Default)]
pub(in crate::index) struct RecentPages(Mutex<Vec<Weak<[Labels]>>>);

/// Position in the labels of another page.
struct PageCursor {
    labels: Arc<[Labels]>,
    at: usize,
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
        stream::iter(pages.iter().copied()).map(get).buffered(READS_MAX)
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
        let shared = Arc::clone(&self.shared);
        let decode = move || {
            let decoded = |page: EncodedPage| {
                let len = (series_count - page.number * page_ids).min(page_ids) as usize;
                Ok((page.number, page.decode(&*known, &shared.pages, len)?))
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
    /// Decodes the first labels, shared with the known ones and with a recent page.
    fn decode(
        &self,
        known: &impl KnownLabels,
        recent: &RecentPages,
        len: usize,
    ) -> Result<LabelPage, StoreError> {
        let mut recent_page = recent.page(self.number);
        let mut shared_bytes = 0;
        let mut labels = page::decode_shared(&self.key, &self.value, |packed| {
            let shared = known.labels_of(packed);
            shared_bytes += shared.as_ref().map_or(0, own_bytes);
            shared.or_else(|| recent_page.next_equal(packed))
        })?;
        labels.truncate(len);
        let bytes = labels.iter().map(|labels| labels_bytes(labels, false)).sum::<usize>();
        let bytes = ENTRY_BYTES + bytes.saturating_sub(shared_bytes);
        let is_same = |recent: &[Labels]| {
            recent.len() == labels.len()
                && recent.iter().zip(&labels).all(|(a, b)| a.is_clone_of(b))
        };
        let labels = if is_same(&recent_page.labels) { recent_page.labels } else { labels.into() };
        recent.note(self.number, &labels);
        Ok(LabelPage { labels, bytes })
    }
}

impl RecentPages {
    /// Returns a cursor over the page of a number; an empty one if it is not in memory.
    fn page(&self, number: u32) -> PageCursor {
        let labels = lock(&self.0).get(number as usize).and_then(Weak::upgrade);
        PageCursor { labels: labels.unwrap_or_default(), at: 0 }
    }

    /// Remembers a page while it is in memory.
    fn note(&self, number: u32, labels: &Arc<[Labels]>) {
        let mut pages = lock(&self.0);
        let number = number as usize;
        if pages.len() <= number {
            pages.resize_with(number + 1, || Weak::<[Labels; 0]>::new());
        }
        pages[number] = Arc::downgrade(labels);
    }
}

impl PageCursor {
    /// Returns the equal labels among the next ones.
    fn next_equal(&mut self, packed: &[u8]) -> Option<Labels> {
        let ahead = self.labels[self.at..].iter().take(COMPARED_AHEAD);
        let skipped = ahead.map(Labels::as_bytes).position(|labels| labels == packed)?;
        self.at += skipped + 1;
        Some(self.labels[self.at - 1].clone())
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
    size_of::<Labels>() + size_of::<u32>() + if is_shared { 0 } else { own_bytes(labels) }
}

/// Returns the bytes of labels on the heap.
fn own_bytes(labels: &Labels) -> usize {
    labels.as_bytes().len() + 2 * size_of::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoneKnown;

    impl KnownLabels for NoneKnown {
        fn labels_of(&self, _: &[u8]) -> Option<Labels> {
            None
        }
    }

    fn decoded(number: u32, values: &[&str], recent: &RecentPages) -> LabelPage {
        let series: Vec<Labels> =
            values.iter().map(|value| Labels::from_pairs([("a", *value)])).collect();
        let key = Bytes::from_static(b"a key");
        let value = Bytes::from(page::encode(&key, series.iter()));
        let page = EncodedPage { number, key, value }.decode(&NoneKnown, recent, values.len());
        let page = page.unwrap();
        assert_eq!(page.labels[..], series);
        page
    }

    #[test]
    fn labels_are_shared_with_the_page_of_the_same_number() {
        let recent = RecentPages::default();
        let first = decoded(3, &["1", "2", "3", "4"], &recent);
        let second = decoded(3, &["1", "2", "3", "4"], &recent);
        assert!(Arc::ptr_eq(&first.labels, &second.labels));
        // Each counts its labels: either may be evicted first.
        assert_eq!(first.bytes, second.bytes);
        let third = decoded(3, &["1", "new", "2", "4"], &recent);
        for (of_first, of_third) in [(0, 0), (1, 2), (3, 3)] {
            assert!(third.labels[of_third].is_clone_of(&first.labels[of_first]));
        }
        let other = decoded(2, &["1"], &recent);
        assert!(!other.labels[0].is_clone_of(&first.labels[0]));
        drop((first, second, third));
        assert!(recent.page(3).labels.is_empty(), "pages are not kept");
    }
}
