//! Ranges of time.

/// Times from `start_ms` to `end_ms`, both inclusive; empty if `end_ms < start_ms`.
///
/// Units: ms since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeRange {
    /// First time.
    pub start_ms: i64,
    /// Last time.
    pub end_ms: i64,
}

impl TimeRange {
    /// All times.
    pub const ALL: TimeRange = TimeRange { start_ms: i64::MIN, end_ms: i64::MAX };

    /// Times from `start_ms` to `end_ms`, both inclusive.
    pub fn new(start_ms: i64, end_ms: i64) -> TimeRange {
        TimeRange { start_ms, end_ms }
    }

    /// Smallest range with the times of two ranges, which are not empty.
    #[inline]
    pub fn join(self, other: TimeRange) -> TimeRange {
        TimeRange {
            start_ms: self.start_ms.min(other.start_ms),
            end_ms: self.end_ms.max(other.end_ms),
        }
    }

    /// Returns whether the range has a time.
    #[inline]
    pub fn contains(self, time_ms: i64) -> bool {
        self.start_ms <= time_ms && time_ms <= self.end_ms
    }

    /// Returns whether all times of another range are in this one.
    #[inline]
    pub fn covers(self, other: TimeRange) -> bool {
        self.start_ms <= other.start_ms && other.end_ms <= self.end_ms
    }

    /// Returns whether the ranges have a time in common; neither may be empty.
    #[inline]
    pub fn overlaps(self, other: TimeRange) -> bool {
        self.start_ms <= other.end_ms && other.start_ms <= self.end_ms
    }
}
