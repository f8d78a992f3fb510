//! The object store below the tree: where it is, and the layers in front of it.

pub(in crate::lsm) mod checksummed;
pub(in crate::lsm) mod failures;
pub(in crate::lsm) mod files;
pub(in crate::lsm) mod guarded;
pub(in crate::lsm) mod layer;
pub(in crate::lsm) mod leftovers;
pub(in crate::lsm) mod location;
pub(in crate::lsm) mod metered;
pub(in crate::lsm) mod preflight;
pub(in crate::lsm) mod uploads;
pub(in crate::lsm) mod verified;
