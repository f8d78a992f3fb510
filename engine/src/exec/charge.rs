//! Memory held by an operator, charged to the query's budget as long as it is held.

use model::Budget;

use crate::error::QueryError;

/// Bytes that are charged to a budget; they are given back when this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    bytes: u64,
}

impl Charge {
    /// Charges bytes that are about to be allocated.
    ///
    /// Errors: the query's memory limit is passed.
    pub fn new(budget: &Budget, bytes: u64) -> Result<Charge, QueryError> {
        let mut charge = Charge { budget: budget.clone(), bytes: 0 };
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// No bytes yet.
    pub fn empty(budget: &Budget) -> Charge {
        Charge { budget: budget.clone(), bytes: 0 }
    }

    /// Gives back some of the bytes.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.release_memory(bytes);
    }

    /// Charges further bytes. They count even when the answer is an error.
    pub fn grow(&mut self, bytes: u64) -> Result<(), QueryError> {
        self.bytes += bytes;
        Ok(self.budget.charge_memory(bytes)?)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release_memory(self.bytes);
    }
}
