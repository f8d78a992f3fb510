//! Chunks of Prometheus: samples of one series, encoded by [`ChunkEncoder`] and decoded by
//! [`ChunkDecoder`].
//!
//! ```text
//! 1 XOR              count:2 BE │ first time: varint │ first value:64 │ …
//! 2 histogram        count:2 BE │ flags:1 │ layout │ time, counts, sum, buckets │ …
//! 3 float histogram  the same, with floats as counts
//! 4 XOR2, 5, 6       1, 2 and 3 with start timestamps; decoded only
//! ```
//!
//! Source: `tsdb/docs/format/chunks.md` and `tsdb/chunkenc` of Prometheus.

mod bits;
mod decoder;
mod encoder;
mod floats;
mod histograms;
mod layout;
mod sample;
mod start_timestamps;
#[cfg(test)]
mod tests;
mod xor;

pub use decoder::ChunkDecoder;
pub use encoder::{ChunkEncoder, ChunkEncoding, EncodedChunk, SampleRef};
pub use sample::{ChunkError, ChunkSample};
