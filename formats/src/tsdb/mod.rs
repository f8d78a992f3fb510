//! Blocks of the TSDB of Prometheus.
//!
//! ```text
//! ULID/meta.json     description of the block
//!      index         symbols, series with references to their chunks, postings
//!      chunks/000001 chunks; several files if they are large
//!      tombstones    deleted times of series
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
