//! Gorilla-encoded series with one index in an object-store LSM.
//!
//! ```text
//! append ─→ log record ─→ durable ─→ head ─→ seal ─→ blocks, postings, dictionary
//!                                      └──────────────┴─→ select ─→ cursors
//! ```
//!
//! [`Store`] is the interface, read through [`model::Source`]. Keys are in `keys`, values in
//! `log::record`, `block` and `value`, chunks in [`chunk`].

pub mod audit;
mod block;
mod changes;
pub mod chunk;
mod core;
mod delete;
mod epoch;
mod error;
mod exemplar;
mod expiry;
mod follow;
mod head;
mod index;
mod keys;
mod loaded;
mod lock;
mod log;
mod lsm;
mod matchers;
mod meta;
mod metadata;
mod notes;
mod options;
mod outcome;
mod parallel;
mod read;
mod remote;
mod retention;
mod samples;
mod seal;
mod sizes;
mod store;
mod summary;
#[cfg(test)]
mod tests;
mod value;
mod varint;
mod window;

pub use delete::{TOMBSTONE_BYTES_MAX, TOMBSTONES_BYTES_MAX, TOMBSTONES_MAX};
pub use error::StoreError;
pub use exemplar::{EXEMPLAR_BYTES_MEAN_MAX, EXEMPLARS_PER_SERIES_MAX};
pub use follow::{Behind, FollowStats};
pub use head::TenantSeriesLimits;
pub use head::cardinality::{Cardinality, Counted};
pub use head::created::CreatedStats;
pub use log::queue::BatchReservation;
pub use lsm::{LEASE_DURATION_MAX, ReadCount, Reader, WriteCount};
pub use lsm::{SharedMemory, local_folder};
pub use metadata::{ENTRIES_PER_METRIC_MAX, ENTRY_TEXT_BYTES_MAX, METADATA_BYTES_MAX, METRICS_MAX};
pub use notes::{NOTE_BYTES_MAX, NOTE_NAME_BYTES_MAX};
pub use options::{
    ACTIVE_SERIES_MAX, ACTIVE_SERIES_PER_METRIC_MAX, Clock, DiskCacheOptions, EXEMPLARS_MAX,
    HEAD_BYTES_MAX, ManualClock, RETENTION_CONFIRMATION, StoreOptions, SystemClock,
};
pub use outcome::{
    AppendOutcome, ExemplarCounts, ExemplarOutcome, Overflow, REJECTIONS_MAX, RefusedSeries,
    RejectCounts, Rejection, SampleKind,
};
pub use read::cardinality::{CardinalityQuery, CountChange, DayCardinality, PairChange};
pub use read::days::DayBlocks;
pub use remote::{AzureOptions, GcsOptions, RemoteOptions, S3Options, Secret, without_credentials};
pub use retention::{
    RETENTION_RULES_MAX, Retention, RetentionFloor, RetentionLimit, RetentionRule,
};
pub use store::{DayStats, Store, StoreClaim, StoreStats};
