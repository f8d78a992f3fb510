//! Looking at a query's budget from inside long loops, by the work done between two looks.

use model::Budget;
pub use model::Watch;
use model::watch::WORK_BETWEEN_LOOKS;

use crate::error::QueryError;
use crate::exec::charge::Charge;

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

    /// Charges memory that read samples take beside their times and values.
    ///
    /// Errors: the query's memory limit is passed.
    pub fn hold(&mut self, bytes: u64) -> Result<(), QueryError> {
        self.charge.grow(bytes)
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
