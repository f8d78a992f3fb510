//! Command to a standby to become the writer, and the outcome of its attempts.

use tokio::sync::watch;

/// Command and outcome, shared by the handler of `/-/promote` and the task of the standby.
pub(crate) struct Promotion {
    commanded: watch::Sender<bool>,
    /// Outcome of the last attempt.
    ended: watch::Sender<Result<(), String>>,
}

impl Promotion {
    /// Returns a command that is given at the start, or not.
    pub(crate) fn new(is_commanded: bool) -> Promotion {
        Promotion { commanded: watch::Sender::new(is_commanded), ended: watch::Sender::new(Ok(())) }
    }

    /// Commands the standby to take the store from its writer, and waits for the attempt.
    ///
    /// Errors: the reason for which it is still a standby.
    pub(crate) async fn command(&self) -> Result<(), String> {
        let mut ended = self.ended.subscribe();
        self.commanded.send_replace(true);
        // The sender is `self`.
        let _ = ended.changed().await;
        ended.borrow().clone()
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
