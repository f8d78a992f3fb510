//! Looks up the newest values of steps in a column.

use std::ops::Range;

use model::{FilledSteps, LookupSteps, stale_nan};

use super::column::{Column, Times};

/// Number of steps whose samples are found together.
const FOUND_AT_ONCE: usize = 64;
/// Maximum distance of a sample from its expected index. A sample further away is found by binary
/// search.
const MOVES_MAX: usize = 16;

impl Column {
    /// Writes the newest value up to each step to `out`, for the first steps up to `until_ms`. The
    /// first step sees no sample before index `from - 1`. The samples passed are those from `from`
    /// on.
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
            Some(stretches) => self.fill_stretches(
                newest,
                steps,
                stretches.ending_after(newest),
                stretches.step_ms,
                out,
            ),
            None => {
                let all = SampleStretch { range: 0..self.len(), step_ms: self.even_step_ms() };
                self.fill_stretch(&all, newest, steps, out) && !self.has_stale()
            }
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

    /// Writes the values of steps that see samples from index `newest` on, in the stretches that end
    /// after it. Returns whether each step has one.
    fn fill_stretches(
        &self,
        newest: usize,
        steps: LookupSteps,
        stretches: &[Range<u32>],
        step_ms: Option<i64>,
        out: &mut [f64],
    ) -> bool {
        let (mut done, mut are_all_seen) = (0, true);
        for range in stretches {
            if done == out.len() {
                break;
            }
            let range = range.start as usize..range.end as usize;
            let before = steps.count_until(self.time(range.start).saturating_sub(1));
            if before > done {
                // A staleness marker is newer than the stretch before.
                let before = before.min(out.len());
                out[done..before].fill(stale_nan());
                (done, are_all_seen) = (before, false);
            }
            let next_ms = if range.end < self.len() { self.time(range.end) } else { i64::MAX };
            let end = steps.count_until(next_ms.saturating_sub(1)).min(out.len());
            if end > done {
                let newest = newest.max(range.start);
                let stretch = SampleStretch { range, step_ms };
                let steps = steps.from(done);
                are_all_seen &= self.fill_stretch(&stretch, newest, steps, &mut out[done..end]);
                done = end;
            }
        }
        out[done..].fill(stale_nan());
        are_all_seen && done == out.len()
    }

    /// Writes the values of steps that see samples of a stretch, the first one from index `newest`
    /// on. Returns whether each of them is within the lookback.
    fn fill_stretch(
        &self,
        stretch: &SampleStretch,
        newest: usize,
        steps: LookupSteps,
        out: &mut [f64],
    ) -> bool {
        if let Some(sample_ms) = stretch.step_ms
            && sample_ms > 0
            && steps.step_ms % sample_ms == 0
        {
            return self.fill_even(&stretch.range, sample_ms, steps, out);
        }
        let first_ms = self.min_ms();
        match self.times() {
            Times::Even { step_ms } => {
                let time = |at: usize| first_ms + at as i64 * step_ms;
                self.fill_found(&stretch.range, newest, steps, out, time)
            }
            Times::Near { step_ms, off_ms } => {
                let time = |at: usize| first_ms + at as i64 * step_ms + i64::from(off_ms[at]);
                self.fill_found(&stretch.range, newest, steps, out, time)
            }
            Times::Offsets(offsets) => {
                let time = |at: usize| first_ms + i64::from(offsets[at]);
                self.fill_found(&stretch.range, newest, steps, out, time)
            }
            Times::Any(times) => {
                self.fill_found(&stretch.range, newest, steps, out, |at| times[at])
            }
        }
    }

    /// Each step sees the sample `stride` after that of the previous step, and later steps the last
    /// sample.
    fn fill_even(
        &self,
        range: &Range<usize>,
        sample_ms: i64,
        steps: LookupSteps,
        out: &mut [f64],
    ) -> bool {
        let passed_ms = steps.first_ms - self.time(range.start);
        let (first, age_ms) = ((passed_ms / sample_ms) as usize, passed_ms % sample_ms);
        let last = range.len() - 1;
        let mut count = 0;
        let mut is_seen = true;
        if first <= last {
            let stride = (steps.step_ms / sample_ms) as usize;
            count = out.len().min((last - first) / stride + 1);
            is_seen = age_ms < steps.lookback_ms;
            if is_seen {
                self.read_strided(range.start + first, stride, &mut out[..count]);
            } else {
                out[..count].fill(stale_nan());
            }
        }
        let (last_ms, newest) = (self.time(range.start + last), self.value(range.start + last));
        let later = &mut out[count..];
        let old_ms = last_ms.saturating_add(steps.lookback_ms).saturating_sub(1);
        let seen = steps.count_until(old_ms).saturating_sub(count).min(later.len());
        let (seen, old) = later.split_at_mut(seen);
        seen.fill(newest);
        old.fill(stale_nan());
        is_seen && old.is_empty()
    }

    /// Finds the sample of each step near the expected distance from that of the previous one.
    fn fill_found(
        &self,
        range: &Range<usize>,
        newest: usize,
        steps: LookupSteps,
        out: &mut [f64],
        time: impl Fn(usize) -> i64,
    ) -> bool {
        let (first, last) = (range.start, range.end - 1);
        let sample_ms = time(last).saturating_sub(time(first)) / (last - first).max(1) as i64;
        let stride = (steps.step_ms / sample_ms.max(1)) as usize;
        let (mut at, mut are_all_seen, mut done) = (newest, true, 0);
        for out in out.chunks_mut(FOUND_AT_ONCE) {
            let mut found = [0; FOUND_AT_ONCE];
            let mut old = 0_u64;
            for (step, found) in found[..out.len()].iter_mut().enumerate() {
                let step_ms = steps.time(done + step);
                let mut moves = 0;
                while at > first && time(at) > step_ms && moves < MOVES_MAX {
                    (at, moves) = (at - 1, moves + 1);
                }
                while at < last && time(at + 1) <= step_ms && moves < MOVES_MAX {
                    (at, moves) = (at + 1, moves + 1);
                }
                if moves == MOVES_MAX {
                    let passed = first + self.count_until(first, step_ms);
                    at = passed.saturating_sub(1).clamp(first, last);
                }
                *found = at;
                old |= u64::from(step_ms - time(at) >= steps.lookback_ms) << step;
                at = at.saturating_add(stride).min(last);
            }
            for (out, at) in out.iter_mut().zip(found) {
                *out = self.value(at);
            }
            are_all_seen &= old == 0;
            while old != 0 {
                out[old.trailing_zeros() as usize] = stale_nan();
                old &= old - 1;
            }
            done += out.len();
        }
        are_all_seen
    }
}

/// Consecutive samples, and their distance if they are evenly spaced.
struct SampleStretch {
    range: Range<usize>,
    step_ms: Option<i64>,
}
