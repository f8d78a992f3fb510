//! Exact summaries of samples: what functions over long ranges need of an hour.
//!
//! A seal writes the summaries of each block next to it. Summaries of adjacent samples merge, so that
//! any range made of whole hours is answered without its samples.
//!
//! Only finite floats without start timestamps are summarized. Readers of all other series, and of
//! blocks without summaries, read the samples.

pub(crate) mod codec;
pub(crate) mod edges;

use crate::window::Window;

/// Duration of a bucket. A bucket is open on the left, as the ranges of queries are.
pub(crate) const BUCKET_MS: i64 = 60 * 60 * 1000;
/// Maximum number of summaries of a series in a window: the buckets in it. Of the first bucket,
/// only the last ms is in the window.
pub(crate) const SLOTS: usize = 3;
/// Bound of integers that floats hold exactly.
const EXACT_MAX: f64 = (1_u64 << 53) as f64;

/// Summary of some adjacent floats of a series; at least one.
///
/// Units: timestamps in ms since the epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
    /// Time of the last sample but one; the minimum if there is only one sample.
    pub(crate) before_last_ms: i64,
    pub(crate) count: u64,
    pub(crate) first: f64,
    pub(crate) last: f64,
    /// The first of the smallest values; NaN loses to every number.
    pub(crate) min: f64,
    /// The first of the largest values; NaN loses to every number.
    pub(crate) max: f64,
    /// Compensated sum of the values.
    pub(crate) sum: f64,
    /// True if the sum has no rounding error.
    pub(crate) is_sum_exact: bool,
    /// Sum of the values before each decrease, exact or of a single value.
    pub(crate) resets: f64,
}

impl Summary {
    /// Returns the summary of one sample.
    pub(crate) fn of_one(time_ms: i64, value: f64) -> Summary {
        Summary {
            first_ms: time_ms,
            last_ms: time_ms,
            before_last_ms: i64::MIN,
            count: 1,
            first: value,
            last: value,
            min: value,
            max: value,
            // As a sum that begins with 0: never -0.
            sum: value + 0.0,
            is_sum_exact: is_exact(value),
            resets: 0.0,
        }
    }

    /// Returns the summary of ascending samples; `None` if there are none, if one is not finite, or
    /// if the sum of the resets depends on the order of additions.
    pub(crate) fn of(times: &[i64], values: &[f64]) -> Option<Summary> {
        if !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let found = Summary::of_any(times, values)?;
        let reset_count = values.windows(2).filter(|pair| pair[1] < pair[0]).count();
        let are_resets_exact = reset_count < 2 || found.is_sum_exact;
        (are_resets_exact && found.sum.is_finite()).then_some(found)
    }

    /// Returns the summary of ascending samples, which may be NaN or infinite.
    pub(crate) fn of_any(times: &[i64], values: &[f64]) -> Option<Summary> {
        let (first, last) = (*values.first()?, *values.last()?);
        let mut found = Summary::of_one(*times.first()?, first);
        let (mut absolute, mut are_integers) = (0.0, true);
        let mut sum = CompensatedSum::default();
        for value in values {
            absolute += value.abs();
            are_integers &= value.trunc() == *value;
            sum.add(*value);
            found.min = smaller(found.min, *value);
            found.max = larger(found.max, *value);
        }
        let falls = values.windows(2).filter(|pair| pair[1] < pair[0]);
        found.resets = falls.map(|pair| pair[0]).sum::<f64>() + 0.0;
        found.is_sum_exact = are_integers && absolute < EXACT_MAX;
        found.sum = sum.total();
        found.last = last;
        found.last_ms = *times.last()?;
        found.count = times.len() as u64;
        if let Some(at) = times.len().checked_sub(2) {
            found.before_last_ms = times[at];
        }
        Some(found)
    }

    /// Returns the value before a decrease between these samples and the next ones, or 0.
    #[inline]
    pub(crate) fn reset_before(&self, next: &Summary) -> f64 {
        if next.first < self.last { self.last } else { 0.0 }
    }

    /// Returns the summary of these samples and the next ones; `None` if the sum of the resets would
    /// depend on the order of additions.
    pub(crate) fn merged(&self, next: &Summary) -> Option<Summary> {
        let resets = [self.resets, self.reset_before(next), next.resets];
        let terms = resets.iter().filter(|value| **value != 0.0).count();
        let total = resets.iter().map(|value| value.abs()).sum::<f64>();
        let are_exact = resets.iter().all(|value| is_exact(*value)) && total < EXACT_MAX;
        if terms > 1 && !are_exact {
            return None;
        }
        let mut sum = CompensatedSum::default();
        sum.add(self.sum);
        sum.add(next.sum);
        Some(Summary {
            first_ms: self.first_ms,
            last_ms: next.last_ms,
            before_last_ms: if next.count == 1 { self.last_ms } else { next.before_last_ms },
            count: self.count + next.count,
            first: self.first,
            last: next.last,
            min: smaller(self.min, next.min),
            max: larger(self.max, next.max),
            sum: sum.total(),
            is_sum_exact: self.is_sum_exact
                && next.is_sum_exact
                && self.absolute_max() + next.absolute_max() < EXACT_MAX,
            resets: resets.iter().sum::<f64>() + 0.0,
        })
    }

    /// Returns a bound of the sum of absolute values.
    fn absolute_max(&self) -> f64 {
        self.count as f64 * self.min.abs().max(self.max.abs())
    }

    /// Returns the last sample alone.
    pub(crate) fn last_alone(&self) -> Summary {
        Summary::of_one(self.last_ms, self.last)
    }
}

/// Returns the smaller value, the first one of equals. NaN loses to every number.
#[inline]
pub(crate) fn smaller(first: f64, second: f64) -> f64 {
    if second < first || first.is_nan() { second } else { first }
}

/// Returns the larger value, the first one of equals. NaN loses to every number.
#[inline]
pub(crate) fn larger(first: f64, second: f64) -> f64 {
    if second > first || first.is_nan() { second } else { first }
}

/// Returns whether sums of such values have no rounding error up to 2^53.
fn is_exact(value: f64) -> bool {
    value.trunc() == value && value.abs() < EXACT_MAX
}

/// Sum with the compensation of Neumaier.
///
/// Source: `kahanSumInc` of Prometheus.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CompensatedSum {
    sum: f64,
    compensation: f64,
}

impl CompensatedSum {
    #[inline]
    pub(crate) fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        if sum.is_infinite() {
            self.compensation = 0.0;
        } else if self.sum.abs() >= value.abs() {
            self.compensation += (self.sum - sum) + value;
        } else {
            self.compensation += (value - sum) + self.sum;
        }
        self.sum = sum;
    }

    #[inline]
    pub(crate) fn total(&self) -> f64 {
        if self.sum.is_infinite() { self.sum } else { self.sum + self.compensation }
    }
}

/// Returns the bucket of a time among those of its window.
pub(crate) fn slot_of(window: Window, time_ms: i64) -> usize {
    ((time_ms - window.start_ms() + BUCKET_MS - 1) / BUCKET_MS) as usize
}

/// Returns the summaries of the samples of a window, one for each bucket with samples; `None` if
/// some cannot be summarized.
pub(crate) fn of_window(
    window: Window,
    times: &[i64],
    values: &[f64],
) -> Option<[Option<Summary>; SLOTS]> {
    let mut found = [None; SLOTS];
    let mut start = 0;
    for (slot, found) in found.iter_mut().enumerate() {
        let end = start + times[start..].partition_point(|time| slot_of(window, *time) <= slot);
        if end > start {
            *found = Some(Summary::of(&times[start..end], &values[start..end])?);
        }
        start = end;
    }
    Some(found)
}

#[cfg(test)]
mod tests;
