//! Decides when free memory is released to the system: after queries and seals, while no query runs.

/// Bytes by which the head shrinks before the memory of its samples is released.
const SHRUNK_BYTES_MIN: usize = 64 << 20;

/// Load of the server at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activity {
    /// Queries that were admitted since the start.
    pub(crate) queries_entered: u64,
    pub(crate) queries_running: usize,
    /// Memory of unsealed samples.
    pub(crate) head_bytes: usize,
}

/// State at the last release, and the peak of the head since.
#[derive(Debug, Default)]
pub(crate) struct ReleaseTrigger {
    queries_entered: u64,
    head_bytes_peak: usize,
}

impl ReleaseTrigger {
    /// Returns whether memory is to be released now.
    pub(crate) fn is_due(&mut self, now: Activity) -> bool {
        self.head_bytes_peak = self.head_bytes_peak.max(now.head_bytes);
        let has_shrunk = self.head_bytes_peak - now.head_bytes >= SHRUNK_BYTES_MIN;
        let is_due =
            now.queries_running == 0 && (now.queries_entered != self.queries_entered || has_shrunk);
        if is_due {
            let Activity { queries_entered, head_bytes, .. } = now;
            *self = ReleaseTrigger { queries_entered, head_bytes_peak: head_bytes };
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_released_once_after_queries_and_seals() {
        let mut trigger = ReleaseTrigger::default();
        let large = 2 * SHRUNK_BYTES_MIN;
        for (queries_entered, queries_running, head_bytes, expected) in [
            (0, 0, 0, false),
            (0, 0, large, false),
            // A seal.
            (0, 0, large - SHRUNK_BYTES_MIN, true),
            (0, 0, large - SHRUNK_BYTES_MIN, false),
            (0, 0, 1, false),
            (0, 0, 0, true),
            // A query, while and after it runs.
            (1, 1, 0, false),
            (1, 0, 0, true),
            (1, 0, 0, false),
            // A seal during a query.
            (2, 1, large, false),
            (2, 1, 0, false),
            (2, 0, 0, true),
            (2, 0, 0, false),
        ] {
            let now = Activity { queries_entered, queries_running, head_bytes };
            assert_eq!(trigger.is_due(now), expected, "{now:?}");
        }
    }
}
