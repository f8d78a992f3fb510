//! Values of ranges from facts of windows, without their samples.

use model::{FilledWindows, PERIOD_MAX, WINDOWS_MAX, WindowFacts, WindowSamples, Windows};

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
    filled: FilledWindows,
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
    /// Returns the windows of the first period, if all of them have at least `samples_min` samples and
    /// they are few. The samples of each later window are those of the one a period before, moved
    /// with the window.
    #[inline]
    pub(super) fn period(
        &self,
        samples_min: usize,
    ) -> Option<impl ExactSizeIterator<Item = KnownWindow>> {
        let counts = &self.facts.counts[..self.filled.period];
        let is_short = counts.len() <= PERIOD_MAX && counts.iter().all(|c| *c >= samples_min);
        is_short.then(|| self.windows_of_period())
    }

    /// Returns the number of windows of the first period.
    #[inline]
    pub(super) fn period_len(&self) -> usize {
        self.filled.period
    }

    /// Returns the windows of the first period, of which some may have no samples.
    #[inline]
    pub(super) fn windows_of_period(&self) -> impl ExactSizeIterator<Item = KnownWindow> + Clone {
        let WindowFacts { counts, first_ms, last_ms, .. } = self.facts;
        let ends = first_ms.iter().zip(last_ms);
        let samples = counts[..self.filled.period].iter().zip(ends).enumerate();
        samples.map(|(index, (count, (first_ms, last_ms)))| KnownWindow {
            samples: WindowSamples { count: *count, first_ms: *first_ms, last_ms: *last_ms },
            start_ms: self.windows.after_ms(index),
            end_ms: self.windows.end_ms(index),
        })
    }

    /// Returns the windows with at least `samples_min` samples.
    #[inline]
    pub(super) fn of_samples(&self, samples_min: usize) -> FoundWindows {
        let counts = &self.facts.counts[..self.filled.period];
        if counts.iter().all(|count| *count >= samples_min) {
            return FoundWindows::All;
        }
        let mut words = [0; WINDOWS_MAX / 64];
        for (index, count) in counts.iter().cycle().take(self.filled.windows).enumerate() {
            if *count >= samples_min {
                set_present(&mut words, index);
            }
        }
        FoundWindows::Some(words)
    }

    /// Returns whether every window has samples.
    #[inline]
    pub(super) fn have_samples(&self) -> bool {
        !self.facts.counts[..self.filled.period].contains(&0)
    }

    /// Writes the number of samples of each window.
    #[inline]
    pub(super) fn count_samples(&self, out: &mut [f64]) {
        match &self.facts.counts[..self.filled.period] {
            [count] => out.fill(*count as f64),
            counts => {
                for out in out.chunks_mut(counts.len()) {
                    out.iter_mut().zip(counts).for_each(|(out, count)| *out = *count as f64);
                }
            }
        }
    }

    /// Writes the value of each window with samples; returns the windows with a value.
    #[inline]
    pub(super) fn each(
        &self,
        out: &mut [f64],
        mut value: impl FnMut(usize, KnownWindow) -> Option<f64>,
    ) -> FoundWindows {
        let mut words = [0; WINDOWS_MAX / 64];
        let mut first = 0;
        for (index, out) in out.iter_mut().enumerate() {
            if index - first == self.filled.period {
                first = index;
            }
            let window = self.window(index - first, first);
            if window.samples.count > 0
                && let Some(value) = value(index, window)
            {
                *out = value;
                set_present(&mut words, index);
            }
        }
        FoundWindows::Some(words)
    }

    /// Returns the window that is `later` windows after window `index` of the first period.
    #[inline]
    fn window(&self, index: usize, later: usize) -> KnownWindow {
        let mut samples = self.facts.samples(index);
        let moved_ms = later as i64 * self.windows.step_ms;
        samples.first_ms += moved_ms;
        samples.last_ms += moved_ms;
        let index = index + later;
        let (start_ms, end_ms) = (self.windows.after_ms(index), self.windows.end_ms(index));
        KnownWindow { samples, start_ms, end_ms }
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
        assert!((1..=filled.windows).contains(&filled.period), "windows repeat after some of them");
        let are_empty = filled.period == 1 && facts.counts[0] == 0;
        (!are_empty).then_some(KnownWindows { facts, filled, windows })
    }

    /// Sets the presence of steps from `done` on, of which none is set.
    #[inline]
    pub(super) fn set_found(&self, found: &FoundWindows, done: usize, presence: &mut [u64]) {
        match found {
            FoundWindows::None => {}
            FoundWindows::All => set_all_present(presence, done..done + self.filled.windows),
            FoundWindows::Some(words) => copy_bits(presence, done, words, self.filled.windows),
        }
    }
}
