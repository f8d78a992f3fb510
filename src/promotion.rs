//! Command to a standby to become the writer, and the outcome of its attempts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard, watch};

/// Maximum time for which a command waits for its outcome.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// Command and outcome, shared by the handler of `/-/promote` and the task of the standby.
pub(crate) struct Promotion {
    commanded: watch::Sender<bool>,
    /// Outcome of the last attempt.
    ended: watch::Sender<Result<(), String>>,
    /// Held during an attempt with a claimed store.
    underway: Arc<Mutex<()>>,
}

impl Promotion {
    /// Returns a command that is given at the start, or not.
    pub(crate) fn new(is_commanded: bool) -> Promotion {
        let commanded = watch::Sender::new(is_commanded);
        Promotion { commanded, ended: watch::Sender::new(Ok(())), underway: Arc::default() }
    }

    /// Commands the standby to take the store from its writer, and waits for the attempt, unless
    /// `is_done` returns that it accepts writes.
    ///
    /// Errors: the reason for which it is still a standby.
    pub(crate) async fn command(&self, is_done: impl Fn() -> bool) -> Result<(), String> {
        let mut ended = self.ended.subscribe();
        // An attempt that ended before the subscription is not notified.
        if is_done() {
            return Ok(());
        }
        self.commanded.send_replace(true);
        match tokio::time::timeout(COMMAND_TIMEOUT, ended.changed()).await {
            // The sender is `self`.
            Ok(_) => ended.borrow().clone(),
            Err(_) => Err(format!("no outcome within {} s", COMMAND_TIMEOUT.as_secs())),
        }
    }

    /// Begins an attempt with a claimed store. The guard ends it.
    pub(crate) async fn begin(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.underway).lock_owned().await
    }

    /// Waits until no attempt is under way, at most for `limit`.
    pub(crate) async fn wait_for_end(&self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.underway.lock()).await;
    }

    /// Returns the command, for a claim that waits for it.
    pub(crate) fn commanded(&self) -> watch::Receiver<bool> {
        self.commanded.subscribe()
    }

    /// Answers the command with the outcome of an attempt.
    pub(crate) fn end(&self, outcome: Result<(), String>) {
        self.commanded.send_replace(false);
        drop(self.ended.send_replace(outcome));
    }
}
