//! Commits what waits: the first in the queue leads until nobody waits.

use std::sync::Arc;

use crate::error::StoreError;
use crate::log::commit::Done;
use crate::log::queue::Pending;

use super::maintain::is_head_large;
use crate::core::Core;

/// Refuses everyone who waits if the leader ends in the middle.
struct Leading {
    core: Arc<Core>,
    /// Whether it ended by itself; then another may lead already.
    is_done: bool,
}

impl Drop for Leading {
    fn drop(&mut self) {
        if !self.is_done {
            let detail = "the task that commits has ended".to_owned();
            self.core.queue.fail(&StoreError::Unavailable(detail));
        }
        self.core.idle.notify_waiters();
    }
}

/// Commits group by group until nobody waits.
pub(super) async fn lead(core: Arc<Core>) {
    let mut leading = Leading { core: Arc::clone(&core), is_done: false };
    loop {
        let mut log = core.log.lock().await;
        let pause = log
            .committed_at
            .and_then(|at| core.options.commit_interval_min.checked_sub(at.elapsed()));
        if let Some(pause) = pause
            && !pause.is_zero()
        {
            // Seals and deletes have the log meanwhile.
            drop(log);
            tokio::time::sleep(pause).await;
            log = core.log.lock().await;
        }
        let group = core.queue.take();
        if group.is_empty() {
            leading.is_done = true;
            return;
        }
        let weight = group.iter().map(Pending::weight).sum();
        let done = |committed: Option<Done>| {
            core.queue.release(weight);
            if let Some(done) = committed {
                note(&core, done);
            }
        };
        let (keeping, time) = (core.keeping(), core.retention_time());
        let (bounds, borders) = (core.bounds(&keeping, time), keeping.borders(time));
        let result = log.commit(&core.log_target(), bounds, &borders, group, done).await;
        if let Err(error) = result {
            tracing::error!(%error, "a write to the log has failed; the store takes no more");
            core.queue.fail(&error);
        }
    }
}

fn note(core: &Core, done: Done) {
    core.log_counters.note_commit(done);
    if done.log_bytes_open > core.options.log_bytes_max || is_head_large(core) {
        core.log_is_large.notify_one();
    }
}
