//! Division of a column's samples into stretches: without staleness markers, at one distance.
//!
//! ```text
//! samples     a b c d M     e f g M h i
//! stretches  [a b c d]     [e f g] [h i]
//! ```
//!
//! Readers of facts and lookups process stretch by stretch, each as if it were a column of its own.
//! Samples in no stretch are staleness markers (M).

use std::ops::Range;

use model::{is_stale, stale_nan};

/// Minimum number of samples per stretch, on average, and number of stretches beyond that.
const SAMPLES_PER_STRETCH: usize = 8;
const STRETCHES_EXTRA: usize = 4;

/// Consecutive samples of a column, at least one, without staleness markers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Distance of the samples if they are evenly spaced.
    pub(crate) step_ms: Option<i64>,
}

/// Stretches of a column, ascending.
#[derive(Debug, PartialEq)]
pub(super) struct Stretches {
    /// Distance of the samples of each stretch; `None` if they are not evenly spaced.
    step_ms: Option<i64>,
    ranges: Box<[Range<u32>]>,
}

impl Stretch {
    /// Returns the number of samples.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }
}

impl Stretches {
    /// Divides samples; `None` into too many stretches.
    pub(super) fn of(times: &[i64], values: &[f64]) -> Option<Stretches> {
        let count_max = times.len() / SAMPLES_PER_STRETCH + STRETCHES_EXTRA;
        let step_ms = main_step_ms(times);
        let is_distant = |at: usize| times[at].checked_sub(times[at - 1]) != Some(step_ms);
        let even = divide(values, count_max, is_distant)
            .map(|ranges| Stretches { step_ms: Some(step_ms), ranges });
        even.or_else(|| {
            let ranges = divide(values, count_max, |_| false)?;
            Some(Stretches { step_ms: None, ranges })
        })
    }

    /// Returns the number of stretches.
    pub(super) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the size in memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Stretches>() + size_of_val(&*self.ranges)
    }

    /// Returns the stretches that end after a sample.
    #[inline]
    pub(super) fn ending_after(&self, at: usize) -> impl Iterator<Item = Stretch> {
        let first = self.ranges.partition_point(|range| range.end as usize <= at);
        let (ranges, step_ms) = (&self.ranges[first..], self.step_ms);
        ranges.iter().map(move |range| Stretch {
            start: range.start as usize,
            end: range.end as usize,
            step_ms,
        })
    }

    /// Returns whether a sample is a staleness marker.
    #[inline]
    pub(super) fn is_marker(&self, at: usize) -> bool {
        self.ending_after(at).next().is_none_or(|stretch| at < stretch.start)
    }

    /// Writes the staleness markers among the values from index `from` on.
    pub(super) fn mark(&self, from: usize, out: &mut [f64]) {
        let end = from + out.len();
        let mut at = from;
        for stretch in self.ending_after(from) {
            let start = stretch.start.clamp(at, end);
            out[at - from..start - from].fill(stale_nan());
            at = stretch.end.min(end);
            if at == end {
                return;
            }
        }
        out[at - from..].fill(stale_nan());
    }
}

/// Returns the median of three distances: a gap or an early scrape at one place does not matter.
fn main_step_ms(times: &[i64]) -> i64 {
    let last = times.len() - 1;
    let mut distances = [0, last / 2, last.saturating_sub(1)].map(|at| {
        let next_ms = times.get(at + 1).copied().unwrap_or(times[last]);
        next_ms.saturating_sub(times[at])
    });
    distances.sort_unstable();
    distances[1]
}

/// Divides values at staleness markers, and before indices; `None` into more than `count_max`
/// ranges.
fn divide(
    values: &[f64],
    count_max: usize,
    divides: impl Fn(usize) -> bool,
) -> Option<Box<[Range<u32>]>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    let mut start = None;
    for (at, value) in values.iter().enumerate() {
        let is_end = start.is_some_and(|start| at > start && (is_stale(*value) || divides(at)));
        if let Some(start) = start.take_if(|_| is_end) {
            if ranges.len() == count_max {
                return None;
            }
            ranges.push(start as u32..at as u32);
        }
        if start.is_none() && !is_stale(*value) {
            start = Some(at);
        }
    }
    if let Some(start) = start {
        ranges.push(start as u32..values.len() as u32);
    }
    Some(ranges.into())
}
