//! Sums over a moving range in two parts, whose bits depend only on the range.
//!
//! Subtracting from a running sum would accumulate rounding errors. So a range is split at a
//! boundary. Items before the boundary are summed backwards from it, one sum per item, so that each
//! sum is available after earlier items have left. Items after the boundary are summed forwards.
//! Boundaries are at multiples of the range's duration since the epoch, so each range contains
//! exactly one, and each item is added twice in total.
//!
//! ```text
//!            range
//!     (----------|------]
//!      ←  front  | back →
//!    |           |           |          boundaries
//! ```
//!
//! The sums do not depend on the start of a query: two queries add the items of the same range in
//! the same order.

use std::ops::Range;

use model::TimeRange;

use crate::exec::rollup::buffer::Frame;

/// Sums over the items of a moving range.
///
/// Invariant: ranges move forward. Items enter and leave in order; items after the boundary stay
/// until the boundary changes.
#[derive(Debug, Default)]
pub(super) struct Halves<P> {
    boundary_ms: i64,
    /// Number of the first item after the boundary; `None` before the first range.
    boundary: Option<u64>,
    /// Number of the next item to add to `back`.
    end: u64,
    /// Sums of the last item before the boundary, of the last two, of the last three, and so on.
    front: Vec<P>,
    back: P,
}

/// Sums of both parts of a range; `None` for a part without items.
pub(super) struct Both<P> {
    pub(super) front: Option<P>,
    pub(super) back: Option<P>,
}

impl<P: Copy + Default> Halves<P> {
    /// Returns the sums over the samples of a range; `plus` adds a time and a value.
    #[inline]
    pub(super) fn of_samples(
        &mut self,
        frame: &Frame<'_>,
        plus: impl Fn(P, i64, f64) -> P,
    ) -> Both<P> {
        let samples = frame.samples;
        let numbers = samples.number(frame.lo)..samples.number(frame.hi);
        let boundary_ms = self.boundary_ms(TimeRange::new(frame.start_ms, frame.end_ms));
        let boundary = || {
            let before = frame.times().partition_point(|time_ms| *time_ms <= boundary_ms);
            samples.number(frame.lo + before)
        };
        let items = |numbers: Range<u64>| {
            let places = samples.place(numbers.start)..samples.place(numbers.end);
            samples.times[places.clone()].iter().zip(&samples.values[places])
        };
        self.of(boundary_ms, numbers, boundary, items, |part, (time, value)| {
            plus(part, *time, *value)
        })
    }

    /// Returns the sums over the items `numbers`. `boundary` returns the number of the first item
    /// after the boundary, and `items` returns items by number.
    #[inline]
    pub(super) fn of<I: DoubleEndedIterator>(
        &mut self,
        boundary_ms: i64,
        numbers: Range<u64>,
        boundary: impl FnOnce() -> u64,
        items: impl Fn(Range<u64>) -> I,
        plus: impl Fn(P, I::Item) -> P,
    ) -> Both<P> {
        let boundary = match self.boundary {
            Some(boundary) if self.boundary_ms == boundary_ms => boundary,
            _ => {
                let boundary = boundary();
                self.front.clear();
                self.front.reserve_exact(boundary.saturating_sub(numbers.start) as usize);
                let mut part = P::default();
                self.front.extend(items(numbers.start..boundary).rev().map(|item| {
                    part = plus(part, item);
                    part
                }));
                (self.back, self.end) = (P::default(), boundary);
                (self.boundary_ms, self.boundary) = (boundary_ms, Some(boundary));
                boundary
            }
        };
        if self.end < numbers.end {
            self.back = items(self.end..numbers.end).fold(self.back, plus);
            self.end = numbers.end;
        }
        let before = boundary.saturating_sub(numbers.start) as usize;
        Both {
            front: before.checked_sub(1).map(|at| self.front[at]),
            back: (self.end > boundary).then_some(self.back),
        }
    }

    /// Returns the number of the first item after the current boundary.
    pub(super) fn boundary(&self) -> Option<u64> {
        self.boundary
    }

    /// Makes the next range determine the boundary again.
    pub(super) fn forget_boundary(&mut self) {
        self.boundary = None;
    }

    /// Returns the last boundary before the end of a range.
    #[inline]
    pub(super) fn boundary_ms(&self, range: TimeRange) -> i64 {
        let TimeRange { start_ms, end_ms } = range;
        let range_ms = end_ms.saturating_sub(start_ms).max(1);
        let is_same = self.boundary.is_some()
            && self.boundary_ms < end_ms
            && end_ms.saturating_sub(self.boundary_ms) <= range_ms;
        if is_same { self.boundary_ms } else { (end_ms - 1).div_euclid(range_ms) * range_ms }
    }

    /// Returns the bytes held.
    pub(super) fn bytes(&self) -> u64 {
        (self.front.capacity() * size_of::<P>()) as u64
    }
}
