//! Looking at a query's budget from inside long loops, by the work done between two looks.

use model::Budget;

use crate::error::QueryError;
use crate::exec::charge::Charge;

/// So many values are touched between two looks: well below a millisecond of work for a loop
/// that adds, a few for one that sorts.
const WORK_BETWEEN_LOOKS: usize = 1 << 16;

/// Counts work, and looks at the budget now and then.
pub struct Watch {
    budget: Budget,
    work: usize,
}

impl Watch {
    /// A count that starts at nothing.
    pub fn new(budget: &Budget) -> Watch {
        Watch { budget: budget.clone(), work: 0 }
    }

    /// Counts values that are about to be touched.
    ///
    /// Errors: the query has run too long, or nobody waits for it any more.
    #[inline]
    pub fn work(&mut self, count: usize) -> Result<(), QueryError> {
        self.work = self.work.saturating_add(count);
        if self.work < WORK_BETWEEN_LOOKS {
            return Ok(());
        }
        self.work = 0;
        Ok(self.budget.check()?)
    }
}

/// Samples that are being read into memory, charged while they come in, not when all are there.
pub struct Intake {
    budget: Budget,
    charge: Charge,
    are_decoded: bool,
    uncharged: usize,
}

impl Intake {
    /// Nothing read yet. Samples that are decoded, as against computed, also count as samples.
    ///
    /// Errors: those of [`Charge::new`].
    pub fn new(budget: &Budget, are_decoded: bool) -> Result<Intake, QueryError> {
        let charge = Charge::new(budget, 0)?;
        Ok(Intake { budget: budget.clone(), charge, are_decoded, uncharged: 0 })
    }

    /// Counts samples, each a time and a value, that have been read or are about to be.
    ///
    /// Errors: the limits of the query.
    #[inline]
    pub fn add(&mut self, count: usize) -> Result<(), QueryError> {
        self.uncharged += count;
        if self.uncharged < WORK_BETWEEN_LOOKS { Ok(()) } else { self.settle() }
    }

    /// Charges the samples that are left and gives the memory back: who holds the samples from
    /// here on charges for them.
    ///
    /// Errors: as for [`Intake::add`].
    pub fn finish(mut self) -> Result<(), QueryError> {
        self.settle()
    }

    fn settle(&mut self) -> Result<(), QueryError> {
        let count = std::mem::take(&mut self.uncharged) as u64;
        self.budget.check()?;
        if self.are_decoded {
            self.budget.charge_samples(count)?;
        }
        self.charge.grow(count * 16)
    }
}
