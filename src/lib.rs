//! The Tessella server: the command line, the configuration, the HTTP API and the life of the
//! process. Queries are answered by the engine, samples kept by the storage; neither knows
//! the other, and they meet here.

mod access;
pub mod build_info;
pub mod cli;
pub mod config;
mod flags;
mod http;
pub mod ingest;
pub mod kernel;
mod listener;
pub mod logging;
pub mod metrics;
pub mod profile;
mod query;
mod retention_status;
pub mod server;
mod state;
mod time;
pub mod tools;
pub mod units;
mod web_config;

pub use http::encode_value;
