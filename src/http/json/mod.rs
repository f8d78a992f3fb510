//! JSON of the API, written by hand into byte buffers.
//!
//! What Prometheus writes, byte for byte: it encodes label sets and samples with writers of
//! its own (numbers in quotes, no escapes for HTML) and everything else as Go's standard
//! library does (with them).

pub(crate) mod body;
pub(crate) mod number;
mod points;
pub(crate) mod text;
pub(crate) mod value;
