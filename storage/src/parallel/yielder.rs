//! Long loops on the runtime's threads, interrupted for other tasks.

use model::{Budget, BudgetError};

/// Series or values between two yields.
const WORK_BETWEEN_YIELDS: usize = 256;

/// Yields to other tasks and checks the budget, by the work done since the last time.
pub(crate) struct Yielder {
    budget: Budget,
    work: usize,
}

impl Yielder {
    /// Returns a yielder that has counted no work.
    pub(crate) fn new(budget: &Budget) -> Yielder {
        Yielder { budget: budget.clone(), work: 0 }
    }

    /// Returns a yielder of the same query for another loop.
    pub(crate) fn fork(&self) -> Yielder {
        Yielder::new(&self.budget)
    }

    /// Returns the budget of the query.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Counts series or values that were read.
    ///
    /// Errors: the query has run too long or was canceled.
    pub(crate) async fn work(&mut self, count: usize) -> Result<(), BudgetError> {
        self.work += count;
        if self.work < WORK_BETWEEN_YIELDS {
            return Ok(());
        }
        self.work = 0;
        tokio::task::yield_now().await;
        self.budget.check()
    }
}
