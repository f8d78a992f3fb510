//! The write-ahead log of a store that another process writes to, file by file as they appear.
//!
//! Files are numbered without gaps, and one is there before the writer acknowledges what is in it.
//! Each costs one request, and so does the look for one that is not there yet: what has been fetched
//! is decoded by slatedb from memory, which would ask three times for each otherwise.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use slatedb::object_store::memory::InMemory;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::{self, Extensions, GetOptions, ObjectStore, ObjectStoreExt};
use slatedb::object_store_tag::{ObjectStoreCallTag, SstType, TableStoreKind};
use slatedb::{ValueDeletable, WalReader};

use crate::error::StoreError;
use crate::lsm::follow::view::Row;
use crate::lsm::settings::UNFLUSHED_BYTES_MAX;
use crate::lsm::store_error;

/// Files that are asked for at once, where there are many.
const FILES_AT_ONCE: u64 = 16;
/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a file, beyond which it is nobody's: a writer waits before it has so much to write.
const FILE_BYTES_MAX: u64 = 2 * UNFLUSHED_BYTES_MAX as u64;

/// The rest of the log.
pub(in crate::lsm) struct Tail {
    objects: Arc<dyn ObjectStore>,
    path: ObjectPath,
    /// The number of the next file.
    pub(in crate::lsm) next: u64,
}

impl Tail {
    /// The log from a file on.
    pub(in crate::lsm) fn new(objects: Arc<dyn ObjectStore>, path: ObjectPath, next: u64) -> Tail {
        Tail { objects, path, next }
    }

    /// Reads the files that are there, in order, until one is missing. Says how many there were.
    pub(in crate::lsm) async fn read(&mut self, rows: &mut Vec<Row>) -> Result<usize, StoreError> {
        let mut file_count = 0;
        let mut at_once = 1;
        loop {
            let fetches: Vec<BoxFuture<'_, _>> =
                (self.next..self.next + at_once).map(|number| self.fetch(number).boxed()).collect();
            for found in futures::future::join_all(fetches).await {
                let Some(mut of_file) = found? else { return Ok(file_count) };
                rows.append(&mut of_file);
                self.next += 1;
                file_count += 1;
            }
            at_once = (at_once * 2).min(FILES_AT_ONCE);
        }
    }

    /// The rows of a file, by commit; none where there is no such file.
    async fn fetch(&self, number: u64) -> Result<Option<Vec<Row>>, StoreError> {
        match tokio::time::timeout(REQUEST_TIMEOUT, self.fetch_and_decode(number)).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::Unavailable(format!(
                "the object store has not answered for {} s",
                REQUEST_TIMEOUT.as_secs()
            ))),
        }
    }

    async fn fetch_and_decode(&self, number: u64) -> Result<Option<Vec<Row>>, StoreError> {
        let path = self.path.clone().join("wal").join(format!("{number:020}.sst"));
        let mut extensions = Extensions::new();
        extensions.insert(ObjectStoreCallTag::new(TableStoreKind::Reader, SstType::Wal));
        let options = GetOptions { extensions, ..GetOptions::default() };
        let found = match self.objects.get_opts(&path, options).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(StoreError::Unavailable(error.to_string())),
        };
        if found.meta.size > FILE_BYTES_MAX {
            let detail = format!("{} bytes, the limit is {FILE_BYTES_MAX}", found.meta.size);
            return Err(StoreError::Corrupt { location: path.to_string(), detail });
        }
        let unavailable = |error: object_store::Error| StoreError::Unavailable(error.to_string());
        let bytes = found.bytes().await.map_err(unavailable)?;
        let memory = Arc::new(InMemory::new());
        memory.put(&path, bytes.into()).await.map_err(unavailable)?;
        let file = WalReader::new(self.path.clone(), memory).get(number);
        let mut entries = file.iterator().await.map_err(|error| store_error(&error))?;
        let mut rows = Vec::new();
        while let Some(entry) = entries.next().await.map_err(|error| store_error(&error))? {
            let value = match entry.value {
                ValueDeletable::Value(value) => Some(value),
                ValueDeletable::Tombstone => None,
                ValueDeletable::Merge(_) => {
                    let detail = "a merge, which this store never writes".to_owned();
                    return Err(StoreError::Corrupt { location: path.to_string(), detail });
                }
            };
            rows.push(Row { key: entry.key, value, seq: entry.seq });
        }
        // In the order of commits, and within one in that of keys.
        rows.sort_by(|a, b| (a.seq, &a.key).cmp(&(b.seq, &b.key)));
        Ok(Some(rows))
    }
}
