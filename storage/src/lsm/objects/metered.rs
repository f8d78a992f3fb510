//! An object store whose reads are counted, in all and for the query that makes them, and of whose
//! failing writes is known why.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use model::Budget;
use slatedb::object_store::path::Path;
use slatedb::object_store::{
    GetOptions, GetResult, MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result, UploadPart,
};
use slatedb::object_store_tag::{ObjectStoreCallTag, TableStoreKind};

use crate::lsm::objects::failures::Failures;
use crate::lsm::objects::layer::{Layer, Layered};
use crate::lsm::tracing_account;

/// Who reads the object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A query, or a look-up of series and labels.
    Query,
    /// The store itself: starts, seals, deletions.
    Store,
    /// What merges files.
    Merge,
    /// Everyone, for the lists of files, and what deletes old ones.
    Manifest,
}

impl Reader {
    /// All of them.
    pub const ALL: [Reader; 4] = [Reader::Query, Reader::Store, Reader::Merge, Reader::Manifest];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reader::Query => "query",
            Reader::Store => "store",
            Reader::Merge => "merge",
            Reader::Manifest => "manifest",
        }
    }
}

/// Reads of the object store, and the bytes that they fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCount {
    /// Requests.
    pub reads: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Counts by reader.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters([(AtomicU64, AtomicU64); Reader::ALL.len()]);

impl ReadCounters {
    fn add(&self, reader: Reader, reads: u64, bytes: u64) {
        let (all_reads, all_bytes) = &self.0[reader as usize];
        all_reads.fetch_add(reads, Ordering::Relaxed);
        all_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The counts, in the order of [`Reader::ALL`].
    pub(crate) fn counts(&self) -> [ReadCount; Reader::ALL.len()] {
        Reader::ALL.map(|reader| {
            let (reads, bytes) = &self.0[reader as usize];
            let [reads, bytes] = [reads, bytes].map(|count| count.load(Ordering::Relaxed));
            ReadCount { reads, bytes }
        })
    }
}

/// The object store.
#[derive(Debug)]
pub(in crate::lsm) struct Metered {
    objects: Arc<dyn ObjectStore>,
    counters: Arc<ReadCounters>,
    failures: Arc<Failures>,
}

impl Metered {
    /// An object store whose reads are counted and whose failing writes are noted.
    pub(in crate::lsm) fn new(
        objects: Arc<dyn ObjectStore>,
        counters: Arc<ReadCounters>,
        failures: Arc<Failures>,
    ) -> Layered<Metered> {
        Layered(Metered { objects, counters, failures })
    }
}

/// An upload in parts whose failures are noted.
#[derive(Debug)]
struct NotedUpload {
    upload: Box<dyn MultipartUpload>,
    failures: Arc<Failures>,
    path: Path,
}

#[async_trait]
impl MultipartUpload for NotedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.upload.put_part(data);
        let (failures, path) = (Arc::clone(&self.failures), self.path.clone());
        Box::pin(async move {
            let result = part.await;
            failures.note(&path, &result);
            result
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let result = self.upload.complete().await;
        self.failures.note(&self.path, &result);
        result
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

#[async_trait]
impl Layer for Metered {
    fn below(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        let result = self.objects.put_opts(to, bytes, how).await;
        self.failures.note(to, &result);
        result
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let result = self.objects.put_multipart_opts(to, how).await;
        self.failures.note(to, &result);
        let (failures, path) = (Arc::clone(&self.failures), to.clone());
        result.map(|upload| Box::new(NotedUpload { upload, failures, path }) as _)
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        let budget = tracing_account::with_budget(Budget::clone);
        let reader = match ObjectStoreCallTag::from_extensions(&how.extensions) {
            _ if budget.is_some() => Reader::Query,
            None => Reader::Manifest,
            Some(tag) => match tag.kind {
                TableStoreKind::Main | TableStoreKind::Reader => Reader::Store,
                TableStoreKind::Compactor => Reader::Merge,
                TableStoreKind::GC => Reader::Manifest,
            },
        };
        let is_head = how.head;
        self.counters.add(reader, 1, 0);
        if let Some(budget) = &budget {
            budget.note_object_store_read();
        }
        let result = self.objects.get_opts(from, how).await?;
        if !is_head {
            let bytes = result.range.end.saturating_sub(result.range.start);
            self.counters.add(reader, 0, bytes);
            if let Some(budget) = &budget {
                budget.note_object_store_bytes(bytes);
            }
        }
        Ok(result)
    }
}
