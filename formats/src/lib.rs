//! Formats of other programs: OpenMetrics text and chunks of Prometheus, read and written, and the
//! blocks of its TSDB, read.
//!
//! Every length and offset is checked before it is used. Damage is an error with the file and the
//! position. The memory for reading a file does not grow with its size.

pub mod chunk;
pub mod error;
pub mod open_metrics;
pub mod tsdb;

pub use error::FormatError;
