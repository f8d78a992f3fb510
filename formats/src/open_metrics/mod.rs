//! OpenMetrics text with timestamps, as backfilling requires.
//!
//! Source: "OpenMetrics 1.0" of the specifications of Prometheus, as its parser accepts it
//! (`model/textparse/openmetricsparse.go`), including names in quotes.

mod line;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::{Entry, LINE_BYTES_MAX, Reader, Sample};
pub use writer::{Family, Writer};
