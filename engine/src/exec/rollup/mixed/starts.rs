//! Start timestamps of two adjacent samples: resets and overlaps.

/// Timestamp and start timestamp of a sample.
///
/// Units: ms since the epoch; a start timestamp of 0 is unknown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started {
    pub(super) start_ms: i64,
    pub(super) time_ms: i64,
}

/// Returns whether a counter was reset between two samples.
///
/// A start timestamp equal to the previous sample's timestamp is a reset only if that sample has
/// a valid start timestamp: then each sample counts since the previous one (delta temporality).
///
/// Source: `isStartTimestampReset` of Prometheus.
pub(super) fn is_reset(before: Started, after: Started) -> bool {
    let is_known = after.start_ms != 0 && after.start_ms < after.time_ms;
    let begins_at_sample = || before.start_ms != 0 && before.start_ms < before.time_ms;
    is_known
        && (after.start_ms > before.time_ms
            || after.start_ms == before.time_ms && begins_at_sample())
}

/// Returns whether a start timestamp is before the previous sample and differs from that sample's
/// start timestamp.
///
/// Source: `checkStartTimeOverlap` of Prometheus.
pub(super) fn overlaps(before: Started, after: Started) -> bool {
    after.start_ms != 0 && after.start_ms < before.time_ms && after.start_ms != before.start_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_after_the_sample_before_is_a_reset() {
        let check = |before: (i64, i64), after: (i64, i64), expected: (bool, bool)| {
            let [before, after] =
                [before, after].map(|(start_ms, time_ms)| Started { start_ms, time_ms });
            let found = (is_reset(before, after), overlaps(before, after));
            assert_eq!(found, expected, "{before:?} {after:?}");
        };
        check((0, 10), (0, 20), (false, false));
        check((5, 10), (5, 20), (false, false));
        check((5, 10), (15, 20), (true, false));
        check((0, 10), (15, 20), (true, false));
        // Adjacent samples of a delta series.
        check((5, 10), (10, 20), (true, false));
        // The previous start timestamp is unknown or invalid.
        check((0, 10), (10, 20), (false, false));
        check((10, 10), (10, 20), (false, false));
        check((12, 10), (10, 20), (false, false));
        // A start timestamp that is not before its sample is ignored.
        check((5, 10), (20, 20), (false, false));
        check((5, 10), (25, 20), (false, false));
        check((5, 10), (7, 20), (false, true));
        check((0, 10), (7, 20), (false, true));
    }
}
