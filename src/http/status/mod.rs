//! `/api/v1/status/…` and `/api/v1/features`: state of the server and contents of the store.

pub(super) mod active_queries;
pub(super) mod cardinality;
pub(super) mod features;
pub(super) mod self_metrics;
pub(super) mod server;
pub(super) mod store;
pub(super) mod top_queries;
