//! Remote read: requests, and the two types of responses.
//!
//! ```text
//! SAMPLES               snappy of  ReadResponse { QueryResult { series with samples }, … }
//! STREAMED_XOR_CHUNKS   frame*     length: varint │ crc32c:4 BE │ ChunkedReadResponse
//! ```
//!
//! Source: `prompb/{remote,types}.proto` and `storage/remote/{codec,chunked}.go` of Prometheus.

mod request;
mod response;
#[cfg(test)]
mod tests;

pub use request::{ReadError, ReadHints, ReadLimits, ReadQuery, ReadRequest, ResponseType};
pub use response::{ChunkRef, FrameEncoder, ResultEncoder, SeriesEncoder};
