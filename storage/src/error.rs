//! Why the store cannot do what it was asked.

use std::time::Duration;

use model::{BudgetError, SourceError};

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
    /// Mend the setting.
    #[error("{setting} cannot be used: {detail}")]
    InvalidSetting {
        /// What was set.
        setting: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Mend the settings of the object store, or the object store itself.
    #[error("the object store {store} {problem}: {advice}")]
    Remote {
        /// Its URL, without credentials, and its server.
        store: String,
        /// What is wrong with it.
        problem: String,
        /// What can be done.
        advice: String,
    },
    /// Use another version: the store has been written in a format of a later one.
    #[error(
        "the store has format {found}, and this version reads formats up to {supported}: open it \
         with the version that wrote it, or a later one"
    )]
    NewerFormat {
        /// The format of the store.
        found: u32,
        /// The newest that is understood.
        supported: u32,
    },
    /// Have another process create it first, or mend the URL: there is no store to be read.
    #[error("there is no store here: {0}")]
    NoStore(String),
    /// Ask the process that writes to the store.
    #[error("this process only reads the store; send this to the one that writes to it")]
    ReadOnly,
    /// Retry later: more samples wait for the log than the limit allows.
    #[error("{waiting} samples are waiting to be written, the limit is {limit}")]
    Overloaded {
        /// Samples that wait, this write included.
        waiting: usize,
        /// The limit.
        limit: usize,
    },
    /// Retry later: the head is being sealed, because it takes more memory than it may.
    #[error("head memory limit exceeded: {bytes} of {limit} bytes (--storage.head-size)")]
    HeadFull {
        /// Bytes of the head.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Retry later: the object store takes no writes. What is sent again and has been stored all
    /// the same is ignored.
    #[error(
        "the object store has not taken a write within {}{}; {}",
        seconds(*.waited),
        .reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default(),
        if *.may_be_stored { "this one may be stored later, and sending it again is safe" }
        else { "nothing of this one is stored" }
    )]
    Stalled {
        /// How long it has been waited for.
        waited: Duration,
        /// Whether the write is under way, and can still be stored.
        may_be_stored: bool,
        /// What the object store has said, if it has.
        reason: Option<String>,
    },
    /// Ask for less: a limit has been reached, which the text names.
    #[error("{0}")]
    LimitExceeded(String),
    /// Clean up first: so many deletes wait for it that a limit has been reached, which the text
    /// names.
    #[error("{0}")]
    Uncleaned(String),
    /// Retry: the object store does not answer.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// Ask for less: a query has read as much of the store as it may.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// Give up: another process has opened the same store and writes to it now.
    #[error("another process has taken over this store; this one may no longer write to it")]
    Fenced,
    /// Look: another process has opened the same store in the meantime; or the newest of its lists
    /// of files is missing, behind which its files look like that.
    #[error(
        "another process has taken over this store while it was opened; if there is none, the newest \
         object below manifest/ is missing"
    )]
    Overtaken,
    /// Stop the other process, or wait until it has stopped: it writes to the store.
    #[error(
        "the store is in use by another process ({0}): stop that one first; --mode=reader reads \
         the store beside it"
    )]
    InUse(String),
    /// Give up: the store is not the one any more that this process has opened.
    #[error("this process has lost its store and may no longer write to it: {0}")]
    Lost(String),
    /// Restore the manifest, or begin a new store: files of a store are there without it.
    #[error(
        "there is no manifest in manifest/, but there are files of a store: {0}; restore \
         manifest/ from a backup, or start a new store with --storage.discard-leftovers, which \
         deletes these files"
    )]
    Leftovers(String),
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

impl StoreError {
    /// Returns whether the store takes no more writes before it is opened again.
    pub fn ends_writes(&self) -> bool {
        matches!(self, StoreError::Fenced | StoreError::Lost(_) | StoreError::Closed)
    }

    /// Returns whether another process has the store now, or it is gone.
    pub fn is_loss(&self) -> bool {
        matches!(self, StoreError::Fenced | StoreError::Overtaken | StoreError::Lost(_))
    }
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_millis() as f64 / 1000.0)
}

impl From<StoreError> for SourceError {
    fn from(error: StoreError) -> SourceError {
        match error {
            StoreError::Budget(error) => SourceError::Budget(error),
            StoreError::Corrupt { location, detail } => {
                SourceError::Corrupt { series: "(unknown)".to_owned(), location, detail }
            }
            error => SourceError::Unavailable(error.to_string()),
        }
    }
}
