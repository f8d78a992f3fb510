//! The blocks in which Prometheus keeps sealed samples.
//!
//! ```text
//! ULID/meta.json     what the block is
//!      index         symbols, series with the places of their chunks, postings
//!      chunks/000001 encoded runs of samples; more files as they grow
//!      tombstones    what has been deleted and is still in chunks
//! ```
//!
//! Source: `tsdb/docs/format` of Prometheus.

mod block;
mod file;
mod index;
mod symbols;
#[cfg(test)]
mod tests;
mod tombstones;

pub use block::{Block, BlockMeta, BlockStats, CHUNK_BYTES_MAX, Series, ThanosMeta};
pub use index::ChunkMeta;
pub use tombstones::TOMBSTONES_BYTES_MAX;
