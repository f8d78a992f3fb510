//! The HTTP API: what Prometheus answers, byte for byte where that can be.
//!
//! A handler extracts, makes one call, and encodes. Handlers are in [`api`], [`write`], [`status`],
//! [`admin`] and [`pages`], the shapes of responses in [`json`], parameters in [`params`].

mod admin;
pub(crate) mod api;
pub(crate) mod error;
mod json;
pub(crate) mod layers;
mod multipart;
mod pages;
pub(crate) mod params;
pub(crate) mod router;
mod status;
mod write;

pub use json::value::encode_value;

#[cfg(test)]
pub(crate) mod tests;
