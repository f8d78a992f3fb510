//! Turns at computing: as many threads compute at a time as there are cores, long queries by
//! turns, and short ones at once.
//!
//! A walk that has only begun needs no turn: what is done in a few milliseconds never waits.
//! From then on it computes only while it has one, and passes it on after a slice of time if
//! another waits. Those that have had no turn yet and those that have are served alternately,
//! each in the order of their coming.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use model::Budget;

use crate::error::QueryError;

/// So long a walk computes without a turn.
const FREE: Duration = Duration::from_millis(5);
/// So often a walk pauses without a turn, however long it takes: on a machine that is busy with
/// other things, time passes without anything being computed.
const FREE_PAUSES: u32 = 16;
/// So long a turn is kept while others wait.
const SLICE: Duration = Duration::from_millis(20);
/// So often one that waits looks at its budget.
const LOOK: Duration = Duration::from_millis(20);

/// The turns of an engine.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<SchedulerState>,
    /// How many wait; changed under the lock only.
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
    has_turn: AtomicBool,
}

impl Turns {
    /// So many turns.
    pub(super) fn new(count: usize) -> Turns {
        let state = SchedulerState {
            free: count,
            newcomers: VecDeque::new(),
            others: VecDeque::new(),
            newcomer_is_next: true,
        };
        Turns { state: Mutex::new(state), waiting: AtomicUsize::new(0) }
    }

    /// Takes a turn if one is free.
    pub(super) fn try_take(&self) -> bool {
        let mut state = self.lock();
        let is_free = state.free > 0;
        state.free -= usize::from(is_free);
        is_free
    }

    /// Takes a turn, and waits for it where none is free.
    ///
    /// Errors: the query has run too long, or nobody waits for it any more.
    fn take(&self, budget: &Budget, is_newcomer: bool) -> Result<(), QueryError> {
        let waiter = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(());
            }
            let waiter =
                Arc::new(Waiter { thread: std::thread::current(), has_turn: false.into() });
            let queue = if is_newcomer { &mut state.newcomers } else { &mut state.others };
            queue.push_back(Arc::clone(&waiter));
            self.waiting.fetch_add(1, Ordering::Relaxed);
            waiter
        };
        loop {
            if waiter.has_turn.load(Ordering::Acquire) {
                return Ok(());
            }
            if let Err(error) = budget.check() {
                self.leave(&waiter);
                return Err(error.into());
            }
            std::thread::park_timeout(LOOK);
        }
    }

    /// Gives up waiting; a turn that has come meanwhile is passed on.
    fn leave(&self, waiter: &Arc<Waiter>) {
        let mut state = self.lock();
        if waiter.has_turn.load(Ordering::Acquire) {
            self.pass_on(&mut state);
            return;
        }
        state.newcomers.retain(|other| !Arc::ptr_eq(other, waiter));
        state.others.retain(|other| !Arc::ptr_eq(other, waiter));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives a turn back.
    pub(super) fn give_back(&self) {
        self.pass_on(&mut self.lock());
    }

    /// Whether anybody waits for a turn.
    pub(super) fn are_wanted(&self) -> bool {
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
        next.has_turn.store(true, Ordering::Release);
        next.thread.unpark();
    }

    /// The state stays whole where a thread panics: nothing of a query runs under the lock.
    fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one thread that computes for a query has of turns. A turn is given back when this is
/// dropped, at the latest.
#[derive(Debug)]
pub struct Pace {
    turns: Arc<Turns>,
    budget: Budget,
    started: Instant,
    /// Only the thread itself changes it.
    held: Mutex<HeldTurn>,
}

#[derive(Debug, Clone, Copy, Default)]
struct HeldTurn {
    has_had: bool,
    pauses: u32,
    /// Since when there is a turn.
    since: Option<Instant>,
}

impl Pace {
    /// A thread that begins without a turn.
    pub(super) fn new(turns: &Arc<Turns>, budget: &Budget) -> Pace {
        let held = Mutex::default();
        Pace { turns: Arc::clone(turns), budget: budget.clone(), started: Instant::now(), held }
    }

    /// A thread for which a turn has been taken.
    pub(super) fn with_turn(&self) -> Pace {
        let pace = Pace::new(&self.turns, &self.budget);
        *pace.held() = HeldTurn { has_had: true, pauses: 0, since: Some(pace.started) };
        pace
    }

    /// Whether there is a turn.
    pub(super) fn has_turn(&self) -> bool {
        self.held().since.is_some()
    }

    /// Looks at the budget, and lets others have their turn where it is theirs. Called by loops
    /// every few milliseconds at least.
    ///
    /// Errors: the query has run too long, or nobody waits for it any more.
    pub fn pause(&self) -> Result<(), QueryError> {
        self.budget.check()?;
        let HeldTurn { since, pauses, .. } = {
            let mut held = self.held();
            held.pauses = held.pauses.saturating_add(1);
            *held
        };
        match since {
            None if pauses <= FREE_PAUSES || self.started.elapsed() < FREE => Ok(()),
            None => self.take(),
            Some(since) if self.turns.are_wanted() && since.elapsed() >= SLICE => {
                self.give_back();
                self.take()
            }
            Some(_) => Ok(()),
        }
    }

    /// Waits for a turn.
    ///
    /// Errors: as for [`Pace::pause`].
    pub(super) fn take(&self) -> Result<(), QueryError> {
        if self.has_turn() {
            return Ok(());
        }
        self.turns.take(&self.budget, !self.held().has_had)?;
        let mut held = self.held();
        held.has_had = true;
        held.since = Some(Instant::now());
        Ok(())
    }

    /// Gives the turn back, if there is one.
    pub fn give_back(&self) {
        if self.held().since.take().is_some() {
            self.turns.give_back();
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldTurn> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use model::{BudgetError, BudgetLimits};

    use super::*;

    fn free(turns: &Turns) -> usize {
        turns.lock().free
    }

    /// A thread that waits for a turn, tells its name when it has it, and passes it on.
    fn wait<'scope>(
        scope: &'scope std::thread::Scope<'scope, '_>,
        turns: &'scope Turns,
        is_newcomer: bool,
        name: &'static str,
        told: &mpsc::Sender<&'static str>,
    ) {
        let before = turns.waiting.load(Ordering::Relaxed);
        let told = told.clone();
        scope.spawn(move || {
            turns.take(&Budget::unlimited(), is_newcomer).unwrap();
            told.send(name).unwrap();
            turns.give_back();
        });
        while turns.waiting.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
    }

    #[test]
    fn newcomers_and_others_are_served_alternately() {
        let turns = Turns::new(1);
        assert!(turns.try_take() && !turns.try_take());
        let (told, names) = mpsc::channel();
        std::thread::scope(|scope| {
            for (is_newcomer, name) in
                [(false, "a"), (false, "b"), (true, "n"), (false, "c"), (true, "o"), (true, "p")]
            {
                wait(scope, &turns, is_newcomer, name, &told);
            }
            turns.give_back();
        });
        let order: Vec<_> = names.try_iter().collect();
        assert_eq!(order, ["n", "a", "o", "b", "p", "c"]);
        assert_eq!((free(&turns), turns.are_wanted()), (1, false));
    }

    #[test]
    fn one_who_waits_leaves_when_the_query_ends() {
        let turns = Turns::new(0);
        let canceled = Budget::unlimited();
        canceled.cancel();
        let timed_out =
            Budget::new(BudgetLimits { timeout: Some(Duration::ZERO), ..BudgetLimits::default() });
        for (budget, expected) in
            [(canceled, BudgetError::Canceled), (timed_out, BudgetError::TimedOut(Duration::ZERO))]
        {
            let error = turns.take(&budget, true).unwrap_err();
            assert_eq!(error.to_string(), expected.to_string());
            assert!(!turns.are_wanted());
        }
        turns.give_back();
        assert_eq!(free(&turns), 1);
    }

    #[test]
    fn a_turn_is_given_back_in_the_end() {
        let turns = Arc::new(Turns::new(2));
        let pace = Pace::new(&turns, &Budget::unlimited());
        for _ in 0..FREE_PAUSES {
            pace.pause().unwrap();
            assert!(!pace.has_turn());
        }
        pace.take().unwrap();
        assert!(turns.try_take());
        let helper = pace.with_turn();
        assert_eq!(free(&turns), 0);
        helper.pause().unwrap();
        drop(helper);
        drop(pace);
        assert_eq!(free(&turns), 2);
    }
}
