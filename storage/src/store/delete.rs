//! Deletes in turns with commits.

use std::sync::Arc;

use model::{Matcher, TimeRange};
use tokio::sync::oneshot;

use crate::error::StoreError;

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
    // Last, as in a commit.
    core.head.changes.note(start_ms);
    dropped
}

/// Makes a delete durable and masks the covered samples; the head drops them in turns.
pub(crate) async fn begin_delete(
    core: &Core,
    selectors: Vec<Vec<Matcher>>,
    range: TimeRange,
) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
    let mut log = core.log.lock().await;
    core.tombstones.admit(&selectors)?;
    let tombstone = log.end_epoch(&core.lsm, selectors, range).await?;
    let dropped = log.begin_drop(&tombstone);
    // Before the head drops samples, so that samples in a running seal are masked.
    core.tombstones.put(tombstone);
    Ok(dropped)
}
