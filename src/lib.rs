//! The Tessella server: command line, configuration, HTTP API and life of the process. It connects
//! the engine, which answers queries, with the storage, which keeps samples.

mod access;
pub mod build_info;
pub mod cli;
mod config;
mod external_labels;
mod flags;
mod grpc;
mod http;
mod ingest;
pub mod kernel;
mod listener;
mod logging;
mod metrics;
mod process;
pub mod profile;
mod promotion;
mod query;
mod release_trigger;
mod retention_status;
mod server;
mod standby;
mod state;
mod tenancy;
mod time;
mod tools;
mod units;
mod web_config;

pub use process::run;
