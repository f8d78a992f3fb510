//! Reads: a selection is resolved and loaded here, then read synchronously.
//!
//! The head is copied first and the LSM read after it. So samples that are sealed in between are
//! seen twice, which the cursor merges, and never missed.

pub(crate) mod blocks;
pub(crate) mod cardinality;
pub(crate) mod days;
pub(crate) mod names;
mod partition;
pub(crate) mod select;
pub(crate) mod series;
mod spans;
mod summaries;
pub(crate) mod warm;
