//! Fair scheduler: as many slots for computing threads as there are cores.
//!
//! A query thread computes without a slot for its first few milliseconds, so short queries never
//! wait. After that it needs a slot, and yields it after a time slice if another thread waits.
//! Threads that wait for their first slot and threads that had one are served alternately, each
//! group first in, first out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use model::Budget;

use crate::error::QueryError;

/// Time that a query computes without a slot.
const FREE: Duration = Duration::from_millis(5);
/// Minimum yield points without a slot: on a busy machine, time passes without computing.
const FREE_YIELDS: u32 = 16;
/// Time slice: a thread keeps its slot this long while other threads wait.
const SLICE: Duration = Duration::from_millis(20);
/// Interval at which a waiting thread checks its budget.
const BUDGET_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Slots of an engine.
#[derive(Debug)]
pub(super) struct FairScheduler {
    state: Mutex<SchedulerState>,
    /// Number of waiting threads; changed under the lock only.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct SchedulerState {
    free: usize,
    newcomers: VecDeque<Arc<Waiter>>,
    others: VecDeque<Arc<Waiter>>,
    newcomer_is_next: bool,
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    has_slot: AtomicBool,
}

impl FairScheduler {
    /// Creates a scheduler with `count` slots.
    pub(super) fn new(count: usize) -> FairScheduler {
        let state = SchedulerState {
            free: count,
            newcomers: VecDeque::new(),
            others: VecDeque::new(),
            newcomer_is_next: true,
        };
        FairScheduler { state: Mutex::new(state), waiting: AtomicUsize::new(0) }
    }

    /// Acquires a slot if one is free.
    pub(super) fn try_acquire(&self) -> bool {
        let mut state = self.lock();
        let is_free = state.free > 0;
        state.free -= usize::from(is_free);
        is_free
    }

    /// Acquires a slot, waiting until one is free.
    ///
    /// Errors: the query timed out or was canceled.
    fn acquire(&self, budget: &Budget, is_newcomer: bool) -> Result<(), QueryError> {
        let waiter = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(());
            }
            let waiter =
                Arc::new(Waiter { thread: std::thread::current(), has_slot: false.into() });
            let queue = if is_newcomer { &mut state.newcomers } else { &mut state.others };
            queue.push_back(Arc::clone(&waiter));
            self.waiting.fetch_add(1, Ordering::Relaxed);
            waiter
        };
        loop {
            if waiter.has_slot.load(Ordering::Acquire) {
                return Ok(());
            }
            if let Err(error) = budget.check() {
                self.leave(&waiter);
                return Err(error.into());
            }
            std::thread::park_timeout(BUDGET_CHECK_INTERVAL);
        }
    }

    /// Stops waiting; passes on the slot if it was granted meanwhile.
    fn leave(&self, waiter: &Arc<Waiter>) {
        let mut state = self.lock();
        if waiter.has_slot.load(Ordering::Acquire) {
            self.pass_on(&mut state);
            return;
        }
        state.newcomers.retain(|other| !Arc::ptr_eq(other, waiter));
        state.others.retain(|other| !Arc::ptr_eq(other, waiter));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Releases a slot.
    pub(super) fn release(&self) {
        self.pass_on(&mut self.lock());
    }

    /// Returns whether a thread waits for a slot.
    pub(super) fn is_contended(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn pass_on(&self, state: &mut SchedulerState) {
        let (first, second) = if state.newcomer_is_next {
            (&mut state.newcomers, &mut state.others)
        } else {
            (&mut state.others, &mut state.newcomers)
        };
        let Some(next) = first.pop_front().or_else(|| second.pop_front()) else {
            state.free += 1;
            return;
        };
        state.newcomer_is_next = !state.newcomer_is_next;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        next.has_slot.store(true, Ordering::Release);
        next.thread.unpark();
    }

    /// Ignores poisoning: no code that may panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that computes for a query, with the slot that it may hold. Drop releases the slot.
///
/// A thread yields only between tiles, when it holds no lock. Elsewhere, `model::Checkpoint` only
/// checks the budget.
#[derive(Debug)]
pub struct QueryThread {
    scheduler: Arc<FairScheduler>,
    budget: Budget,
    started: Instant,
    /// Changed by the thread itself only.
    held: Mutex<HeldSlot>,
}

#[derive(Debug, Clone, Copy, Default)]
struct HeldSlot {
    had_slot: bool,
    yields: u32,
    /// Time at which the slot was acquired.
    since: Option<Instant>,
}

impl QueryThread {
    /// Creates the state of a thread without a slot.
    pub(super) fn new(scheduler: &Arc<FairScheduler>, budget: &Budget) -> QueryThread {
        let held = Mutex::default();
        QueryThread {
            scheduler: Arc::clone(scheduler),
            budget: budget.clone(),
            started: Instant::now(),
            held,
        }
    }

    /// Creates the state of a worker, for which a slot has been acquired.
    pub(super) fn for_worker(&self) -> QueryThread {
        let thread = QueryThread::new(&self.scheduler, &self.budget);
        *thread.held() = HeldSlot { had_slot: true, yields: 0, since: Some(thread.started) };
        thread
    }

    /// Returns whether the thread holds a slot.
    pub(super) fn has_slot(&self) -> bool {
        self.held().since.is_some()
    }

    /// Checks the budget, and yields the slot if its time slice is over and other threads wait.
    /// Loops call this at least every few milliseconds.
    ///
    /// Errors: the query timed out or was canceled.
    pub fn yield_if_due(&self) -> Result<(), QueryError> {
        self.budget.check()?;
        let HeldSlot { since, yields, .. } = {
            let mut held = self.held();
            held.yields = held.yields.saturating_add(1);
            *held
        };
        match since {
            None if yields <= FREE_YIELDS || self.started.elapsed() < FREE => Ok(()),
            None => self.acquire(),
            Some(since) if self.scheduler.is_contended() && since.elapsed() >= SLICE => {
                self.release();
                self.acquire()
            }
            Some(_) => Ok(()),
        }
    }

    /// Acquires a slot unless the thread holds one.
    ///
    /// Errors: as for [`QueryThread::yield_if_due`].
    pub(super) fn acquire(&self) -> Result<(), QueryError> {
        if self.has_slot() {
            return Ok(());
        }
        self.scheduler.acquire(&self.budget, !self.held().had_slot)?;
        let mut held = self.held();
        held.had_slot = true;
        held.since = Some(Instant::now());
        Ok(())
    }

    /// Releases the slot, if the thread holds one.
    pub fn release(&self) {
        if self.held().since.take().is_some() {
            self.scheduler.release();
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldSlot> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QueryThread {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use model::{BudgetError, BudgetLimits};

    use super::*;

    fn free(scheduler: &FairScheduler) -> usize {
        scheduler.lock().free
    }

    /// Spawns a thread that acquires a slot, sends its name and releases the slot.
    fn wait<'scope>(
        scope: &'scope std::thread::Scope<'scope, '_>,
        scheduler: &'scope FairScheduler,
        is_newcomer: bool,
        name: &'static str,
        sender: &mpsc::Sender<&'static str>,
    ) {
        let before = scheduler.waiting.load(Ordering::Relaxed);
        let sender = sender.clone();
        scope.spawn(move || {
            scheduler.acquire(&Budget::unlimited(), is_newcomer).unwrap();
            sender.send(name).unwrap();
            scheduler.release();
        });
        while scheduler.waiting.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
    }

    #[test]
    fn newcomers_and_others_are_served_alternately() {
        let scheduler = FairScheduler::new(1);
        assert!(scheduler.try_acquire() && !scheduler.try_acquire());
        let (sender, names) = mpsc::channel();
        std::thread::scope(|scope| {
            for (is_newcomer, name) in
                [(false, "a"), (false, "b"), (true, "n"), (false, "c"), (true, "o"), (true, "p")]
            {
                wait(scope, &scheduler, is_newcomer, name, &sender);
            }
            scheduler.release();
        });
        let order: Vec<_> = names.try_iter().collect();
        assert_eq!(order, ["n", "a", "o", "b", "p", "c"]);
        assert_eq!((free(&scheduler), scheduler.is_contended()), (1, false));
    }

    #[test]
    fn waiting_ends_with_the_query() {
        let scheduler = FairScheduler::new(0);
        let canceled = Budget::unlimited();
        canceled.cancel();
        let timed_out =
            Budget::new(BudgetLimits { timeout: Some(Duration::ZERO), ..BudgetLimits::default() });
        for (budget, expected) in
            [(canceled, BudgetError::Canceled), (timed_out, BudgetError::TimedOut(Duration::ZERO))]
        {
            let error = scheduler.acquire(&budget, true).unwrap_err();
            assert_eq!(error.to_string(), expected.to_string());
            assert!(!scheduler.is_contended());
        }
        scheduler.release();
        assert_eq!(free(&scheduler), 1);
    }

    #[test]
    fn drop_releases_the_slot() {
        let scheduler = Arc::new(FairScheduler::new(2));
        let thread = QueryThread::new(&scheduler, &Budget::unlimited());
        for _ in 0..FREE_YIELDS {
            thread.yield_if_due().unwrap();
            assert!(!thread.has_slot());
        }
        thread.acquire().unwrap();
        assert!(scheduler.try_acquire());
        let helper = thread.for_worker();
        assert_eq!(free(&scheduler), 0);
        helper.yield_if_due().unwrap();
        drop(helper);
        drop(thread);
        assert_eq!(free(&scheduler), 2);
    }
}
