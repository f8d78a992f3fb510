//! Looking at a query's budget from inside long loops, by the work done between two looks.

use model::Budget;
pub use model::Watch;
use model::watch::WORK_BETWEEN_LOOKS;

use crate::error::QueryError;

/// Samples that are being decoded and not kept.
pub struct Decoded {
    budget: Budget,
    uncounted: usize,
}

impl Decoded {
    /// None yet.
    pub fn new(budget: &Budget) -> Decoded {
        Decoded { budget: budget.clone(), uncounted: 0 }
    }

    /// Counts samples that have been decoded.
    ///
    /// Errors: the limits of the query.
    #[inline]
    pub fn add(&mut self, count: usize) -> Result<(), QueryError> {
        self.uncounted += count;
        if self.uncounted < WORK_BETWEEN_LOOKS { Ok(()) } else { self.settle() }
    }

    /// Counts the samples that are left.
    ///
    /// Errors: as for [`Decoded::add`].
    pub fn settle(&mut self) -> Result<(), QueryError> {
        let count = std::mem::take(&mut self.uncounted) as u64;
        self.budget.check()?;
        Ok(self.budget.charge_samples(count)?)
    }
}

/// Samples that are being read into memory, counted while they come in, not when all are there.
/// The memory that they take is charged by the buffers that take it.
pub struct Intake {
    budget: Budget,
    are_decoded: bool,
    uncounted: usize,
}

impl Intake {
    /// Nothing read yet. Samples that are decoded, as against computed, count as samples.
    pub fn new(budget: &Budget, are_decoded: bool) -> Intake {
        Intake { budget: budget.clone(), are_decoded, uncounted: 0 }
    }

    /// Counts samples that have been read or are about to be.
    ///
    /// Errors: the limits of the query.
    #[inline]
    pub fn add(&mut self, count: usize) -> Result<(), QueryError> {
        self.uncounted += count;
        if self.uncounted < WORK_BETWEEN_LOOKS { Ok(()) } else { self.settle() }
    }

    /// Counts the samples that are left.
    ///
    /// Errors: as for [`Intake::add`].
    pub fn finish(mut self) -> Result<(), QueryError> {
        self.settle()
    }

    fn settle(&mut self) -> Result<(), QueryError> {
        let count = std::mem::take(&mut self.uncounted) as u64;
        self.budget.check()?;
        if self.are_decoded {
            self.budget.charge_samples(count)?;
        }
        Ok(())
    }
}
