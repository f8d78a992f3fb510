//! Deletes that the head applies in turns with commits.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Core;
use crate::error::StoreError;
use crate::log::commit::Log;

impl Core {
    /// Drops deleted samples from the head, in turns with commits.
    ///
    /// Errors: damaged samples in memory; they are kept, all others are dropped.
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
            // A task that waits for the log runs before the next turn.
            self.take_turn(self.log.lock().await).await;
        }
    }

    /// Does one turn of the deletes in progress: searches the series of one delete, without the
    /// lock, or drops the deleted samples of a few series.
    pub(crate) async fn take_turn(self: &Arc<Self>, mut log: tokio::sync::MutexGuard<'_, Log>) {
        let Some((epoch, selectors)) = log.next_search() else {
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

    /// Locks the log at a time when the head has no deleted samples.
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
