//! Reservations of a query's memory, released when dropped.

use crate::budget::{Budget, BudgetError};

/// Bytes that are charged to a budget; dropping it releases them.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    bytes: u64,
}

impl Reservation {
    /// Reserves bytes that are about to be allocated.
    ///
    /// Errors: the query's memory limit is exceeded.
    pub fn new(budget: &Budget, bytes: u64) -> Result<Reservation, BudgetError> {
        let mut reservation = Reservation::empty(budget);
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// Returns a reservation of no bytes.
    pub fn empty(budget: &Budget) -> Reservation {
        Reservation { budget: budget.clone(), bytes: 0 }
    }

    /// Reserves further bytes. They count even when the result is an error.
    ///
    /// Errors: the query's memory limit is exceeded.
    pub fn grow(&mut self, bytes: u64) -> Result<(), BudgetError> {
        self.bytes += bytes;
        self.budget.charge_memory(bytes)
    }

    /// Returns the reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes over the bytes of another reservation of the same budget.
    pub fn absorb(&mut self, mut other: Reservation) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Releases some of the bytes.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        if bytes == 0 {
            // Avoids contention: all threads of a query update one counter.
            return;
        }
        self.bytes -= bytes;
        self.budget.release_memory(bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release_memory(self.bytes);
    }
}
