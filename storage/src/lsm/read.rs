//! Reads of single keys and scans, each with a timeout and charged to its query.

use std::future::ready;
use std::ops::{Bound, Range};
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
use crate::lsm::compaction::garbage;
use crate::lsm::compaction::tables::{TABLE_SUFFIX, TABLES_FOLDER};
use crate::lsm::follow::view::{MergedScan, ScanEnd, ScanStep};
use crate::lsm::{Access, Lsm, OBJECT_STORE, store_error, tracing_account, view_of};

/// Bytes that one request of a scan fetches, or its whole range: scans end where the wanted keys
/// do. SlateDB's default is one block.
const READ_AHEAD_BYTES: usize = 6 << 20;
/// Maximum number of requests of one scan in flight.
const FETCH_TASKS_MAX: usize = 2;
/// Maximum number of ends of SSTs that one read fetches at once.
const TAIL_FETCHES_MAX: usize = 8;

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
        let fetching = stream::iter(fetches).buffer_unordered(TAIL_FETCHES_MAX);
        let fetching = fetching.for_each(|_| ready(()));
        let _ = tokio::time::timeout(self.read_timeout, account.on(fetching)).await;
        Ok(account.check()?)
    }

    /// Returns the SSTs with keys from `start` on whose index is not in memory. `may_begin_with`
    /// tells whether an SST that begins with a key is read.
    fn unread_tails(
        &self,
        start: &[u8],
        may_begin_with: impl Fn(&[u8]) -> bool,
    ) -> Vec<(ObjectPath, Range<u64>)> {
        let segment = keys::segment_len(start).filter(|_| self.account.is_some());
        let Some(segment) = segment.map(|len| &start[..len]) else { return Vec::new() };
        let unread = |manifest: &VersionedManifest| {
            let Some(segment) = manifest.segment(segment) else { return Vec::new() };
            let runs = segment.compacted().iter().flat_map(SortedRun::sst_views);
            let files = segment.l0().iter().chain(runs).map(|view| &view.sst);
            let is_unread = |file: &&SsTableHandle| {
                file.info.first_entry.as_ref().is_some_and(|first| may_begin_with(first))
                    && file.info.last_entry.as_ref().is_some_and(|last| **last >= *start)
                    && !self.blocks.contains(&(file.id, file.info.index_offset).into())
            };
            files.filter(is_unread).map(|file| self.index_of(file)).collect()
        };
        match &self.access {
            Access::Writer(db) => unread(&db.subscribe().borrow().current_manifest),
            Access::Reader(fixed, current) => unread(&view_of(fixed, current).base.manifest),
        }
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
