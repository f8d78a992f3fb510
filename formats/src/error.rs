//! Errors of reading a file.

use std::io;
use std::path::Path;

/// Error of reading a file, by what the user can do about it.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Check the file system.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Fix the text.
    #[error("{path}:{line}: {detail}")]
    Line {
        /// The file.
        path: String,
        /// Number of the line, from 1.
        line: u64,
        /// Description of the error.
        detail: String,
    },
    /// Use another copy of the file: it is damaged, or another kind of file.
    #[error("{path}: at byte {offset}: {detail}")]
    Damaged {
        /// The file.
        path: String,
        /// Offset in the file.
        offset: u64,
        /// The expected and the found content.
        detail: String,
    },
}

impl FormatError {
    /// Creates an error of the file system.
    pub(crate) fn io(path: &Path, source: io::Error) -> FormatError {
        FormatError::Io { path: path.display().to_string(), source }
    }

    /// Creates an error of damage at an offset.
    pub(crate) fn damaged(path: &Path, offset: u64, detail: impl Into<String>) -> FormatError {
        FormatError::Damaged { path: path.display().to_string(), offset, detail: detail.into() }
    }
}
