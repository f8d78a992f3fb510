//! Deletes in turns with commits.

use std::sync::Arc;

use model::{Matcher, TimeRange};
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::log::commit::Log;

use crate::core::Core;

/// Deletes samples: durable, then dropped and masked, then acknowledged.
pub(super) async fn delete(
    core: Arc<Core>,
    selectors: Vec<Vec<Matcher>>,
    start_ms: i64,
    end_ms: i64,
) -> Result<(), StoreError> {
    let dropped = match begin_delete(&core, selectors, TimeRange { start_ms, end_ms }).await {
        Ok(dropped) => core.drop_deleted(dropped).await,
        Err(error) => Err(error),
    };
    // Last, as for a write.
    core.head.changes.note(start_ms);
    dropped
}

/// Makes a delete durable, and has it masked; the head drops what it covers in turns.
pub(crate) async fn begin_delete(
    core: &Core,
    selectors: Vec<Vec<Matcher>>,
    range: TimeRange,
) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
    let mut log = core.log.lock().await;
    core.tombstones.admit(&selectors)?;
    let tombstone = log.end_epoch(&core.lsm, selectors, range).await?;
    let dropped = log.begin_drop(&tombstone);
    // Before the head drops anything: what a seal under way has taken from it is masked.
    core.tombstones.put(tombstone);
    Ok(dropped)
}

impl Core {
    /// Has the head drop what has been deleted, in turns with whoever commits.
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
            log.drop_some(&self.head);
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
