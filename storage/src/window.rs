//! Division of time: partitions of a day, windows of two hours inside them.

use model::TimeRange;

/// Span of a window, the unit of sealing.
pub(crate) const WINDOW_MS: i64 = 2 * 60 * 60 * 1000;
/// Span of a partition, the unit of indexing and deletion.
pub(crate) const PARTITION_MS: i64 = 24 * 60 * 60 * 1000;
/// Windows in a partition.
const PARTITION_WINDOWS: i64 = PARTITION_MS / WINDOW_MS;
/// Earliest time that is stored, in the year 1830, which limits the number of partitions.
pub(crate) const TIME_MIN_MS: i64 = -(1 << 42);
/// Latest time that is stored, in the year 2248.
pub(crate) const TIME_MAX_MS: i64 = 1 << 43;

/// Two hours, numbered from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Window(i64);

impl Window {
    /// Window before all others.
    pub(crate) const MIN: Window = Window(i64::MIN);

    pub(crate) const fn new(number: i64) -> Window {
        Window(number)
    }

    pub(crate) const fn number(self) -> i64 {
        self.0
    }

    /// Returns the window of a time.
    #[inline]
    pub(crate) fn of(timestamp_ms: i64) -> Window {
        Window(timestamp_ms.div_euclid(WINDOW_MS))
    }

    /// Returns the previous window.
    pub(crate) fn previous(self) -> Window {
        Window(self.0 - 1)
    }

    /// Returns the next window.
    pub(crate) fn next(self) -> Window {
        Window(self.0 + 1)
    }

    /// Returns the partition that contains the window.
    pub(crate) fn partition(self) -> PartitionId {
        PartitionId(self.0.div_euclid(PARTITION_WINDOWS))
    }

    /// Returns the index of the window in its partition, 0 to 11.
    pub(crate) fn in_partition(self) -> u8 {
        self.0.rem_euclid(PARTITION_WINDOWS) as u8
    }

    /// Returns the first time of the window.
    pub(crate) fn start_ms(self) -> i64 {
        self.0.saturating_mul(WINDOW_MS)
    }

    /// Returns the times of the window.
    pub(crate) fn times(self) -> TimeRange {
        TimeRange::new(self.start_ms(), self.end_ms() - 1)
    }

    /// Returns the first time after the window.
    pub(crate) fn end_ms(self) -> i64 {
        self.0.saturating_add(1).saturating_mul(WINDOW_MS)
    }
}

/// Partition: a day, numbered from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PartitionId(i64);

impl PartitionId {
    /// Partition before all others.
    pub(crate) const MIN: PartitionId = PartitionId(i64::MIN);

    pub(crate) const fn new(number: i64) -> PartitionId {
        PartitionId(number)
    }

    pub(crate) const fn number(self) -> i64 {
        self.0
    }

    /// Returns the partition of a time.
    pub(crate) fn of(timestamp_ms: i64) -> PartitionId {
        Window::of(timestamp_ms).partition()
    }

    /// Returns the next partition.
    pub(crate) fn next(self) -> PartitionId {
        PartitionId(self.0 + 1)
    }

    /// Returns the first time of the partition.
    pub(crate) fn start_ms(self) -> i64 {
        self.0.saturating_mul(PARTITION_MS)
    }

    /// Returns the first time after the partition.
    pub(crate) fn end_ms(self) -> i64 {
        self.0.saturating_add(1).saturating_mul(PARTITION_MS)
    }

    /// Returns the window with an index in the partition.
    pub(crate) fn window(self, index: u8) -> Window {
        Window(self.0.saturating_mul(PARTITION_WINDOWS).saturating_add(i64::from(index)))
    }

    /// Returns the first window of the partition.
    pub(crate) fn first_window(self) -> Window {
        self.window(0)
    }

    /// Returns the windows of the partition.
    pub(crate) fn windows(self) -> impl Iterator<Item = Window> {
        (0..PARTITION_WINDOWS as u8).map(move |index| self.window(index))
    }

    /// Returns the date of the partition, as `2006-01-02`, for logs.
    pub(crate) fn date(self) -> String {
        match chrono::DateTime::from_timestamp_millis(self.start_ms()) {
            Some(time) => time.format("%Y-%m-%d").to_string(),
            None => format!("day {}", self.0),
        }
    }
}

/// Times that samples may have at the moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeBounds {
    /// The earliest time within the retention.
    pub(crate) min_ms: i64,
    /// The latest time.
    pub(crate) max_ms: i64,
    /// Maximum age of a sample relative to the newest; `None` for no limit.
    pub(crate) out_of_order_window_ms: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_fall_into_negative_windows() {
        assert_eq!(Window::of(-1), Window(-1));
        assert_eq!(Window::of(0), Window(0));
        assert_eq!(Window(-1).partition(), PartitionId(-1));
        assert_eq!(Window(-1).in_partition(), 11);
        assert_eq!(PartitionId(-1).window(11), Window(-1));
        assert_eq!(PartitionId(-1).end_ms(), 0);
    }

    #[test]
    fn partitions_are_named_by_their_dates() {
        assert_eq!(PartitionId(0).date(), "1970-01-01");
        assert_eq!(PartitionId(-1).date(), "1969-12-31");
        assert_eq!(PartitionId(20_000).date(), "2024-10-04");
        assert_eq!(PartitionId(i64::MAX).date(), format!("day {}", i64::MAX));
    }
}
