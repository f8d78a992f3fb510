//! Follower of an LSM that another process writes to.

pub(in crate::lsm) mod follower;
pub(in crate::lsm) mod tail;
pub(in crate::lsm) mod view;
