//! Remote read: what a client asks for, and the two kinds of answers.
//!
//! ```text
//! SAMPLES               snappy of  ReadResponse { QueryResult { series with samples }, … }
//! STREAMED_XOR_CHUNKS   frame*     length: varint │ crc32c:4 BE │ ChunkedReadResponse
//! ```
//!
//! Source: `prompb/{remote,types}.proto` and `storage/remote/{codec,chunked}.go` of Prometheus.

mod bits;
mod chunk;
mod counts;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub use chunk::{ChunkEncoder, ChunkEncoding, EncodedChunk, ReadSample};
pub use request::{
    ReadError, ReadHints, ReadLimits, ReadMatcher, ReadQuery, ReadRequest, ResponseType,
};
pub use response::{FrameEncoder, ResultEncoder, SeriesEncoder};
