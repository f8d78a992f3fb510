//! What slatedb is told: sizes, ages, and which keys belong together.

use std::time::Duration;

use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions, Settings,
};
use slatedb::{BlockCachePolicy, CacheTarget, PrefixExtractor, PrefixTarget};

use crate::keys;
use crate::lsm::Location;
use crate::options::StoreOptions;

/// The size from which the memtable is written out. It holds little but the log, of which the head
/// has a copy that takes a third of it.
const MEMTABLE_BYTES: usize = 8 << 20;
/// Bytes that are not written out yet, from which writers wait.
pub(super) const UNFLUSHED_BYTES_MAX: usize = 256 << 20;
/// Files that are not merged yet, from which the memtable is not written out. Those of the log
/// are never merged.
const FILES_UNMERGED_MAX: usize = 1024;
/// The same of files that hold one key of anything else. Eight are merged at once, every few seconds;
/// a seal beside a heavy load writes some at each memtable, several a second, and should not wait.
const FILES_OVERLAPPING_MAX: usize = 64;
/// How old manifests and lists of merges must be before they are deleted: longer than a process
/// can hang and then go on, as some object stores cannot tell that it comes late.
pub(super) const MANIFEST_AGE_MIN: Duration = Duration::from_secs(20 * 60);
/// The same for files of the write-ahead log, which nobody reads but a start.
pub(super) const LOG_AGE_MIN: Duration = Duration::from_secs(60);
/// The same for all other files, beside what [`garbage`](crate::lsm::compaction::garbage) asks of them: those that are being
/// written are not in the tree yet.
const FILE_AGE_MIN: Duration = Duration::from_secs(60);
/// How long the collector is kept from the files of a merge by itself. Who reads them does that
/// by [`garbage`](crate::lsm::compaction::garbage).
const MERGED_FILES_KEPT: Duration = Duration::from_secs(10);

/// How often it is looked for merges where nothing else is set.
const MERGE_INTERVAL: Duration = Duration::from_secs(5);

/// Routes each key to its segment.
pub(super) struct Segments;

impl PrefixExtractor for Segments {
    fn name(&self) -> &str {
        "tessella-segments-2"
    }

    fn prefix_len(&self, target: &PrefixTarget) -> Option<usize> {
        match target {
            PrefixTarget::Point(key) | PrefixTarget::Prefix(key) => keys::segment_len(key),
        }
    }
}

/// Of merges; `interval` is how often it is looked for such.
pub(super) fn compactor_options(interval: Option<Duration>) -> CompactorOptions {
    CompactorOptions {
        poll_interval: interval.unwrap_or(MERGE_INTERVAL),
        checkpoint_lifetime: MERGED_FILES_KEPT,
        // A merge in parts makes a file of each, and every file has an index to be read.
        worker: Some(CompactionWorkerOptions {
            max_subcompactions: 1,
            ..CompactionWorkerOptions::default()
        }),
        ..CompactorOptions::default()
    }
}

/// What is written is found in the cache once it has been read: most of it is the log, which is
/// read at a start alone.
pub(super) fn cache_policy() -> BlockCachePolicy {
    let small = [CacheTarget::Index, CacheTarget::Filters];
    BlockCachePolicy::default().with_flush_targets(&small)
}

/// Of deleting files.
pub(super) fn collector_options(
    location: &Location,
    options: &StoreOptions,
) -> GarbageCollectorOptions {
    let of_age = |min_age: Duration| {
        Some(GarbageCollectorDirectoryOptions {
            interval: Some(location.garbage_interval.max(min_age / 4)),
            min_age,
            dry_run: false,
        })
    };
    GarbageCollectorOptions {
        manifest_options: of_age(MANIFEST_AGE_MIN),
        wal_options: of_age(LOG_AGE_MIN),
        wal_fence_options: None,
        compacted_options: of_age(FILE_AGE_MIN),
        compactions_options: of_age(MANIFEST_AGE_MIN),
        detach_options: None,
        boundary_files_enabled: location.has_conditional_overwrite,
        object_store_max_retries: options.object_store_retries_max,
        ..GarbageCollectorOptions::default()
    }
}

/// Of the tree.
pub(super) fn settings(options: &StoreOptions) -> Settings {
    Settings {
        // Commits flush by themselves: a timer would only add its period to each of them.
        flush_interval: None,
        manifest_poll_interval: options.sizes.manifest_poll_interval,
        l0_sst_size_bytes: MEMTABLE_BYTES,
        max_unflushed_bytes: UNFLUSHED_BYTES_MAX,
        l0_max_ssts: FILES_UNMERGED_MAX,
        l0_max_ssts_per_key: FILES_OVERLAPPING_MAX,
        // Given by its builder, which knows how to drop partitions.
        compactor_options: None,
        // Given by its builder, which knows what is being read.
        garbage_collector_options: None,
        object_store_max_retries: options.object_store_retries_max,
        ..Settings::default()
    }
}
