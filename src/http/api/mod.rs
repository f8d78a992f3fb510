//! Endpoints of the HTTP API that read series, and stubs for what does not exist here.

pub(super) mod exemplars;
pub(super) mod federate;
pub(crate) mod labels;
pub(super) mod metadata;
pub(super) mod query;
pub(super) mod read;
pub(super) mod search;
pub(super) mod stubs;
