//! Where a store lies: a path or a URL, resolved to an object store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use slatedb::object_store::ObjectStore;
use slatedb::object_store::aws::AmazonS3Builder;
use slatedb::object_store::local::LocalFileSystem;
use slatedb::object_store::memory::InMemory;
use slatedb::object_store::path::Path as ObjectPath;

use crate::error::StoreError;

/// The folder of the tree under the store's path.
const ROOT: &str = "tessella";

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
}

impl Location {
    /// Resolves a plain path, `file:///path`, `memory:///` or `s3://bucket/prefix`.
    ///
    /// Options of S3 come from the environment (`AWS_…`). A local folder is created.
    /// Errors: a URL of another kind, or a place that cannot be used.
    pub(crate) fn parse(url: &str) -> Result<Location, StoreError> {
        let invalid = |detail: String| StoreError::InvalidUrl { url: url.to_owned(), detail };
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
            Some(("memory", _)) => Err(invalid("a store in memory has no path".to_owned())),
            Some(("s3", rest)) => Location::s3(url, rest).map_err(invalid),
            Some((scheme, _)) => Err(invalid(format!(
                "unknown scheme {scheme:?}; known are a plain path, file, memory and s3"
            ))),
        }
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
        })
    }

    fn s3(url: &str, rest: &str) -> Result<Location, String> {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err("it names no bucket: s3://bucket/prefix".to_owned());
        }
        let objects =
            AmazonS3Builder::from_env().with_url(url).build().map_err(|e| e.to_string())?;
        let prefix = ObjectPath::parse(prefix).map_err(|e| e.to_string())?;
        Ok(Location {
            object_store: Arc::new(objects),
            path: prefix.join(ROOT),
            has_conditional_overwrite: true,
            garbage_interval: GARBAGE_INTERVAL,
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
            ("/dev/null/x", "cannot create"),
        ] {
            let error = Location::parse(url).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(detail) && error.contains(url), "{url}: {error}");
        }
    }

    #[test]
    fn percent_signs_in_file_urls_are_decoded() {
        assert_eq!(decoded_path("/a%20b"), Ok(PathBuf::from("/a b")));
    }
}
