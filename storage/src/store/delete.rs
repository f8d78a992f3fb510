//! Deletes in turns with commits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Matcher, TimeRange};
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::window::{PartitionId, Window};

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

/// Checks that a delete covers whole windows where summaries replace samples.
fn check_windows(core: &Core, range: TimeRange) -> Result<(), StoreError> {
    let before_ms = core.summarized_before_ms.load(Ordering::Acquire);
    let first = core.read_partitions(|all| all.keys().next().copied());
    let Some(first_ms) = first.map(PartitionId::start_ms) else { return Ok(()) };
    let is_inside = |time_ms: i64| time_ms > first_ms && time_ms < before_ms;
    let divides = |time_ms: i64| is_inside(time_ms) && Window::of(time_ms).start_ms() != time_ms;
    if divides(range.start_ms) || divides(range.end_ms.saturating_add(1)) {
        return Err(StoreError::OnlySummaries { before_ms });
    }
    Ok(())
}

/// Makes a delete durable and masks the covered samples; the head drops them in turns.
pub(crate) async fn begin_delete(
    core: &Core,
    selectors: Vec<Vec<Matcher>>,
    range: TimeRange,
) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
    let mut log = core.log.lock().await;
    core.tombstones.admit(&selectors)?;
    check_windows(core, range)?;
    let tombstone = log.end_epoch(&core.lsm, selectors, range).await?;
    let dropped = log.begin_drop(&tombstone);
    // Before the head drops samples, so that samples in a running seal are masked.
    core.tombstones.put(tombstone);
    Ok(dropped)
}
