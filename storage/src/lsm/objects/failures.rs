//! Failed writes to the object store: SlateDB retries them without end, and without a message.

use std::error::Error as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use slatedb::object_store::Error;
use slatedb::object_store::path::Path;
use tokio::sync::watch;
use tokio::time::Instant;

/// Minimum interval between log messages of failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum length of a reason.
const REASON_BYTES_MAX: usize = 300;

/// Last failed write.
#[derive(Debug, Default)]
pub(in crate::lsm) struct Failures {
    last: Mutex<Option<Failure>>,
    /// Receives the reason of each failure, if set.
    watched: Option<watch::Sender<Option<String>>>,
}

#[derive(Debug)]
struct Failure {
    at: Instant,
    logged_at: Instant,
    reason: String,
}

impl Failures {
    /// Creates an empty record; the reason of each failure is sent to `watched`.
    pub(in crate::lsm) fn watched_by(watched: Option<watch::Sender<Option<String>>>) -> Failures {
        Failures { last: Mutex::default(), watched }
    }

    /// Records the result of a write. A failed precondition is no failure.
    pub(in crate::lsm) fn note<T>(&self, path: &Path, result: &Result<T, Error>) {
        let Err(error) = result else { return };
        if !slatedb_common::retry::should_retry(error) {
            return;
        }
        let reason = reason_of(error);
        if let Some(watched) = &self.watched {
            watched.send_replace(Some(reason.clone()));
        }
        let at = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let told = last.as_ref().map(|last| last.logged_at);
        let is_logged = told.is_some_and(|logged_at| logged_at + LOG_INTERVAL > at);
        if !is_logged {
            tracing::warn!(%path, reason, "write to the object store failed; it is retried");
        }
        let logged_at = told.filter(|_| is_logged).unwrap_or(at);
        *last = Some(Failure { at, logged_at, reason });
    }

    /// Returns the reason of the last failure, if it occurred within `span`.
    pub(in crate::lsm) fn within(&self, span: Duration) -> Option<String> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|last| last.at.elapsed() <= span).map(|last| last.reason.clone())
    }
}

/// Returns the operating system's error, such as `No space left on device (os error 28)`, or else
/// the whole error.
fn reason_of(error: &Error) -> String {
    let mut cause = error.source();
    let mut of_system = None;
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && error.raw_os_error().is_some()
        {
            of_system = Some(error.to_string());
        }
        cause = error.source();
    }
    let mut reason = of_system.unwrap_or_else(|| error.to_string());
    if reason.len() > REASON_BYTES_MAX {
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
        reason.push('…');
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(source: Box<dyn std::error::Error + Send + Sync>) -> Result<(), Error> {
        Err(Error::Generic { store: "test", source })
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_reason_is_reported_for_a_while() {
        let (failures, path) = (Failures::default(), Path::from("wal/1.sst"));
        let is_full = std::io::Error::from_raw_os_error(28);
        failures.note(&path, &failed(Box::new(is_full)));
        let not_found = Error::NotFound { path: String::new(), source: "is no failure".into() };
        failures.note::<()>(&path, &Err(not_found));
        let span = Duration::from_secs(10);
        let expected = "No space left on device (os error 28)";
        assert_eq!(failures.within(span).as_deref(), Some(expected));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(failures.within(span), None);
    }

    #[test]
    fn a_long_reason_is_cut_short() {
        let long = "é".repeat(400);
        let reason = reason_of(&failed(long.into()).unwrap_err());
        assert!(reason.len() <= REASON_BYTES_MAX + '…'.len_utf8(), "{}", reason.len());
        assert!(reason.ends_with("é…"), "{reason}");
    }
}
