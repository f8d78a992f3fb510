//! Location of a store: a path or URL, resolved to an object store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use slatedb::object_store::ObjectStore;
use slatedb::object_store::local::LocalFileSystem;
use slatedb::object_store::memory::InMemory;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::prefix::PrefixStore;
use slatedb::object_store::throttle::{ThrottleConfig, ThrottledStore};

use crate::error::StoreError;
use crate::lsm::objects::checksummed::Checksummed;
use crate::lsm::objects::guarded::create_folder;
use crate::remote::{RemoteOptions, without_credentials};

pub(in crate::lsm) mod remote;

use super::preflight;
use super::uploads::Uploads;
use remote::{Kind, Remote};

/// Folder of the LSM below the path of the store.
pub(in crate::lsm) const ROOT: &str = "tessella";
/// Folder of preflight objects, below that of the LSM.
pub(in crate::lsm) const CHECK_FOLDER: &str = "check";

/// Intervals of garbage collection, remote and on a local disk.
const GARBAGE_INTERVAL: Duration = Duration::from_secs(60);
const LOCAL_GARBAGE_INTERVAL: Duration = Duration::from_secs(10);

/// Location of a store.
pub(crate) struct Location {
    /// Object store.
    pub(crate) object_store: Arc<dyn ObjectStore>,
    /// Path of the LSM in it.
    pub(crate) path: ObjectPath,
    /// Set if the object store supports conditional overwrites (If-Match).
    pub(crate) has_conditional_overwrite: bool,
    /// Interval of garbage collection, each run of which costs requests.
    pub(crate) garbage_interval: Duration,
    /// Folder of the store on a local disk.
    folder: Option<PathBuf>,
    /// Multipart uploads, if the object store can list them.
    pub(crate) uploads: Option<Arc<dyn Uploads>>,
    /// Remote object store, and its URL without credentials.
    remote: Option<(Remote, String)>,
    /// Set if the owner holds a lease in the object store, instead of a lock on a local disk.
    pub(crate) has_lease: bool,
    /// Clock and seed of a simulation.
    #[cfg(test)]
    pub(crate) simulated: Option<Simulated>,
}

/// Sources of nondeterminism that a simulation replaces.
#[cfg(test)]
#[derive(Debug, Clone)]
pub(crate) struct Simulated {
    pub(crate) clock: Arc<dyn slatedb_common::clock::SystemClock>,
    pub(crate) seed: u64,
}

/// Objects in memory that outlive the stores on them, like a bucket.
#[derive(Debug, Clone)]
pub struct SharedMemory(Arc<dyn ObjectStore>);

impl Default for SharedMemory {
    /// Creates an empty one.
    fn default() -> Self {
        SharedMemory(Arc::new(InMemory::new()))
    }
}

impl SharedMemory {
    pub(crate) fn location(&self) -> Location {
        Location::on(Arc::clone(&self.0))
    }

    /// Returns the objects of a snapshot made by [`Store::snapshot`](crate::Store::snapshot).
    pub fn snapshot(&self, name: &str) -> SharedMemory {
        let copy = ObjectPath::from(crate::lsm::SNAPSHOTS_FOLDER).join(name);
        SharedMemory(Arc::new(PrefixStore::new(Arc::clone(&self.0), copy)))
    }

    /// Returns the same objects with a delay on each read, like a network.
    pub fn delayed(&self, delay: Duration) -> SharedMemory {
        let config = ThrottleConfig { wait_get_per_call: delay, ..ThrottleConfig::default() };
        SharedMemory(Arc::new(ThrottledStore::new(Arc::clone(&self.0), config)))
    }
}

/// Returns the folder of a URL on a local disk. It may not exist.
pub fn local_folder(url: &str) -> Option<PathBuf> {
    match url.split_once("://") {
        None if url.is_empty() => None,
        None => Some(PathBuf::from(url)),
        Some(("file", path)) if path.starts_with('/') => decoded_path(path).ok(),
        Some(_) => None,
    }
}

impl Location {
    /// Resolves a plain path, `file:///path`, `memory:///`, `s3://bucket/prefix`, `gs://…` or
    /// `az://…`.
    ///
    /// A local folder is created. A remote object store is not accessed yet ([`Location::check`]).
    ///
    /// Errors: the URL has another scheme, or the folder cannot be used.
    pub(crate) fn parse(url: &str, options: &RemoteOptions) -> Result<Location, StoreError> {
        Location::parse_with(url, options, Location::local)
    }

    /// Resolves a URL for reading: a local folder is not created.
    ///
    /// Errors: also [`StoreError::NoStore`] if there is no folder.
    pub(crate) fn find(url: &str, options: &RemoteOptions) -> Result<Location, StoreError> {
        let mut missing = None;
        let found = Location::parse_with(url, options, |path| {
            if !path.is_dir() {
                missing =
                    Some(StoreError::NoStore(format!("folder {} does not exist", path.display())));
            }
            Location::existing(path)
        });
        missing.map_or(found, Err)
    }

    fn parse_with(
        url: &str,
        options: &RemoteOptions,
        local: impl FnOnce(&Path) -> Result<Location, String>,
    ) -> Result<Location, StoreError> {
        let shown = without_credentials(url);
        let invalid = |detail: String| StoreError::InvalidUrl { url: shown.clone(), detail };
        match url.split_once("://") {
            None if url.is_empty() => Err(invalid("it is empty".to_owned())),
            None => local(Path::new(url)).map_err(invalid),
            Some(("file", path)) if path.starts_with('/') => {
                local(&decoded_path(path).map_err(invalid)?).map_err(invalid)
            }
            Some(("file", _)) => {
                Err(invalid("a file URL has an absolute path: file:///path".to_owned()))
            }
            Some(("memory", "" | "/")) => Ok(Location::memory()),
            Some(("memory", _)) => Err(invalid("a memory URL has no path: memory:///".to_owned())),
            Some((scheme, rest)) => match Kind::of_scheme(scheme) {
                Some(kind) => Location::remote(kind, &shown, rest, options).map_err(invalid),
                None => Err(invalid(format!(
                    "unknown scheme {scheme:?}; use a plain path, file, memory, s3, gs or az"
                ))),
            },
        }
    }

    /// Returns the folder of the LSM on a local disk.
    pub(in crate::lsm) fn lsm_folder(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(ROOT))
    }

    /// Returns whether the object store is remote.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Returns the local folder of an object path, on a local disk.
    pub(in crate::lsm) fn folder_of(&self, path: &ObjectPath) -> Option<PathBuf> {
        let mut folder = self.folder.clone()?;
        folder.extend(path.parts().map(|part| part.as_ref().to_owned()));
        Some(folder)
    }

    /// Checks that a remote object store can be read. Writes nothing.
    ///
    /// Errors: the problem, and advice.
    pub(crate) async fn check_readable(&self) -> Result<(), StoreError> {
        let Some((remote, _)) = &self.remote else { return Ok(()) };
        let checked =
            preflight::check_readable(self.object_store.as_ref(), &self.path, remote).await;
        checked.map_err(|found| self.problem(found))
    }

    /// Checks that a remote object store can be used, and detects its features.
    ///
    /// Takes some requests, and at most 20 s; nothing on a local disk or in memory.
    ///
    /// Errors: the problem, and advice.
    pub(crate) async fn check(&mut self) -> Result<(), StoreError> {
        let Some((remote, _)) = &self.remote else { return Ok(()) };
        let checked = preflight::check(self.object_store.as_ref(), &self.path, remote).await;
        let abilities = checked.map_err(|found| self.problem(found))?;
        self.has_conditional_overwrite = abilities.has_conditional_overwrite;
        Ok(())
    }

    fn problem(&self, found: preflight::Problem) -> StoreError {
        let shown = |(remote, shown): &(Remote, String)| match &remote.endpoint {
            Some(at) => format!("{shown} at {at}"),
            None => shown.clone(),
        };
        StoreError::Remote {
            store: self.remote.as_ref().map(shown).unwrap_or_default(),
            problem: found.problem,
            advice: found.advice,
        }
    }

    /// Returns an empty store in memory.
    pub(crate) fn memory() -> Location {
        Location::on(Arc::new(InMemory::new()))
    }

    /// Returns a store on an object store.
    pub(crate) fn on(object_store: Arc<dyn ObjectStore>) -> Location {
        Location {
            object_store: Arc::new(Checksummed::new(object_store)),
            path: ObjectPath::from(ROOT),
            has_conditional_overwrite: true,
            garbage_interval: GARBAGE_INTERVAL,
            folder: None,
            uploads: None,
            remote: None,
            has_lease: false,
            #[cfg(test)]
            simulated: None,
        }
    }

    /// Returns another store on the same object store.
    pub(in crate::lsm) fn at_path(
        object_store: Arc<dyn ObjectStore>,
        path: ObjectPath,
    ) -> Location {
        Location { object_store, path, has_conditional_overwrite: false, ..Location::memory() }
    }

    fn local(path: &Path) -> Result<Location, String> {
        create_folder(path).map_err(|e| format!("cannot create the folder: {e}"))?;
        Location::existing(path)
    }

    fn existing(path: &Path) -> Result<Location, String> {
        let files = LocalFileSystem::new_with_prefix(path).map_err(|e| e.to_string())?;
        Ok(Location {
            has_conditional_overwrite: false,
            garbage_interval: LOCAL_GARBAGE_INTERVAL,
            folder: Some(path.to_owned()),
            ..Location::on(Arc::new(files.with_fsync(true)))
        })
    }

    fn remote(
        kind: Kind,
        shown: &str,
        rest: &str,
        options: &RemoteOptions,
    ) -> Result<Location, String> {
        let (client, prefix, remote) = remote::connect(kind, rest, options)?;
        Ok(Location {
            path: prefix.join(ROOT),
            uploads: client.uploads,
            remote: Some((remote, shown.to_owned())),
            has_lease: true,
            ..Location::on(client.objects)
        })
    }
}

/// Decodes the path of a file URL, such as `%41`.
fn decoded_path(path: &str) -> Result<PathBuf, String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next(), rest.next()].map(|d| char::from(d.unwrap_or(b'?')).to_digit(16));
        let [Some(high), Some(low)] = digits else {
            return Err("a % is not followed by two hexadecimal digits".to_owned());
        };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map(PathBuf::from).map_err(|_| "the path is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_urls_say_what_is_wrong() {
        for (url, detail) in [
            ("", "it is empty"),
            ("gopher://x", "unknown scheme"),
            ("file://relative", "absolute path"),
            ("file:///%zz", "hexadecimal"),
            ("memory:///x", "no path"),
            ("s3://", "the bucket is missing"),
            ("gs://", "the bucket is missing"),
            ("az://", "the container is missing"),
            ("/dev/null/x", "cannot create"),
        ] {
            let error = Location::parse(url, &RemoteOptions::default())
                .err()
                .map(|e| e.to_string())
                .unwrap_or_default();
            assert!(error.contains(detail) && error.contains(url), "{url}: {error}");
        }
    }

    #[test]
    fn credentials_in_a_url_are_refused_and_not_repeated() {
        let url = "s3://key:hush@bucket/prefix";
        let error = Location::parse(url, &RemoteOptions::default()).err().unwrap().to_string();
        assert!(error.contains("s3://bucket/prefix") && !error.contains("hush"), "{error}");
    }

    #[test]
    fn percent_signs_in_file_urls_are_decoded() {
        assert_eq!(decoded_path("/a%20b"), Ok(PathBuf::from("/a b")));
    }
}
