//! Object store that counts requests, reads also per query, and records failed writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
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
            Reader::Compaction => "compaction",
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

/// Number of requests to the object store other than reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteCount {
    /// Number of writes: objects, and starts, parts and ends of those that are written in parts.
    pub writes: u64,
    /// Number of bytes written.
    pub bytes: u64,
    /// Number of lists, each of which takes a request for every 1,000 objects.
    pub lists: u64,
    /// Number of objects deleted.
    pub deletes: u64,
}

/// Counts of requests: reads by purpose, all others together.
#[derive(Debug, Default)]
pub(crate) struct RequestCounters {
    reads: [(AtomicU64, AtomicU64); Reader::ALL.len()],
    writes: AtomicU64,
    written_bytes: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
}

impl RequestCounters {
    fn add_read(&self, reader: Reader, reads: u64, bytes: u64) {
        let (all_reads, all_bytes) = &self.reads[reader as usize];
        all_reads.fetch_add(reads, Ordering::Relaxed);
        all_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn add_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    fn add_written<T>(&self, bytes: usize, result: &Result<T>) {
        if result.is_ok() {
            self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Returns the reads, in the order of [`Reader::ALL`].
    pub(crate) fn reads(&self) -> [ReadCount; Reader::ALL.len()] {
        Reader::ALL.map(|reader| {
            let (reads, bytes) = &self.reads[reader as usize];
            let [reads, bytes] = [reads, bytes].map(|count| count.load(Ordering::Relaxed));
            ReadCount { reads, bytes }
        })
    }

    /// Returns the other requests.
    pub(crate) fn writes(&self) -> WriteCount {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        WriteCount {
            writes: of(&self.writes),
            bytes: of(&self.written_bytes),
            lists: of(&self.lists),
            deletes: of(&self.deletes),
        }
    }
}

/// Object store that counts requests and records failed writes.
#[derive(Debug)]
pub(in crate::lsm) struct Metered {
    objects: Arc<dyn ObjectStore>,
    counters: Arc<RequestCounters>,
    failures: Arc<Failures>,
}

impl Metered {
    /// Wraps an object store.
    pub(in crate::lsm) fn new(
        objects: Arc<dyn ObjectStore>,
        counters: Arc<RequestCounters>,
        failures: Arc<Failures>,
    ) -> Layered<Metered> {
        Layered(Metered { objects, counters, failures })
    }
}

/// Multipart upload that is counted, and whose failures are recorded.
#[derive(Debug)]
struct NotedUpload {
    upload: Box<dyn MultipartUpload>,
    counters: Arc<RequestCounters>,
    failures: Arc<Failures>,
    path: Path,
}

#[async_trait]
impl MultipartUpload for NotedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.counters.add_write();
        let (bytes, counters) = (data.content_length(), Arc::clone(&self.counters));
        let part = self.upload.put_part(data);
        let (failures, path) = (Arc::clone(&self.failures), self.path.clone());
        Box::pin(async move {
            let result = part.await;
            counters.add_written(bytes, &result);
            failures.note(&path, &result);
            result
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.counters.add_write();
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
        self.counters.add_write();
        let written = bytes.content_length();
        let result = self.objects.put_opts(to, bytes, how).await;
        self.counters.add_written(written, &result);
        self.failures.note(to, &result);
        result
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.counters.add_write();
        let result = self.objects.put_multipart_opts(to, how).await;
        self.failures.note(to, &result);
        let counters = Arc::clone(&self.counters);
        let (failures, path) = (Arc::clone(&self.failures), to.clone());
        result.map(|upload| Box::new(NotedUpload { upload, counters, failures, path }) as _)
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
        self.counters.add_read(reader, 1, 0);
        if let Some(budget) = &budget {
            budget.note_object_store_read();
        }
        let result = self.objects.get_opts(from, how).await?;
        if !is_head {
            let bytes = result.range.end.saturating_sub(result.range.start);
            self.counters.add_read(reader, 0, bytes);
            if let Some(budget) = &budget {
                budget.note_object_store_bytes(bytes);
            }
        }
        Ok(result)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let counters = Arc::clone(&self.counters);
        let deleted = self.objects.delete_stream(paths);
        let count = move |_: &Path| {
            counters.deletes.fetch_add(1, Ordering::Relaxed);
        };
        deleted.inspect_ok(count).boxed()
    }

    fn begin_list(&self) {
        self.counters.lists.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, TryStreamExt as _, stream};
    use slatedb::object_store::memory::InMemory;
    use slatedb::object_store::{ObjectStoreExt as _, PutMode};

    use super::*;

    #[tokio::test]
    async fn all_requests_are_counted() {
        let (counters, failures) = <(Arc<RequestCounters>, Arc<Failures>)>::default();
        let objects = Metered::new(Arc::new(InMemory::new()), Arc::clone(&counters), failures);
        let [whole, parts] = ["whole", "parts"].map(Path::from);
        objects.put(&whole, vec![1; 10].into()).await.unwrap();
        // A request without bytes written.
        let again = objects.put_opts(&whole, vec![1; 99].into(), PutMode::Create.into()).await;
        assert!(again.is_err());
        let mut upload = objects.put_multipart(&parts).await.unwrap();
        for bytes in [20, 30] {
            upload.put_part(vec![1; bytes].into()).await.unwrap();
        }
        upload.complete().await.unwrap();
        objects.get_range(&parts, 5..12).await.unwrap();
        let listed: Vec<_> = objects.list(None).try_collect().await.unwrap();
        assert_eq!(listed.len(), 2);
        let paths = stream::iter([Ok(whole), Ok(parts)]).boxed();
        objects.delete_stream(paths).try_collect::<Vec<_>>().await.unwrap();
        let expected = WriteCount { writes: 6, bytes: 60, lists: 1, deletes: 2 };
        assert_eq!(counters.writes(), expected);
        assert_eq!(counters.reads()[Reader::Manifest as usize], ReadCount { reads: 1, bytes: 7 });
    }
}
