//! Caches of SSTs, in memory and on disk.

pub(in crate::lsm) mod blocks;
pub(in crate::lsm) mod disk;
