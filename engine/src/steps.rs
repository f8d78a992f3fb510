//! Steps of queries, and the time range of samples that each step sees.
//!
//! `offset`, `@`, the reach of lookbacks and ranges, and subquery grids are resolved to times here;
//! selectors and range functions compare samples with these times.

use model::{StepRanges, TimeRange, Windows};

/// Evaluation times of a query or of a subquery: `start_ms + i * step_ms`.
///
/// Units: ms since the epoch.
/// Invariant: `count >= 1`, `step_ms >= 1`, and the last time fits `i64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// First time.
    pub start_ms: i64,
    /// Distance between two times.
    pub step_ms: i64,
    /// Number of times.
    pub count: usize,
}

impl Steps {
    /// Returns a single time.
    pub fn instant(time_ms: i64) -> Steps {
        Steps { start_ms: time_ms, step_ms: 1, count: 1 }
    }

    /// Returns the times from `start_ms` up to `end_ms`, inclusive; `None` if the end is before the
    /// start, or if the step is below 1.
    pub fn range(start_ms: i64, end_ms: i64, step_ms: i64) -> Option<Steps> {
        if end_ms < start_ms || step_ms < 1 {
            return None;
        }
        let span = end_ms.abs_diff(start_ms);
        let count = usize::try_from(span / step_ms.unsigned_abs()).ok()?.saturating_add(1);
        Some(Steps { start_ms, step_ms, count })
    }

    /// Returns the time of a step.
    #[inline]
    pub fn time(&self, step_index: usize) -> i64 {
        // The product may overflow although the sum does not.
        self.start_ms.wrapping_add((step_index as i64).wrapping_mul(self.step_ms))
    }

    /// Returns the last time.
    pub fn end_ms(&self) -> i64 {
        self.time(self.count - 1)
    }
}

/// Maximum distance of times from the epoch (73 million years), so that the sum of a few times
/// never overflows. Times beyond it are clamped.
const TIME_MS_MAX: i64 = 1 << 61;

fn clamped(time_ms: i128) -> i64 {
    time_ms.clamp(-i128::from(TIME_MS_MAX), i128::from(TIME_MS_MAX)) as i64
}

/// Times that a selector looks at: evaluation times moved by `offset`, or one time fixed by `@`.
///
/// Invariant: `step_ms` is 0 exactly when the time is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookTimes {
    /// Time that the first step looks at.
    pub first_ms: i64,
    /// Distance between the times of two steps.
    pub step_ms: i64,
    /// Number of steps.
    pub count: usize,
}

impl LookTimes {
    /// Returns the times that a selector with these modifiers looks at; clamps times beyond 2^61
    /// ms.
    pub fn new(steps: Steps, at_ms: Option<i64>, offset_ms: i64) -> LookTimes {
        let first = at_ms.unwrap_or(steps.start_ms);
        // Two clamped times are at most 2^62 ms apart, which keeps their sums within `i64`.
        let span_max = (1 << 62) / steps.count.max(1) as i64;
        LookTimes {
            first_ms: clamped(i128::from(first) - i128::from(offset_ms)),
            step_ms: if at_ms.is_some() { 0 } else { steps.step_ms.min(span_max) },
            count: steps.count,
        }
    }

    /// Returns the time that a step looks at.
    #[inline]
    pub fn time(&self, step_index: usize) -> i64 {
        self.first_ms + step_index as i64 * self.step_ms
    }

    /// Returns the time that the last step looks at.
    pub fn last_ms(&self) -> i64 {
        self.time(self.count - 1)
    }

    /// Returns the ranges that steps see, if there are gaps between them; with `only_newest`,
    /// only the newest sample of each range matters.
    pub fn step_ranges(&self, reach: Reach, only_newest: bool) -> Option<StepRanges> {
        let span_ms = reach.back_ms.saturating_add(reach.ahead_ms);
        let after_ms = self.first_ms.saturating_sub(reach.back_ms);
        if self.count < 2 {
            return None;
        }
        StepRanges::new(after_ms, span_ms, self.step_ms, only_newest)
    }

    /// Returns whether `count` steps from a step on look at times outside of all windows.
    #[inline]
    pub fn are_outside(&self, windows: &Windows, first_step: usize, count: usize) -> bool {
        let next = windows.count_before(self.time(first_step));
        next == windows.count || windows.after_ms(next) >= self.time(first_step + count - 1)
    }

    /// Returns the windows of all steps; `None` if they are empty, or all at one time.
    #[inline]
    pub fn windows(&self, span_ms: i64) -> Option<Windows> {
        let LookTimes { first_ms: first_end_ms, step_ms, count } = *self;
        let is_moving = step_ms > 0 || count == 1;
        (is_moving && span_ms > 0).then_some(Windows { first_end_ms, step_ms, span_ms, count })
    }

    /// Returns the first and last time of samples that any step can see, both inclusive.
    pub fn reach(&self, reach: Reach) -> TimeRange {
        let start = i128::from(self.first_ms) - i128::from(reach.back_ms) + 1;
        let end = i128::from(self.last_ms()) + i128::from(reach.ahead_ms);
        TimeRange::new(clamped(start), clamped(end))
    }
}

/// Reach of a step: it sees the samples in `(time - back_ms, time + ahead_ms]`.
///
/// Source: lookback and ranges are open on the left in Prometheus 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Distance before the step's time, exclusive.
    pub back_ms: i64,
    /// Distance after the step's time, inclusive.
    pub ahead_ms: i64,
}

/// Returns the times at which a subquery evaluates its inner expression: the multiples of `step_ms`
/// in `(first - range, last]`, where `first` and `last` are from `times`. `None` if there are none.
///
/// Units: `step_ms >= 1`.
/// Source: `runSubquery` of Prometheus.
pub fn subquery_grid(times: LookTimes, range_ms: i64, step_ms: i64) -> Option<Steps> {
    let below = i128::from(times.first_ms) - i128::from(range_ms);
    let step = i128::from(step_ms);
    let start = below.div_euclid(step).checked_add(1)?.checked_mul(step)?;
    let end = i128::from(times.last_ms());
    if start > end || start < -i128::from(TIME_MS_MAX) {
        return None;
    }
    Steps::range(clamped(start), clamped(end), step_ms)
}

/// Times and lookback of a selector that ignores histogram buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketlessLook {
    /// Times that steps look at.
    pub times: LookTimes,
    /// Lookback or range of the steps.
    pub back_ms: i64,
}

impl BucketlessLook {
    /// Returns whether no step after a sample sees it.
    pub(crate) fn leaps_after(&self, sample_ms: i64) -> bool {
        let times = &self.times;
        let next_ms = if times.first_ms > sample_ms {
            times.first_ms
        } else if times.last_ms() <= sample_ms {
            return true;
        } else {
            // The sample is between the first and the last step, so `step_ms` is not 0.
            let behind = sample_ms - times.first_ms;
            times.first_ms + (behind / times.step_ms + 1) * times.step_ms
        };
        next_ms.saturating_sub(self.back_ms) > sample_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subquery_grids_are_aligned_and_open_on_the_left() {
        let check = |time_ms: i64, range_ms: i64, step_ms: i64, times: &[i64]| {
            let grid =
                subquery_grid(LookTimes::new(Steps::instant(time_ms), None, 0), range_ms, step_ms);
            let found: Vec<i64> =
                grid.map_or(vec![], |grid| (0..grid.count).map(|i| grid.time(i)).collect());
            assert_eq!(found, times, "{time_ms} {range_ms} {step_ms}");
        };
        check(100, 30, 10, &[80, 90, 100]);
        check(105, 30, 10, &[80, 90, 100]);
        check(109, 5, 10, &[]);
        check(0, 20, 10, &[-10, 0]);
        check(-5, 20, 10, &[-20, -10]);
        check(-25, 20, 10, &[-40, -30]);
    }

    #[test]
    fn absurd_times_are_clamped() {
        let steps = Steps { start_ms: i64::MAX - 10, step_ms: 1, count: 5 };
        let times = LookTimes::new(steps, Some(i64::MAX), i64::MIN);
        let TimeRange { start_ms: start, end_ms: end } =
            times.reach(Reach { back_ms: i64::MAX, ahead_ms: i64::MAX });
        assert!(start <= end);
        assert_eq!(subquery_grid(times, i64::MAX, 1).map(|grid| grid.step_ms), None);
    }

    #[test]
    fn a_fixed_time_does_not_move_with_the_steps() {
        let steps = Steps { start_ms: 1000, step_ms: 10, count: 3 };
        let times = LookTimes::new(steps, Some(500), 20);
        assert_eq!([times.time(0), times.time(2)], [480, 480]);
        assert_eq!(times.reach(Reach { back_ms: 100, ahead_ms: 0 }), TimeRange::new(381, 480));
    }
}
