//! Object store of the LSM: its location, and the layers over it.

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
