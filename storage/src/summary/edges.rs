//! Boundaries of the windows of a query, at which summaries may be divided.

use model::{TimeRange, WantedWindows, WindowPart, Windows};

use super::{BUCKET_MS, Summary};
use crate::window::{WINDOW_MS, Window};

/// Maximum time between the start of a query's window and the next bucket, for which summaries are
/// read: in this time there is hardly more than one sample.
const TAIL_MAX_MS: i64 = 5 * 60 * 1000;

/// Maximum number of windows of the store that are examined: the boundaries of a query repeat.
const EXAMINED_MAX: usize = 1_000;

/// Samples of a selection that are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// All: facts of windows replace them.
    ByFacts,
    /// All: the newest samples of buckets replace them.
    ByNewest,
    /// Samples between windows.
    Gaps,
}

/// Windows of a query, and the range of times that it sees.
///
/// Windows are open on the left. So a boundary at a time divides samples up to it from later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edges {
    windows: Windows,
    range: TimeRange,
    replaced: Replaced,
    /// True if the increases of windows are wanted.
    needs_resets: bool,
}

/// First start and end of a window from the first sample of a summary on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    start_ms: i64,
    end_ms: i64,
}

impl Edges {
    /// Returns the boundaries of the wanted windows in a range; `None` for windows that are too
    /// short or too close for summaries.
    pub(crate) fn new(wanted: WantedWindows, range: TimeRange) -> Option<Edges> {
        let WantedWindows { windows, part } = wanted;
        let Windows { step_ms, span_ms, count, .. } = windows;
        let is_one = count < 2 || step_ms == 0;
        let replaced = match part {
            _ if part.is_facts() && span_ms >= BUCKET_MS && (is_one || step_ms >= BUCKET_MS) => {
                Replaced::ByFacts
            }
            // A bucket has no summary if it has only staleness markers, so none may follow in another
            // bucket of the window. The bucket that two windows of the store share is no exception:
            // a marker that is alone in its second part prevents summaries.
            WindowPart::Newest if span_ms <= BUCKET_MS && !is_one && step_ms >= BUCKET_MS => {
                Replaced::ByNewest
            }
            _ if has_gaps(windows) => Replaced::Gaps,
            _ => return None,
        };
        let needs_resets = part == WindowPart::FactsWithIncrease;
        Some(Edges { windows, range, replaced, needs_resets })
    }

    /// Returns the boundaries of one window of all times, whose facts are wanted.
    pub(crate) fn of_all() -> Edges {
        Edges::of_any(Windows { first_end_ms: 0, step_ms: 0, span_ms: i64::MAX, count: 1 })
    }

    /// Returns the boundaries of windows that may be short, whose facts are wanted.
    pub(crate) fn of_any(windows: Windows) -> Edges {
        let (range, replaced) = (TimeRange::ALL, Replaced::ByFacts);
        Edges { windows, range, replaced, needs_resets: false }
    }

    /// Returns which samples summaries replace.
    pub(crate) fn replaced(&self) -> Replaced {
        self.replaced
    }

    /// Returns whether a window of the query sees times of a range.
    pub(crate) fn see(&self, TimeRange { start_ms, end_ms }: TimeRange) -> bool {
        let first_end_ms = self.next(self.windows.first_end_ms, start_ms);
        first_end_ms.saturating_sub(self.windows.span_ms) < end_ms
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

    /// Returns the boundaries of a summary that begins at a time.
    pub(crate) fn reach(&self, first_ms: i64) -> Reach {
        Reach { start_ms: self.next_start(first_ms), end_ms: self.next_end(first_ms) }
    }

    /// Returns whether a summary has all wanted facts.
    #[inline]
    pub(crate) fn suffices(&self, summary: &Summary) -> bool {
        !(self.needs_resets && summary.resets.is_nan())
    }

    /// Returns whether no window begins or ends inside of summarized samples.
    pub(crate) fn allow(&self, summary: &Summary) -> bool {
        let Summary { first_ms, last_ms, before_last_ms, count, .. } = *summary;
        // All buckets of a window that suits end where windows of the query do.
        count == 1
            || self.replaced == Replaced::ByNewest
            || self.reach(first_ms).covers(last_ms, before_last_ms)
    }

    /// Returns whether summaries of samples in a window of the store are likely to be of use.
    pub(crate) fn suit(&self, window: Window) -> bool {
        if self.replaced == Replaced::Gaps {
            return false;
        }
        let first_ms = window.start_ms();
        (first_ms..window.end_ms()).step_by(BUCKET_MS as usize).all(|start_ms| {
            let (after_ms, end_ms) = (start_ms + 1, start_ms + BUCKET_MS);
            let starts_late = || self.next_start(after_ms) >= end_ms - TAIL_MAX_MS;
            self.next_end(after_ms) >= end_ms
                && (self.replaced == Replaced::ByNewest || starts_late())
        })
    }

    /// Returns the boundaries at which to read summaries if samples are there as well. If summaries are
    /// likely to replace less than half of the samples, reading all as columns is faster, except for
    /// gaps.
    pub(crate) fn preferred(self) -> Option<Edges> {
        if self.replaced != Replaced::ByFacts {
            return Some(self);
        }
        let [first, last] = [self.range.start_ms, self.range.end_ms].map(Window::of);
        let examined = (first.number()..=last.number()).take(EXAMINED_MAX).map(Window::new);
        let suited = examined.clone().filter(|window| self.suit(*window)).count();
        if suited * 2 >= examined.count() {
            return Some(self);
        }
        has_gaps(self.windows).then_some(Edges { replaced: Replaced::Gaps, ..self })
    }

    /// Adds the summary of the next samples, merged with the last one where no boundary divides them.
    /// `reach` is that of the last summary.
    #[inline]
    pub(crate) fn push(&self, summaries: &mut Vec<Summary>, reach: &mut Reach, next: &Summary) {
        let last = summaries.last_mut();
        if !last.is_some_and(|last| self.merge(last, reach, next)) {
            *reach = self.reach(next.first_ms);
            summaries.push(*next);
        }
    }

    /// Merges the summary of the next samples into the last one, whose boundaries are `reach`.
    /// Returns false, without effect, if one divides them or the result would lack a wanted fact.
    #[inline]
    pub(crate) fn merge(&self, last: &mut Summary, reach: &Reach, next: &Summary) -> bool {
        if !reach.covers(next.last_ms, last.before_last_ms_with(next)) {
            return false;
        }
        let merged = last.merged(next);
        let suffices = self.suffices(&merged);
        if suffices {
            *last = merged;
        }
        suffices
    }
}

/// Returns whether there are windows of the store between those of a query.
fn has_gaps(Windows { step_ms, span_ms, count, .. }: Windows) -> bool {
    count > 1 && step_ms.saturating_sub(span_ms) >= 2 * WINDOW_MS
}

impl Reach {
    /// Returns whether no window begins or ends inside of samples up to `last_ms`. A start before the
    /// last sample is allowed: this sample is known.
    #[inline]
    fn covers(&self, last_ms: i64, before_last_ms: i64) -> bool {
        self.end_ms >= last_ms && self.start_ms >= before_last_ms
    }
}
