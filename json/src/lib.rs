//! JSON of the API, written into byte buffers.
//!
//! The text is that of Prometheus, byte for byte: label sets and samples have its own writers
//! (numbers in quotes, no HTML escapes), everything else Go's standard library (with HTML escapes).

pub mod cost;
pub mod number;
pub mod pieces;
mod points;
pub mod text;
pub mod value;
