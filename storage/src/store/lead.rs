//! Commits what waits: the first in the queue leads until nobody waits.

use std::sync::Arc;

use crate::error::StoreError;
use crate::head::commit::{Done, Pending};

use super::Inner;
use super::maintain::is_head_large;

/// Refuses everyone who waits if the leader ends in the middle.
struct Leading {
    inner: Arc<Inner>,
    /// Whether it ended by itself; then another may lead already.
    is_done: bool,
}

impl Drop for Leading {
    fn drop(&mut self) {
        if !self.is_done {
            let detail = "the task that commits has ended".to_owned();
            self.inner.queue.fail(&StoreError::Unavailable(detail));
        }
        self.inner.idle.notify_waiters();
    }
}

/// Commits group by group until nobody waits.
pub(super) async fn lead(inner: Arc<Inner>) {
    let mut leading = Leading { inner: Arc::clone(&inner), is_done: false };
    loop {
        let mut log = inner.log.lock().await;
        let pause = log
            .committed_at
            .and_then(|at| inner.options.commit_interval_min.checked_sub(at.elapsed()));
        if let Some(pause) = pause
            && !pause.is_zero()
        {
            // Seals and deletes have the log meanwhile.
            drop(log);
            tokio::time::sleep(pause).await;
            log = inner.log.lock().await;
        }
        let group = inner.queue.take();
        if group.is_empty() {
            leading.is_done = true;
            return;
        }
        let weight = group.iter().map(Pending::weight).sum();
        let done = |committed: Option<Done>| {
            inner.queue.release(weight);
            if let Some(done) = committed {
                note(&inner, done);
            }
        };
        let (keeping, time) = (inner.keeping(), inner.retention_time());
        let bounds = (inner.bounds(&keeping, time), &keeping.borders(time));
        let result = log.commit(&inner.lsm, &inner.head, bounds, group, done).await;
        if let Err(error) = result {
            tracing::error!(%error, "a write to the log has failed; the store takes no more");
            inner.queue.fail(&error);
        }
    }
}

fn note(inner: &Inner, done: Done) {
    inner.counters.note_commit(done);
    if done.log_bytes_open > inner.options.log_bytes_max || is_head_large(inner) {
        inner.log_is_large.notify_one();
    }
}
