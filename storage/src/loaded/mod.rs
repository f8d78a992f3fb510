//! Loaded series of a selection: sorted, as sets for queries, and kept for the next query.

pub(crate) mod kept;
pub(crate) mod newest;
pub(crate) mod order;
pub(crate) mod set;
