//! Status endpoints.

mod active_queries;
mod server;
mod store;
