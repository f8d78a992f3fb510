//! Division of time: partitions of a day, windows of two hours inside them.

/// Span of a window, the unit of sealing.
pub(crate) const WINDOW_MS: i64 = 2 * 60 * 60 * 1000;
/// Span of a partition, the unit of indexing and deletion.
pub(crate) const PARTITION_MS: i64 = 24 * 60 * 60 * 1000;
/// Windows in a partition.
pub(crate) const PARTITION_WINDOWS: i64 = PARTITION_MS / WINDOW_MS;
/// Earliest time that is stored, in the year 1830, which limits the number of partitions.
pub(crate) const TIME_MIN_MS: i64 = -(1 << 42);
/// Latest time that is stored, in the year 2248.
pub(crate) const TIME_MAX_MS: i64 = 1 << 43;

/// Returns the window of a time, counted from the epoch.
#[inline]
pub(crate) fn window_of(timestamp_ms: i64) -> i64 {
    timestamp_ms.div_euclid(WINDOW_MS)
}

/// Returns the partition of a window.
pub(crate) fn partition_of_window(window: i64) -> i64 {
    window.div_euclid(PARTITION_WINDOWS)
}

/// Returns the index of a window in its partition, 0 to 11.
pub(crate) fn window_in_partition(window: i64) -> u8 {
    window.rem_euclid(PARTITION_WINDOWS) as u8
}

/// Returns the day of a partition, as `2006-01-02`, for logs.
pub(crate) fn date_of(partition: i64) -> String {
    match chrono::DateTime::from_timestamp_millis(partition.saturating_mul(PARTITION_MS)) {
        Some(time) => time.format("%Y-%m-%d").to_string(),
        None => format!("day {partition}"),
    }
}

/// Returns the first time after a partition.
pub(crate) fn partition_end_ms(partition: i64) -> i64 {
    partition.saturating_add(1).saturating_mul(PARTITION_MS)
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
    fn times_before_the_epoch_fall_into_negative_windows() {
        assert_eq!(window_of(-1), -1);
        assert_eq!(window_of(0), 0);
        assert_eq!(partition_of_window(-1), -1);
        assert_eq!(window_in_partition(-1), 11);
        assert_eq!(partition_end_ms(-1), 0);
    }

    #[test]
    fn partitions_are_named_by_their_dates() {
        assert_eq!(date_of(0), "1970-01-01");
        assert_eq!(date_of(-1), "1969-12-31");
        assert_eq!(date_of(20_000), "2024-10-04");
        assert_eq!(date_of(i64::MAX), format!("day {}", i64::MAX));
    }
}
