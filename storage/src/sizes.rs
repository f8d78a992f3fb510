//! Sizes and intervals of internal work, which tests lower so that little data takes every path.
//!
//! No flag sets them. The shipped sizes are the default; each is read once, outside of loops.

use std::time::Duration;

use crate::block::page;

/// Sizes and intervals of internal work.
///
/// A store opens with sizes other than those it was written with, except for `page_ids`.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Maximum number of series in a block. A block states how many it has.
    pub(crate) block_series_max: usize,
    /// Ids in a page of the forward index. It is part of the format: readers compute the page of an
    /// id from it, so a store looks damaged to a process with another size.
    pub(crate) page_ids: u32,
    /// Maximum number of series that one write registers.
    pub(crate) register_series_max: usize,
    /// Bytes of blocks, or of pages of the forward index, from which a write is full.
    pub(crate) write_bytes: usize,
    /// Postings from which a write that deletes them is full.
    pub(crate) delete_keys: usize,
    /// Minimum number of late samples to seal a window again as soon as no more of them arrive. Fewer
    /// wait until the next window has closed, so that there are not many small runs.
    pub(crate) late_samples_at_rest: u64,
    /// Minimum number of late samples to seal a window again while more of them arrive. Windows
    /// without new late samples are sealed once they have this many together.
    pub(crate) late_samples_max: u64,
    /// Maximum number of samples of the windows whose series are found in one pass over the head.
    pub(crate) found_samples_max: u64,
    /// Maximum number of series that drop deleted samples in one turn between commits: some hundred
    /// microseconds.
    pub(crate) drop_series_max: u64,
    /// Bytes of log records that a start decodes while it applies as many before them.
    pub(crate) replayed_bytes: usize,
    /// Maximum number of series that are sorted by comparing labels, instead of by the known order of
    /// all series.
    pub(crate) compared_series_max: usize,
    /// Series of the head from which two threads sort them.
    pub(crate) halved_series_min: usize,
    /// Maximum number of series that a loop visits on a thread of the runtime.
    pub(crate) inline_series_max: usize,
    /// Series that are worth a thread of their own.
    pub(crate) share_series_min: usize,
    /// Maximum number of loaded selections that are kept for later queries; 0 keeps none.
    pub(crate) kept_sets_max: usize,
    /// Minimum number of parts of a selection that is kept: columns, runs of frames and tails.
    pub(crate) kept_parts_min: usize,
    /// Maximum number of metrics whose run directories are read by one scan each; more of them are
    /// read in one scan of all directories.
    pub(crate) metric_scans_max: usize,
    /// Maximum number of leftovers of a crash that one round tries to delete.
    pub(crate) orphans_per_round: usize,
    /// Bytes of a part in the disk cache. The number of a part counts in it, so it must not change
    /// between processes that use the same folder.
    pub(crate) cache_part_bytes: u64,
    /// Interval at which a follower polls for a newer manifest.
    pub(crate) follow_interval: Duration,
    /// Interval at which a writer polls for a newer manifest.
    pub(crate) manifest_poll_interval: Duration,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            block_series_max: 64,
            page_ids: page::SERIES_MAX,
            register_series_max: 4096,
            write_bytes: 8 << 20,
            delete_keys: 10_000,
            late_samples_at_rest: 256 << 10,
            late_samples_max: 8 << 20,
            found_samples_max: 4 << 20,
            drop_series_max: 256,
            replayed_bytes: 2 << 20,
            compared_series_max: 64,
            halved_series_min: 1 << 16,
            inline_series_max: 2048,
            share_series_min: 1024,
            kept_sets_max: 64,
            kept_parts_min: 64,
            metric_scans_max: 32,
            orphans_per_round: 1000,
            cache_part_bytes: 256 << 10,
            follow_interval: Duration::from_secs(30),
            manifest_poll_interval: Duration::from_secs(1),
        }
    }
}
