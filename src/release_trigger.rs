//! Decides when free memory is released to the system: after queries, seals and compactions, while no
//! query runs.

/// Bytes by which the head shrinks before the memory of its samples is released.
const SHRUNK_BYTES_MIN: usize = 64 << 20;

/// Bytes of compactions after which their memory is released.
const COMPACTED_BYTES_MIN: u64 = 16 << 20;

/// Load of the server at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activity {
    /// Queries that were admitted since the start.
    pub(crate) queries_entered: u64,
    pub(crate) queries_running: usize,
    /// Memory of unsealed samples.
    pub(crate) head_bytes: usize,
    /// Bytes that compactions have read since the start.
    pub(crate) compacted_bytes: u64,
}

/// State at the last release, and the peak of the head since.
#[derive(Debug, Default)]
pub(crate) struct ReleaseTrigger {
    queries_entered: u64,
    head_bytes_peak: usize,
    compacted_bytes: u64,
}

impl ReleaseTrigger {
    /// Returns whether memory is to be released now.
    pub(crate) fn is_due(&mut self, now: Activity) -> bool {
        self.head_bytes_peak = self.head_bytes_peak.max(now.head_bytes);
        let has_shrunk = self.head_bytes_peak - now.head_bytes >= SHRUNK_BYTES_MIN;
        // A store that is promoted counts from 0.
        let compacted_bytes = now.compacted_bytes.abs_diff(self.compacted_bytes);
        let is_worthwhile = now.queries_entered != self.queries_entered
            || has_shrunk
            || compacted_bytes >= COMPACTED_BYTES_MIN;
        let is_due = now.queries_running == 0 && is_worthwhile;
        if is_due {
            let Activity { queries_entered, head_bytes, compacted_bytes, .. } = now;
            *self =
                ReleaseTrigger { queries_entered, head_bytes_peak: head_bytes, compacted_bytes };
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_released_once_after_queries_seals_and_compactions() {
        let mut trigger = ReleaseTrigger::default();
        let (large, compacted) = (2 * SHRUNK_BYTES_MIN, COMPACTED_BYTES_MIN);
        for (queries_entered, queries_running, head_bytes, compacted_bytes, expected) in [
            (0, 0, 0, 0, false),
            (0, 0, large, 0, false),
            // A seal.
            (0, 0, large - SHRUNK_BYTES_MIN, 0, true),
            (0, 0, large - SHRUNK_BYTES_MIN, 0, false),
            (0, 0, 1, 0, false),
            (0, 0, 0, 0, true),
            // A query, while and after it runs.
            (1, 1, 0, 0, false),
            (1, 0, 0, 0, true),
            (1, 0, 0, 0, false),
            // A seal during a query.
            (2, 1, large, 0, false),
            (2, 1, 0, 0, false),
            (2, 0, 0, 0, true),
            (2, 0, 0, 0, false),
            // Compactions, the second one during a query.
            (2, 0, 0, compacted - 1, false),
            (2, 0, 0, compacted, true),
            (2, 0, 0, compacted, false),
            (3, 1, 0, 2 * compacted, false),
            (3, 0, 0, 2 * compacted, true),
            // Another store.
            (3, 0, 0, 0, true),
            (3, 0, 0, compacted, true),
            (3, 0, 0, compacted, false),
        ] {
            let now = Activity { queries_entered, queries_running, head_bytes, compacted_bytes };
            assert_eq!(trigger.is_due(now), expected, "{now:?}");
        }
    }
}
