//! Gorilla-encoded series with one index in an object-store LSM.
//!
//! ```text
//! append ─→ log record ─→ durable ─→ head ─→ seal ─→ blocks, postings, dictionary
//!                                      └──────────────┴─→ select ─→ cursors
//! ```
//!
//! [`Store`] is the whole of it to others; it is read through [`model::Source`]. Keys are in
//! `keys`, values in `head::record`, `seal::block` and `value`, chunks in [`chunk`].

pub mod chunk;
mod error;
mod head;
mod index;
mod keys;
mod lsm;
mod options;
mod outcome;
mod read;
mod seal;
mod stats;
mod store;
#[cfg(test)]
mod tests;
mod value;
mod window;

pub use error::StoreError;
pub use options::{Clock, ManualClock, StoreOptions, SystemClock};
pub use outcome::{AppendOutcome, REJECTIONS_MAX, RejectReason, Rejection, SampleKind};
pub use stats::StoreStats;
pub use store::Store;
