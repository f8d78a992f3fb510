//! The queue of writes that wait for a commit.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::Batch;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::decide::weight_of;
use crate::error::StoreError;
use crate::head::Head;
use crate::outcome::AppendOutcome;

/// Weight of samples from which a record takes no further writes in: floats count one, others
/// as many as take the same memory.
const RECORD_WEIGHT: usize = 256 << 10;

/// A write that waits for its commit.
pub(crate) struct Pending {
    pub(super) batch: Batch,
    /// The slot of each series, where there was one. Series may have been forgotten since, so
    /// it counts only if its labels are still the same.
    pub(super) slots: Vec<Option<u32>>,
    weight: usize,
    pub(super) answer: oneshot::Sender<Result<AppendOutcome, StoreError>>,
    /// Its number in the queue.
    ticket: u64,
}

impl Pending {
    /// A write, its series looked up already, outside of the one task that commits.
    pub(crate) fn new(
        head: &Head,
        batch: Batch,
        answer: oneshot::Sender<Result<AppendOutcome, StoreError>>,
    ) -> Pending {
        let slots = (0..batch.series.len()).map(|i| head.find(batch.labels_bytes(i))).collect();
        let weight = weight_of(&batch);
        Pending { batch, slots, weight, answer, ticket: 0 }
    }

    /// How many samples wait; a histogram counts as many as take the same memory.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }
}

/// Who waits for a commit.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Pending>,
    /// Weight of the samples that wait or are being committed.
    weight: usize,
    is_led: bool,
    failed: Option<StoreError>,
    next_ticket: u64,
    /// Since when a group is being committed.
    taken_at: Option<Instant>,
    /// Whether it has been told that commits take too long.
    is_stalled: bool,
}

impl Queue {
    /// Lines up a write; its ticket, and whether the caller has to see to it that someone leads.
    ///
    /// Errors: the queue is full, an earlier commit has failed, or one is under way for longer
    /// than writes wait.
    pub(crate) fn push(
        &self,
        mut pending: Pending,
        limit: usize,
        patience: Duration,
    ) -> Result<(u64, bool), StoreError> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if let Some(waited) = state.taken_at.map(|at| at.elapsed())
            && waited > patience
        {
            return Err(StoreError::Stalled { waited, may_be_stored: false, reason: None });
        }
        let waiting = state.weight + pending.weight;
        if state.weight > 0 && waiting > limit {
            return Err(StoreError::Overloaded { waiting, limit });
        }
        state.weight = waiting;
        pending.ticket = state.next_ticket;
        state.next_ticket += 1;
        let ticket = pending.ticket;
        state.waiting.push_back(pending);
        Ok((ticket, !std::mem::replace(&mut state.is_led, true)))
    }

    /// Takes a write back that has waited for so long: none of it is stored then. It is too late
    /// for one that is being committed, and the answer is no.
    pub(crate) fn withdraw(&self, ticket: u64, waited: Duration) -> bool {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_stalled, true) {
            tracing::warn!(
                ?waited,
                "the object store takes no writes; they are refused until it does"
            );
        }
        let Some(at) = state.waiting.iter().position(|pending| pending.ticket == ticket) else {
            return false;
        };
        if let Some(pending) = state.waiting.remove(at) {
            state.weight = state.weight.saturating_sub(pending.weight);
        }
        true
    }

    /// Those who share the next record; none, and no leader any more, if nobody waits.
    pub(crate) fn take(&self) -> Vec<Pending> {
        let mut state = self.lock();
        let mut group = Vec::new();
        let mut weight = 0;
        while weight < RECORD_WEIGHT
            && let Some(pending) = state.waiting.pop_front()
        {
            weight += pending.weight;
            group.push(pending);
        }
        state.is_led = !group.is_empty();
        state.taken_at = state.is_led.then(Instant::now);
        group
    }

    /// Gives the room of a committed group back.
    pub(crate) fn release(&self, weight: usize) {
        let mut state = self.lock();
        state.weight = state.weight.saturating_sub(weight);
        state.taken_at = None;
        if std::mem::take(&mut state.is_stalled) {
            tracing::info!("the object store has answered; writes are taken again");
        }
    }

    /// Refuses everyone who waits, and every later write.
    pub(crate) fn fail(&self, error: &StoreError) {
        let waiting = {
            let mut state = self.lock();
            state.failed.get_or_insert_with(|| error.clone());
            state.weight = 0;
            state.is_led = false;
            std::mem::take(&mut state.waiting)
        };
        for pending in waiting {
            let _ = pending.answer.send(Err(error.clone()));
        }
    }

    /// Refuses later writes; those who wait are still committed.
    pub(crate) fn refuse(&self, error: &StoreError) {
        self.lock().failed.get_or_insert_with(|| error.clone());
    }

    /// Why later writes are refused, if they are.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        self.lock().failed.clone()
    }

    /// Duration of the current commit, once writes have been rejected because of it.
    pub(crate) fn stalled(&self, patience: Duration) -> Option<Duration> {
        let state = self.lock();
        let waited = state.taken_at?.elapsed();
        (state.is_stalled || waited > patience).then_some(waited)
    }

    /// Whether someone commits.
    pub(crate) fn is_led(&self) -> bool {
        self.lock().is_led
    }

    /// Whether a group has been taken and is not done.
    #[cfg(test)]
    pub(crate) fn is_committing(&self) -> bool {
        self.lock().taken_at.is_some()
    }

    /// Weight of the samples that wait or are being committed.
    pub(crate) fn weight(&self) -> usize {
        self.lock().weight
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
