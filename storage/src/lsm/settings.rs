//! Settings of SlateDB: sizes, ages, and segments.

use std::time::Duration;

use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions, Settings,
};
use slatedb::{BlockCachePolicy, CacheTarget, PrefixExtractor, PrefixTarget};

use crate::keys;
use crate::lsm::Location;
use crate::lsm::compaction::schedule::ACTIVE_MAX;
use crate::options::StoreOptions;

/// Size from which the memtable is flushed. It holds little but the log; the head has a copy of it
/// in a third of the space.
const MEMTABLE_BYTES: usize = 8 << 20;
/// Unflushed bytes from which writers wait.
pub(super) const UNFLUSHED_BYTES_MAX: usize = 256 << 20;
/// Number of level 0 SSTs of a segment from which the memtable is not flushed. Those of the log are
/// compacted late.
const L0_SSTS_MAX: usize = 1024;
/// Number of level 0 SSTs with a common key from which the memtable is not flushed. Eight are
/// compacted together every few seconds. A seal under heavy load flushes several memtables a
/// second, and should not wait.
const L0_OVERLAPPING_MAX: usize = 64;
/// Minimum age for deleting manifests and compaction lists: longer than a process can be paused and
/// continue, as some object stores have no other fence.
pub(super) const MANIFEST_AGE_MIN: Duration = Duration::from_secs(20 * 60);
/// Minimum age for deleting WAL files, which only a start reads.
pub(super) const LOG_AGE_MIN: Duration = Duration::from_secs(60);
/// Minimum age for deleting all other files, in addition to the rules of
/// [`garbage`](crate::lsm::compaction::garbage). An SST that is being written is not in a manifest
/// yet.
const FILE_AGE_MIN: Duration = Duration::from_secs(60);
/// Lifetime of the checkpoints that compactions create.
/// [`garbage`](crate::lsm::compaction::garbage) keeps the SSTs that are read.
const COMPACTION_CHECKPOINT_LIFETIME: Duration = Duration::from_secs(10);

/// Default interval of compactions.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(5);

/// Maps each key to its segment.
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

/// Returns the settings of compactions. `interval` is the time between checks for due compactions.
pub(super) fn compactor_options(interval: Option<Duration>) -> CompactorOptions {
    let interval = interval.unwrap_or(COMPACTION_INTERVAL);
    CompactorOptions {
        poll_interval: interval,
        max_concurrent_compactions: ACTIVE_MAX,
        checkpoint_lifetime: COMPACTION_CHECKPOINT_LIFETIME,
        // Each subcompaction writes an SST, and each SST has an index to be read.
        worker: Some(CompactionWorkerOptions {
            max_subcompactions: 1,
            max_concurrent_compactions: ACTIVE_MAX,
            compactions_poll_interval: interval,
            ..CompactionWorkerOptions::default()
        }),
        ..CompactorOptions::default()
    }
}

/// Returns the cache policy: data blocks are cached when they are read. Most flushed data is the
/// log, which only a start reads.
pub(super) fn cache_policy() -> BlockCachePolicy {
    let small = [CacheTarget::Index, CacheTarget::Filters];
    BlockCachePolicy::default().with_flush_targets(&small)
}

/// Returns the settings of garbage collection.
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

/// Returns the settings of the database.
pub(super) fn settings(options: &StoreOptions) -> Settings {
    Settings {
        // Each commit flushes: a timer would only delay it.
        flush_interval: None,
        manifest_poll_interval: options.sizes.manifest_poll_interval,
        l0_sst_size_bytes: MEMTABLE_BYTES,
        max_unflushed_bytes: UNFLUSHED_BYTES_MAX,
        l0_max_ssts: L0_SSTS_MAX,
        l0_max_ssts_per_key: L0_OVERLAPPING_MAX,
        // Set by the compactor builder.
        compactor_options: None,
        // Set by the garbage collector builder.
        garbage_collector_options: None,
        object_store_max_retries: options.object_store_retries_max,
        ..Settings::default()
    }
}
