//! The HTTP API: what Prometheus answers, byte for byte where that can be.
//!
//! A handler extracts, makes one call, and encodes. Handlers are in [`api`], [`write`], [`status`],
//! [`admin`] and [`pages`], the bodies of responses in [`body`] and the crate
//! `json`, parameters in [`params`].

mod admin;
pub(crate) mod api;
mod body;
mod endpoint;
pub(crate) mod error;
pub(crate) mod layers;
mod multipart;
mod pages;
pub(crate) mod params;
pub(crate) mod router;
mod status;
mod write;

#[cfg(test)]
pub(crate) mod tests;
