//! Rate limit of all requests together.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Token bucket that gains one request per interval, up to its burst.
///
/// Source: `rate_limit` of Prometheus' exporter toolkit.
#[derive(Debug)]
pub(crate) struct RateLimit {
    interval: Duration,
    burst: u32,
    /// Time at which the bucket is full.
    full_at: Mutex<Option<Instant>>,
}

impl RateLimit {
    /// Returns a full bucket. Interval and burst are above 0.
    pub(crate) fn new(interval: Duration, burst: u32) -> RateLimit {
        RateLimit { interval, burst, full_at: Mutex::new(None) }
    }

    /// Takes over the state of a bucket with the same limit.
    pub(crate) fn inherit(&mut self, before: &RateLimit) {
        if (self.interval, self.burst) == (before.interval, before.burst) {
            let full_at = *before.full_at.lock().unwrap_or_else(PoisonError::into_inner);
            self.full_at = Mutex::new(full_at);
        }
    }

    /// Takes a request. Returns `false` if the bucket is empty.
    pub(crate) fn takes(&self, now: Instant) -> bool {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let empty_for = full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let next = empty_for.saturating_add(self.interval);
        let is_taken = next <= self.interval.saturating_mul(self.burst);
        if is_taken {
            // Past the largest time, the bucket does not change.
            *full_at = now.checked_add(next).or(*full_at);
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_taken_and_then_one_each_interval() {
        let second = Duration::from_secs(1);
        let limit = RateLimit::new(second, 3);
        let start = Instant::now();
        let taken = |at: Duration| limit.takes(start + at);
        assert_eq!([0, 0, 0, 0].map(|_| taken(Duration::ZERO)), [true, true, true, false]);
        assert!(!taken(second - Duration::from_nanos(1)));
        assert!(taken(second) && !taken(second));
        assert!(taken(second * 2));
        // The bucket holds at most a burst.
        assert_eq!([0, 0, 0, 0].map(|_| taken(second * 1000)), [true, true, true, false]);
    }
}
