//! Reads the WAL of a store that another process writes to, file by file as they appear.
//!
//! Files are numbered without gaps, and a file exists before the writer acknowledges its commits.
//! Each costs one request, and so does the look-up of a missing one. SlateDB decodes a fetched file
//! from memory, as it would send three requests for each file otherwise.

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
use crate::lsm::{store_error, unavailable};

/// Maximum number of files that are fetched concurrently.
const FILES_AT_ONCE: u64 = 16;
/// Timeout for one file.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a file: writers block before this many bytes are unflushed.
const FILE_BYTES_MAX: u64 = 2 * UNFLUSHED_BYTES_MAX as u64;

/// Unread rest of the WAL.
pub(in crate::lsm) struct Tail {
    objects: Arc<dyn ObjectStore>,
    path: ObjectPath,
    /// Number of the next file.
    pub(in crate::lsm) next: u64,
}

impl Tail {
    /// Starts at the file with number `next`.
    pub(in crate::lsm) fn new(objects: Arc<dyn ObjectStore>, path: ObjectPath, next: u64) -> Tail {
        Tail { objects, path, next }
    }

    /// Reads all existing files in order; returns their number.
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

    /// Returns the rows of a file by commit; `None` if the file is missing.
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
            Err(error) => return Err(unavailable(&error)),
        };
        if found.meta.size > FILE_BYTES_MAX {
            let detail = format!("{} bytes, the limit is {FILE_BYTES_MAX}", found.meta.size);
            return Err(StoreError::Corrupt { location: path.to_string(), detail });
        }
        let bytes = found.bytes().await.map_err(|error| unavailable(&error))?;
        let memory = Arc::new(InMemory::new());
        memory.put(&path, bytes.into()).await.map_err(|error| unavailable(&error))?;
        let file = WalReader::new(self.path.clone(), memory).get(number);
        let mut entries = file.iterator().await.map_err(|error| store_error(&error))?;
        let mut rows = Vec::new();
        while let Some(entry) = entries.next().await.map_err(|error| store_error(&error))? {
            let value = match entry.value {
                ValueDeletable::Value(value) => Some(value),
                ValueDeletable::Tombstone => None,
                ValueDeletable::Merge(_) => {
                    let detail = "a merge operand, which this store never writes".to_owned();
                    return Err(StoreError::Corrupt { location: path.to_string(), detail });
                }
            };
            rows.push(Row { key: entry.key, value, seq: entry.seq });
        }
        // By commit, and by key within a commit.
        rows.sort_by(|a, b| (a.seq, &a.key).cmp(&(b.seq, &b.key)));
        Ok(Some(rows))
    }
}
