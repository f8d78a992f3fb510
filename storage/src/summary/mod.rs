//! Exact summaries of samples: what functions over long ranges need of an hour.
//!
//! A seal writes the summaries of each block next to it. Summaries of adjacent samples merge, so that
//! any range made of whole hours is answered without its samples.
//!
//! Only finite floats are summarized, without their start timestamps. Staleness markers are no samples
//! of a range, so only the last one of an hour is noted. A series has no summaries if a marker without
//! a sample is at the first ms of the window. Readers of all other series, and of blocks without
//! summaries, read the samples.

pub(crate) mod codec;
pub(crate) mod edges;

use model::{is_any_stale, is_stale};

use crate::window::Window;

/// Duration of a bucket. A bucket is open on the left, as the ranges of queries are.
pub(crate) const BUCKET_MS: i64 = 60 * 60 * 1000;
/// Maximum number of summaries of a series in a window: the buckets in it. Of the first bucket,
/// only the last ms is in the window.
pub(crate) const SLOTS: usize = 3;
/// Bound of integers that floats hold exactly.
const EXACT_MAX: f64 = (1_u64 << 53) as f64;
/// Bound of the absolute values of summarized samples, added up: sums of years do not overflow.
const ABSOLUTE_MAX: f64 = 1e290;

/// Summaries of a series in a window, by bucket.
pub(crate) type WindowSummaries = [Option<Summary>; SLOTS];

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
    /// Sum of the values, rounded.
    pub(crate) sum: f64,
    /// Error of the rounded sum: added to it, the sum has twice the digits.
    pub(crate) sum_rest: f64,
    /// Sum of the values before each decrease, exact or of a single value. NaN if it would depend on
    /// the order of additions.
    pub(crate) resets: f64,
    /// True if a staleness marker follows the last sample, in the same bucket.
    pub(crate) is_ended: bool,
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
            sum_rest: 0.0,
            resets: 0.0,
            is_ended: false,
        }
    }

    /// Returns the summary of ascending samples; `None` if there are none, or if one is not finite or
    /// very large.
    pub(crate) fn of(times: &[i64], values: &[f64]) -> Option<Summary> {
        let absolute = values.iter().map(|value| value.abs()).sum::<f64>();
        // Also false for NaN.
        let are_bounded = absolute < ABSOLUTE_MAX;
        let mut found = Summary::of_any(times, values).filter(|_| are_bounded)?;
        let reset_count = values.windows(2).filter(|pair| pair[1] < pair[0]).count();
        let are_integers = || values.iter().all(|value| value.trunc() == *value);
        let are_resets_exact = reset_count < 2 || absolute < EXACT_MAX && are_integers();
        if !are_resets_exact {
            found.resets = f64::NAN;
        }
        Some(found)
    }

    /// Returns the summary of ascending samples, which may be NaN or infinite.
    fn of_any(times: &[i64], values: &[f64]) -> Option<Summary> {
        let mut found = Summary::of_ends(times, values)?;
        found.set_extremes(values);
        found.set_sum(values);
        let falls = values.windows(2).filter(|pair| pair[1] < pair[0]);
        found.resets = falls.map(|pair| pair[0]).sum::<f64>() + 0.0;
        Some(found)
    }

    /// Returns the summary of ascending samples that knows only their number and both ends.
    pub(crate) fn of_ends(times: &[i64], values: &[f64]) -> Option<Summary> {
        let (first, last) = (*values.first()?, *values.last()?);
        let before_last = times.len().checked_sub(2).map(|at| times[at]);
        Some(Summary {
            last_ms: *times.last()?,
            before_last_ms: before_last.unwrap_or(i64::MIN),
            count: times.len() as u64,
            last,
            ..Summary::of_one(*times.first()?, first)
        })
    }

    /// Sets the smallest and the largest of some values.
    pub(crate) fn set_extremes(&mut self, values: &[f64]) {
        for value in values {
            self.min = smaller(self.min, *value);
            self.max = larger(self.max, *value);
        }
    }

    /// Sets the sum of some values.
    pub(crate) fn set_sum(&mut self, values: &[f64]) {
        let mut sum = CompensatedSum::default();
        values.iter().for_each(|value| sum.add(*value));
        (self.sum, self.sum_rest) = sum.parts();
    }

    /// Returns the value before a decrease between these samples and the next ones, or 0.
    #[inline]
    pub(crate) fn reset_before(&self, next: &Summary) -> f64 {
        if next.first < self.last { self.last } else { 0.0 }
    }

    /// Returns the time of the last sample but one of these samples and the next ones.
    #[inline]
    pub(crate) fn before_last_ms_with(&self, next: &Summary) -> i64 {
        if next.count == 1 { self.last_ms } else { next.before_last_ms }
    }

    /// Returns the summary of these samples and the next ones.
    pub(crate) fn merged(&self, next: &Summary) -> Summary {
        let all = [self.resets, self.reset_before(next), next.resets];
        let mut resets = all.iter().sum::<f64>() + 0.0;
        if all.iter().filter(|value| **value != 0.0).count() > 1 {
            let total = all.iter().map(|value| value.abs()).sum::<f64>();
            // Also false for NaN.
            let are_exact = total < EXACT_MAX && all.iter().all(|value| is_exact(*value));
            resets = if are_exact { resets } else { f64::NAN };
        }
        let mut sum = CompensatedSum::default();
        sum.add_sum(self);
        sum.add_sum(next);
        let (sum, sum_rest) = sum.parts();
        Summary {
            first_ms: self.first_ms,
            last_ms: next.last_ms,
            before_last_ms: self.before_last_ms_with(next),
            count: self.count + next.count,
            first: self.first,
            last: next.last,
            min: smaller(self.min, next.min),
            max: larger(self.max, next.max),
            sum,
            sum_rest,
            resets,
            is_ended: next.is_ended,
        }
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

    /// Adds the sum of a summary with its rest.
    #[inline]
    pub(crate) fn add_sum(&mut self, summary: &Summary) {
        self.add(summary.sum);
        self.compensation += summary.sum_rest;
    }

    #[inline]
    pub(crate) fn total(&self) -> f64 {
        if self.sum.is_infinite() { self.sum } else { self.sum + self.compensation }
    }

    /// Returns the rounded sum and its error.
    fn parts(&self) -> (f64, f64) {
        let total = self.total();
        // The error of the addition, exactly: `TwoSum` of Knuth.
        let added = total - self.sum;
        let rest = (self.sum - (total - added)) + (self.compensation - added);
        (total, if rest.is_finite() { rest + 0.0 } else { 0.0 })
    }
}

/// Returns the bucket of a time among those of its window.
pub(crate) fn slot_of(window: Window, time_ms: i64) -> usize {
    ((time_ms - window.start_ms() + BUCKET_MS - 1) / BUCKET_MS) as usize
}

/// Returns the summaries of the samples of a window, one for each bucket with samples; `None` if
/// some cannot be summarized.
pub(crate) fn of_window(window: Window, times: &[i64], values: &[f64]) -> Option<WindowSummaries> {
    if !is_any_stale(values) {
        return of_samples(window, times, values);
    }
    let all = || times.iter().copied().zip(values.iter().copied());
    let (plain_times, plain_values): (Vec<i64>, Vec<f64>) =
        all().filter(|(_, value)| !is_stale(*value)).unzip();
    let mut found = of_samples(window, &plain_times, &plain_values)?;
    for (time_ms, _) in all().filter(|(_, value)| is_stale(*value)) {
        match &mut found[slot_of(window, time_ms)] {
            Some(summary) => summary.is_ended |= time_ms > summary.last_ms,
            // It ends samples of the same bucket in the window before.
            None if time_ms == window.start_ms() => return None,
            None => {}
        }
    }
    Some(found)
}

/// Returns the summaries of samples without staleness markers.
fn of_samples(window: Window, times: &[i64], values: &[f64]) -> Option<WindowSummaries> {
    let mut found = [None; SLOTS];
    let mut start = 0;
    for (slot, found) in found.iter_mut().enumerate() {
        let end = start + times[start..].partition_point(|time| slot_of(window, *time) <= slot);
        if end > start {
            *found = Some(Summary::of(&times[start..end], &values[start..end])?);
        }
        start = end;
    }
    // Stored once for all buckets.
    if found.iter().flatten().any(|summary| summary.resets.is_nan()) {
        let several = found.iter_mut().flatten().filter(|summary| summary.count > 1);
        several.for_each(|summary| summary.resets = f64::NAN);
    }
    Some(found)
}

#[cfg(test)]
mod tests;
