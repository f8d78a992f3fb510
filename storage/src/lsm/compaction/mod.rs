//! Compactions of the tree, and garbage collection of its files.

pub(in crate::lsm) mod garbage;
pub(in crate::lsm) mod orphans;
pub(in crate::lsm) mod schedule;
mod tables;
