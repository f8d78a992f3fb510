//! How time is cut: partitions of a day, windows of two hours inside them.

/// The span of a window: what is sealed together.
pub(crate) const WINDOW_MS: i64 = 2 * 60 * 60 * 1000;
/// The span of a partition: what has one index, and is deleted together.
pub(crate) const PARTITION_MS: i64 = 24 * 60 * 60 * 1000;
/// Windows in a partition.
pub(crate) const PARTITION_WINDOWS: i64 = PARTITION_MS / WINDOW_MS;
/// The earliest time that is stored, in the year 1830: it bounds how many partitions there are.
pub(crate) const TIME_MIN_MS: i64 = -(1 << 42);
/// The latest time that is stored, in the year 2248.
pub(crate) const TIME_MAX_MS: i64 = 1 << 43;

/// The window that a time falls into, counted from the epoch.
#[inline]
pub(crate) fn window_of(timestamp_ms: i64) -> i64 {
    timestamp_ms.div_euclid(WINDOW_MS)
}

/// The partition that a window lies in.
pub(crate) fn partition_of_window(window: i64) -> i64 {
    window.div_euclid(PARTITION_WINDOWS)
}

/// The place of a window in its partition, 0 to 11.
pub(crate) fn window_in_partition(window: i64) -> u8 {
    window.rem_euclid(PARTITION_WINDOWS) as u8
}

/// The day of a partition, as `2006-01-02`, for logs.
pub(crate) fn date_of(partition: i64) -> String {
    match chrono::DateTime::from_timestamp_millis(partition.saturating_mul(PARTITION_MS)) {
        Some(time) => time.format("%Y-%m-%d").to_string(),
        None => format!("day {partition}"),
    }
}

/// First time after a partition.
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
    /// How far behind the newest sample one may lie; `None` for any distance.
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
