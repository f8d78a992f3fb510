//! Boundaries of the windows of a query, at which summaries may be divided.

use model::{TimeRange, WantedWindows, Windows};

use super::{BUCKET_MS, Summary};
use crate::window::Window;

/// Maximum time between the start of a query's window and the next bucket, for which summaries are
/// read: in this time there is hardly more than one sample.
const TAIL_MAX_MS: i64 = 5 * 60 * 1000;

/// Windows of a query, and the range of times that it sees.
///
/// Windows are open on the left. So a boundary at a time divides samples up to it from later ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edges {
    windows: Windows,
    range: TimeRange,
    needs_sum: bool,
}

impl Edges {
    /// Returns the boundaries of the wanted windows in a range; `None` for windows that are too
    /// short or too close for summaries.
    pub(crate) fn new(wanted: WantedWindows, range: TimeRange) -> Option<Edges> {
        let WantedWindows { windows, needs_sum } = wanted;
        let is_one = windows.count < 2 || windows.step_ms == 0;
        let is_long = windows.span_ms >= BUCKET_MS && (is_one || windows.step_ms >= BUCKET_MS);
        is_long.then_some(Edges { windows, range, needs_sum })
    }

    /// Returns the first start of a window from a time on.
    fn next_start(&self, time_ms: i64) -> i64 {
        let next_ms = self.next(self.windows.after_ms(0), time_ms);
        let start_ms = self.range.start_ms.saturating_sub(1);
        if start_ms >= time_ms { next_ms.min(start_ms) } else { next_ms }
    }

    /// Returns the first end of a window from a time on.
    fn next_end(&self, time_ms: i64) -> i64 {
        let next_ms = self.next(self.windows.first_end_ms, time_ms);
        if self.range.end_ms >= time_ms { next_ms.min(self.range.end_ms) } else { next_ms }
    }

    /// Returns the first time from `time_ms` on that is a number of steps after `first_ms`.
    fn next(&self, first_ms: i64, time_ms: i64) -> i64 {
        let step_ms = self.windows.step_ms;
        if time_ms <= first_ms {
            return first_ms;
        }
        if self.windows.count < 2 || step_ms < 1 {
            return i64::MAX;
        }
        let steps = (time_ms.saturating_sub(first_ms) - 1) / step_ms + 1;
        if steps >= self.windows.count as i64 {
            return i64::MAX;
        }
        first_ms.saturating_add(steps.saturating_mul(step_ms))
    }

    /// Returns the first boundary from a time on.
    pub(crate) fn next_edge(&self, time_ms: i64) -> i64 {
        self.next_start(time_ms).min(self.next_end(time_ms))
    }

    /// Returns whether no window begins or ends inside of summarized samples. A start before the
    /// last sample is allowed: this sample is known.
    pub(crate) fn allow(&self, summary: &Summary) -> bool {
        let Summary { first_ms, last_ms, before_last_ms, count, min, max, .. } = *summary;
        let has_sum = summary.is_sum_exact || min >= 0.0 || max <= 0.0;
        if self.needs_sum && !has_sum {
            return false;
        }
        count == 1
            || self.next_end(first_ms) >= last_ms && self.next_start(first_ms) >= before_last_ms
    }

    /// Returns whether summaries of samples in a window of the store are likely to be of use.
    pub(crate) fn suit(&self, window: Window) -> bool {
        let first_ms = window.start_ms();
        (first_ms..window.end_ms()).step_by(BUCKET_MS as usize).all(|start_ms| {
            let (after_ms, end_ms) = (start_ms + 1, start_ms + BUCKET_MS);
            self.next_end(after_ms) >= end_ms && self.next_start(after_ms) >= end_ms - TAIL_MAX_MS
        })
    }

    /// Adds the summary of the next samples, merged with the last one where no boundary is between.
    pub(crate) fn push(&self, summaries: &mut Vec<Summary>, next: Summary) {
        if let Some(last) = summaries.last_mut()
            && self.next_edge(last.first_ms) >= next.first_ms
            && let Some(merged) = last.merged(&next)
        {
            *last = merged;
        } else {
            summaries.push(next);
        }
    }
}
