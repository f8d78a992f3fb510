//! Errors of damaged chunks.

use model::SourceError;

/// Damage of a chunk. Offsets count from the start of its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The bytes end before the frame does.
    #[error("frame needs {expected} bytes, found {found}")]
    Truncated {
        /// Minimum length of the frame.
        expected: usize,
        /// Available bytes.
        found: usize,
    },
    /// The tag is of no known codec.
    #[error("unknown chunk encoding {tag}")]
    UnknownEncoding {
        /// First byte of the frame.
        tag: u8,
    },
    /// A field of the header has an impossible value.
    #[error("{field} in the chunk header is invalid: {found}")]
    Header {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        found: u64,
    },
    /// The bytes do not match the checksum.
    #[error("chunk checksum {found:#010x} differs from the stored {expected:#010x}")]
    Checksum {
        /// Stored checksum.
        expected: u32,
        /// Computed checksum.
        found: u32,
    },
    /// The payload does not match the header.
    #[error("{detail} at sample {sample_index}, bit {bit} of the chunk")]
    Payload {
        /// Description of the damage.
        detail: &'static str,
        /// Number of valid samples before the damage.
        sample_index: u32,
        /// Bit offset of the damage.
        bit: usize,
    },
}

impl ChunkError {
    /// Converts to an error of a series.
    ///
    /// `location` describes the chunk: key, block, offset of the frame.
    pub fn at(self, series: impl Into<String>, location: impl Into<String>) -> SourceError {
        SourceError::Corrupt {
            series: series.into(),
            location: location.into(),
            detail: self.to_string(),
        }
    }
}
