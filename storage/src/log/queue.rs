//! The queue of writes that wait for a commit.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::{Batch, BatchExemplar, BatchMetadata, HistogramSample};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::failure::LogFailure;
use crate::error::StoreError;
use crate::head::Head;
use crate::outcome::AppendOutcome;

/// Weight from which a record takes no further writes. A float counts as one, everything else as
/// the number of floats that occupy as much memory.
const RECORD_WEIGHT: usize = 256 << 10;
/// Bytes of a float sample, the unit of weights.
const FLOAT_BYTES: usize = 16;

/// A write that waits for its commit.
pub(crate) struct PendingWrite {
    pub(super) batch: Batch,
    /// Slot of each series that was in the head.
    pub(super) slots: Vec<Option<u32>>,
    /// Generation of the head before the slots were found. In another generation, a slot is valid
    /// only if its labels still match.
    pub(super) generation: u64,
    weight: usize,
    answer: oneshot::Sender<Result<AppendOutcome, StoreError>>,
    /// Number of the write in the queue.
    ticket: u64,
    /// Memory of the batch that the caller has accounted for, released with the batch.
    _reservation: Option<BatchReservation>,
}

/// Reservation that a write holds for as long as the store holds its batch.
pub type BatchReservation = Box<dyn Send>;

impl PendingWrite {
    /// Creates a write and looks up its series, outside of the task that commits.
    pub(crate) fn new(
        head: &Head,
        batch: Batch,
        reservation: Option<BatchReservation>,
        answer: oneshot::Sender<Result<AppendOutcome, StoreError>>,
    ) -> PendingWrite {
        let generation = head.generation();
        let slots = head.find_all((0..batch.series.len()).map(|i| batch.labels_bytes(i)));
        let weight = weight_of(&batch);
        let ticket = 0;
        PendingWrite { batch, slots, generation, weight, answer, ticket, _reservation: reservation }
    }

    /// Returns the weight of the write, in floats that occupy as much memory.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    /// Sends the result to the writer, which may have stopped waiting.
    pub(crate) fn answer(self, result: Result<AppendOutcome, StoreError>) {
        let _ = self.answer.send(result);
    }
}

/// Returns the number of float samples that occupy as much memory as a batch.
fn weight_of(batch: &Batch) -> usize {
    let histograms = batch.histograms.iter().map(HistogramSample::memory_bytes);
    let exemplars = batch.exemplars.iter().map(BatchExemplar::memory_bytes);
    let metadata = batch.metadata.iter().map(BatchMetadata::memory_bytes);
    let others = histograms.chain(exemplars).chain(metadata);
    let others: usize = others.map(|bytes| bytes.div_ceil(FLOAT_BYTES)).sum();
    batch.timestamps.len() + batch.starts.len().div_ceil(2) + others
}

/// Writes that wait for a commit.
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    failure: LogFailure,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<PendingWrite>,
    /// Weight of the samples that wait or are being committed.
    weight: usize,
    is_led: bool,
    /// Error for later writes, set once the store is closed or read-only.
    refused: Option<StoreError>,
    next_ticket: u64,
    /// Start of the current commit.
    taken_at: Option<Instant>,
    /// Set once the warning about slow commits was logged.
    is_stalled: bool,
}

impl Queue {
    /// Creates an empty queue that shares the failure of a log.
    pub(crate) fn new(failure: LogFailure) -> Queue {
        Queue { state: Mutex::default(), failure }
    }

    /// Adds a write. Returns its ticket, and whether the caller has to start a leader.
    ///
    /// Errors: the queue is full, an earlier commit has failed, or the current one takes longer
    /// than `patience`.
    pub(crate) fn push(
        &self,
        mut pending: PendingWrite,
        limit: usize,
        patience: Duration,
    ) -> Result<(u64, bool), StoreError> {
        let mut state = self.lock();
        if let Some(error) = self.failure.get().or_else(|| state.refused.clone()) {
            return Err(error);
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

    /// Removes a write that has waited for `waited`, so that none of it is stored. Returns false
    /// if its commit has begun.
    pub(crate) fn withdraw(&self, ticket: u64, waited: Duration) -> bool {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_stalled, true) {
            tracing::warn!(
                ?waited,
                "object store accepts no writes; refusing writes until it does"
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

    /// Takes the writes that share the next record. If the queue is empty, the leader ends.
    pub(crate) fn take(&self) -> Vec<PendingWrite> {
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

    /// Releases the weight of a committed group.
    pub(crate) fn release(&self, weight: usize) {
        let mut state = self.lock();
        state.weight = state.weight.saturating_sub(weight);
        state.taken_at = None;
        if std::mem::take(&mut state.is_stalled) {
            tracing::info!("object store has responded; accepting writes again");
        }
    }

    /// Refuses all waiting writes and every later one.
    pub(crate) fn fail(&self, error: &StoreError) {
        let waiting = {
            let mut state = self.lock();
            self.failure.set(error);
            state.weight = 0;
            state.is_led = false;
            std::mem::take(&mut state.waiting)
        };
        for pending in waiting {
            pending.answer(Err(error.clone()));
        }
    }

    /// Refuses later writes; waiting ones are still committed.
    pub(crate) fn refuse(&self, error: &StoreError) {
        let refused = &mut self.lock().refused;
        // A reader that is closed must not accept writes later.
        if refused.as_ref().is_none_or(|error| *error == StoreError::ReadOnly) {
            *refused = Some(error.clone());
        }
    }

    /// Accepts writes that were refused because the store was only read.
    pub(crate) fn accept(&self) {
        self.lock().refused.take_if(|error| *error == StoreError::ReadOnly);
    }

    /// Returns the error with which later writes are refused, if they are.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        self.failure.get().or_else(|| self.lock().refused.clone())
    }

    /// Returns the duration of the current commit, once writes have been refused because of it.
    pub(crate) fn stalled(&self, patience: Duration) -> Option<Duration> {
        let state = self.lock();
        let waited = state.taken_at?.elapsed();
        (state.is_stalled || waited > patience).then_some(waited)
    }

    /// Returns whether a leader takes groups.
    pub(crate) fn is_led(&self) -> bool {
        self.lock().is_led
    }

    /// Returns whether a group has been taken and not released.
    #[cfg(test)]
    pub(crate) fn is_committing(&self) -> bool {
        self.lock().taken_at.is_some()
    }

    /// Returns the weight of the samples that wait or are being committed.
    pub(crate) fn weight(&self) -> usize {
        self.lock().weight
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
