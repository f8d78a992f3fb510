//! Window arithmetic: which times a query evaluates at, and which samples each time sees.
//!
//! Lookback, `offset`, `@` and subquery grids live here and nowhere else.

/// The evaluation times of a query or of a subquery: `start_ms + i * step_ms`.
///
/// Units: ms since the epoch.
/// Invariant: `count >= 1`, `step_ms >= 1`, and the last time fits `i64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// First time.
    pub start_ms: i64,
    /// Distance between two times.
    pub step_ms: i64,
    /// How many times there are.
    pub count: usize,
}

impl Steps {
    /// One time.
    pub fn instant(time_ms: i64) -> Steps {
        Steps { start_ms: time_ms, step_ms: 1, count: 1 }
    }

    /// The times from `start_ms` up to `end_ms`, inclusive where the step meets it;
    /// `None` where the end lies before the start, or the step is below 1.
    pub fn range(start_ms: i64, end_ms: i64, step_ms: i64) -> Option<Steps> {
        if end_ms < start_ms || step_ms < 1 {
            return None;
        }
        let span = end_ms.abs_diff(start_ms);
        let count = usize::try_from(span / step_ms.unsigned_abs()).ok()?.checked_add(1)?;
        Some(Steps { start_ms, step_ms, count })
    }

    /// The time of a step.
    #[inline]
    pub fn time(&self, step_index: usize) -> i64 {
        self.start_ms + step_index as i64 * self.step_ms
    }

    /// The last time.
    pub fn end_ms(&self) -> i64 {
        self.time(self.count - 1)
    }
}
