//! The HTTP API: what Prometheus answers, byte for byte where that can be.
//!
//! A handler extracts, makes one call, and encodes. The shapes of the answers are in
//! [`json`], the parameters in [`params`], the errors in [`error`].

mod access;
mod active_queries;
mod admin;
mod encoders;
mod error;
mod exemplars;
mod features;
mod federate;
mod json;
mod labels;
mod lifecycle;
mod metadata;
mod multipart;
mod openapi;
mod params;
mod pprof;
mod prefix;
mod query;
mod read;
mod request_log;
pub(crate) mod router;
mod search;
mod self_metrics;
mod status;
mod stored;
mod stubs;
mod ui;
mod write;

pub use json::value::encode_value;

#[cfg(test)]
mod tests;
