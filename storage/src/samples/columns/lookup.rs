//! Looks up the newest samples of steps in a column.

use model::{FilledSteps, LookupSteps, stale_nan};
use smallvec::SmallVec;

use super::column::Column;
use super::packed::Times;
use super::stretches::Stretch;
use crate::samples::repeated::{PERIODS_AT_ONCE, Repetition, spread};

/// Number of steps whose samples are found together.
const FOUND_AT_ONCE: usize = 64;

impl Column {
    /// Writes the newest value up to each step to `out`, for the first steps up to `until_ms`. The
    /// first step sees no sample before index `from - 1`. The result counts the samples from index
    /// `from` on that the steps have passed.
    ///
    /// Writes a staleness marker for steps without a value. Writes nothing if the first step is
    /// before the first sample.
    pub(crate) fn fill_steps(
        &self,
        from: usize,
        steps: LookupSteps,
        until_ms: i64,
        out: &mut [f64],
    ) -> FilledSteps {
        let count = steps.count_until(until_ms).min(out.len());
        let passed = from + self.count_until(from, steps.first_ms);
        let Some(newest) = passed.checked_sub(1).filter(|_| count > 0 && steps.step_ms > 0) else {
            return FilledSteps::default();
        };
        let out = &mut out[..count];
        let are_all_seen = match self.stretches() {
            Some(stretches) => self.fill_stretches(steps, stretches.ending_after(newest), out),
            None => self.fill_stretch(self.as_stretch(), steps, out) && !self.has_stale(),
        };
        let end = from + self.count_until(from, steps.time(count - 1));
        let last = end - 1;
        FilledSteps {
            steps: count,
            samples: end - from,
            newest_ms: self.time(last),
            newest: self.value_or_marker(last),
            are_all_seen,
        }
    }

    /// Writes the values of steps, in stretches of which the first one is not after the first step.
    /// Returns whether each step has one.
    fn fill_stretches(
        &self,
        steps: LookupSteps,
        stretches: impl Iterator<Item = Stretch>,
        out: &mut [f64],
    ) -> bool {
        let (mut done, mut are_all_seen) = (0, true);
        for stretch in stretches {
            if done == out.len() {
                break;
            }
            let before = steps.count_until(self.time(stretch.start).saturating_sub(1));
            if before > done {
                // A staleness marker is newer than the stretch before.
                let before = before.min(out.len());
                out[done..before].fill(stale_nan());
                (done, are_all_seen) = (before, false);
            }
            let next_ms = if stretch.end < self.len() { self.time(stretch.end) } else { i64::MAX };
            let end = steps.count_until(next_ms.saturating_sub(1)).min(out.len());
            if end > done {
                are_all_seen &= self.fill_stretch(stretch, steps.from(done), &mut out[done..end]);
                done = end;
            }
        }
        out[done..].fill(stale_nan());
        are_all_seen && done == out.len()
    }

    /// Writes the values of steps that see samples of a stretch. Returns whether each of them is
    /// within the lookback.
    fn fill_stretch(&self, stretch: Stretch, steps: LookupSteps, out: &mut [f64]) -> bool {
        let period = self.period(stretch, steps.step_ms);
        let filled = period.and_then(|period| match period {
            1 => Some(self.fill_strided(stretch, self.strided(stretch, steps)?, steps, out)),
            _ => self.fill_repeated(stretch, period, steps, out),
        });
        filled.unwrap_or_else(|| self.fill_found(stretch, steps, out))
    }

    /// Writes the values of steps whose samples repeat after `period` steps, as
    /// [`Column::fill_strided`]. Returns `None`, without effect, if those of each period are not a
    /// fixed number of samples apart.
    fn fill_repeated(
        &self,
        stretch: Stretch,
        period: usize,
        steps: LookupSteps,
        out: &mut [f64],
    ) -> Option<bool> {
        let all = self.strided_by_step(stretch, period, steps)?;
        let (mut are_all_seen, mut done) = (true, 0);
        for out in out.chunks_mut(period * PERIODS_AT_ONCE) {
            let mut values = [0.0; PERIODS_AT_ONCE];
            for (step, strided) in all.iter().enumerate().take(out.len()) {
                let first = strided.first + done / period * strided.stride;
                let strided = StridedSamples { first, ..*strided };
                let values = &mut values[..(out.len() - step).div_ceil(period)];
                let steps = every_step(steps, done + step, period);
                are_all_seen &= self.fill_strided(stretch, strided, steps, values);
                spread(values, &mut out[step..], period);
            }
            done += out.len();
        }
        Some(are_all_seen)
    }

    /// Returns the number of steps after which their samples in a stretch repeat, if that is known.
    pub(super) fn period(&self, stretch: Stretch, step_ms: i64) -> Option<usize> {
        let sample_ms = match (stretch.step_ms, self.times()) {
            (Some(sample_ms), _) => sample_ms,
            (None, Times::Near { step_ms: sample_ms, .. }) => *sample_ms,
            _ => return None,
        };
        Repetition::of(step_ms, sample_ms).map(|repetition| repetition.period)
    }

    /// Returns the newest samples of steps in a stretch, if they are a fixed number of samples
    /// apart. The first step is not before the first sample.
    ///
    /// The sample at the expected time up to a step is between `age_min_ms` and `age_max_ms` old.
    /// If both are within `0..sample_ms`, it is the newest one, however early or late it is. Steps
    /// are a multiple of `sample_ms` apart, so this holds for all steps.
    pub(super) fn strided(&self, stretch: Stretch, steps: LookupSteps) -> Option<StridedSamples> {
        let (start, start_ms, sample_ms, off_ms) = match (stretch.step_ms, self.times()) {
            (Some(step_ms), _) => (stretch.start, self.time(stretch.start), step_ms, [0, 0]),
            (None, Times::Near { step_ms, off_min_ms, off_max_ms, .. }) => {
                (0, self.min_ms(), *step_ms, [*off_min_ms, *off_max_ms])
            }
            _ => return None,
        };
        if sample_ms < 1 || steps.step_ms < 1 || steps.step_ms % sample_ms != 0 {
            return None;
        }
        let passed_ms = steps.first_ms - start_ms;
        let (passed, rest_ms) = ((passed_ms / sample_ms) as usize, passed_ms % sample_ms);
        let [age_max_ms, age_min_ms] = off_ms.map(|off_ms| rest_ms - i64::from(off_ms));
        let is_newest = age_min_ms >= 0 && age_max_ms < sample_ms;
        let is_seen = age_max_ms < steps.lookback_ms;
        if !is_newest || !is_seen && age_min_ms < steps.lookback_ms {
            return None;
        }
        let stride = (steps.step_ms / sample_ms) as usize;
        Some(StridedSamples { first: start + passed, stride, sample_ms, is_seen })
    }

    /// Returns the newest samples of the first `period` steps, each with those of every `period`th
    /// step after it; see [`Column::strided`].
    pub(super) fn strided_by_step(
        &self,
        stretch: Stretch,
        period: usize,
        steps: LookupSteps,
    ) -> Option<SmallVec<[StridedSamples; 4]>> {
        (0..period).map(|step| self.strided(stretch, every_step(steps, step, period))).collect()
    }

    /// Writes the values of samples a fixed number apart; later steps see the last sample.
    fn fill_strided(
        &self,
        stretch: Stretch,
        strided: StridedSamples,
        steps: LookupSteps,
        out: &mut [f64],
    ) -> bool {
        let StridedSamples { first, stride, is_seen, .. } = strided;
        let last = stretch.end - 1;
        let left = last.checked_sub(first);
        let count = left.map_or(0, |left| out.len().min(left / stride + 1));
        if is_seen && count > 0 {
            self.read_strided(first, stride, &mut out[..count]);
        } else {
            out[..count].fill(stale_nan());
        }
        let (last_ms, newest) = (self.time(last), self.value(last));
        let later = &mut out[count..];
        let old_ms = last_ms.saturating_add(steps.lookback_ms).saturating_sub(1);
        let seen = steps.count_until(old_ms).saturating_sub(count).min(later.len());
        let (seen, old) = later.split_at_mut(seen);
        seen.fill(newest);
        old.fill(stale_nan());
        (is_seen || count == 0) && old.is_empty()
    }

    /// Finds the sample of each step, and writes its value.
    fn fill_found(&self, stretch: Stretch, steps: LookupSteps, out: &mut [f64]) -> bool {
        let (mut are_all_seen, mut done) = (true, 0);
        for values in out.chunks_mut(FOUND_AT_ONCE) {
            let steps = steps.from(done);
            let (mut at, mut times_ms) = ([0; FOUND_AT_ONCE], [0; FOUND_AT_ONCE]);
            let (at, times_ms) = (&mut at[..values.len()], &mut times_ms[..values.len()]);
            self.find_each(stretch, steps, 0, at, times_ms);
            let mut old = 0_u64;
            for (step, time_ms) in times_ms.iter().enumerate() {
                old |= u64::from(steps.time(step) - time_ms >= steps.lookback_ms) << step;
            }
            self.values().gather(at, values);
            are_all_seen &= old == 0;
            while old != 0 {
                values[old.trailing_zeros() as usize] = stale_nan();
                old &= old - 1;
            }
            done += values.len();
        }
        are_all_seen
    }
}

/// Returns every `period`th step, from a step on.
fn every_step(steps: LookupSteps, first: usize, period: usize) -> LookupSteps {
    let step_ms = steps.step_ms * period as i64;
    LookupSteps { first_ms: steps.time(first), step_ms, ..steps }
}

/// Newest samples of steps, a fixed number of samples apart.
#[derive(Clone, Copy)]
pub(super) struct StridedSamples {
    /// Index for the first step; it may be after the last sample.
    pub(super) first: usize,
    pub(super) stride: usize,
    /// Expected distance of two samples.
    pub(super) sample_ms: i64,
    /// True if the samples are within the lookback, false if none is.
    pub(super) is_seen: bool,
}
