//! Numbers of log epochs.

/// Epoch of the log. A run has the last epoch that was sealed into it, or one that was reserved for
/// cleaning; of two runs of a window, the run of the later epoch wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Epoch(u32);

impl Epoch {
    /// First epoch of a store.
    pub(crate) const FIRST: Epoch = Epoch(0);
    /// Epoch after all others, which has no records and no runs.
    pub(crate) const NEVER: Epoch = Epoch(u32::MAX);

    pub(crate) const fn new(number: u32) -> Epoch {
        Epoch(number)
    }

    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// Returns the next epoch.
    pub(crate) const fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }

    /// Returns the previous epoch, or the first one.
    pub(crate) const fn previous(self) -> Epoch {
        Epoch(self.0.saturating_sub(1))
    }
}
