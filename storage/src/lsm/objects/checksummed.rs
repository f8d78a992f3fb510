//! Object store that adds a checksum to manifests and compaction lists. SlateDB's have none: a
//! flipped bit could hide an SST, or reference another one.
//!
//! Layout: "Manifests and lists of compactions" in `docs/formats.md`.
//!
//! It also reports a file that ends before a requested range. Object stores answer such a request
//! with an error that SlateDB takes for a transient one and retries without end.
//!
//! Earlier versions wrote manifests without checksum, which are accepted. They can read those with
//! one, as bytes after the manifest are ignored. A truncated manifest lacks the checksum, too, but
//! cannot be decoded.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{self, StreamExt};
use slatedb::object_store::path::Path;
use slatedb::object_store::{
    Error, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutOptions, PutPayload, PutResult, Result,
};
use slatedb_common::retry::{NonRetryable, should_retry};

use crate::error::StoreError;
use crate::lsm::objects::layer::{Layer, Layered};

/// Folders whose objects have a checksum.
pub(in crate::lsm) const FOLDERS: [&str; 2] = ["manifest", "compactions"];
/// Last bytes of an object with a checksum.
const MARK: &[u8] = b"tessella";
/// Length of the checksum and the mark.
const TRAILER_BYTES: usize = 4 + MARK.len();

/// Object store that checks manifests and compaction lists.
#[derive(Debug)]
pub(in crate::lsm) struct Checksummed(Arc<dyn ObjectStore>);

impl Checksummed {
    /// Wraps an object store.
    pub(in crate::lsm) fn new(objects: Arc<dyn ObjectStore>) -> Layered<Checksummed> {
        Layered(Checksummed(objects))
    }
}

/// Damage of an object.
#[derive(Debug, thiserror::Error)]
#[error("damaged data at {object}: {detail}")]
struct Damaged {
    object: String,
    detail: String,
}

/// Returns the damage of an object, if that is the cause of an error of SlateDB.
pub(in crate::lsm) fn damage_in(error: &slatedb::Error) -> Option<StoreError> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(Damaged { object, detail }) = error.downcast_ref() {
            let (location, detail) = (object.clone(), detail.clone());
            return Some(StoreError::Corrupt { location, detail });
        }
        source = error.source();
    }
    None
}

/// Returns the file name of a manifest or compaction list.
fn list_name(path: &Path) -> Option<String> {
    let mut parts: Vec<_> = path.parts().collect();
    let name = parts.pop()?;
    let folder = parts.pop()?;
    FOLDERS.contains(&folder.as_ref()).then(|| name.as_ref().to_owned())
}

/// Returns whether an object ends with the mark of a checksum; `None` if it cannot be read.
pub(in crate::lsm) async fn has_checksum(
    objects: &dyn ObjectStore,
    list: &ObjectMeta,
) -> Option<bool> {
    let len = MARK.len() as u64;
    // A suffix range of an empty object is an error.
    if list.size < len {
        return Some(false);
    }
    let how = GetOptions { range: Some(GetRange::Suffix(len)), ..Default::default() };
    let found = objects.get_opts(&list.location, how).await.ok()?;
    Some(found.bytes().await.ok()? == MARK)
}

fn checksum(name: &str, list: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(name.as_bytes()), list)
}

/// Appends the checksum and the mark.
fn seal(name: &str, list: &PutPayload) -> PutPayload {
    let mut sealed = BytesMut::with_capacity(list.content_length() + TRAILER_BYTES);
    list.iter().for_each(|part| sealed.extend_from_slice(part));
    sealed.put_u32_le(checksum(name, &sealed));
    sealed.extend_from_slice(MARK);
    sealed.freeze().into()
}

/// Verifies and removes the checksum.
fn open(path: &Path, name: &str, sealed: &Bytes) -> Result<Bytes> {
    let unmarked = sealed.strip_suffix(MARK).and_then(|rest| rest.split_last_chunk::<4>());
    let Some((list, expected)) = unmarked else { return Ok(sealed.clone()) };
    let (found, expected) = (checksum(name, list), u32::from_le_bytes(*expected));
    if found != expected {
        let detail = format!("its checksum is {found:08x}, not {expected:08x}");
        return Err(damaged(path, detail));
    }
    Ok(sealed.slice(..list.len()))
}

/// Returns an error that SlateDB does not retry.
pub(in crate::lsm) fn damaged(path: &Path, detail: String) -> Error {
    let damaged = Damaged { object: path.to_string(), detail };
    let source = Box::new(NonRetryable(Box::new(damaged)));
    Error::Generic { store: "tessella", source }
}

/// Returns the first byte of a range.
fn start_of(range: &GetRange) -> u64 {
    match range {
        GetRange::Bounded(range) => range.start,
        GetRange::Offset(start) => *start,
        GetRange::Suffix(_) => 0,
    }
}

impl Checksummed {
    /// Returns the error of a failed read: damage, if the object ends before the range.
    async fn explain(&self, from: &Path, start: Option<u64>, error: Error) -> Error {
        let Some(start) = start.filter(|_| should_retry(&error)) else { return error };
        match self.0.head(from).await {
            Ok(meta) if meta.size <= start => {
                let bytes = meta.size;
                let detail = format!("it has {bytes} bytes, and is read from byte {start} on");
                damaged(from, detail)
            }
            _ => error,
        }
    }
}

#[async_trait]
impl Layer for Checksummed {
    fn below(&self) -> &dyn ObjectStore {
        &*self.0
    }

    async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        let bytes = match list_name(to) {
            Some(name) => seal(&name, &bytes),
            None => bytes,
        };
        self.0.put_opts(to, bytes, how).await
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        let is_whole = how.range.is_none() && !how.head;
        let start = how.range.as_ref().filter(|_| !how.head).map(start_of);
        let found = match self.0.get_opts(from, how).await {
            Ok(found) => found,
            Err(error) => return Err(self.explain(from, start, error).await),
        };
        let Some(name) = list_name(from).filter(|_| is_whole) else { return Ok(found) };
        let (mut meta, attributes) = (found.meta.clone(), found.attributes.clone());
        let extensions = found.extensions.clone();
        let list = open(from, &name, &found.bytes().await?)?;
        meta.size = list.len() as u64;
        let range = 0..meta.size;
        let payload = GetResultPayload::Stream(stream::once(async move { Ok(list) }).boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slatedb::object_store::memory::InMemory;

    fn read(objects: &dyn ObjectStore, path: &Path) -> Result<Bytes> {
        futures::executor::block_on(async { objects.get(path).await?.bytes().await })
    }

    fn write(objects: &dyn ObjectStore, path: &Path, bytes: &[u8]) {
        let put = objects.put(path, Bytes::copy_from_slice(bytes).into());
        futures::executor::block_on(put).expect("memory takes all");
    }

    #[test]
    fn each_flipped_bit_of_a_list_is_found_or_changes_nothing() {
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let objects = Checksummed::new(Arc::clone(&memory));
        let path = Path::from("tessella/manifest/00000000000000000001.manifest");
        let list = b"names of files";
        write(&objects, &path, list);
        assert_eq!(read(&objects, &path).unwrap(), &list[..]);
        let sealed = read(&memory, &path).unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut bytes = sealed.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            write(&memory, &path, &bytes);
            match read(&objects, &path) {
                Err(error) => assert!(error.to_string().contains(path.as_ref()), "{error}"),
                Ok(found) => {
                    assert!(bit / 8 >= list.len() + 4, "bit {bit}");
                    assert!(found.starts_with(list), "bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_list_under_the_name_of_another_one_is_found() {
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let objects = Checksummed::new(Arc::clone(&memory));
        let [first, second] = [1, 2].map(|n| Path::from(format!("t/compactions/{n}.compactions")));
        write(&objects, &first, b"one");
        write(&memory, &second, &read(&memory, &first).unwrap());
        let error = read(&objects, &second).unwrap_err().to_string();
        assert!(error.contains("damaged data at t/compactions/2.compactions"), "{error}");
    }

    #[test]
    fn a_file_that_ends_before_what_is_wanted_is_damaged() {
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let objects = Checksummed::new(Arc::clone(&memory));
        let path = Path::from("t/compacted/1.sst");
        let read = |range| futures::executor::block_on(objects.get_range(&path, range));
        write(&memory, &path, b"short");
        assert_eq!(read(2..5).unwrap(), &b"ort"[..]);
        let error = read(5..9).unwrap_err();
        assert!(!should_retry(&error), "{error}");
        let expected = "damaged data at t/compacted/1.sst: it has 5 bytes, and is read from byte 5";
        assert!(error.to_string().contains(expected), "{error}");
        write(&memory, &path, b"");
        assert!(!should_retry(&read(0..9).unwrap_err()));
    }

    #[test]
    fn lists_without_a_checksum_and_all_other_objects_are_as_they_are() {
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let objects = Checksummed::new(Arc::clone(&memory));
        let [list, other] = ["t/manifest/1.manifest", "t/wal/1.sst"].map(Path::from);
        write(&memory, &list, b"of an earlier version");
        assert_eq!(read(&objects, &list).unwrap(), &b"of an earlier version"[..]);
        write(&objects, &other, b"rows");
        assert_eq!(read(&memory, &other).unwrap(), &b"rows"[..]);
    }
}
