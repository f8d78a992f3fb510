//! How many queries run at once, and how many may wait for a place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many queries are tried at once while every place is taken.
const TRIALS_MAX: usize = 8;

/// A number of places, with a bounded queue in front of them, and a few more where short queries
/// show that they are.
#[derive(Debug)]
pub struct Gate {
    places: Arc<Semaphore>,
    places_max: usize,
    trials: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_max: usize,
    entered: AtomicU64,
}

/// Why there is no place for a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Come back: as many queries wait as may.
    #[error("{waiting} queries are waiting to run, the limit is {limit} (--query.max-queue)")]
    QueueFull {
        /// How many would wait with this one.
        waiting: usize,
        /// How many may.
        limit: usize,
    },
    /// Come back, or allow more time: no place came free in time.
    #[error("query timed out in query queue")]
    TimedOut,
}

/// Occasion on which a place is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PermitRequest {
    /// The work begins.
    First,
    /// The work goes on, after its place was given back while it waited for something else.
    Again,
}

/// A place. It is free again once this is dropped.
#[derive(Debug)]
pub struct QueryPermit {
    _permit: OwnedSemaphorePermit,
    /// How long it took to get it.
    pub waited: Duration,
}

/// Counts one who waits, also where the future is dropped meanwhile.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    /// A gate with so many places and so long a queue.
    pub fn new(places_max: usize, waiting_max: usize) -> Gate {
        let places_max = places_max.min(Semaphore::MAX_PERMITS);
        Gate {
            places: Arc::new(Semaphore::new(places_max)),
            places_max,
            trials: Arc::new(Semaphore::new(TRIALS_MAX)),
            waiting: AtomicUsize::new(0),
            waiting_max,
            entered: AtomicU64::new(0),
        }
    }

    /// A place if one is free, which none is while others wait.
    pub fn try_enter(&self) -> Option<QueryPermit> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(self.place(permit, Duration::ZERO))
    }

    /// A place for a query that may hold and do little, and that waits for another place where
    /// that is not enough for it. So short queries do not wait for long ones.
    pub fn try_trial(&self) -> Option<QueryPermit> {
        let permit = Arc::clone(&self.trials).try_acquire_owned().ok()?;
        Some(self.place(permit, Duration::ZERO))
    }

    /// Whether as many queries wait as may.
    pub fn is_full(&self) -> bool {
        self.waiting() >= self.waiting_max
    }

    /// Waits for a place, in the order of arrival, at most for the given time.
    ///
    /// Errors: a full queue at once, a place that does not come free in time.
    pub async fn enter(&self, timeout: Duration) -> Result<QueryPermit, GateError> {
        self.enter_as(PermitRequest::First, timeout).await
    }

    /// Waits for a place, which one that comes again does whatever the length of the queue.
    ///
    /// Errors: those of [`Gate::enter`].
    pub(crate) async fn enter_as(
        &self,
        entry: PermitRequest,
        timeout: Duration,
    ) -> Result<QueryPermit, GateError> {
        if let Some(place) = self.try_enter() {
            return Ok(place);
        }
        let started = Instant::now();
        let waiting = 1 + self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = Waiting(&self.waiting);
        if entry == PermitRequest::First && waiting > self.waiting_max {
            return Err(GateError::QueueFull { waiting, limit: self.waiting_max });
        }
        let places = Arc::clone(&self.places);
        let permit = match tokio::time::timeout(timeout, places.acquire_owned()).await {
            Ok(permit) => permit.expect("the semaphore is never closed"),
            Err(_) => return Err(GateError::TimedOut),
        };
        drop(guard);
        Ok(self.place(permit, started.elapsed()))
    }

    fn place(&self, permit: OwnedSemaphorePermit, waited: Duration) -> QueryPermit {
        self.entered.fetch_add(1, Ordering::Relaxed);
        QueryPermit { _permit: permit, waited }
    }

    /// How many places have been given away since the start.
    pub fn entered(&self) -> u64 {
        self.entered.load(Ordering::Relaxed)
    }

    /// How many places there are.
    pub fn places_max(&self) -> usize {
        self.places_max
    }

    /// How many queries run.
    pub fn running(&self) -> usize {
        let tried = TRIALS_MAX - self.trials.available_permits();
        self.places_max - self.places.available_permits() + tried
    }

    /// How many queries wait.
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
        let place = gate.enter(LONG).await.unwrap();
        let mut second = Box::pin(gate.enter(LONG));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!((gate.running(), gate.waiting()), (1, 1));
        assert!(gate.try_enter().is_none() && gate.is_full());
        let error = gate.enter(LONG).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "2 queries are waiting to run, the limit is 1 (--query.max-queue)"
        );
        drop(place);
        let place = second.await.unwrap();
        assert_eq!((gate.running(), gate.waiting()), (1, 0));
        drop(place);
        assert_eq!(gate.running(), 0);
    }

    #[tokio::test]
    async fn trials_are_few_and_wait_for_nothing() {
        let gate = Gate::new(1, 0);
        let _place = gate.enter(LONG).await.unwrap();
        let trials: Vec<_> = std::iter::from_fn(|| gate.try_trial()).collect();
        assert_eq!((trials.len(), gate.running()), (TRIALS_MAX, 1 + TRIALS_MAX));
        assert!(gate.try_enter().is_none());
        drop(trials);
        assert!(gate.try_trial().is_some());
        assert_eq!(gate.running(), 1);
    }

    #[tokio::test]
    async fn one_who_leaves_the_queue_makes_room() {
        let gate = Gate::new(1, 1);
        let _place = gate.enter(LONG).await.unwrap();
        let mut waiting = Box::pin(gate.enter(LONG));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(waiting);
        assert_eq!(gate.waiting(), 0);
    }

    #[tokio::test]
    async fn waiting_ends_at_the_timeout() {
        let gate = Gate::new(1, 1);
        let _place = gate.enter(LONG).await.unwrap();
        assert_eq!(gate.enter(Duration::ZERO).await.unwrap_err(), GateError::TimedOut);
        assert_eq!(gate.waiting(), 0);
    }
}
