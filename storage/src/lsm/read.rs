//! Reads of single keys and scans, each with a timeout and charged to its query.

use std::future::ready;
use std::ops::{Bound, Range, RangeInclusive};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use slatedb::VersionedManifest;
use slatedb::config::{DurabilityLevel, ReadOptions, ScanOptions};
use slatedb::manifest::{SortedRun, SsTableHandle};
use slatedb::object_store::path::Path as ObjectPath;

use crate::error::StoreError;
use crate::keys;
use crate::lsm::cache::fetches::HeldRange;
use crate::lsm::compaction::garbage;
use crate::lsm::compaction::tables::{TABLE_SUFFIX, TABLES_FOLDER};
use crate::lsm::follow::view::{MergedScan, ScanEnd, ScanStep};
use crate::lsm::{Access, Lsm, OBJECT_STORE, store_error, tracing_account, view_of};

/// Bytes that one request of a scan fetches, or its whole range: scans end where the wanted keys
/// do. SlateDB's default is one block.
pub(crate) const READ_AHEAD_BYTES: usize = 6 << 20;
/// Maximum number of requests of one scan in flight.
const FETCH_TASKS_MAX: usize = 2;
/// Bytes that a scan holds at most.
pub(crate) const SCAN_BYTES_MAX: u64 = (READ_AHEAD_BYTES * FETCH_TASKS_MAX) as u64;
/// Maximum number of SSTs from which one read fetches ends or spans at once.
const SST_FETCHES_MAX: usize = 8;

impl Lsm {
    /// Returns the value of a key.
    pub(crate) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let options = ReadOptions {
            durability_filter: DurabilityLevel::Memory,
            cache_blocks: true,
            ..ReadOptions::default()
        };
        let _read = self.reads.begin();
        self.fetch_tails(self.unread_tails(key, |first| first <= key)).await?;
        let account = self.account.as_deref();
        match &self.access {
            Access::Writer(db) => {
                let reading = db.get_with_options(key, &options);
                bounded(self.read_timeout, account, key, reading).await
            }
            Access::Reader(fixed, current) => {
                let view = view_of(fixed, current);
                if let Some(value) = view.added(key) {
                    return Ok(value);
                }
                let reading = view.base.reader.get_with_options(key, &options);
                bounded(self.read_timeout, account, key, reading).await
            }
        }
    }

    /// Returns the value of a key that is known to exist: bloom filters are not fetched, and a
    /// value in several blocks is one read.
    pub(crate) async fn get_present(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let end = [key, &[0]].concat();
        Ok(self.scan(key, &end).await?.next().await?.map(|(_, value)| value))
    }

    /// Returns the keys with a prefix, in order.
    pub(crate) async fn scan_prefix(&self, prefix: &[u8]) -> Result<Scan, StoreError> {
        let options = scan_options();
        let read = self.reads.begin();
        let is_in = |first: &[u8]| first <= prefix || first.starts_with(prefix);
        self.fetch_tails(self.unread_tails(prefix, is_in)).await?;
        let account = self.account.as_deref();
        let (iterator, added) = match &self.access {
            Access::Writer(db) => {
                let opening = db.scan_prefix_with_options(prefix, .., &options);
                (bounded(self.read_timeout, account, prefix, opening).await?, None)
            }
            Access::Reader(fixed, current) => {
                let view = view_of(fixed, current);
                let opening = view.base.reader.scan_prefix_with_options(prefix, .., &options);
                let iterator = bounded(self.read_timeout, account, prefix, opening).await?;
                let end = ScanEnd::AfterPrefix(Bytes::copy_from_slice(prefix));
                (iterator, Some(MergedScan::new(&view, prefix, end)))
            }
        };
        Ok(self.scanning(prefix, Some((iterator, read)), added))
    }

    /// Returns the keys from `start` to before `end`, in order.
    pub(crate) async fn scan(&self, start: &[u8], end: &[u8]) -> Result<Scan, StoreError> {
        self.scan_with(start, end, &scan_options()).await
    }

    async fn scan_with(
        &self,
        start: &[u8],
        end: &[u8],
        options: &ScanOptions,
    ) -> Result<Scan, StoreError> {
        if start >= end {
            return Ok(self.scanning(start, None, None));
        }
        let range: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(start), Bound::Excluded(end));
        let read = self.reads.begin();
        self.fetch_tails(self.unread_tails(start, |first| first < end)).await?;
        let account = self.account.as_deref();
        let (iterator, added) = match &self.access {
            Access::Writer(db) => {
                let opening = db.scan_with_options(range, options);
                (bounded(self.read_timeout, account, start, opening).await?, None)
            }
            Access::Reader(fixed, current) => {
                let view = view_of(fixed, current);
                let opening = view.base.reader.scan_with_options(range, options);
                let iterator = bounded(self.read_timeout, account, start, opening).await?;
                let end = ScanEnd::Before(Bytes::copy_from_slice(end));
                (iterator, Some(MergedScan::new(&view, start, end)))
            }
        };
        Ok(self.scanning(start, Some((iterator, read)), added))
    }

    /// Returns the first key from `start` to before `end`, with as few fetched bytes as possible.
    pub(crate) async fn first(
        &self,
        start: &[u8],
        end: &[u8],
    ) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        let options = scan_options().with_read_ahead_bytes(1).with_max_fetch_tasks(1);
        self.scan_with(start, end, &options).await?.next().await
    }

    /// Fetches the ends of SSTs for a query, up to their indexes.
    ///
    /// Errors: the budget of the query is exceeded. Failures are left to the read that follows.
    async fn fetch_tails(&self, unread: Vec<(ObjectPath, Range<u64>)>) -> Result<(), StoreError> {
        let Some(account) = self.account.as_deref().filter(|_| !unread.is_empty()) else {
            return Ok(());
        };
        account.check()?;
        // Created before they are polled: a stream that calls a closure is not seen to be `Send`.
        let fetches: Vec<BoxFuture<'_, _>> = unread
            .iter()
            .map(|(path, index)| self.fetches.fetch_tail(path, index.clone()).boxed())
            .collect();
        let fetching = stream::iter(fetches).buffer_unordered(SST_FETCHES_MAX);
        let fetching = fetching.for_each(|_| ready(()));
        let _ = tokio::time::timeout(self.read_timeout, account.on(fetching)).await;
        Ok(account.check()?)
    }

    /// Holds the blocks of SSTs that have some ranges of keys, and those between them, in memory.
    /// Blocks that are not there are fetched by one request for each SST. Otherwise the scan of
    /// each range would take its own.
    ///
    /// Returns `None` if this is not possible: a request fails, or caches are too small.
    ///
    /// Errors: the budget of the query is exceeded.
    pub(crate) async fn hold_spans(
        &self,
        wanted: &[RangeInclusive<&[u8]>],
    ) -> Result<Option<Vec<HeldRange>>, StoreError> {
        let (Some(account), Some(first), Some(last)) =
            (self.account.as_deref(), wanted.first(), wanted.last())
        else {
            return Ok(None);
        };
        let _read = self.reads.begin();
        let may_begin_with = |first: &[u8]| first <= *last.end();
        self.fetch_tails(self.unread_tails(first.start(), may_begin_with)).await?;
        let files = self.files_from(first.start(), may_begin_with, |file| Some(file.clone()));
        // Created before they are polled, as for the ends.
        let holds: Vec<BoxFuture<'_, _>> =
            files.iter().map(|file| self.hold_span(file, wanted).boxed()).collect();
        let holding = stream::iter(holds).buffer_unordered(SST_FETCHES_MAX).collect::<Vec<_>>();
        let held = tokio::time::timeout(self.read_timeout, account.on(holding)).await;
        account.check()?;
        let held: Option<Vec<_>> = held.ok().and_then(|held| held.into_iter().collect());
        Ok(held.map(|held| held.into_iter().flatten().collect()))
    }

    /// Holds the wanted blocks of an SST that are not in the block cache, and those between them.
    async fn hold_span(
        &self,
        file: &SsTableHandle,
        wanted: &[RangeInclusive<&[u8]>],
    ) -> Option<Vec<HeldRange>> {
        if !self.blocks.has_space(file.info.index_len) {
            // Each scan would read the index again.
            return None;
        }
        let index = self.indexes.open_with_handle(file.clone()).ok()?.index().await.ok()?;
        let (path, index_range) = self.index_of(file);
        let start_of = |at| index.get(at).map_or(index_range.start, |(offset, _)| offset);
        let is_missing = |at: &usize| !self.blocks.contains(&(file.id, start_of(*at)).into());
        let mut held = Vec::new();
        let mut missing: Option<Range<u64>> = None;
        for keys in wanted {
            // As SlateDB, which also looks for versions of the first key in the block before.
            let from = index.partition_point(|first| first < *keys.start()).saturating_sub(1);
            let mut blocks =
                (from..index.partition_point(|first| first <= *keys.end())).filter(is_missing);
            let Some(first) = blocks.next() else { continue };
            let last = blocks.last().unwrap_or(first);
            let range = start_of(first)..start_of(last + 1);
            match self.fetches.hold(&path, &range) {
                Some(range) => held.push(range),
                None => {
                    let start = missing.map_or(range.start, |before| before.start);
                    missing = Some(start..range.end);
                }
            }
        }
        if let Some(missing) = missing {
            if missing.end.saturating_sub(missing.start) > SCAN_BYTES_MAX {
                return None;
            }
            held.push(self.fetches.fetch_span(&path, missing).await.ok()?);
        }
        Some(held)
    }

    /// Returns the SSTs with keys from `start` on whose index is not in memory. `may_begin_with`
    /// tells whether an SST that begins with a key is read.
    fn unread_tails(
        &self,
        start: &[u8],
        may_begin_with: impl Fn(&[u8]) -> bool,
    ) -> Vec<(ObjectPath, Range<u64>)> {
        let unread = |file: &SsTableHandle| (!self.has_index(file)).then(|| self.index_of(file));
        self.files_from(start, may_begin_with, unread)
    }

    /// Maps the SSTs with keys from `start` on that a query reads; there are none without a query.
    fn files_from<T>(
        &self,
        start: &[u8],
        may_begin_with: impl Fn(&[u8]) -> bool,
        map: impl Fn(&SsTableHandle) -> Option<T>,
    ) -> Vec<T> {
        let segment = keys::segment_len(start).filter(|_| self.account.is_some());
        let Some(segment) = segment.map(|len| &start[..len]) else { return Vec::new() };
        let mapped = |manifest: &VersionedManifest| {
            let Some(segment) = manifest.segment(segment) else { return Vec::new() };
            let runs = segment.compacted().iter().flat_map(SortedRun::sst_views);
            let files = segment.l0().iter().chain(runs).map(|view| &view.sst);
            let is_read = |file: &&SsTableHandle| {
                file.info.first_entry.as_ref().is_some_and(|first| may_begin_with(first))
                    && file.info.last_entry.as_ref().is_some_and(|last| **last >= *start)
            };
            files.filter(is_read).filter_map(&map).collect()
        };
        match &self.access {
            Access::Writer(db) => mapped(&db.subscribe().borrow().current_manifest),
            Access::Reader(fixed, current) => mapped(&view_of(fixed, current).base.manifest),
        }
    }

    /// Returns whether the index of an SST is in the block cache.
    fn has_index(&self, file: &SsTableHandle) -> bool {
        self.blocks.contains(&(file.id, file.info.index_offset).into())
    }

    /// Returns the path of an SST, and the range from its filter or index to the end of its index.
    fn index_of(&self, file: &SsTableHandle) -> (ObjectPath, Range<u64>) {
        let info = &file.info;
        let start = if info.filter_len > 0 { info.filter_offset } else { info.index_offset };
        let name = format!("{}{TABLE_SUFFIX}", file.id.value());
        let path = self.files.path.clone().join(TABLES_FOLDER).join(name);
        (path, start..info.index_offset + info.index_len)
    }

    fn scanning(
        &self,
        start: &[u8],
        open: Option<(slatedb::DbIterator, garbage::ReadGuard)>,
        added: Option<MergedScan>,
    ) -> Scan {
        let (timeout, account) = (self.read_timeout, self.account.clone());
        Scan { start: start.into(), open, added, timeout, account }
    }
}

/// Scan in progress.
pub(crate) struct Scan {
    /// First key of the range, for errors.
    start: Box<[u8]>,
    /// `None` if the range is empty, which SlateDB rejects.
    open: Option<(slatedb::DbIterator, garbage::ReadGuard)>,
    /// Merge with the WAL rows of a view.
    added: Option<MergedScan>,
    timeout: Duration,
    account: Option<Arc<tracing_account::Account>>,
}

impl Scan {
    /// Returns the next key and its value.
    pub(crate) async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, StoreError> {
        loop {
            if let Some(added) = &mut self.added
                && let ScanStep::Known(next) = added.next()
            {
                return Ok(next);
            }
            let Some((iterator, _)) = &mut self.open else { return Ok(None) };
            let (account, next) = (self.account.as_deref(), iterator.next());
            let entry = bounded(self.timeout, account, &self.start, next).await?;
            let entry = entry.map(|entry| (entry.key, entry.value));
            match &mut self.added {
                None => return Ok(entry),
                Some(added) => added.put(entry),
            }
        }
    }
}

/// Waits for a read from a key on, with a timeout: SlateDB retries failed requests without end.
async fn bounded<T>(
    limit: Duration,
    account: Option<&tracing_account::Account>,
    key: &[u8],
    read: impl Future<Output = Result<T, slatedb::Error>>,
) -> Result<T, StoreError> {
    let Some(account) = account else { return at_key(in_time(limit, read).await, key) };
    account.check()?;
    let result = in_time(limit, account.on(read)).await;
    // Also without further reads.
    account.check()?;
    at_key(result, key)
}

/// Adds the first key of a read to an error of damage that SlateDB has found.
fn at_key<T>(result: Result<T, StoreError>, key: &[u8]) -> Result<T, StoreError> {
    result.map_err(|error| match error {
        StoreError::Corrupt { location, detail } if location == OBJECT_STORE => {
            let detail = format!("{detail}, in a read from key {}", keys::printable(key));
            StoreError::Corrupt { location, detail }
        }
        error => error,
    })
}

/// Waits for a read that no query pays for, with a timeout.
pub(super) async fn in_time<T>(
    limit: Duration,
    read: impl Future<Output = Result<T, slatedb::Error>>,
) -> Result<T, StoreError> {
    let mut read = pin!(read);
    // Most keys are in memory, and need no timer.
    let result = match futures::poll!(read.as_mut()) {
        Poll::Ready(result) => Ok(result),
        Poll::Pending => tokio::time::timeout(limit, read).await,
    };
    match result {
        Ok(result) => result.map_err(|e| store_error(&e)),
        Err(_) => Err(StoreError::Unavailable(format!(
            "the object store has not answered a read for {} s",
            limit.as_millis() as f64 / 1000.0
        ))),
    }
}

fn scan_options() -> ScanOptions {
    ScanOptions::default()
        .with_read_ahead_bytes(READ_AHEAD_BYTES)
        .with_max_fetch_tasks(FETCH_TASKS_MAX)
        .with_cache_blocks(true)
}
