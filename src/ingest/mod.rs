//! Ingest: from the bytes of a request to samples that are durable.
//!
//! ```text
//! HTTP body ── snappy ──> message ── decode ──> Batch ── Store::append ──> 204 or 400
//!              limits                rejects              rejections
//! ```
//!
//! [`remote_write`] is the receiver, of OTLP as well, and [`self_metrics`] writes the server's own metrics. Reading
//! messages is left to the crate [`wire`], storing to [`storage`], routing to `http`.

mod inflight;
mod metrics;
mod rejection_log;
mod remote_write;
mod retention;
pub mod self_metrics;

pub use metrics::IngestMetrics;
pub use remote_write::RemoteWrite;

/// The machine's clock, ms since the epoch.
fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}
