//! Values of ranges from facts of windows, without their samples.

use model::{FilledWindows, WindowFacts, WindowSamples, Windows};

use crate::tile::set_all_present;

/// Windows with samples whose facts are known.
pub(super) struct KnownWindows<'a> {
    pub(super) facts: &'a WindowFacts,
    /// True if the samples of each window are those of the first one, moved with the window.
    pub(super) are_alike: bool,
    /// Number of windows.
    count: usize,
    windows: Windows,
}

/// A window, and its samples.
#[derive(Clone, Copy)]
pub(super) struct KnownWindow {
    pub(super) samples: WindowSamples,
    /// Start of the window, exclusive.
    pub(super) start_ms: i64,
    pub(super) end_ms: i64,
}

impl KnownWindows<'_> {
    /// Returns a window.
    #[inline]
    pub(super) fn window(&self, index: usize) -> KnownWindow {
        let (start_ms, end_ms) = (self.windows.after_ms(index), self.windows.end_ms(index));
        let mut samples = self.facts.samples[if self.are_alike { 0 } else { index }];
        if self.are_alike {
            let moved_ms = index as i64 * self.windows.step_ms;
            samples.first_ms += moved_ms;
            samples.last_ms += moved_ms;
        }
        KnownWindow { samples, start_ms, end_ms }
    }

    /// Writes the value of each window with samples; returns a bit for each.
    #[inline]
    pub(super) fn each(
        &self,
        out: &mut [f64],
        mut value: impl FnMut(usize, KnownWindow) -> Option<f64>,
    ) -> u64 {
        let mut word = 0;
        for (index, out) in out.iter_mut().enumerate() {
            let window = self.window(index);
            if window.samples.count > 0
                && let Some(value) = value(index, window)
            {
                *out = value;
                word |= 1 << index;
            }
        }
        word
    }

    /// Returns a bit for each window.
    #[inline]
    pub(super) fn all(&self) -> u64 {
        u64::MAX >> (64 - self.count)
    }
}

impl<'a> KnownWindows<'a> {
    /// Returns the first of some windows, whose facts were written; `None` if all are empty.
    #[inline]
    pub(super) fn new(
        filled: FilledWindows,
        facts: &'a WindowFacts,
        windows: Windows,
    ) -> Option<KnownWindows<'a>> {
        let FilledWindows { windows: count, are_alike, .. } = filled;
        let are_empty = are_alike && facts.samples[0].count == 0;
        (!are_empty).then_some(KnownWindows { facts, are_alike, count, windows })
    }

    /// Sets the presence of steps from `done` on; `word` has a bit for each window with a value.
    #[inline]
    pub(super) fn set_present(&self, word: u64, done: usize, presence: &mut [u64]) {
        if word == self.all() {
            set_all_present(presence, done..done + self.count);
            return;
        }
        let shift = done % 64;
        presence[done / 64] |= word << shift;
        if shift > 0 && word >> (64 - shift) != 0 {
            presence[done / 64 + 1] |= word >> (64 - shift);
        }
    }
}
