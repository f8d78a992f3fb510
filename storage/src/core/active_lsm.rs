//! The LSM that a store uses: a standby exchanges that of a reader for that of the writer, once.

use std::ops::Deref;
use std::sync::OnceLock;

use crate::lsm::Lsm;

/// The LSM that was opened, or the one that this process writes to since its promotion.
pub(crate) struct ActiveLsm {
    opened: Lsm,
    promoted: OnceLock<Lsm>,
}

impl ActiveLsm {
    pub(super) fn new(opened: Lsm) -> ActiveLsm {
        ActiveLsm { opened, promoted: OnceLock::new() }
    }

    /// Uses an LSM that this process writes to from now on. Reads that have begun keep their view.
    ///
    /// Panics: for the second time.
    pub(super) fn promote(&self, writer: Lsm) {
        let is_first = self.promoted.set(writer).is_ok();
        assert!(is_first, "a store is promoted once");
    }
}

impl Deref for ActiveLsm {
    type Target = Lsm;

    fn deref(&self) -> &Lsm {
        self.promoted.get().unwrap_or(&self.opened)
    }
}
