//! The HTTP API: what Prometheus answers, byte for byte where that can be.
//!
//! A handler extracts, makes one call, and encodes. The shapes of the answers are in
//! [`json`], the parameters in [`params`] and [`time`], the errors in [`error`].

mod admin;
mod error;
mod exemplars;
mod json;
mod labels;
mod landing;
mod lifecycle;
mod metadata;
mod params;
mod query;
pub(crate) mod router;
mod status;
pub(crate) mod time;
mod write;

pub use json::value::encode_value;

#[cfg(test)]
mod tests;
