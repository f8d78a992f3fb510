//! Reads SSTs and WAL files one by one, for tools that verify every byte.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use slatedb::admin::Admin;
use slatedb::manifest::{SsTableHandle, SsTableInfo};
use slatedb::object_store::path::Path;
use slatedb::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use slatedb::{SstReader, ValueDeletable, VersionedManifest, WalReader};

use crate::error::StoreError;
use crate::keys;
use crate::lsm::objects::checksummed;
use crate::lsm::objects::layer::Layered;
use crate::lsm::objects::verified::{VerifiedStore, difference};
use crate::lsm::{Location, Lsm, MANIFEST_OBJECTS, OBJECT_STORE, store_error, unavailable};

/// Maximum number of SSTs that are checked concurrently.
const CHECKS_MAX: usize = 8;
/// Timeout for checking one SST.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Checks that SSTs are those that the manifest references. SSTs outside of partitions are checked
/// now; on a local disk, all others before their first read
/// ([`verified`](crate::lsm::objects::verified)). In a bucket, each check is a request. An SST that
/// cannot be read is reported when it is needed.
///
/// Errors: an SST was replaced by another valid one, which would go unnoticed.
pub(in crate::lsm) async fn check_swapped(
    objects: &Arc<dyn ObjectStore>,
    location: &Location,
    verified: Option<&Layered<VerifiedStore>>,
    manifest: &VersionedManifest,
) -> Result<(), StoreError> {
    let reader = SstReader::new(location.path.clone(), Arc::clone(objects), None, None);
    let mut files = Vec::new();
    for segment in manifest.segments() {
        let runs = segment.compacted().iter().flat_map(|run| run.sst_views().iter());
        let of_segment = segment.l0().iter().chain(runs).map(|view| view.sst.clone());
        if keys::is_of_all_days(segment.prefix()) {
            files.extend(of_segment);
        } else if let Some(verified) = verified {
            verified.verify_on_read(of_segment);
        }
    }
    let looks: Vec<_> = files
        .into_iter()
        .map(|listed| {
            let reader = &reader;
            async move {
                let id = listed.id.value();
                let opening = tokio::time::timeout(CHECK_TIMEOUT, reader.open(id));
                let Ok(Ok(found)) = opening.await else { return Ok(()) };
                check_same(&listed, found.info())
            }
            .boxed()
        })
        .collect();
    stream::iter(looks).buffer_unordered(CHECKS_MAX).try_collect().await
}

/// Errors: an SST holds other keys than the manifest says.
fn check_same(listed: &SsTableHandle, found: &SsTableInfo) -> Result<(), StoreError> {
    let Some(detail) = difference(listed, found) else { return Ok(()) };
    Err(StoreError::Corrupt { location: format!("compacted/{}.sst", listed.id.value()), detail })
}

/// Names the damaged object of an error where SlateDB does not: the first damaged WAL file, or the
/// manifest. SlateDB reports a truncated manifest as unavailable.
pub(in crate::lsm) async fn with_name(location: &Location, error: StoreError) -> StoreError {
    match &error {
        StoreError::Corrupt { location: of, detail } if of == OBJECT_STORE => {
            let looking = tokio::time::timeout(CHECK_TIMEOUT, damaged_log_file(location));
            let name = looking.await.ok().flatten();
            let name = name.unwrap_or_else(|| MANIFEST_OBJECTS.to_owned());
            StoreError::Corrupt { location: name, detail: detail.clone() }
        }
        StoreError::Unavailable(said) => {
            let looking = tokio::time::timeout(CHECK_TIMEOUT, truncated_manifest(location));
            let Some(name) = looking.await.ok().flatten() else { return error };
            StoreError::Corrupt { location: name, detail: format!("it is truncated: {said}") }
        }
        _ => error,
    }
}

/// Returns the newest manifest or compaction list without checksum, if its predecessor has one.
/// Returns `None` if the object store does not answer.
async fn truncated_manifest(location: &Location) -> Option<String> {
    let objects = location.object_store.as_ref();
    for folder in checksummed::FOLDERS {
        let lists = objects.list(Some(&location.path.clone().join(folder)));
        let mut lists: Vec<ObjectMeta> = lists.try_collect().await.ok()?;
        lists.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        if let [.., before, newest] = &lists[..]
            && !checksummed::has_checksum(objects, newest).await?
            && checksummed::has_checksum(objects, before).await?
        {
            return Some(format!("{folder}/{}", newest.location.filename().unwrap_or_default()));
        }
    }
    None
}

async fn damaged_log_file(location: &Location) -> Option<String> {
    let objects = Objects::at(location).await.ok()?;
    for object in objects.list().await.ok()? {
        let mut is_damaged = false;
        if let ObjectPlace::Log(id) = object.place {
            objects.read_log(id, &mut |entry| is_damaged |= entry.is_damage()).await;
        }
        if is_damaged {
            return Some(object.name);
        }
    }
    None
}

/// SST or WAL file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    /// Name below the folder of the store.
    pub(crate) name: String,
    /// Approximate length.
    pub(crate) bytes: u64,
    place: ObjectPlace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectPlace {
    /// Index among the SSTs of the manifest.
    Table(usize),
    /// Number of a WAL file.
    Log(u64),
}

/// Entry found in a file.
#[derive(Debug)]
pub(crate) enum ObjectEntry {
    /// Key and value.
    Value(Bytes, Bytes),
    /// Tombstone.
    Deletion,
    /// Unreadable part of the file.
    Damage(String, StoreError),
}

impl ObjectEntry {
    fn is_damage(&self) -> bool {
        matches!(self, ObjectEntry::Damage(..))
    }
}

/// Size of one or all segments.
pub(crate) struct SegmentSize {
    pub(crate) ssts: u64,
    /// Sorted runs and level 0 SSTs.
    pub(crate) runs: u64,
    pub(crate) bytes: u64,
}

impl Lsm {
    /// Returns the size of a segment, or of all segments if the prefix is empty.
    pub(crate) fn segment_size(&self, prefix: &[u8]) -> SegmentSize {
        let manifest = self.manifest();
        let (mut files, mut runs, mut bytes) = (BTreeSet::new(), 0, 0);
        for segment in manifest.segments() {
            if !prefix.is_empty() && segment.prefix() != prefix {
                continue;
            }
            runs += (segment.l0().len() + segment.compacted().len()) as u64;
            let compacted = segment.compacted().iter().flat_map(|run| run.sst_views().iter());
            for view in segment.l0().iter().chain(compacted) {
                if files.insert(view.sst.id.value()) {
                    bytes += view.sst.estimate_size();
                }
            }
        }
        SegmentSize { ssts: files.len() as u64, runs, bytes }
    }

    /// Returns the files of the current manifest.
    pub(crate) fn objects(&self) -> Objects {
        let files = &self.files;
        let (object_store, path) = (Arc::clone(&files.object_store), files.path.clone());
        Objects { object_store, path, manifest: self.manifest() }
    }
}

/// SSTs and WAL files of a store.
pub(crate) struct Objects {
    object_store: Arc<dyn ObjectStore>,
    path: Path,
    manifest: VersionedManifest,
}

impl Objects {
    /// Returns the files of the newest manifest, for an LSM that cannot be opened.
    pub(crate) async fn at(location: &Location) -> Result<Objects, StoreError> {
        let (object_store, path) = (Arc::clone(&location.object_store), location.path.clone());
        let admin = Admin::builder(path.clone(), Arc::clone(&object_store)).build();
        let manifest = admin.read_manifest(None).await.map_err(|error| store_error(&error))?;
        let none = || StoreError::NoStore("no process has written to it yet".to_owned());
        Ok(Objects { object_store, path, manifest: manifest.ok_or_else(none)? })
    }

    /// Lists the SSTs of the manifest, each once, and the WAL files that are not in them yet.
    pub(crate) async fn list(&self) -> Result<Vec<Object>, StoreError> {
        let manifest = &self.manifest;
        let mut seen = BTreeSet::new();
        let mut objects = Vec::new();
        for (place, view) in manifest.all_sst_views().enumerate() {
            let id = view.sst.id.value();
            if seen.insert(id) {
                let (name, bytes) = (format!("compacted/{id}.sst"), view.sst.estimate_size());
                objects.push(Object { name, bytes, place: ObjectPlace::Table(place) });
            }
        }
        let log = self.log_files().list(manifest.replay_after_wal_id() + 1..).await;
        for file in log.map_err(|error| store_error(&error))? {
            let bytes = match file.metadata().await {
                Ok(metadata) => metadata.metadata.size,
                Err(error) => return Err(store_error(&error)),
            };
            objects.push(Object {
                name: format!("wal/{:020}.sst", file.id),
                bytes,
                place: ObjectPlace::Log(file.id),
            });
        }
        Ok(objects)
    }

    /// Reads a file to its end; unreadable parts are reported as damage.
    pub(crate) async fn read(&self, object: &Object, take: &mut (dyn FnMut(ObjectEntry) + Send)) {
        match object.place {
            ObjectPlace::Table(place) => self.read_table(place, take).await,
            ObjectPlace::Log(id) => self.read_log(id, take).await,
        }
    }

    async fn read_table(&self, place: usize, take: &mut (dyn FnMut(ObjectEntry) + Send)) {
        let Some(view) = self.manifest.all_sst_views().nth(place) else { return };
        let objects = Arc::clone(&self.object_store);
        let reader = SstReader::new(self.path.clone(), objects, None, None);
        let damage =
            |what: String, error: &slatedb::Error| ObjectEntry::Damage(what, store_error(error));
        let file = match reader.open(view.sst.id.value()).await {
            Ok(file) => file,
            Err(error) => return take(damage("its end".to_owned(), &error)),
        };
        if let Err(error) = check_same(&view.sst, file.info()) {
            take(ObjectEntry::Damage("its keys".to_owned(), error));
        }
        let (start, len) = (file.info().filter_offset, file.info().filter_len);
        if len > 0
            && let Err(error) = self.check_filter(view.sst.id.value(), start..start + len).await
        {
            take(ObjectEntry::Damage("its filter".to_owned(), error));
        }
        if let Err(error) = file.stats().await {
            take(damage("its statistics".to_owned(), &error));
        }
        let index = match file.index().await {
            Ok(index) => index,
            Err(error) => return take(damage("its index".to_owned(), &error)),
        };
        for (number, (offset, _)) in index.iter().enumerate() {
            match file.read_block(number).await {
                Ok(rows) => {
                    for row in rows {
                        take(entry(row.key, row.value));
                    }
                }
                Err(error) => take(damage(format!("the block at byte {offset}"), &error)),
            }
        }
    }

    /// Verifies a bloom filter, which SlateDB's `SstReader` cannot read. Its last four bytes are
    /// its checksum.
    async fn check_filter(&self, file: impl Display, range: Range<u64>) -> Result<(), StoreError> {
        let path = self.path.clone().join("compacted").join(format!("{file}.sst"));
        let read = self.object_store.get_range(&path, range).await;
        let bytes = read.map_err(|error| unavailable(&error))?;
        match bytes.split_last_chunk() {
            Some((filter, checksum))
                if crc32fast::hash(filter) == u32::from_be_bytes(*checksum) =>
            {
                Ok(())
            }
            _ => Err(StoreError::Corrupt {
                location: path.to_string(),
                detail: "checksum mismatch".to_owned(),
            }),
        }
    }

    async fn read_log(&self, id: u64, take: &mut (dyn FnMut(ObjectEntry) + Send)) {
        let damage = |error: &slatedb::Error| {
            ObjectEntry::Damage("one of its blocks".to_owned(), store_error(error))
        };
        let mut rows = match self.log_files().get(id).iterator().await {
            Ok(rows) => rows,
            Err(error) => return take(damage(&error)),
        };
        loop {
            match rows.next().await {
                Ok(Some(row)) => take(entry(row.key, row.value)),
                Ok(None) => return,
                Err(error) => return take(damage(&error)),
            }
        }
    }

    fn log_files(&self) -> WalReader {
        WalReader::new(self.path.clone(), Arc::clone(&self.object_store))
    }
}

fn entry(key: Bytes, value: ValueDeletable) -> ObjectEntry {
    match value {
        ValueDeletable::Value(value) | ValueDeletable::Merge(value) => {
            ObjectEntry::Value(key, value)
        }
        ValueDeletable::Tombstone => ObjectEntry::Deletion,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;
    use crate::lsm::WriteSet;
    use crate::tests::harness;

    /// Number of keys from which an SST has a filter.
    const KEYS: u32 = 2000;

    async fn damages(objects: &Objects) -> Vec<String> {
        let mut damages = Vec::new();
        for object in objects.list().await.unwrap() {
            let mut take = |entry| {
                if let ObjectEntry::Damage(place, _) = entry {
                    damages.push(place);
                }
            };
            objects.read(&object, &mut take).await;
        }
        damages
    }

    #[test]
    fn a_damaged_filter_is_found() {
        harness::run(async {
            let location = Location::on(harness::memory());
            let lsm = Lsm::open(&location, &harness::options()).await.unwrap();
            let mut set = WriteSet::default();
            let day = crate::window::PartitionId::new(0);
            for number in 0..KEYS {
                set.put(keys::dictionary_entry("a", &number.to_string(), day), Bytes::new());
            }
            lsm.commit(set).await.unwrap();
            lsm.flush_to_files().await.unwrap();
            let objects = lsm.objects();
            assert_eq!(damages(&objects).await, Vec::<String>::new());
            let manifest = lsm.manifest();
            let file = manifest.all_sst_views().find(|view| view.sst.info.filter_len > 0).unwrap();
            let (start, len) = (file.sst.info.filter_offset, file.sst.info.filter_len);
            let name = format!("{}.sst", file.sst.id.value());
            let path = location.path.clone().join("compacted").join(name);
            let read = location.object_store.get(&path).await.unwrap();
            let mut bytes = read.bytes().await.unwrap().to_vec();
            bytes[(start + len / 2) as usize] ^= 1;
            location.object_store.put(&path, bytes.into()).await.unwrap();
            assert_eq!(damages(&objects).await, ["its filter"]);
        });
    }

    async fn copy_of(objects: &Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        let copy = harness::memory();
        let all: Vec<_> = objects.list(None).try_collect().await.unwrap();
        for object in all {
            let bytes = objects.get(&object.location).await.unwrap().bytes().await.unwrap();
            copy.put(&object.location, bytes.into()).await.unwrap();
        }
        copy
    }

    #[test]
    fn lists_that_were_cut_short_are_named() {
        harness::run(async {
            let objects = harness::memory();
            let location = Location::on(Arc::clone(&objects));
            for _ in 0..2 {
                let lsm = Lsm::open(&location, &harness::options()).await.unwrap();
                lsm.close().await.unwrap();
            }
            for folder in checksummed::FOLDERS {
                let lists = objects.list(Some(&location.path.clone().join(folder)));
                let lists: Vec<Path> = lists.map_ok(|l| l.location).try_collect().await.unwrap();
                let newest = lists.iter().max().unwrap();
                let bytes = objects.get(newest).await.unwrap().bytes().await.unwrap();
                for len in [0, 1, bytes.len() / 2] {
                    let copy = copy_of(&objects).await;
                    copy.put(newest, bytes.slice(..len).into()).await.unwrap();
                    let opened = Lsm::open(&Location::on(copy), &harness::options()).await;
                    let error = opened.err().map(|error| error.to_string()).unwrap_or_default();
                    let is_named = error.contains(newest.filename().unwrap());
                    assert!(
                        error.starts_with("damaged data at ")
                            && (is_named || error.contains(MANIFEST_OBJECTS)),
                        "{folder} of {len}: {error}"
                    );
                }
            }
        });
    }
}
