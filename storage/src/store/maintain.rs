//! Background maintenance: seals, retention, cleanup.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::delete::TOMBSTONES_MAX;
use crate::error::StoreError;
use crate::expiry;
use crate::seal;

use crate::core::Core;

/// Interval of the background task.
const MAINTAIN_INTERVAL: Duration = Duration::from_secs(15);
/// Time after a failure until background cleanup of deletes is tried again.
const CLEAN_AGAIN_MS: i64 = 3_600_000;

/// Runs one round of maintenance. Returns whether any window was sealed.
pub(super) async fn maintain(core: &Arc<Core>) -> Result<bool, StoreError> {
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
    seal::summarize_expired(core).await?;
    clean_if_due(core).await?;
    Ok(has_sealed)
}

/// Returns whether the head has reached the memory size from which it is sealed early.
pub(super) fn is_head_large(core: &Core) -> bool {
    core.head.bytes() >= core.head.limits().seal_bytes_min()
}

/// Cleans up deletes if there are many, or if rules have expired the end of a day. A failure does
/// not stop other maintenance, and delays the next attempt.
async fn clean_if_due(core: &Arc<Core>) -> Result<(), StoreError> {
    let now_ms = core.options.clock.now_ms();
    let is_wanted = core.tombstones.counts().0 >= TOMBSTONES_MAX / 2
        || expiry::is_cleaning_due(core, &core.keeping());
    let is_due = is_wanted && now_ms >= core.clean_from_ms.load(Ordering::Relaxed);
    if !is_due || core.is_closing.load(Ordering::Relaxed) {
        return Ok(());
    }
    match seal::clean_tombstones(core).await {
        Err(StoreError::Closed) if core.is_closing.load(Ordering::Relaxed) => Ok(()),
        Err(error) if error.ends_writes() => Err(error),
        Err(error) => {
            tracing::error!(%error, "failed to clean up deletes; retrying in an hour");
            core.clean_from_ms.store(now_ms.saturating_add(CLEAN_AGAIN_MS), Ordering::Relaxed);
            Ok(())
        }
        Ok(_) => Ok(()),
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

pub(super) async fn maintain_forever(core: Arc<Core>) {
    let mut has_failed = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(MAINTAIN_INTERVAL) => {}
            // After a failure, commits must not trigger an immediate retry.
            () = core.maintenance_wanted.notified(), if !has_failed => {}
        }
        let result = match maintain(&core).await {
            Ok(true) => seal::write_out(&core).await,
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
