//! Caches of SSTs, in memory and on disk.

use std::ops::Range;

use slatedb::object_store::{GetOptions, GetRange};
use slatedb::object_store_tag::{ObjectStoreCallTag, SstType, TableStoreKind};

pub(in crate::lsm) mod blocks;
pub(in crate::lsm) mod disk;
pub(in crate::lsm) mod fetches;

/// Returns the range of an SST that a read of the store or a query fetches, and whether the read is
/// a retry because the bytes were damaged. Returns `None` for all other requests.
fn sst_range(options: &GetOptions) -> Option<(Range<u64>, bool)> {
    let tag = ObjectStoreCallTag::from_extensions(&options.extensions)?;
    let is_unconditional = options.if_match.is_none()
        && options.if_none_match.is_none()
        && options.if_modified_since.is_none()
        && options.if_unmodified_since.is_none()
        && options.version.is_none();
    match &options.range {
        Some(GetRange::Bounded(range))
            if matches!(tag.kind, TableStoreKind::Main | TableStoreKind::Reader)
                && tag.sst_type == SstType::Compacted
                && is_unconditional
                && !options.head
                && !range.is_empty() =>
        {
            Some((range.clone(), tag.retry.is_some()))
        }
        _ => None,
    }
}
