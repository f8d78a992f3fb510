//! Limits on queries that run at once, and on those that wait for a slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::tenancy::LimitExceeded;

/// Maximum number of concurrent trials while every slot is taken.
const TRIALS_MAX: usize = 8;

/// Slots for queries with a bounded queue, and a few more slots for trials of short queries.
#[derive(Debug)]
pub struct Gate {
    slots: Arc<Semaphore>,
    slots_max: usize,
    trials: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_max: usize,
    entered: AtomicU64,
}

/// Error of a query that gets no slot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Retry: the queue is full.
    #[error("{waiting} queries are waiting to run, the limit is {limit} (--query.max-queue)")]
    QueueFull {
        /// Queries that would wait, this one included.
        waiting: usize,
        /// The limit.
        limit: usize,
    },
    /// Retry: a tenant runs too many queries.
    #[error(transparent)]
    Tenant(#[from] LimitExceeded),
    /// Retry, or allow more time: no slot was free in time.
    #[error("query timed out in query queue")]
    TimedOut,
}

/// Stage of the work that a slot is requested for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PermitRequest {
    /// The work starts.
    First,
    /// The work continues after a pause without a slot.
    Again,
}

/// Permit for a slot, released when it is dropped.
#[derive(Debug)]
pub struct QueryPermit {
    _permit: OwnedSemaphorePermit,
    /// Time spent in the queue.
    pub waited: Duration,
}

/// Counts a waiting query until it is dropped, so that canceled futures leave the queue.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    /// Returns a gate with a number of slots and a maximum queue length.
    pub fn new(slots_max: usize, waiting_max: usize) -> Gate {
        let slots_max = slots_max.min(Semaphore::MAX_PERMITS);
        Gate {
            slots: Arc::new(Semaphore::new(slots_max)),
            slots_max,
            trials: Arc::new(Semaphore::new(TRIALS_MAX)),
            waiting: AtomicUsize::new(0),
            waiting_max,
            entered: AtomicU64::new(0),
        }
    }

    /// Returns a permit if a slot is free and no query waits.
    pub fn try_enter(&self) -> Option<QueryPermit> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        Some(self.permit(permit, Duration::ZERO))
    }

    /// Returns a permit for a trial under low limits, so that short queries do not wait for long
    /// ones. A query that exceeds them has to enter.
    pub fn try_trial(&self) -> Option<QueryPermit> {
        let permit = Arc::clone(&self.trials).try_acquire_owned().ok()?;
        Some(self.permit(permit, Duration::ZERO))
    }

    /// Returns whether the queue is full.
    pub fn is_full(&self) -> bool {
        self.waiting() >= self.waiting_max
    }

    /// Waits for a permit in the order of arrival.
    ///
    /// Errors: the queue is full, or no slot is free within `timeout`.
    pub async fn enter(&self, timeout: Duration) -> Result<QueryPermit, GateError> {
        self.enter_as(PermitRequest::First, timeout).await
    }

    /// Waits for a permit; work that continues is exempt from the limit of the queue.
    ///
    /// Errors: those of [`Gate::enter`].
    pub(crate) async fn enter_as(
        &self,
        request: PermitRequest,
        timeout: Duration,
    ) -> Result<QueryPermit, GateError> {
        if let Some(permit) = self.try_enter() {
            return Ok(permit);
        }
        let started = Instant::now();
        let waiting = 1 + self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = Waiting(&self.waiting);
        if request == PermitRequest::First && waiting > self.waiting_max {
            return Err(GateError::QueueFull { waiting, limit: self.waiting_max });
        }
        let slots = Arc::clone(&self.slots);
        let permit = match tokio::time::timeout(timeout, slots.acquire_owned()).await {
            Ok(permit) => permit.expect("the semaphore is never closed"),
            Err(_) => return Err(GateError::TimedOut),
        };
        drop(guard);
        Ok(self.permit(permit, started.elapsed()))
    }

    fn permit(&self, permit: OwnedSemaphorePermit, waited: Duration) -> QueryPermit {
        self.entered.fetch_add(1, Ordering::Relaxed);
        QueryPermit { _permit: permit, waited }
    }

    /// Permits granted since the start.
    pub fn entered(&self) -> u64 {
        self.entered.load(Ordering::Relaxed)
    }

    /// Number of slots, without those for trials.
    pub fn slots_max(&self) -> usize {
        self.slots_max
    }

    /// Queries that run, trials included.
    pub fn running(&self) -> usize {
        let trials = TRIALS_MAX - self.trials.available_permits();
        self.slots_max - self.slots.available_permits() + trials
    }

    /// Queries that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_full_queue_refuses_and_names_the_limit() {
        let gate = Gate::new(1, 1);
        let permit = gate.enter(LONG).await.unwrap();
        let mut second = Box::pin(gate.enter(LONG));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!((gate.running(), gate.waiting()), (1, 1));
        assert!(gate.try_enter().is_none() && gate.is_full());
        let error = gate.enter(LONG).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "2 queries are waiting to run, the limit is 1 (--query.max-queue)"
        );
        drop(permit);
        let permit = second.await.unwrap();
        assert_eq!((gate.running(), gate.waiting()), (1, 0));
        drop(permit);
        assert_eq!(gate.running(), 0);
    }

    #[tokio::test]
    async fn trials_are_few_and_wait_for_nothing() {
        let gate = Gate::new(1, 0);
        let _running = gate.enter(LONG).await.unwrap();
        let trials: Vec<_> = std::iter::from_fn(|| gate.try_trial()).collect();
        assert_eq!((trials.len(), gate.running()), (TRIALS_MAX, 1 + TRIALS_MAX));
        assert!(gate.try_enter().is_none());
        drop(trials);
        assert!(gate.try_trial().is_some());
        assert_eq!(gate.running(), 1);
    }

    #[tokio::test]
    async fn a_dropped_query_leaves_the_queue() {
        let gate = Gate::new(1, 1);
        let _running = gate.enter(LONG).await.unwrap();
        let mut waiting = Box::pin(gate.enter(LONG));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(waiting);
        assert_eq!(gate.waiting(), 0);
    }

    #[tokio::test]
    async fn waiting_ends_at_the_timeout() {
        let gate = Gate::new(1, 1);
        let _running = gate.enter(LONG).await.unwrap();
        assert_eq!(gate.enter(Duration::ZERO).await.unwrap_err(), GateError::TimedOut);
        assert_eq!(gate.waiting(), 0);
    }
}
