//! Long work on the runtime's threads, done in pieces.

use model::{Budget, BudgetError};

/// Work between two breaths, in series or values that are looked at.
const WORK_BETWEEN_BREATHS: usize = 256;

/// Lets other tasks run, and looks at the budget, by the work that has been done.
pub(crate) struct Breather {
    budget: Budget,
    work: usize,
}

impl Breather {
    /// Nothing done yet.
    pub(crate) fn new(budget: &Budget) -> Breather {
        Breather { budget: budget.clone(), work: 0 }
    }

    /// Counts series or values that have been looked at.
    ///
    /// Errors: the query has run too long, or nobody waits for it any more.
    pub(crate) async fn work(&mut self, count: usize) -> Result<(), BudgetError> {
        self.work += count;
        if self.work < WORK_BETWEEN_BREATHS {
            return Ok(());
        }
        self.work = 0;
        tokio::task::yield_now().await;
        self.budget.check()
    }
}
