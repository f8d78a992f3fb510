//! Where a store lies: a path or a URL, resolved to an object store.

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

/// The folder of the tree under the store's path.
pub(in crate::lsm) const ROOT: &str = "tessella";
/// The folder, under that of the tree, of objects that a look at the object store makes.
pub(in crate::lsm) const CHECK_FOLDER: &str = "check";

/// How often files of no use are looked for, and on a local disk.
const GARBAGE_INTERVAL: Duration = Duration::from_secs(60);
const LOCAL_GARBAGE_INTERVAL: Duration = Duration::from_secs(10);

/// Where a store lies.
pub(crate) struct Location {
    /// What holds the objects.
    pub(crate) object_store: Arc<dyn ObjectStore>,
    /// The path of the tree in it.
    pub(crate) path: ObjectPath,
    /// Whether an object can be overwritten only if it is unchanged.
    pub(crate) has_conditional_overwrite: bool,
    /// How often files of no use are looked for: on an object store each look costs a request.
    pub(crate) garbage_interval: Duration,
    /// The store's folder on a local disk.
    folder: Option<PathBuf>,
    /// What keeps halves of uploads, where it says which.
    pub(crate) uploads: Option<Arc<dyn Uploads>>,
    /// What is behind a network, and its URL as it may be shown.
    remote: Option<(Remote, String)>,
    /// Whether a lease says which process writes to it.
    pub(crate) has_lease: bool,
    /// What a simulation decides of the tree.
    #[cfg(test)]
    pub(crate) simulated: Option<Simulated>,
}

/// What is otherwise the machine's to say, so that a run can be repeated.
#[cfg(test)]
#[derive(Debug, Clone)]
pub(crate) struct Simulated {
    pub(crate) clock: Arc<dyn slatedb_common::clock::SystemClock>,
    pub(crate) seed: u64,
}

/// Objects in memory that outlive the stores on them, as a bucket outlives a process.
#[derive(Debug, Clone)]
pub struct SharedMemory(Arc<dyn ObjectStore>);

impl Default for SharedMemory {
    /// Empty.
    fn default() -> Self {
        SharedMemory(Arc::new(InMemory::new()))
    }
}

impl SharedMemory {
    pub(crate) fn location(&self) -> Location {
        Location::on(Arc::clone(&self.0))
    }

    /// The objects of a copy that [`Store::snapshot`](crate::Store::snapshot) has made, by its name.
    pub fn snapshot(&self, name: &str) -> SharedMemory {
        let copy = ObjectPath::from(crate::lsm::SNAPSHOTS_FOLDER).join(name);
        SharedMemory(Arc::new(PrefixStore::new(Arc::clone(&self.0), copy)))
    }

    /// The same objects, but each read takes so long more, as over a network.
    pub fn delayed(&self, delay: Duration) -> SharedMemory {
        let config = ThrottleConfig { wait_get_per_call: delay, ..ThrottleConfig::default() };
        SharedMemory(Arc::new(ThrottledStore::new(Arc::clone(&self.0), config)))
    }
}

/// The folder that a URL of a store names, if it is one on a local disk. It may not exist.
pub fn local_folder(url: &str) -> Option<PathBuf> {
    match url.split_once("://") {
        None if url.is_empty() => None,
        None => Some(PathBuf::from(url)),
        Some(("file", path)) if path.starts_with('/') => decoded_path(path).ok(),
        Some(_) => None,
    }
}

impl Location {
    /// Resolves a plain path, `file:///path`, `memory:///`, or `s3://bucket/prefix`, `gs://…` and
    /// `az://…` alike.
    ///
    /// A local folder is created. An object store is not asked yet ([`Location::check`]).
    /// Errors: a URL of another kind, or a place that cannot be used.
    pub(crate) fn parse(url: &str, options: &RemoteOptions) -> Result<Location, StoreError> {
        Location::parse_with(url, options, Location::local)
    }

    /// The same for a place that is only read: a local folder is not created.
    ///
    /// Errors: [`StoreError::NoStore`] where there is none, too.
    pub(crate) fn find(url: &str, options: &RemoteOptions) -> Result<Location, StoreError> {
        let mut missing = None;
        let found = Location::parse_with(url, options, |path| {
            if !path.is_dir() {
                missing =
                    Some(StoreError::NoStore(format!("there is no folder {}", path.display())));
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
                    "unknown scheme {scheme:?}; known are a plain path, file, memory, s3, gs and az"
                ))),
            },
        }
    }

    /// The folder of the tree on a local disk.
    pub(in crate::lsm) fn lsm_folder(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(ROOT))
    }

    /// Whether it is behind a network.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// The folder of some of its objects, where they are files of a local disk.
    pub(in crate::lsm) fn folder_of(&self, path: &ObjectPath) -> Option<PathBuf> {
        let mut folder = self.folder.clone()?;
        folder.extend(path.parts().map(|part| part.as_ref().to_owned()));
        Some(folder)
    }

    /// Looks whether an object store can be read; nothing is written to it.
    ///
    /// Errors: what is wrong, and what can be done.
    pub(crate) async fn check_readable(&self) -> Result<(), StoreError> {
        let Some((remote, _)) = &self.remote else { return Ok(()) };
        let checked =
            preflight::check_readable(self.object_store.as_ref(), &self.path, remote).await;
        checked.map_err(|found| self.problem(found))
    }

    /// Looks whether an object store can be used, and what it can do.
    ///
    /// Takes some requests, and 20 s at most; nothing on a local disk or in memory.
    /// Errors: what is wrong, and what can be done.
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

    /// A store in memory, empty.
    pub(crate) fn memory() -> Location {
        Location::on(Arc::new(InMemory::new()))
    }

    /// A store on an object store.
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

    /// Another store at a path of the same object store.
    pub(in crate::lsm) fn beside(object_store: Arc<dyn ObjectStore>, path: ObjectPath) -> Location {
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

/// The path of a file URL, `%41` and the like resolved.
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
            ("s3://", "no bucket"),
            ("gs://", "no bucket"),
            ("az://", "no container"),
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
