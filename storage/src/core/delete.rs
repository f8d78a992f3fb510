//! Deletes that the head carries out in turns with commits.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Core;
use crate::error::StoreError;
use crate::log::commit::Log;

impl Core {
    /// Drops deleted samples from the head, in turns with commits.
    ///
    /// Errors: something in memory cannot be read; it stays, the rest goes.
    pub(crate) async fn drop_deleted(
        self: &Arc<Self>,
        mut dropped: oneshot::Receiver<Result<(), StoreError>>,
    ) -> Result<(), StoreError> {
        loop {
            match dropped.try_recv() {
                Ok(result) => return result,
                Err(oneshot::error::TryRecvError::Empty) => {}
                Err(error) => return Err(StoreError::Unavailable(error.to_string())),
            }
            // Whoever waits for the log comes before the next turn.
            self.take_turn(self.log.lock().await).await;
        }
    }

    /// One turn of the deletes that go on: the series of one are found, beside the lock, or some drop
    /// what is deleted.
    pub(crate) async fn take_turn(self: &Arc<Self>, mut log: tokio::sync::MutexGuard<'_, Log>) {
        let Some((epoch, selectors)) = log.sought() else {
            log.drop_some(&self.head, self.options.sizes.drop_series_max);
            drop(log);
            return tokio::task::yield_now().await;
        };
        drop(log);
        let shared = Arc::clone(self);
        let finding = tokio::task::spawn_blocking(move || shared.head.covered(&selectors));
        let found = finding.await.map_err(|error| StoreError::Unavailable(error.to_string()));
        self.log.lock().await.note_found(epoch, found.flatten());
    }

    /// The log, at a time when the head holds nothing that has been deleted.
    pub(crate) async fn log_without_deleted(self: &Arc<Self>) -> tokio::sync::MutexGuard<'_, Log> {
        loop {
            let log = self.log.lock().await;
            if !log.is_dropping() {
                return log;
            }
            self.take_turn(log).await;
        }
    }
}
