//! Reference time of the retention.
//!
//! The clock alone must not cause deletions, since it may be wrong for a while. The reference time
//! is the minimum of clock and newest acknowledged sample, confirmed by all readings of a span of
//! minutes: none was lower. A step of the clock against the monotonic clock suspends the
//! confirmation for longer. So does a first reading far ahead of the newest sample, since the clock
//! may have been set before the start.
//!
//! ```text
//! reading   →  min(clock, newest sample)  →  minimum of a span of readings  →  reference time
//! step      →  readings are ignored for a while
//! first reading far ahead of the newest sample  →  as a step
//! clock set back before the reference time      →  the reference time follows at once
//! ```
//!
//! So the reference time may be late by the span, and a store without new writes deletes nothing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Minimum difference between clock and monotonic clock, from one reading to the next, that counts
/// as a step.
const STEP_MIN_MS: u64 = 60_000;
/// Distance from the newest sample to the first reading after a start above which the reading counts
/// as a step.
const FIRST_AHEAD_MAX_MS: i64 = 86_400_000;
/// Duration of a suspension, in spans of the confirmation.
const SUSPENSION_SPANS: u32 = 6;

/// Times of the machine's clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockReading {
    /// Milliseconds since the epoch.
    pub(crate) wall_ms: i64,
    /// Time since some point in the past, unaffected by settings of the clock.
    pub(crate) monotonic: Duration,
}

/// Times from which limits of the retention are computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetentionTime {
    /// Time of the clock.
    pub(crate) now_ms: i64,
    /// Reference time, never later than the clock; `None` until one is confirmed.
    pub(crate) reference_ms: Option<i64>,
}

/// Result of a reading.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) time: RetentionTime,
    /// Step of the clock since the previous reading, in ms, if there was one.
    pub(crate) step_ms: Option<i64>,
    /// Distance from the newest sample to a first reading that counts as a step, in ms.
    pub(crate) ahead_ms: Option<i64>,
    /// Previous reference time, if the clock has been set back before it.
    pub(crate) lowered_from_ms: Option<i64>,
    /// Set if this reading ends a suspension.
    pub(crate) is_resumed: bool,
}

/// Keeps the reference time.
#[derive(Debug)]
pub(crate) struct ReferenceTime {
    confirmation: Duration,
    state: Mutex<ReferenceState>,
}

#[derive(Debug, Default)]
struct ReferenceState {
    last: Option<ClockReading>,
    /// Monotonic time from which readings are used again.
    suspended_until: Option<Duration>,
    candidate: Option<Candidate>,
    confirmed_ms: Option<i64>,
}

/// Minimum of the readings since a first one.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    least_ms: i64,
    since: Duration,
}

impl ReferenceTime {
    /// Creates a reference time with the span of its confirmation.
    pub(crate) fn new(confirmation: Duration) -> ReferenceTime {
        ReferenceTime { confirmation, state: Mutex::default() }
    }

    /// Duration for which a clock step suspends the confirmation.
    pub(crate) fn suspension(&self) -> Duration {
        self.confirmation.saturating_mul(SUSPENSION_SPANS)
    }

    /// Adds a reading of the clocks, and the time of the newest acknowledged sample.
    pub(crate) fn observe(&self, reading: ClockReading, newest_ms: Option<i64>) -> Observed {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = state.last.is_none();
        let step_ms = state.step_to(reading);
        let ahead_ms = newest_ms
            .map(|newest_ms| reading.wall_ms.saturating_sub(newest_ms))
            .filter(|ahead_ms| is_first && *ahead_ms > FIRST_AHEAD_MAX_MS);
        if step_ms.or(ahead_ms).is_some() {
            state.suspended_until = Some(reading.monotonic.saturating_add(self.suspension()));
            state.candidate = None;
        }
        let is_resumed = state.suspended_until.take_if(|end| *end <= reading.monotonic).is_some();
        if state.suspended_until.is_none()
            && let Some(newest_ms) = newest_ms
        {
            state.confirm(reading.wall_ms.min(newest_ms), reading.monotonic, self.confirmation);
        }
        let lowered_from_ms = state.confirmed_ms.filter(|confirmed| *confirmed > reading.wall_ms);
        if lowered_from_ms.is_some() {
            state.confirmed_ms = Some(reading.wall_ms);
        }
        let time = RetentionTime { now_ms: reading.wall_ms, reference_ms: state.confirmed_ms };
        Observed { time, step_ms, ahead_ms, lowered_from_ms, is_resumed }
    }
}

impl ReferenceState {
    /// Returns the step of the clock since the last reading, in ms, if there was one.
    fn step_to(&mut self, reading: ClockReading) -> Option<i64> {
        let last = self.last.replace(reading)?;
        let wall_step_ms = reading.wall_ms.saturating_sub(last.wall_ms);
        let Some(elapsed) = reading.monotonic.checked_sub(last.monotonic) else {
            let back = last.monotonic.saturating_sub(reading.monotonic);
            if back >= Duration::from_millis(STEP_MIN_MS) {
                // Only tools that emulate clocks do this.
                return Some(wall_step_ms);
            }
            // Readings of several threads may arrive out of order.
            self.last = Some(last);
            return None;
        };
        let elapsed_ms = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
        let step_ms = wall_step_ms.saturating_sub(elapsed_ms);
        (step_ms.unsigned_abs() >= STEP_MIN_MS).then_some(step_ms)
    }

    fn confirm(&mut self, reference_ms: i64, monotonic: Duration, confirmation: Duration) {
        let new = Candidate { least_ms: reference_ms, since: monotonic };
        let candidate = self.candidate.get_or_insert(new);
        candidate.least_ms = candidate.least_ms.min(reference_ms);
        if monotonic.saturating_sub(candidate.since) >= confirmation {
            self.confirmed_ms = Some(candidate.least_ms);
            self.candidate = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: i64 = 60_000;
    const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
    const BEGIN_MS: i64 = 1000 * DAY_MS;
    const SPAN: Duration = Duration::from_secs(600);

    /// Observes pairs of minutes since the start and the error of the clock in minutes. Returns
    /// the reference times, in minutes since the start.
    fn references(readings: &[(i64, i64)], newest: impl Fn(i64) -> i64) -> Vec<Option<i64>> {
        let reference = ReferenceTime::new(SPAN);
        let observe = |(minute, off): &(i64, i64)| {
            let monotonic = Duration::from_secs(60 * minute.unsigned_abs());
            let wall_ms = BEGIN_MS + (minute + off) * MINUTE_MS;
            let newest_ms = BEGIN_MS + newest(*minute) * MINUTE_MS;
            let observed = reference.observe(ClockReading { wall_ms, monotonic }, Some(newest_ms));
            observed.time.reference_ms.map(|ms| (ms - BEGIN_MS) / MINUTE_MS)
        };
        readings.iter().map(observe).collect()
    }

    #[test]
    fn a_reference_time_is_confirmed_by_a_span_of_readings() {
        let readings = [(0, 0), (5, 0), (10, 0), (11, 0), (20, 0), (21, 0)];
        let expected = [None, None, Some(0), Some(0), Some(0), Some(11)];
        assert_eq!(references(&readings, |minute| minute), expected);
    }

    #[test]
    fn it_is_not_later_than_the_newest_sample() {
        let readings = [(0, 0), (10, 0), (5000, 0), (5010, 0)];
        let expected = [None, Some(-3), Some(-3), Some(-3)];
        assert_eq!(references(&readings, |_| -3), expected);
        // A sample far ahead of the clock is ignored.
        let expected = [None, Some(0), Some(0), Some(5000)];
        assert_eq!(references(&readings, |_| 90_000), expected);
    }

    #[test]
    fn a_step_suspends_it_and_the_way_back_too() {
        let day = 24 * 60;
        let readings = [(0, 0), (10, 0), (11, day), (12, 0), (71, 0), (72, 0), (82, 0)];
        let expected = [None, Some(0), Some(0), Some(0), Some(0), Some(0), Some(72)];
        assert_eq!(references(&readings, |_| 10 * day), expected);
        // A lasting step is accepted in the end, if samples agree with it.
        let readings = [(0, 0), (10, 0), (11, day), (70, day), (71, day), (81, day)];
        let expected = [None, Some(0), Some(0), Some(0), Some(0), Some(71 + day)];
        assert_eq!(references(&readings, |_| 10 * day), expected);
    }

    #[test]
    fn it_follows_a_clock_that_is_set_back_at_once() {
        let reference = ReferenceTime::new(SPAN);
        let observe = |minute: i64, off_ms: i64| {
            let monotonic = Duration::from_secs(60 * minute.unsigned_abs());
            let wall_ms = BEGIN_MS + minute * MINUTE_MS + off_ms;
            reference.observe(ClockReading { wall_ms, monotonic }, Some(i64::MAX))
        };
        observe(0, DAY_MS);
        assert_eq!(observe(10, DAY_MS).time.reference_ms, Some(BEGIN_MS + DAY_MS));
        let observed = observe(11, 0);
        assert_eq!(observed.lowered_from_ms, Some(BEGIN_MS + DAY_MS));
        assert_eq!(observed.time.reference_ms, Some(observed.time.now_ms));
        assert_eq!(observed.step_ms, Some(-DAY_MS));
        let observed = observe(12, 0);
        assert_eq!((observed.lowered_from_ms, observed.step_ms), (None, None));
    }

    #[test]
    fn time_that_passes_on_both_clocks_is_no_step() {
        let reference = ReferenceTime::new(SPAN);
        for (seconds, wall_ms, is_step) in [
            (0, BEGIN_MS, false),
            (30 * 86_400, BEGIN_MS + 30 * DAY_MS, false),
            // As after the sleep of a machine.
            (30 * 86_400 + 1, BEGIN_MS + 31 * DAY_MS, true),
            (30 * 86_400 + 2, BEGIN_MS + 31 * DAY_MS + 59_000, false),
        ] {
            let reading = ClockReading { wall_ms, monotonic: Duration::from_secs(seconds) };
            let observed = reference.observe(reading, None);
            assert_eq!(observed.step_ms.is_some(), is_step, "{seconds} s");
            assert_eq!(observed.time.reference_ms, None, "no sample is known");
        }
    }

    #[test]
    fn a_first_reading_far_ahead_of_the_newest_sample_suspends_it() {
        for (ahead_ms, is_suspended) in [(DAY_MS, false), (DAY_MS + 1, true)] {
            let reference = ReferenceTime::new(SPAN);
            let observe = |minute: i64| {
                let monotonic = Duration::from_secs(60 * minute.unsigned_abs());
                let wall_ms = BEGIN_MS + minute * MINUTE_MS;
                // Later samples agree with the clock.
                let newest_ms = if minute == 0 { BEGIN_MS - ahead_ms } else { wall_ms };
                reference.observe(ClockReading { wall_ms, monotonic }, Some(newest_ms))
            };
            assert_eq!(observe(0).ahead_ms, is_suspended.then_some(ahead_ms));
            let confirmed = [10, 59, 60, 70].map(|minute| {
                let observed = observe(minute);
                assert_eq!(observed.is_resumed, is_suspended && minute == 60);
                assert_eq!((observed.step_ms, observed.ahead_ms), (None, None));
                observed.time.reference_ms.is_some()
            });
            assert_eq!(confirmed, [!is_suspended, !is_suspended, !is_suspended, true]);
        }
    }

    #[test]
    fn a_monotonic_clock_that_goes_back_does_not_keep_it_suspended() {
        let reference = ReferenceTime::new(SPAN);
        let observe = |minute: i64| {
            let monotonic = Duration::from_secs(60 * minute.unsigned_abs());
            let wall_ms = BEGIN_MS + minute * MINUTE_MS;
            reference.observe(ClockReading { wall_ms, monotonic }, Some(i64::MAX))
        };
        observe(0);
        observe(90_000);
        assert!(observe(1).step_ms.is_some());
        assert!(observe(61).is_resumed);
        assert_eq!(observe(71).time.reference_ms, Some(BEGIN_MS + 61 * MINUTE_MS));
    }

    #[test]
    fn no_span_confirms_each_reading() {
        let reference = ReferenceTime::new(Duration::ZERO);
        for minute in [0, 1, 5000] {
            let wall_ms = BEGIN_MS + minute * MINUTE_MS;
            let monotonic = Duration::from_secs(1);
            let observed = reference.observe(ClockReading { wall_ms, monotonic }, Some(wall_ms));
            assert_eq!(observed.time.reference_ms, Some(wall_ms));
        }
    }
}
