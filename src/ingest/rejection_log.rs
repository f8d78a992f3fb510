//! The log of rejected writes: at most one line a minute for each reason, with an example.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

/// Minimum time between two lines about one reason.
const INTERVAL: Duration = Duration::from_secs(60);

/// Maximum length of an example, in bytes.
const EXAMPLE_BYTES_MAX: usize = 512;

/// Counts rejections and decides which of them are logged.
#[derive(Debug, Default)]
pub(super) struct RejectionLog {
    /// One entry per reason.
    by_reason: Mutex<Vec<Unlogged>>,
}

/// Rejections for one reason since the last line about it.
#[derive(Debug)]
struct Unlogged {
    reason: &'static str,
    counts: RejectionCounts,
    logged_at: Option<Instant>,
}

/// Numbers of rejected requests and samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RejectionCounts {
    pub(super) requests: u64,
    /// Of requests that could be read.
    pub(super) samples: u64,
}

impl RejectionLog {
    /// Counts what one request lost for one reason, and logs it if a line is due.
    pub(super) fn record(&self, reason: &'static str, samples: u64, example: &str) {
        let rejected = RejectionCounts { requests: 1, samples };
        let Some(counts) = self.counts_due(reason, rejected, Instant::now()) else { return };
        let RejectionCounts { requests, samples } = counts;
        let example = shortened(example);
        warn!(reason, requests, samples, example, "writes are rejected");
    }

    /// Returns everything rejected for a reason since the last line about it, if one is due.
    fn counts_due(
        &self,
        reason: &'static str,
        rejected: RejectionCounts,
        now: Instant,
    ) -> Option<RejectionCounts> {
        let mut by_reason = self.by_reason.lock().unwrap_or_else(PoisonError::into_inner);
        let index = by_reason.iter().position(|unlogged| unlogged.reason == reason);
        let index = index.unwrap_or_else(|| {
            let counts = RejectionCounts::default();
            by_reason.push(Unlogged { reason, counts, logged_at: None });
            by_reason.len() - 1
        });
        let unlogged = &mut by_reason[index];
        unlogged.counts.requests += rejected.requests;
        unlogged.counts.samples += rejected.samples;
        let is_due =
            unlogged.logged_at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL);
        is_due.then(|| {
            unlogged.logged_at = Some(now);
            std::mem::take(&mut unlogged.counts)
        })
    }
}

fn shortened(example: &str) -> String {
    let end = example.floor_char_boundary(EXAMPLE_BYTES_MAX);
    let dots = if end < example.len() { "..." } else { "" };
    format!("{}{dots}", &example[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_logged_once_a_minute_with_everything_since() {
        let log = RejectionLog::default();
        let start = Instant::now();
        let due = |reason, samples, seconds| {
            let rejected = RejectionCounts { requests: 1, samples };
            let counts = log.counts_due(reason, rejected, start + Duration::from_secs(seconds));
            counts.map(|counts| (counts.requests, counts.samples))
        };
        assert_eq!(due("duplicate_label", 3, 0), Some((1, 3)));
        assert_eq!(due("duplicate_label", 4, 1), None);
        assert_eq!(due("out_of_bounds", 1, 1), Some((1, 1)));
        assert_eq!(due("duplicate_label", 5, 59), None);
        assert_eq!(due("duplicate_label", 6, 60), Some((3, 15)));
        assert_eq!(due("duplicate_label", 7, 119), None);
        assert_eq!(due("out_of_bounds", 1, 61), Some((1, 1)));
    }

    #[test]
    fn an_example_is_bounded() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&"ü".repeat(10_000));
        assert!(long.len() <= EXAMPLE_BYTES_MAX + 3 && long.ends_with("ü..."), "{long}");
    }
}
