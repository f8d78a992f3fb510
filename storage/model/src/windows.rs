//! Facts of evenly spaced windows of a series: what many range functions need instead of samples.
//!
//! The facts do not depend on their source. A cursor may compute them from decoded samples, or read
//! them from stored summaries.

/// Maximum number of windows whose facts are written by one call.
pub const WINDOWS_MAX: usize = 512;

/// Maximum number of windows, and of samples, after which the samples of windows repeat.
pub const PERIOD_MAX: usize = 16;

/// Evenly spaced windows `(end − span, end]`. They may overlap, or have gaps between them.
///
/// Units: ms since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// End of the first window.
    pub first_end_ms: i64,
    /// Distance of windows; 0 if all are the same.
    pub step_ms: i64,
    /// Duration of each window, at least 1.
    pub span_ms: i64,
    /// Number of windows.
    pub count: usize,
}

impl Windows {
    /// Returns the end of a window.
    #[inline]
    pub fn end_ms(&self, window: usize) -> i64 {
        self.first_end_ms + window as i64 * self.step_ms
    }

    /// Returns the start of a window, which is exclusive.
    #[inline]
    pub fn after_ms(&self, window: usize) -> i64 {
        self.end_ms(window).saturating_sub(self.span_ms)
    }

    /// Returns the windows from a window on.
    #[inline]
    #[must_use]
    pub fn from(&self, window: usize) -> Windows {
        Windows { first_end_ms: self.end_ms(window), count: self.count - window, ..*self }
    }

    /// Returns the number of windows that end before a time; all if none ends at it or later.
    #[inline]
    pub fn count_before(&self, time_ms: i64) -> usize {
        if time_ms <= self.first_end_ms {
            return 0;
        }
        if self.step_ms == 0 {
            return self.count;
        }
        let passed_ms = time_ms.saturating_sub(self.first_end_ms).saturating_sub(1);
        usize::try_from(passed_ms / self.step_ms).map_or(self.count, |c| self.count.min(c + 1))
    }
}

/// Facts that a function needs of a window, in addition to its samples' number and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedFact {
    /// Values of the first and last sample.
    Ends,
    /// Value of the first sample, and the difference of the last and the first one.
    Difference,
    /// Value of the first sample, and the increase of a counter.
    Increase,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The sum of all values.
    Sum,
}

/// Windows of a selection, outside of which no sample matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedWindows {
    /// The windows.
    pub windows: Windows,
    /// Needed part of each window.
    pub part: WindowPart,
}

/// Part of a window that a query needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowPart {
    /// Its facts except for the increase.
    Facts,
    /// Its facts with the increase.
    FactsWithIncrease,
    /// Its newest sample, which may be a staleness marker.
    Newest,
    /// All its samples.
    Samples,
}

impl WindowPart {
    /// Returns whether facts of the window are enough.
    pub fn is_facts(self) -> bool {
        matches!(self, WindowPart::Facts | WindowPart::FactsWithIncrease)
    }

    /// Returns the part that includes both.
    pub fn with(self, other: WindowPart) -> WindowPart {
        match (self, other) {
            (a, b) if a == b => a,
            (a, b) if a.is_facts() && b.is_facts() => WindowPart::FactsWithIncrease,
            _ => WindowPart::Samples,
        }
    }
}

/// Number and times of the samples in a window.
///
/// Units: ms since the epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowSamples {
    /// Number of samples. Without samples, the times are not defined.
    pub count: usize,
    /// Time of the first sample.
    pub first_ms: i64,
    /// Time of the last sample.
    pub last_ms: i64,
}

/// Facts of consecutive windows, as arrays.
///
/// Staleness markers are no samples. All facts are to the last bit as if they were computed from
/// the samples in order, except for those of stored summaries: a sum of values that are not integers
/// agrees to 1e-12, and so does an increase with many resets of such values.
#[derive(Debug, Clone)]
pub struct WindowFacts {
    /// Number of samples of each window of the first period. Without samples, no other fact is
    /// defined.
    pub counts: [usize; WINDOWS_MAX],
    /// Time of the first sample of each window of the first period.
    pub first_ms: [i64; WINDOWS_MAX],
    /// Time of the last sample of each window of the first period.
    pub last_ms: [i64; WINDOWS_MAX],
    /// Value of the first sample of each window.
    pub first: [f64; WINDOWS_MAX],
    /// The other fact of each window.
    ///
    /// - [`WantedFact::Ends`]: value of the last sample.
    /// - [`WantedFact::Difference`]: value of the last sample minus that of the first.
    /// - [`WantedFact::Increase`]: this difference plus, in order, the value before each decrease.
    /// - [`WantedFact::Min`], [`WantedFact::Max`]: the first of the extreme values. NaN loses to
    ///   every number; of NaN alone, the last one.
    /// - [`WantedFact::Sum`]: the sum; of samples, if it is exact in every order of additions.
    pub fact: [f64; WINDOWS_MAX],
}

impl WindowFacts {
    /// Returns facts of no windows, on the heap because they have 20 KiB.
    pub fn new() -> Box<WindowFacts> {
        Box::new(WindowFacts {
            counts: [0; WINDOWS_MAX],
            first_ms: [0; WINDOWS_MAX],
            last_ms: [0; WINDOWS_MAX],
            first: [0.0; WINDOWS_MAX],
            fact: [0.0; WINDOWS_MAX],
        })
    }

    /// Returns number and times of the samples of a window of the first period.
    #[inline]
    pub fn samples(&self, window: usize) -> WindowSamples {
        let (first_ms, last_ms) = (self.first_ms[window], self.last_ms[window]);
        WindowSamples { count: self.counts[window], first_ms, last_ms }
    }

    /// Sets number and times of the samples of a window of the first period.
    #[inline]
    pub fn set_samples(&mut self, window: usize, samples: WindowSamples) {
        self.counts[window] = samples.count;
        (self.first_ms[window], self.last_ms[window]) = (samples.first_ms, samples.last_ms);
    }
}

/// Windows whose facts were written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilledWindows {
    /// Number of windows, at most [`WINDOWS_MAX`]; 0 if the facts of the first window are unknown.
    pub windows: usize,
    /// Number of windows after which samples repeat: window `i + period` has the samples of window
    /// `i`, shifted in time by the distance of both. Equal to `windows` if none repeats.
    pub period: usize,
    /// Number of samples in these windows that no earlier call counted.
    pub new_samples: usize,
    /// Number of windows whose facts come from stored summaries alone.
    pub summarized: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_before_a_time_are_counted() {
        let windows = Windows { first_end_ms: 100, step_ms: 20, span_ms: 5, count: 4 };
        let cases = [
            (i64::MIN, 0),
            (100, 0),
            (101, 1),
            (120, 1),
            (121, 2),
            (160, 3),
            (161, 4),
            (i64::MAX, 4),
        ];
        for (time_ms, expected) in cases {
            assert_eq!(windows.count_before(time_ms), expected, "{time_ms}");
        }
        assert_eq!(Windows { step_ms: 0, ..windows }.count_before(101), 4);
    }
}
