//! Background maintenance: seals, retention, cleanup.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::delete::TOMBSTONES_MAX;
use crate::error::StoreError;
use crate::expiry;
use crate::parallel::shares::apart;
use crate::seal;

use crate::core::Core;

/// Interval of the background task.
const MAINTAIN_INTERVAL: Duration = Duration::from_secs(15);
/// Time after a failure until the cleanup of deletes, or the replacement of samples by summaries, is
/// tried again.
const RETRY_AFTER_MS: i64 = 3_600_000;

/// Work of a round of maintenance.
pub(super) struct Round {
    /// True if any window was sealed.
    has_sealed: bool,
    /// True if more samples are to be replaced by summaries.
    pub(super) has_more: bool,
}

/// Runs one round of maintenance.
pub(super) async fn maintain(core: &Arc<Core>) -> Result<Round, StoreError> {
    core.lsm.collect_orphans().await;
    expiry::expire(core).await?;
    if expiry::has_deleted_records(core).await {
        seal::seal(core, seal::SealExtent::All).await?;
    }
    expiry::delete_expired(core).await?;
    seal::tidy(core).await?;
    let is_large =
        core.log.lock().await.bytes() > core.options.log_bytes_max || is_head_large(core);
    let extent = if is_large { seal::SealExtent::All } else { seal::SealExtent::Closed };
    let has_sealed = seal::seal(core, extent).await?;
    let has_more = summarize_if_due(core).await?;
    clean_if_due(core).await?;
    Ok(Round { has_sealed, has_more })
}

/// Returns whether the head has reached the memory size from which it is sealed early.
pub(super) fn is_head_large(core: &Core) -> bool {
    core.head.bytes() >= core.head.limits().seal_bytes_min()
}

/// Replaces samples by summaries, some in each round. Returns whether there are more.
async fn summarize_if_due(core: &Arc<Core>) -> Result<bool, StoreError> {
    if !is_due(core, &core.summarize_from_ms) {
        return Ok(false);
    }
    let result = seal::summarize_expired(core).await;
    let has_more = matches!(result, Ok(true));
    if let Some(error) = delayed(core, &core.summarize_from_ms, result.err())? {
        tracing::error!(%error, "failed to replace samples by summaries; retrying in an hour");
    }
    Ok(has_more)
}

/// Cleans up deletes if there are many, or if rules have expired the end of a day.
async fn clean_if_due(core: &Arc<Core>) -> Result<(), StoreError> {
    let is_wanted = core.tombstones.counts().0 >= TOMBSTONES_MAX / 2
        || expiry::is_cleaning_due(core, &core.keeping());
    if !is_wanted || !is_due(core, &core.clean_from_ms) {
        return Ok(());
    }
    let result = seal::clean_tombstones(core).await;
    if let Some(error) = delayed(core, &core.clean_from_ms, result.err())? {
        tracing::error!(%error, "failed to clean up deletes; retrying in an hour");
    }
    Ok(())
}

fn is_due(core: &Core, from_ms: &AtomicI64) -> bool {
    let now_ms = core.options.clock.now_ms();
    now_ms >= from_ms.load(Ordering::Relaxed) && !core.is_closing.load(Ordering::Relaxed)
}

/// Delays the next attempt after a failure, and returns the failure. Other maintenance goes on.
///
/// Errors: failures that end writes.
fn delayed(
    core: &Core,
    from_ms: &AtomicI64,
    failure: Option<StoreError>,
) -> Result<Option<StoreError>, StoreError> {
    match failure {
        None => Ok(None),
        Some(StoreError::Closed) if core.is_closing.load(Ordering::Relaxed) => Ok(None),
        Some(error) if error.ends_writes() => Err(error),
        Some(error) => {
            let now_ms = core.options.clock.now_ms();
            from_ms.store(now_ms.saturating_add(RETRY_AFTER_MS), Ordering::Relaxed);
            Ok(Some(error))
        }
    }
}

/// Expires samples by rules of the retention, until writes to the store end.
pub(super) async fn expire_forever(core: Arc<Core>) {
    loop {
        match expiry::expire(&core).await {
            Ok(()) => {}
            Err(error) if error.ends_writes() => return,
            Err(error) => tracing::error!(%error, "failed to apply retention rules"),
        }
        tokio::select! {
            () = tokio::time::sleep(MAINTAIN_INTERVAL) => {}
            () = core.has_retention.notified() => {}
        }
    }
}

/// Keeps the series of the head in the order of their labels, also while others maintain the store.
pub(super) async fn order_forever(core: Arc<Core>) {
    loop {
        let shared = Arc::clone(&core);
        // It fails only while the process ends.
        let _ = apart(move || shared.head.keep_order()).await;
        tokio::time::sleep(MAINTAIN_INTERVAL).await;
    }
}

pub(super) async fn maintain_forever(core: Arc<Core>) {
    let (mut has_failed, mut has_more) = (false, false);
    loop {
        tokio::select! {
            () = std::future::ready(()), if has_more => {}
            () = tokio::time::sleep(MAINTAIN_INTERVAL) => {}
            // After a failure, commits must not trigger an immediate retry.
            () = core.maintenance_wanted.notified(), if !has_failed => {}
        }
        let round = maintain(&core).await;
        has_more = round.as_ref().is_ok_and(|round| round.has_more);
        let result = match round {
            Ok(Round { has_sealed: true, .. }) => seal::write_out(&core).await,
            other => other.map(drop),
        };
        has_failed = result.is_err();
        match result {
            Ok(()) => {}
            Err(error) if error.ends_writes() => {
                tracing::error!(%error, "background maintenance has ended");
                return;
            }
            Err(error) => tracing::error!(%error, "background maintenance failed"),
        }
    }
}
