//! Why the store cannot do what it was asked.

use model::SourceError;

/// Why the store cannot do what it was asked, by what the caller can do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Mend the URL.
    #[error("storage URL {url:?} cannot be used: {detail}")]
    InvalidUrl {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Retry later: more samples wait for the log than the limit allows.
    #[error("{waiting} samples are waiting to be written, the limit is {limit}")]
    Overloaded {
        /// Samples that wait, this write included.
        waiting: usize,
        /// The limit.
        limit: usize,
    },
    /// Retry: the object store does not answer.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// Give up: another process has opened the same store and writes to it now.
    #[error("another process has taken over this store; this one may no longer write to it")]
    Fenced,
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
    /// Restore: bytes are damaged.
    #[error("damaged data at {location}: {detail}")]
    Corrupt {
        /// The key.
        location: String,
        /// What was expected and what was found.
        detail: String,
    },
}

impl From<StoreError> for SourceError {
    fn from(error: StoreError) -> SourceError {
        match error {
            StoreError::Corrupt { location, detail } => {
                SourceError::Corrupt { series: "(unknown)".to_owned(), location, detail }
            }
            error => SourceError::Unavailable(error.to_string()),
        }
    }
}
