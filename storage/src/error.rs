//! Errors of the store.

use std::time::Duration;

use model::{BudgetError, SourceError};

/// Errors of the store, divided by what the caller can do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Fix the URL.
    #[error("storage URL {url:?} cannot be used: {detail}")]
    InvalidUrl {
        /// The URL as given.
        url: String,
        /// The problem with it.
        detail: String,
    },
    /// Fix the setting.
    #[error("{setting} cannot be used: {detail}")]
    InvalidSetting {
        /// Name of the setting.
        setting: String,
        /// The problem with it.
        detail: String,
    },
    /// Fix the settings of the object store, or the object store itself.
    #[error("the object store {store} {problem}: {advice}")]
    Remote {
        /// Its URL, without credentials, and its server.
        store: String,
        /// The problem with it.
        problem: String,
        /// Advice for the operator.
        advice: String,
    },
    /// Use another version: the store has a later format.
    #[error(
        "the store has format {found}, and this version reads formats up to {supported}: open it \
         with the version that wrote it, or a later one"
    )]
    NewerFormat {
        /// The format of the store.
        found: u32,
        /// Newest supported format.
        supported: u32,
    },
    /// Create the store with another process first, or fix the URL: there is no store.
    #[error("there is no store here: {0}")]
    NoStore(String),
    /// Ask the process that writes to the store.
    #[error("this process only reads the store; send this to the one that writes to it")]
    ReadOnly,
    /// Retry later: more samples wait for the log than the limit allows.
    #[error("{waiting} samples are waiting to be written, the limit is {limit}; retry later")]
    Overloaded {
        /// Waiting samples, this write included.
        waiting: usize,
        /// The limit.
        limit: usize,
    },
    /// Retry later: the head is being sealed, because it takes more memory than it may.
    #[error(
        "head memory limit exceeded: {} of {} (--storage.head-size)",
        binary_size(*.bytes),
        binary_size(*.limit)
    )]
    HeadFull {
        /// Bytes of the head.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Retry later: the object store takes no writes. A retry ignores samples stored all the same.
    #[error(
        "the object store has not taken a write within {}{}; {}",
        seconds(*.waited),
        .reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default(),
        if *.may_be_stored { "this one may be stored later, and sending it again is safe" }
        else { "nothing of this one is stored" }
    )]
    Stalled {
        /// Time waited.
        waited: Duration,
        /// True if the write is under way, and can still be stored.
        may_be_stored: bool,
        /// Answer of the object store, if there was one.
        reason: Option<String>,
    },
    /// Ask for less: the text names the exceeded limit.
    #[error("{0}")]
    LimitExceeded(String),
    /// Ask for whole windows: a delete covers a part of one whose samples are replaced by summaries.
    #[error(
        "only summaries are kept of samples before {}: there, a delete must cover whole windows of \
         two hours (UTC), for example from 10:00:00 to 11:59:59.999",
        model::calendar::rfc3339(*.before_ms)
    )]
    OnlySummaries {
        /// First time whose samples are kept.
        before_ms: i64,
    },
    /// Clean up first: too many deletes wait for it; the text names the limit.
    #[error("{0}")]
    Uncleaned(String),
    /// Retry: the object store does not answer.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// Ask for less: a query has reached its read limit.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// Give up: another process has opened the same store and writes to it now.
    #[error("another process has taken over this store; this one may no longer write to it")]
    Fenced,
    /// Investigate: another process has opened the same store, or the newest manifest is missing,
    /// which looks the same.
    #[error(
        "another process has taken over this store while it was opened; if there is none, the newest \
         object below manifest/ is missing"
    )]
    Overtaken,
    /// Stop the other process, or wait until it has stopped: it writes to the store.
    #[error(
        "the store is in use by another process ({0}): stop that one first; a server can read the \
         store with --mode=reader"
    )]
    InUse(String),
    /// Give up: the store is not the one that this process has opened.
    #[error("this process has lost its store and may no longer write to it: {0}")]
    Lost(String),
    /// Restore the manifest, or start a new store: there are objects of a store without it.
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
        /// The damaged key or object.
        location: String,
        /// Expected and found content.
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

/// Formats a size with a binary unit, such as `4.02 GiB`.
fn binary_size(bytes: usize) -> String {
    let unit =
        [("GiB", 30), ("MiB", 20), ("KiB", 10)].into_iter().find(|(_, bits)| bytes >> bits > 0);
    let Some((unit, bits)) = unit else { return format!("{bytes} B") };
    let number = format!("{:.2}", bytes as f64 / (1_u64 << bits) as f64);
    format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_millis() as f64 / 1000.0)
}

impl From<StoreError> for SourceError {
    fn from(error: StoreError) -> SourceError {
        match error {
            StoreError::Budget(error) => SourceError::Budget(error),
            StoreError::Corrupt { location, detail } => {
                SourceError::Corrupt { series: String::new(), location, detail }
            }
            error => SourceError::Unavailable(error.to_string()),
        }
    }
}
