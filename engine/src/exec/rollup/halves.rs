//! Sums over a moving range, in two parts, whose bits depend on the range alone.
//!
//! Subtracting what leaves a range from a running sum would keep its rounding errors. So a range
//! is cut in two at a border: what lies before it is summed from the border backwards, one sum an
//! item, so that each is there when the range has left those before; what lies behind it is
//! summed forwards. Borders lie at the multiples of the range's length since the epoch, so that
//! each range holds exactly one, and each item is added twice in all.
//!
//! ```text
//!            range
//!     (----------|------]
//!      ←  front  | back →
//!    |           |           |          borders
//! ```
//!
//! Where a query begins decides on nothing: of a range that two queries look at, each item is
//! added in the same order.

use std::ops::Range;

use model::TimeRange;

use crate::exec::rollup::buffer::Frame;

/// Sums over the items of a moving range.
///
/// Invariant: ranges move forward. An item enters before those behind it, and leaves after those
/// before it; items behind the border stay as long as the border does.
#[derive(Debug, Default)]
pub(super) struct Halves<P> {
    border_ms: i64,
    /// The number of the first item behind the border; nothing before the first range.
    border: Option<u64>,
    /// One past the number of the last item in `back`.
    end: u64,
    /// Sums of the items before the border: of the last one, of the last two, and so on.
    front: Vec<P>,
    back: P,
}

/// The sums of both parts of a range; nothing where a part has no items.
pub(super) struct Both<P> {
    pub(super) front: Option<P>,
    pub(super) back: Option<P>,
}

impl<P: Copy + Default> Halves<P> {
    /// The sums over the samples of a range; `plus` adds a time and a value.
    #[inline]
    pub(super) fn of_samples(
        &mut self,
        frame: &Frame<'_>,
        plus: impl Fn(P, i64, f64) -> P,
    ) -> Both<P> {
        let samples = frame.samples;
        let numbers = samples.number(frame.lo)..samples.number(frame.hi);
        let border_ms = self.border_ms(TimeRange::new(frame.start_ms, frame.end_ms));
        let border = || {
            let before = frame.times().partition_point(|time_ms| *time_ms <= border_ms);
            samples.number(frame.lo + before)
        };
        let items = |numbers: Range<u64>| {
            let places = samples.place(numbers.start)..samples.place(numbers.end);
            samples.times[places.clone()].iter().zip(&samples.values[places])
        };
        self.of(border_ms, numbers, border, items, |part, (time, value)| plus(part, *time, *value))
    }

    /// The sums over the items with these numbers. `border` gives the number of the first one
    /// behind the border, and `items` those with some numbers.
    #[inline]
    pub(super) fn of<I: DoubleEndedIterator>(
        &mut self,
        border_ms: i64,
        numbers: Range<u64>,
        border: impl FnOnce() -> u64,
        items: impl Fn(Range<u64>) -> I,
        plus: impl Fn(P, I::Item) -> P,
    ) -> Both<P> {
        let border = match self.border {
            Some(border) if self.border_ms == border_ms => border,
            _ => {
                let border = border();
                self.front.clear();
                self.front.reserve_exact(border.saturating_sub(numbers.start) as usize);
                let mut part = P::default();
                self.front.extend(items(numbers.start..border).rev().map(|item| {
                    part = plus(part, item);
                    part
                }));
                (self.back, self.end) = (P::default(), border);
                (self.border_ms, self.border) = (border_ms, Some(border));
                border
            }
        };
        if self.end < numbers.end {
            self.back = items(self.end..numbers.end).fold(self.back, plus);
            self.end = numbers.end;
        }
        let before = border.saturating_sub(numbers.start) as usize;
        Both {
            front: before.checked_sub(1).map(|at| self.front[at]),
            back: (self.end > border).then_some(self.back),
        }
    }

    /// The number of the first item behind the border that holds now.
    pub(super) fn border(&self) -> Option<u64> {
        self.border
    }

    /// Looks for the border anew with the next range.
    pub(super) fn forget_border(&mut self) {
        self.border = None;
    }

    /// The last border before the end of a range.
    #[inline]
    pub(super) fn border_ms(&self, range: TimeRange) -> i64 {
        let TimeRange { start_ms, end_ms } = range;
        let range_ms = end_ms.saturating_sub(start_ms).max(1);
        let is_same = self.border.is_some()
            && self.border_ms < end_ms
            && end_ms.saturating_sub(self.border_ms) <= range_ms;
        if is_same { self.border_ms } else { (end_ms - 1).div_euclid(range_ms) * range_ms }
    }

    /// How many bytes are held.
    pub(super) fn bytes(&self) -> u64 {
        (self.front.capacity() * size_of::<P>()) as u64
    }
}
