//! Endpoints for operators: lifecycle, administration of the store, profiles.

pub(super) mod lifecycle;
pub(super) mod pprof;
pub(super) mod tsdb;
