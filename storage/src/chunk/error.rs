//! What is wrong with the bytes of a chunk.

use model::SourceError;

/// What is wrong with the bytes of a chunk. Offsets count from the start of its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The bytes end before the frame does.
    #[error("frame needs {expected} bytes, found {found}")]
    Truncated {
        /// How many bytes the frame needs at least.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// No codec has this tag.
    #[error("unknown chunk encoding {tag}")]
    UnknownEncoding {
        /// The first byte of the frame.
        tag: u8,
    },
    /// A field of the header cannot be.
    #[error("{field} in the chunk header is invalid: {found}")]
    Header {
        /// The field.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// The bytes are not those that were written.
    #[error("chunk checksum {found:#010x} differs from the stored {expected:#010x}")]
    Checksum {
        /// What the frame says.
        expected: u32,
        /// What its bytes give.
        found: u32,
    },
    /// The payload is not a stream of the samples that the header announces.
    #[error("{detail} at sample {sample_index}, bit {bit} of the chunk")]
    Payload {
        /// What is wrong.
        detail: &'static str,
        /// Samples before it.
        sample_index: u32,
        /// Where the reader stood.
        bit: usize,
    },
}

impl ChunkError {
    /// The error that a reader of series hands on.
    ///
    /// `location` is what the caller knows of the place: key, block, offset of the frame.
    pub fn at(self, series: impl Into<String>, location: impl Into<String>) -> SourceError {
        SourceError::Corrupt {
            series: series.into(),
            location: location.into(),
            detail: self.to_string(),
        }
    }
}
