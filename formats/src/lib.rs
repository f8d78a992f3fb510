//! Formats of other programs: OpenMetrics text and chunks of Prometheus, read and written, the blocks
//! of its TSDB, read, and JSON lines of VictoriaMetrics, read.
//!
//! Every length and offset is checked before it is used. Damage is an error with the file and the
//! position. The memory for reading a file does not grow with its size.

pub mod chunk;
pub mod error;
pub mod json_lines;
mod labels;
mod lines;
pub mod open_metrics;
pub mod tsdb;

pub use error::FormatError;
