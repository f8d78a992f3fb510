//! Files of other programs: OpenMetrics text, read and written, and the blocks of Prometheus' TSDB,
//! read.
//!
//! Nothing here knows where samples go or come from. Every length and offset in a file is checked
//! before it is used: damage is an error that names the file and the place, and what is held in
//! memory does not grow with the file, whatever it claims.

pub mod error;
pub mod open_metrics;
pub mod tsdb;

pub use error::FormatError;
