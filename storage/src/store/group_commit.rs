//! Leader of group commits: takes the waiting writes, commits them, and answers.

use std::sync::Arc;

use crate::error::StoreError;
use crate::log::commit::CommitCounts;
use crate::log::queue::PendingWrite;

use super::maintain::is_head_large;
use crate::core::Core;

/// Guard of the leader: refuses all waiting writes if the task ends before its queue is empty.
struct Leading {
    core: Arc<Core>,
    /// Set once the queue was empty; then another task may lead already.
    is_done: bool,
}

impl Drop for Leading {
    fn drop(&mut self) {
        if !self.is_done {
            let detail = "the commit task has ended".to_owned();
            self.core.queue.fail(&StoreError::Unavailable(detail));
        }
        self.core.idle.notify_waiters();
    }
}

/// Commits group by group until the queue is empty.
pub(super) async fn lead(core: Arc<Core>) {
    let mut leading = Leading { core: Arc::clone(&core), is_done: false };
    loop {
        let mut log = core.log.lock().await;
        let pause = log
            .write_started_at
            .and_then(|at| core.options.commit_interval_min.checked_sub(at.elapsed()));
        if let Some(pause) = pause
            && !pause.is_zero()
        {
            // Seals and deletes may lock the log during the pause.
            drop(log);
            tokio::time::sleep(pause).await;
            log = core.log.lock().await;
        }
        let mut group = core.queue.take();
        if group.is_empty() {
            leading.is_done = true;
            return;
        }
        let (keeping, time) = (core.keeping(), core.observe_retention_time());
        let (bounds, floors) = (core.bounds(&keeping, time), keeping.floors(time));
        let result = log.commit(&core.log_target(), bounds, &floors, &mut group).await;
        core.queue.release(group.iter().map(PendingWrite::weight).sum());
        match result {
            Ok(committed) => {
                note(&core, committed.counts);
                for (pending, outcome) in group.into_iter().zip(committed.outcomes) {
                    pending.answer(Ok(outcome));
                }
            }
            Err(error) => {
                for pending in group {
                    pending.answer(Err(error.clone()));
                }
                tracing::error!(%error, "failed to write to the log; refusing all further writes");
                core.queue.fail(&error);
            }
        }
    }
}

fn note(core: &Core, counts: CommitCounts) {
    core.log_counters.note_commit(counts);
    if counts.log_bytes_open > core.options.log_bytes_max || is_head_large(core) {
        core.maintenance_wanted.notify_one();
    }
}
