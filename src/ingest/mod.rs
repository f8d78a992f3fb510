//! Ingest: from the bytes of a request to samples that are durable.
//!
//! ```text
//! HTTP body ── snappy ──> message ── decode ──> Batch ── Store::append ──> 204 or 400
//!              limits                rejects              rejections
//! ```
//!
//! [`remote_write`] is the receiver, [`decode`] reads its messages in place, and
//! [`self_metrics`] writes the server's own metrics. Storing is left to the storage crate,
//! routing to [`http`](crate::http).

pub mod decode;
mod inflight;
mod limits;
mod metrics;
#[cfg(test)]
mod prompb;
mod rejects;
mod remote_write;
pub mod self_metrics;
mod wire;

pub use decode::{DecodeError, Decoded, Decoder, Version};
pub use inflight::Full;
pub use limits::{DECOMPRESSED_BYTES_CEILING, Limits};
pub use metrics::IngestMetrics;
pub use rejects::{Counts, Reason, Rejects};
pub use remote_write::RemoteWrite;
pub use wire::WireError;

/// The machine's clock, ms since the epoch.
fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}
