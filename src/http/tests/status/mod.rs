//! Status endpoints.

mod active_queries;
mod cardinality;
mod server;
mod store;
mod top_queries;
