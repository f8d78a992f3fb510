//! Decoding of remote write requests into a [`Batch`], in place: without message structs, and for
//! floats without an allocation for a series. Metrics of OpenTelemetry are in [`otlp`], remote read
//! in [`read`], the gRPC messages of Thanos
//! in [`thanos`], and the formats of federation in [`exposition`].
//!
//! ```text
//! v1   one pass     a series: its labels in full, samples, histograms, exemplars
//! v2   two passes   the symbol table, at any position; then series that refer to it
//! ```
//!
//! [`v1`] and [`v2`] decode the two messages; [`batch_builder`] fills the batch within the limits.
//! The fast path ([`fast_path`], [`symbol_table`]) takes labels that are sorted, unique,
//! short, not empty and valid UTF-8, and samples framed as every sender frames them. A series with
//! any other label is read again by the [`slow_path`], which sorts labels, drops empty values and
//! rejects the labels that Prometheus rejects. Fields may be split, repeated, unknown or in any
//! order.
//!
//! Source: `storage/remote/write_handler.go`, `prompb/types.proto` and
//! `prompb/io/prometheus/write/v2/types.proto` of Prometheus. Both versions treat invalid series as
//! its 2.0 receiver does: they are rejected by name and the others stored. For 1.0 requests,
//! Prometheus drops invalid labels silently.

mod batch_builder;
mod decode_budget;
pub mod exposition;
mod fast_path;
pub mod fields;
mod histogram;
mod json;
pub mod limits;
mod matcher;
pub mod otlp;
mod protobuf;
pub mod read;
pub mod rejects;
mod slow_path;
mod symbol_table;
#[cfg(test)]
mod tests;
pub mod thanos;
mod v1;
mod v2;

use model::Batch;

use batch_builder::BatchBuilder;
use decode_budget::DecodeBudget;
pub use decode_budget::InflightFull;
use histogram::HistogramFields;
pub use json::JsonError;
pub use limits::{DECOMPRESSED_BYTES_CEILING, Limits};
pub use matcher::{LabelMatcher, MatcherError};
pub use protobuf::WireError;
pub use rejects::{Counts, Rejects};
use slow_path::UncheckedLabels;
use symbol_table::SymbolTable;
use v2::SeenMetadata;

/// Number of zero bytes after a message with which the fast path reads its last series, too.
/// Without them the result is the same, but decoding is slower.
pub const MESSAGE_PADDING: usize = fast_path::PADDING;

/// The two messages of remote write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `prometheus.WriteRequest`.
    V1,
    /// `io.prometheus.write.v2.Request`.
    V2,
}

/// Error that rejects a whole request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fix the request: the compression is invalid.
    #[error("cannot decompress the request: {0}")]
    Snappy(#[from] snap::Error),
    /// Fix the request: the compression is invalid.
    #[error("cannot decompress the request: {0}")]
    Gzip(String),
    /// Fix the request: the text is not the expected JSON.
    #[error("malformed JSON at byte {position}: {error}")]
    Json {
        /// Offset in the decompressed message.
        position: usize,
        /// The JSON error.
        error: JsonError,
    },
    /// Fix the request: the bytes are not a write request.
    #[error("malformed write request at {position}: {error}")]
    Malformed {
        /// Position in the decompressed message.
        position: MessagePosition,
        /// The protobuf error.
        error: WireError,
    },
    /// Retry later.
    #[error(transparent)]
    InflightFull(#[from] InflightFull),
    /// Split the request, or raise the limit.
    #[error("request of {reached} {what} is over the limit of {limit} ({name})")]
    TooLarge {
        /// The counted unit, in the plural.
        what: &'static str,
        /// Name of the limit.
        name: &'static str,
        /// The limit.
        limit: usize,
        /// The size of the request; `limit + 1` if counting stopped there.
        reached: usize,
    },
}

/// A position in a decompressed write request, for error texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePosition {
    /// Offset in bytes.
    pub byte: usize,
    /// Index of the series from zero; `None` outside of a series.
    pub series_index: Option<usize>,
    /// Name of the field in the protobuf definition.
    pub field: &'static str,
}

impl std::fmt::Display for MessagePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.series_index {
            Some(index) => write!(f, "byte {}, timeseries[{index}].{}", self.byte, self.field),
            None => write!(f, "byte {}, {}", self.byte, self.field),
        }
    }
}

/// Result of decoding a request, in addition to the batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Rejected series, samples and exemplars.
    pub rejects: Rejects,
    /// Number of exemplars dropped without an error, as in Prometheus.
    pub exemplars_dropped: u64,
    /// Number of metadata dropped: without a metric name, or not UTF-8.
    pub metadata_dropped: u64,
}

/// Decompresses one request into `message`, followed by [`MESSAGE_PADDING`] zero bytes.
///
/// Returns the length of the message. The declared length is checked before any allocation.
pub fn decompress(
    body: &[u8],
    limits: &Limits,
    message: &mut Vec<u8>,
) -> Result<usize, DecodeError> {
    let length = decompressed_len(body)?;
    check_decompressed_len(length, limits)?;
    message.resize(length + MESSAGE_PADDING, 0);
    let written = snap::raw::Decoder::new().decompress(body, &mut message[..length])?;
    message[written..].fill(0);
    message.truncate(written + MESSAGE_PADDING);
    Ok(written)
}

/// Decompresses one gzip request into an empty `message`.
///
/// Memory: granted as the message grows, as gzip declares no length.
pub fn gunzip(
    body: &[u8],
    limits: &Limits,
    reserve: ReserveMemory<'_>,
    message: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    const STEP_BYTES: usize = 64 << 10;
    message.clear();
    let mut decoder = flate2::bufread::MultiGzDecoder::new(body);
    // A read may return one byte: a body may have many members of one byte.
    let mut step = vec![0; STEP_BYTES];
    loop {
        let read = std::io::Read::read(&mut decoder, &mut step);
        let read = read.map_err(|error| DecodeError::Gzip(error.to_string()))?;
        let held = message.len();
        if message.capacity() < held + read {
            let more = held.max(STEP_BYTES);
            reserve(more)?;
            message.reserve_exact(more);
        }
        message.extend_from_slice(&step[..read]);
        check_decompressed_len(message.len(), limits)?;
        if read == 0 {
            return Ok(());
        }
    }
}

/// Returns the decompressed length that a body declares.
pub fn decompressed_len(body: &[u8]) -> Result<usize, DecodeError> {
    if body.is_empty() {
        return Err(DecodeError::Snappy(snap::Error::Empty));
    }
    Ok(snap::raw::decompress_len(body)?)
}

fn check_decompressed_len(length: usize, limits: &Limits) -> Result<(), DecodeError> {
    let limit = limits.decompressed_bytes_max.min(DECOMPRESSED_BYTES_CEILING);
    if length <= limit {
        return Ok(());
    }
    let what = "decompressed bytes";
    let name = limits.names.decompressed_bytes_max;
    Err(DecodeError::TooLarge { what, name, limit, reached: length })
}

/// Grants memory beyond the length of the message, in bytes, before decoding allocates it.
pub type ReserveMemory<'a> = &'a mut dyn FnMut(usize) -> Result<(), InflightFull>;

/// Decoder with working memory that requests reuse.
#[derive(Debug, Default)]
pub struct Decoder {
    packed: Vec<u8>,
    labels: UncheckedLabels,
    histogram: HistogramFields,
    symbols: SymbolTable,
    refs: Vec<u32>,
    seen: SeenMetadata,
}

impl Decoder {
    /// Decodes the message `bytes[..length]` into an empty batch. The bytes after it are padding;
    /// see [`MESSAGE_PADDING`]. Invalid series are rejected and reported in the result.
    ///
    /// Errors: the message is malformed or over a limit; the batch is then unusable.
    pub fn decode(
        &mut self,
        version: Version,
        bytes: &[u8],
        length: usize,
        limits: &Limits,
        reserve: ReserveMemory<'_>,
        batch: &mut Batch,
    ) -> Result<Decoded, DecodeError> {
        check_decompressed_len(length, limits)?;
        batch.clear();
        let builder = BatchBuilder::new(limits, batch, DecodeBudget::new(limits, length, reserve));
        match version {
            Version::V1 => v1::decode(self, bytes, length, builder),
            Version::V2 => v2::decode(self, bytes, length, builder),
        }
    }

    /// Size of the working memory, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.packed.capacity()
            + self.labels.heap_bytes()
            + self.histogram.heap_bytes()
            + self.symbols.heap_bytes()
            + self.refs.capacity() * size_of::<u32>()
    }
}

#[cold]
fn malformed(
    byte: usize,
    series_index: Option<usize>,
    field: &'static str,
    error: WireError,
) -> DecodeError {
    DecodeError::Malformed { position: MessagePosition { byte, series_index, field }, error }
}

#[cold]
fn too_large(what: &'static str, name: &'static str, limit: usize) -> DecodeError {
    DecodeError::TooLarge { what, name, limit, reached: limit + 1 }
}
