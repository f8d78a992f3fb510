//! Names of SSTs: how files in the object store are matched with a manifest.

use std::collections::HashSet;

use slatedb::object_store::path::Path as ObjectPath;
use slatedb::{ObjectMetadata, VersionedManifest};

/// Folder of the SSTs of level 0 and of sorted runs.
pub(in crate::lsm) const TABLES_FOLDER: &str = "compacted";
/// Suffix of the file name of an SST.
pub(in crate::lsm) const TABLE_SUFFIX: &str = ".sst";
/// Length of the ULID in the file name of an SST.
const TABLE_ID_CHARS: usize = 26;

/// Returns the ids of the SSTs that a manifest references.
pub(super) fn names_of(manifest: &VersionedManifest) -> HashSet<String> {
    manifest.all_sst_views().map(|view| view.sst.id.value().to_string()).collect()
}

/// Returns whether a file is one of the SSTs with these ids.
pub(super) fn is_among(file: &ObjectMetadata, names: &HashSet<String>) -> bool {
    table_id(&file.location).is_some_and(|id| names.contains(id))
}

/// Returns the ULID of an SST, if the path is that of an SST. ULIDs sort by time.
pub(super) fn table_id(path: &ObjectPath) -> Option<&str> {
    let id = path.filename()?.strip_suffix(TABLE_SUFFIX)?;
    let is_id = id.len() == TABLE_ID_CHARS
        && id.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
    is_id.then_some(id)
}
