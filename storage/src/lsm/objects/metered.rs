//! Object store that counts reads, in total and per query, and records failed writes.

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

/// Purpose of reads of the object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Queries, and look-ups of series and labels.
    Query,
    /// The store itself: starts, seals, deletes.
    Store,
    /// Compactions.
    Compaction,
    /// Manifests and compaction lists for any purpose, and garbage collection.
    Manifest,
}

impl Reader {
    /// All purposes.
    pub const ALL: [Reader; 4] =
        [Reader::Query, Reader::Store, Reader::Compaction, Reader::Manifest];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reader::Query => "query",
            Reader::Store => "store",
            Reader::Compaction => "merge",
            Reader::Manifest => "manifest",
        }
    }
}

/// Number of reads of the object store, and of the bytes fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCount {
    /// Number of requests.
    pub reads: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Counts by purpose.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters([(AtomicU64, AtomicU64); Reader::ALL.len()]);

impl ReadCounters {
    fn add(&self, reader: Reader, reads: u64, bytes: u64) {
        let (all_reads, all_bytes) = &self.0[reader as usize];
        all_reads.fetch_add(reads, Ordering::Relaxed);
        all_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the counts, in the order of [`Reader::ALL`].
    pub(crate) fn counts(&self) -> [ReadCount; Reader::ALL.len()] {
        Reader::ALL.map(|reader| {
            let (reads, bytes) = &self.0[reader as usize];
            let [reads, bytes] = [reads, bytes].map(|count| count.load(Ordering::Relaxed));
            ReadCount { reads, bytes }
        })
    }
}

/// Object store that counts reads and records failed writes.
#[derive(Debug)]
pub(in crate::lsm) struct Metered {
    objects: Arc<dyn ObjectStore>,
    counters: Arc<ReadCounters>,
    failures: Arc<Failures>,
}

impl Metered {
    /// Wraps an object store.
    pub(in crate::lsm) fn new(
        objects: Arc<dyn ObjectStore>,
        counters: Arc<ReadCounters>,
        failures: Arc<Failures>,
    ) -> Layered<Metered> {
        Layered(Metered { objects, counters, failures })
    }
}

/// Multipart upload whose failures are recorded.
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
                TableStoreKind::Compactor => Reader::Compaction,
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
