//! Ingest: from the bytes of a request to samples that are durable.
//!
//! ```text
//! HTTP body ── snappy ──> message ── decode ──> Batch ── Store::append ──> 204 or 400
//!              limits                rejects              rejections
//! ```
//!
//! [`decode`] reads messages in place. Storing is left to the storage crate.

pub mod decode;
mod limits;
#[cfg(test)]
mod prompb;
mod rejects;
mod wire;

pub use decode::{DecodeError, Decoded, Decoder};
pub use limits::{DECOMPRESSED_BYTES_CEILING, Limits};
pub use rejects::{Reason, Rejects};
pub use wire::WireError;
