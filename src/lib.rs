//! The Tessella server: command line, configuration, HTTP API and life of the process. It connects
//! the engine, which answers queries, with the storage, which keeps samples.

mod access;
pub mod build_info;
pub mod cli;
pub mod config;
mod external_labels;
mod flags;
mod grpc;
mod http;
pub mod ingest;
pub mod kernel;
mod listener;
pub mod logging;
pub mod metrics;
pub mod profile;
mod promotion;
mod query;
mod retention_status;
pub mod server;
mod standby;
mod state;
mod tenancy;
mod time;
pub mod tools;
pub mod units;
mod web_config;

pub use http::encode_value;
