//! Cache of SST parts on a local disk, for remote object stores.
//!
//! SSTs are immutable, so an undamaged part is always valid. WAL files, manifests and compaction
//! lists are not cached, and compactions bypass the cache. A part that is damaged, or cannot be
//! read or written, is fetched instead. The least recently used parts are evicted first.
//!
//! Layout: "Parts of the disk cache" in `docs/formats.md`.

mod files;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt};
use slatedb::object_store::path::Path;
use slatedb::object_store::{
    Extensions, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore, Result,
};
use tokio::sync::Semaphore;

pub(crate) use files::DiskCacheStats;
use files::Files;

use crate::lsm::cache::sst_range;
use crate::lsm::objects::layer::{Layer, Layered};
use crate::options::DiskCacheOptions;

/// Maximum number of disk writes in flight; further parts are not cached.
const WRITES_MAX: usize = 32;

/// Object store with a disk cache. Clones share its files.
#[derive(Clone)]
pub(crate) struct DiskCache {
    objects: Arc<dyn ObjectStore>,
    files: Arc<Files>,
    part_bytes: u64,
    writes: Arc<Semaphore>,
}

/// Part of an SST, and the length of the whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FilePart {
    file_bytes: u64,
    bytes: Bytes,
}

impl DiskCache {
    /// Opens the cache in a folder, which is created if missing. Existing files must have been
    /// written with the same `part_bytes`.
    ///
    /// Errors: the folder cannot be used.
    pub(crate) fn open(
        objects: Arc<dyn ObjectStore>,
        options: &DiskCacheOptions,
        part_bytes: u64,
    ) -> std::io::Result<Layered<DiskCache>> {
        let files = Arc::new(Files::open(&options.folder, options.bytes_max, part_bytes)?);
        let writes = Arc::new(Semaphore::new(WRITES_MAX));
        Ok(Layered(DiskCache { objects, files, part_bytes, writes }))
    }

    /// Returns the cache over another access to the same objects.
    pub(crate) fn over(&self, objects: Arc<dyn ObjectStore>) -> Layered<DiskCache> {
        Layered(DiskCache { objects, ..self.clone() })
    }

    /// Returns the statistics.
    pub(crate) fn stats(&self) -> DiskCacheStats {
        self.files.stats()
    }

    /// Returns the cached parts. With `is_wrong`, removes them and returns none.
    async fn parts_on_disk(
        &self,
        name: &str,
        parts: Range<u64>,
        is_wrong: bool,
    ) -> Vec<Option<FilePart>> {
        let (files, name) = (Arc::clone(&self.files), name.to_owned());
        let count = (parts.end - parts.start) as usize;
        let reading = tokio::task::spawn_blocking(move || {
            let read = |number| {
                if is_wrong {
                    files.remove(&name, number);
                    return None;
                }
                files.read(&name, number)
            };
            parts.map(read).collect()
        });
        // A cancelled read counts as a miss.
        reading.await.unwrap_or_else(|_| vec![None; count])
    }

    /// Writes parts to the disk in the background.
    fn keep(&self, name: &str, parts: Vec<(u64, FilePart)>) {
        let Ok(permit) = Arc::clone(&self.writes).try_acquire_owned() else { return };
        let (files, name) = (Arc::clone(&self.files), name.to_owned());
        tokio::task::spawn_blocking(move || {
            for (number, part) in parts {
                files.write(&name, number, part.file_bytes, &part.bytes);
            }
            drop(permit);
        });
    }

    async fn read(
        &self,
        from: &Path,
        name: &str,
        wanted: Range<u64>,
        is_wrong: bool,
        options: GetOptions,
    ) -> Result<GetResult> {
        let part_bytes = self.part_bytes;
        let first = wanted.start / part_bytes;
        let parts = first..wanted.end.div_ceil(part_bytes);
        let mut found = self.parts_on_disk(name, parts, is_wrong).await;
        let known_bytes = found.iter().flatten().map(|part| part.file_bytes).next();
        if let Some(file_bytes) = known_bytes {
            // The last parts may lie after the end of the file.
            found.truncate(file_bytes.div_ceil(part_bytes).saturating_sub(first) as usize);
        }
        let missing = |part: &Option<FilePart>| part.is_none();
        let mut meta = None;
        if let (Some(start), Some(end)) =
            (found.iter().position(missing), found.iter().rposition(missing))
        {
            let range = (first + start as u64) * part_bytes..(first + end as u64 + 1) * part_bytes;
            let range = range.start..known_bytes.map_or(range.end, |bytes| range.end.min(bytes));
            let options = GetOptions { range: Some(GetRange::Bounded(range)), ..options };
            let fetched = self.objects.get_opts(from, options).await?;
            meta = Some(fetched.meta.clone());
            let start_byte = fetched.range.start;
            let bytes = fetched.bytes().await?;
            let file_bytes = meta.as_ref().map_or(0, |meta| meta.size);
            let fetched = split(start_byte, &bytes, file_bytes, part_bytes);
            if fetched.len() < end + 1 - start {
                // The file ends there.
                found.truncate(start + fetched.len());
            }
            for (number, part) in &fetched {
                if let Some(place) = found.get_mut((number - first) as usize) {
                    *place = Some(part.clone());
                }
            }
            self.keep(name, fetched);
        }
        let file_bytes = found.iter().flatten().map(|part| part.file_bytes).next().unwrap_or(0);
        let meta = meta.unwrap_or_else(|| ObjectMeta {
            location: from.clone(),
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size: file_bytes,
            e_tag: None,
            version: None,
        });
        Ok(answer(meta, wanted, first, part_bytes, &found))
    }
}

/// Splits fetched bytes into whole parts; the last part of the file may be shorter.
fn split(start: u64, bytes: &Bytes, file_bytes: u64, part_bytes: u64) -> Vec<(u64, FilePart)> {
    let mut parts = Vec::new();
    for (at, chunk) in (0..bytes.len()).step_by(part_bytes as usize).enumerate() {
        let end = bytes.len().min(chunk + part_bytes as usize);
        let is_whole = end - chunk == part_bytes as usize || start + end as u64 == file_bytes;
        if is_whole {
            let part = FilePart { file_bytes, bytes: bytes.slice(chunk..end) };
            parts.push((start / part_bytes + at as u64, part));
        }
    }
    parts
}

/// Assembles the requested bytes from the parts that start at number `first`.
fn answer(
    meta: ObjectMeta,
    wanted: Range<u64>,
    first: u64,
    part_bytes: u64,
    parts: &[Option<FilePart>],
) -> GetResult {
    let range = wanted.start..wanted.end.min(meta.size);
    let mut bytes = BytesMut::with_capacity((range.end - range.start.min(range.end)) as usize);
    for (at, part) in parts.iter().enumerate() {
        let Some(part) = part else { break };
        let start = (first + at as u64) * part_bytes;
        let from = range.start.saturating_sub(start).min(part.bytes.len() as u64) as usize;
        let to = range.end.saturating_sub(start).min(part.bytes.len() as u64) as usize;
        bytes.extend_from_slice(&part.bytes[from..to.max(from)]);
    }
    let bytes = bytes.freeze();
    let payload = GetResultPayload::Stream(stream::once(async move { Ok(bytes) }).boxed());
    GetResult {
        payload,
        meta,
        range,
        attributes: Default::default(),
        extensions: Extensions::new(),
    }
}

impl fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskCache({:?})", self.objects)
    }
}

#[async_trait]
impl Layer for DiskCache {
    fn below(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    fn fmt_name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskCache({})", self.objects)
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        match (sst_range(&options), from.filename()) {
            (Some((wanted, is_wrong)), Some(name)) => {
                self.read(from, name, wanted, is_wrong, options).await
            }
            _ => self.objects.get_opts(from, options).await,
        }
    }
}

#[cfg(test)]
mod tests;
