//! Decreases of a counter, whose values before are added to the increases of windows.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Pieces, Place};

/// Maximum number of decreases in a window. The sum of more depends on the order of additions in a
/// way that only the reader of samples knows.
const FALLS_MAX: usize = 32;

/// Value before a decrease, with the number of the sample after it.
struct Fall {
    number: usize,
    before: f64,
}

/// Decreases in some windows, ascending.
#[derive(Default)]
pub(crate) struct Falls(SmallVec<[Fall; 8]>);

impl Pieces<'_> {
    /// Returns the decreases after `first` and up to `last`; `None` if they are not known.
    pub(crate) fn falls(&self, first: Place, last: Place) -> Option<Falls> {
        let mut all = SmallVec::new();
        for at in first.piece..=last.piece {
            let (piece, number) = (&self.pieces[at], self.numbers[at]);
            if at > first.piece {
                let before = &self.pieces[at - 1];
                let before = before.value(before.len() - 1);
                if piece.value(0) < before {
                    all.push(Fall { number, before });
                }
            }
            let start = if at == first.piece { first.at + 1 } else { 1 };
            let end = if at == last.piece { last.at + 1 } else { piece.len() };
            let push = |at: usize| {
                all.push(Fall { number: number + at, before: piece.value(at - 1) });
            };
            if start < end && !piece.each_fall(start..end, push) {
                return None;
            }
        }
        Some(Falls(all))
    }
}

impl Falls {
    /// Returns the numbers of the samples after each decrease, ascending.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|fall| fall.number)
    }

    /// Adds the values before the decreases to the increases of windows whose samples repeat `stride`
    /// samples later; `ends` are the numbers of the first and last samples of the first period.
    /// Returns the number of windows up to the first one with too many decreases.
    pub(super) fn add_alike(
        &self,
        rises: &mut [f64],
        ends: &[Range<usize>],
        stride: usize,
    ) -> usize {
        let period = ends.len();
        // Repetitions that begin before the decrease and end with or after it.
        let seeing = |fall: &Fall, ends: &Range<usize>| {
            let start = fall.number.saturating_sub(ends.end).div_ceil(stride);
            start..fall.number.saturating_sub(ends.start).div_ceil(stride)
        };
        let mut count = rises.len();
        for (window, ends) in ends.iter().enumerate() {
            let of_falls = self.0.iter().map(|fall| seeing(fall, ends));
            let mut pairs = of_falls.clone().zip(of_falls.skip(FALLS_MAX));
            if let Some((_, later)) = pairs.find(|(earlier, later)| later.start < earlier.end) {
                count = count.min(window + later.start * period);
            }
        }
        for (window, ends) in ends.iter().enumerate() {
            for fall in &self.0 {
                let Range { start, end } = seeing(fall, ends);
                let of_window = rises[..count].iter_mut().skip(window).step_by(period);
                of_window.take(end).skip(start).for_each(|rise| *rise += fall.before);
            }
        }
        count
    }

    /// Adds the values before the decreases to the increases of windows, given the numbers of their
    /// first and last samples. Returns the number of windows up to the first one with too many
    /// decreases.
    pub(super) fn add_each(&self, rises: &mut [f64], firsts: &[usize], lasts: &[usize]) -> usize {
        let falls = &self.0[..];
        let passed = |from: usize, number: usize| {
            falls[from..].iter().take_while(|fall| fall.number <= number).count()
        };
        if falls.is_empty() {
            return rises.len();
        }
        let (mut from, mut to) = (0, 0);
        for (window, rise) in rises.iter_mut().enumerate() {
            from += passed(from, firsts[window]);
            to = to.max(from);
            to += passed(to, lasts[window]);
            if to - from > FALLS_MAX {
                return window;
            }
            falls[from..to].iter().for_each(|fall| *rise += fall.before);
        }
        rises.len()
    }
}
