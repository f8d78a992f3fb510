//! Where a store lies: a path or a URL, resolved to an object store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use slatedb::object_store::ObjectStore;
use slatedb::object_store::local::LocalFileSystem;
use slatedb::object_store::memory::InMemory;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::throttle::{ThrottleConfig, ThrottledStore};

use crate::error::StoreError;
use crate::remote::{RemoteOptions, without_credentials};

mod check;
mod remote;

use remote::{Kind, Remote};

/// The folder of the tree under the store's path.
pub(super) const ROOT: &str = "tessella";

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
    /// What is behind a network, and its URL as it may be shown.
    remote: Option<(Remote, String)>,
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

    /// The same objects, but each read takes so long more, as over a network.
    pub fn delayed(&self, delay: Duration) -> SharedMemory {
        let config = ThrottleConfig { wait_get_per_call: delay, ..ThrottleConfig::default() };
        SharedMemory(Arc::new(ThrottledStore::new(Arc::clone(&self.0), config)))
    }
}

impl Location {
    /// Resolves a plain path, `file:///path`, `memory:///`, or `s3://bucket/prefix`, `gs://…` and
    /// `az://…` alike.
    ///
    /// A local folder is created. An object store is not asked yet ([`Location::check`]).
    /// Errors: a URL of another kind, or a place that cannot be used.
    pub(crate) fn parse(url: &str, options: &RemoteOptions) -> Result<Location, StoreError> {
        let shown = without_credentials(url);
        let invalid = |detail: String| StoreError::InvalidUrl { url: shown.clone(), detail };
        match url.split_once("://") {
            None if url.is_empty() => Err(invalid("it is empty".to_owned())),
            None => Location::local(Path::new(url)).map_err(invalid),
            Some(("file", path)) if path.starts_with('/') => {
                Location::local(&decoded_path(path).map_err(invalid)?).map_err(invalid)
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

    /// Whether it is behind a network.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Looks whether an object store can be used, and what it can do.
    ///
    /// Takes some requests, and 20 s at most; nothing on a local disk or in memory.
    /// Errors: what is wrong, and what can be done.
    pub(crate) async fn check(&mut self) -> Result<(), StoreError> {
        let Some((remote, shown)) = &self.remote else { return Ok(()) };
        let checked = check::check(self.object_store.as_ref(), &self.path, remote).await;
        let abilities = checked.map_err(|found| {
            let at = remote.endpoint.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
            StoreError::Remote {
                store: format!("{shown}{at}"),
                problem: found.problem,
                advice: found.advice,
            }
        })?;
        self.has_conditional_overwrite = abilities.has_conditional_overwrite;
        Ok(())
    }

    /// A store in memory, empty.
    pub(crate) fn memory() -> Location {
        Location::on(Arc::new(InMemory::new()))
    }

    /// A store on an object store.
    pub(crate) fn on(object_store: Arc<dyn ObjectStore>) -> Location {
        Location {
            object_store,
            path: ObjectPath::from(ROOT),
            has_conditional_overwrite: true,
            garbage_interval: GARBAGE_INTERVAL,
            remote: None,
        }
    }

    fn local(path: &Path) -> Result<Location, String> {
        std::fs::create_dir_all(path).map_err(|e| format!("cannot create the folder: {e}"))?;
        let files = LocalFileSystem::new_with_prefix(path).map_err(|e| e.to_string())?;
        Ok(Location {
            object_store: Arc::new(files.with_fsync(true)),
            path: ObjectPath::from(ROOT),
            has_conditional_overwrite: false,
            garbage_interval: LOCAL_GARBAGE_INTERVAL,
            remote: None,
        })
    }

    fn remote(
        kind: Kind,
        shown: &str,
        rest: &str,
        options: &RemoteOptions,
    ) -> Result<Location, String> {
        let (object_store, prefix, remote) = remote::connect(kind, rest, options)?;
        Ok(Location {
            object_store,
            path: prefix.join(ROOT),
            has_conditional_overwrite: true,
            garbage_interval: GARBAGE_INTERVAL,
            remote: Some((remote, shown.to_owned())),
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
