//! Why a file cannot be read.

use std::io;
use std::path::Path;

/// Why a file cannot be read, by what can be done about it.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// See to the file system.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// Mend the text.
    #[error("{path}:{line}: {detail}")]
    Line {
        /// The file.
        path: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        detail: String,
    },
    /// Take another copy of the file: its bytes are damaged, or none of its kind.
    #[error("{path}: at byte {offset}: {detail}")]
    Damaged {
        /// The file.
        path: String,
        /// Where in it.
        offset: u64,
        /// What was expected and what was found.
        detail: String,
    },
}

impl FormatError {
    /// A failure of the file system.
    pub(crate) fn io(path: &Path, source: io::Error) -> FormatError {
        FormatError::Io { path: path.display().to_string(), source }
    }

    /// Damage at a place.
    pub(crate) fn damaged(path: &Path, offset: u64, detail: impl Into<String>) -> FormatError {
        FormatError::Damaged { path: path.display().to_string(), offset, detail: detail.into() }
    }
}
