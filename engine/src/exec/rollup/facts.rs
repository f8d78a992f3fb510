//! Values of ranges from facts of windows, without their samples.

use model::{FilledWindows, WINDOWS_MAX, WindowFacts, WindowSamples, Windows};

use crate::tile::{copy_bits, set_all_present, set_present};

/// Windows with a value.
#[derive(Debug)]
pub(super) enum FoundWindows {
    None,
    All,
    /// Windows whose bits are set.
    Some([u64; WINDOWS_MAX / 64]),
}

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
        let mut samples = self.facts.samples(if self.are_alike { 0 } else { index });
        if self.are_alike {
            let moved_ms = index as i64 * self.windows.step_ms;
            samples.first_ms += moved_ms;
            samples.last_ms += moved_ms;
        }
        KnownWindow { samples, start_ms, end_ms }
    }

    /// Writes the value of each window with samples; returns the windows with a value.
    #[inline]
    pub(super) fn each(
        &self,
        out: &mut [f64],
        mut value: impl FnMut(usize, KnownWindow) -> Option<f64>,
    ) -> FoundWindows {
        let mut words = [0; WINDOWS_MAX / 64];
        for (index, out) in out.iter_mut().enumerate() {
            let window = self.window(index);
            if window.samples.count > 0
                && let Some(value) = value(index, window)
            {
                *out = value;
                set_present(&mut words, index);
            }
        }
        FoundWindows::Some(words)
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
        let are_empty = are_alike && facts.counts[0] == 0;
        (!are_empty).then_some(KnownWindows { facts, are_alike, count, windows })
    }

    /// Sets the presence of steps from `done` on, of which none is set.
    #[inline]
    pub(super) fn set_found(&self, found: &FoundWindows, done: usize, presence: &mut [u64]) {
        match found {
            FoundWindows::None => {}
            FoundWindows::All => set_all_present(presence, done..done + self.count),
            FoundWindows::Some(words) => copy_bits(presence, done, words, self.count),
        }
    }
}
