//! Looks up the newest values of steps in a column.

use model::{FilledSteps, LookupSteps, is_stale};

use super::column::{Column, Times, Values};

/// Number of steps whose samples are found together.
const FOUND_AT_ONCE: usize = 64;
/// Maximum distance of a sample from its expected index.
const MOVES_MAX: usize = 16;

impl Column {
    /// Writes the newest value up to each step to `out`, for the first steps up to `until_ms` that see
    /// a sample from index `from - 1` on, within the lookback. The samples passed are those from
    /// `from` on.
    ///
    /// Writes nothing if one of the samples is a staleness marker.
    pub(crate) fn fill_steps(
        &self,
        from: usize,
        steps: LookupSteps,
        until_ms: i64,
        out: &mut [f64],
    ) -> FilledSteps {
        let (count, end) = self.fill(from, steps, until_ms, out);
        let Some(last) = count.checked_sub(1) else { return FilledSteps::default() };
        let (newest_ms, newest) = (self.time(end - 1), out[last]);
        FilledSteps { steps: count, samples: end - from, newest_ms, newest }
    }

    /// Returns the number of steps, and the index after the last sample.
    fn fill(
        &self,
        from: usize,
        steps: LookupSteps,
        until_ms: i64,
        out: &mut [f64],
    ) -> (usize, usize) {
        let count = steps.count_until(until_ms).min(out.len());
        let out = &mut out[..count];
        if count == 0 || steps.step_ms == 0 || steps.first_ms < self.min_ms() {
            return (0, from);
        }
        match self.times() {
            Times::Even { step_ms } if steps.step_ms % step_ms == 0 => {
                self.fill_even(from, *step_ms, steps, out)
            }
            Times::Even { step_ms } => {
                self.fill_found(from, steps, out, |at| self.min_ms() + at as i64 * step_ms)
            }
            Times::Near { step_ms, off_ms } => self.fill_found(from, steps, out, |at| {
                self.min_ms() + at as i64 * step_ms + i64::from(off_ms[at])
            }),
            Times::Offsets(offsets) => {
                self.fill_found(from, steps, out, |at| self.min_ms() + i64::from(offsets[at]))
            }
            Times::Any(times) => self.fill_found(from, steps, out, |at| times[at]),
        }
    }

    /// Each step sees the sample `stride` after that of the previous step, and later steps the last
    /// sample.
    fn fill_even(
        &self,
        from: usize,
        sample_ms: i64,
        steps: LookupSteps,
        out: &mut [f64],
    ) -> (usize, usize) {
        let passed_ms = steps.first_ms - self.min_ms();
        let (first, age_ms) = ((passed_ms / sample_ms) as usize, passed_ms % sample_ms);
        let last = self.len() - 1;
        let (mut count, mut end) = (0, from);
        if first <= last {
            if first + 1 < from || age_ms >= steps.lookback_ms {
                return (0, from);
            }
            let stride = (steps.step_ms / sample_ms) as usize;
            count = out.len().min((last - first) / stride + 1);
            let out = &mut out[..count];
            self.read_strided(first, stride, out);
            if !self.is_packed() && has_stale(out) {
                return (0, from);
            }
            end = first + (count - 1) * stride + 1;
        }
        let newest = self.values().get(last);
        let is_seen = |step: usize| steps.time(step) - self.max_ms() < steps.lookback_ms;
        while count < out.len() && is_seen(count) && !is_stale(newest) {
            out[count] = newest;
            (count, end) = (count + 1, last + 1);
        }
        (count, end)
    }

    /// Finds the sample of each step near the expected distance from that of the previous one.
    fn fill_found(
        &self,
        from: usize,
        steps: LookupSteps,
        out: &mut [f64],
        time: impl Fn(usize) -> i64,
    ) -> (usize, usize) {
        let last = self.len() - 1;
        let sample_ms = self.max_ms().saturating_sub(self.min_ms()) / last.max(1) as i64;
        let stride = (steps.step_ms / sample_ms.max(1)) as usize;
        // The first sample is not later than the first step.
        let mut at = (from + self.count_until(from, steps.first_ms)).saturating_sub(1);
        let mut end = from;
        let mut filled = 0;
        for out in out.chunks_mut(FOUND_AT_ONCE) {
            let mut found = [0; FOUND_AT_ONCE];
            let mut count = 0;
            for step in 0..out.len() {
                let step_ms = steps.time(filled + step);
                let mut moves = 0;
                while at > 0 && time(at) > step_ms && moves < MOVES_MAX {
                    (at, moves) = (at - 1, moves + 1);
                }
                while at < last && time(at + 1) <= step_ms && moves < MOVES_MAX {
                    (at, moves) = (at + 1, moves + 1);
                }
                let is_seen = at + 1 >= from && step_ms - time(at) < steps.lookback_ms;
                if moves == MOVES_MAX || !is_seen {
                    break;
                }
                found[count] = at;
                count += 1;
                end = at + 1;
                at = at.saturating_add(stride).min(last);
            }
            let out = &mut out[..count];
            for (out, at) in out.iter_mut().zip(found) {
                *out = self.values().get(at);
            }
            if matches!(self.values(), Values::Any(_)) && has_stale(out) {
                return (0, from);
            }
            filled += count;
            if count < FOUND_AT_ONCE {
                break;
            }
        }
        (filled, end.max(from))
    }
}

fn has_stale(values: &[f64]) -> bool {
    values.iter().fold(false, |any, value| any | is_stale(*value))
}
