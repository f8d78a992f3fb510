//! Ingest: from the bytes of a request to samples that are durable.
//!
//! ```text
//! body ── snappy ──> message ── decode ──> Batch ── Store::append ──> Counts or WriteError
//!         limits                rejects              rejections
//! ```
//!
//! [`remote_write`] receives remote write and OTLP; [`self_metrics`] writes the server's own metrics.
//! The crate [`wire`] decodes messages, [`storage`] stores them, `http::write` responds.

mod inflight;
mod metrics;
mod rejection_log;
mod remote_write;
pub mod self_metrics;

pub use metrics::IngestMetrics;
pub use remote_write::RemoteWrite;
pub(crate) use remote_write::{OtlpFormat, WriteError, WriteErrorKind};

/// Returns the system time, in ms since the epoch.
pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}
