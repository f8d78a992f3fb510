//! OpenMetrics text, with a time at each sample as backfilling asks for.
//!
//! Source: "OpenMetrics 1.0" of Prometheus' specifications. What is taken is what Prometheus'
//! parser takes (`model/textparse/openmetricsparse.go`), names in quotes included.

mod line;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::{Entry, LINE_BYTES_MAX, Reader, Sample};
pub use writer::{Family, Writer};
