//! Compaction schedule, and garbage collection of SSTs.

pub(in crate::lsm) mod garbage;
pub(in crate::lsm) mod orphans;
pub(in crate::lsm) mod schedule;
pub(in crate::lsm) mod tables;
