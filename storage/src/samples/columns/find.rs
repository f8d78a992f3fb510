//! Finds the sample of each step in a column, with its time.

use std::ops::Range;

use model::{LookupSteps, widest};

use super::column::Column;
use super::lookup::StridedSamples;
use super::packed::Times;
use super::stretches::Stretch;
use crate::samples::repeated::{PERIODS_AT_ONCE, spread};

/// Maximum distance of a sample from its expected index. A sample further away is found by binary
/// search.
const MOVES_MAX: usize = 16;

/// Indices, times and values of samples, as slices of one length to write to.
pub(crate) struct FoundSamples<'a> {
    pub(crate) at: &'a mut [usize],
    pub(crate) times_ms: &'a mut [i64],
    pub(crate) values: &'a mut [f64],
}

impl FoundSamples<'_> {
    /// Returns a part to write to.
    #[inline]
    pub(crate) fn part(&mut self, range: Range<usize>) -> FoundSamples<'_> {
        FoundSamples {
            at: &mut self.at[range.clone()],
            times_ms: &mut self.times_ms[range.clone()],
            values: &mut self.values[range],
        }
    }
}

impl Column {
    /// Finds the newest sample of a stretch up to each step, or the one `ahead` samples later. No
    /// step is before the first sample, and no sample after the last one is found.
    pub(crate) fn find(
        &self,
        stretch: Stretch,
        steps: LookupSteps,
        ahead: usize,
        found: &mut FoundSamples<'_>,
    ) {
        if let Some(strided) = self.strided(stretch, steps) {
            return self.find_strided(stretch, strided, ahead, found);
        }
        if let Some(period @ 2..) = self.period(stretch, steps.step_ms)
            && self.find_repeated(stretch, period, steps, ahead, found)
        {
            return;
        }
        let FoundSamples { at, times_ms, values } = found;
        self.find_each(stretch, steps, ahead, at, times_ms);
        self.values().gather(at, values);
    }

    /// Finds samples a fixed number apart; later steps find the last sample. See [`Column::find`].
    fn find_strided(
        &self,
        stretch: Stretch,
        StridedSamples { first, stride, sample_ms, .. }: StridedSamples,
        ahead: usize,
        found: &mut FoundSamples<'_>,
    ) {
        let (first, last) = (first + ahead, stretch.end - 1);
        let left = last.checked_sub(first);
        let count = left.map_or(0, |left| found.at.len().min(left / stride + 1));
        let later = found.part(count..found.at.len());
        later.at.fill(last);
        later.times_ms.fill(self.time(last));
        later.values.fill(self.value(last));
        if count == 0 {
            return;
        }
        let FoundSamples { at, times_ms, values } = found.part(0..count);
        self.read_strided(first, stride, values);
        let step_ms = stride as i64 * sample_ms;
        let near = match self.times() {
            Times::Near { off_ms, .. } if stretch.step_ms.is_none() => Some(&off_ms[first..]),
            _ => None,
        };
        let expected_ms = match near {
            Some(_) => self.min_ms() + first as i64 * sample_ms,
            None => self.time(first),
        };
        widest(
            #[inline(always)]
            || {
                for (index, (at, time_ms)) in at.iter_mut().zip(&mut *times_ms).enumerate() {
                    *at = first + index * stride;
                    *time_ms = expected_ms.wrapping_add(index as i64 * step_ms);
                }
            },
        );
        match near {
            Some(off_ms) if stride == 1 => widest(
                #[inline(always)]
                || add_each(times_ms, off_ms.iter()),
            ),
            Some(off_ms) => add_each(times_ms, off_ms.iter().step_by(stride)),
            None => {}
        }
    }

    /// Finds the samples of steps that repeat after `period` steps; see [`Column::find`]. Returns
    /// false, without effect, if those of each period are not a fixed number of samples apart.
    fn find_repeated(
        &self,
        stretch: Stretch,
        period: usize,
        steps: LookupSteps,
        ahead: usize,
        found: &mut FoundSamples<'_>,
    ) -> bool {
        let Some(strided) = self.strided_by_step(stretch, period, steps) else { return false };
        let (mut at, mut times_ms) = ([0; PERIODS_AT_ONCE], [0; PERIODS_AT_ONCE]);
        let mut values = [0.0; PERIODS_AT_ONCE];
        let mut of_period =
            FoundSamples { at: &mut at, times_ms: &mut times_ms, values: &mut values };
        for done in (0..found.at.len()).step_by(period * PERIODS_AT_ONCE) {
            let end = found.at.len().min(done + period * PERIODS_AT_ONCE);
            let found = found.part(done..end);
            let mut before = None;
            for (step, strided) in strided.iter().enumerate().take(end - done) {
                let first = strided.first + done / period * strided.stride;
                // Consecutive steps often find the same samples.
                if before.replace(first) != Some(first) {
                    let count = (end - done - step).div_ceil(period);
                    let strided = StridedSamples { first, ..*strided };
                    self.find_strided(stretch, strided, ahead, &mut of_period.part(0..count));
                }
                spread(of_period.at, &mut found.at[step..], period);
                spread(of_period.times_ms, &mut found.times_ms[step..], period);
                spread(of_period.values, &mut found.values[step..], period);
            }
        }
        true
    }

    /// Writes index and time of the sample of each step; see [`Column::find`].
    pub(super) fn find_each(
        &self,
        stretch: Stretch,
        steps: LookupSteps,
        ahead: usize,
        found: &mut [usize],
        times_ms: &mut [i64],
    ) {
        let (first_ms, last) = (self.min_ms(), stretch.end - 1);
        match (stretch.step_ms, self.times()) {
            (Some(sample_ms), _) if sample_ms > 0 => {
                let (first, first_ms) = (stretch.start, self.time(stretch.start));
                let expected = Expected { first, first_ms, sample_ms, last };
                expected.find(steps, |_| 0, ahead, found, times_ms);
            }
            (None, Times::Near { step_ms: sample_ms, off_ms, off_min_ms, off_max_ms })
                if -sample_ms < i64::from(*off_min_ms) && i64::from(*off_max_ms) < *sample_ms =>
            {
                let expected = Expected { first: 0, first_ms, sample_ms: *sample_ms, last };
                expected.find(steps, |at| i64::from(off_ms[at]), ahead, found, times_ms);
            }
            (_, Times::Offsets(offsets)) => {
                let time = |at: usize| first_ms + i64::from(offsets[at]);
                self.find_near(stretch, steps, ahead, time, found, times_ms);
            }
            (_, Times::Any(times)) => {
                self.find_near(stretch, steps, ahead, |at| times[at], found, times_ms);
            }
            _ => self.find_near(stretch, steps, ahead, |at| self.time(at), found, times_ms),
        }
    }

    /// Finds the sample of each step near the expected distance from that of the previous one.
    #[inline]
    fn find_near(
        &self,
        stretch: Stretch,
        steps: LookupSteps,
        ahead: usize,
        time: impl Fn(usize) -> i64,
        found: &mut [usize],
        times_ms: &mut [i64],
    ) {
        let (first, last) = (stretch.start, stretch.end - 1);
        let sample_ms = time(last).saturating_sub(time(first)) / (last - first).max(1) as i64;
        let sample_ms = sample_ms.max(1);
        let stride = (steps.step_ms.saturating_add(sample_ms / 2) / sample_ms) as usize;
        let passed_ms = steps.first_ms.saturating_sub(time(first));
        let mut at = first.saturating_add((passed_ms / sample_ms) as usize).min(last);
        for (step, (found, time_ms)) in found.iter_mut().zip(times_ms).enumerate() {
            let step_ms = steps.time(step);
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
            (*found, *time_ms) = (at + ahead, time(at + ahead));
            at = at.saturating_add(stride).min(last);
        }
    }
}

/// Adds a distance to each time.
#[inline]
fn add_each<'a>(times_ms: &mut [i64], off_ms: impl Iterator<Item = &'a i16>) {
    times_ms.iter_mut().zip(off_ms).for_each(|(time_ms, off_ms)| *time_ms += i64::from(*off_ms));
}

/// Samples at about the same distance.
struct Expected {
    /// A sample, and its expected time.
    first: usize,
    first_ms: i64,
    /// Expected distance of two samples.
    sample_ms: i64,
    last: usize,
}

impl Expected {
    /// Finds the sample of each step by its expected time, from which each sample is `off_ms` away,
    /// less than `sample_ms`. See [`Column::find_each`].
    #[inline]
    fn find(
        &self,
        steps: LookupSteps,
        off_ms: impl Fn(usize) -> i64,
        ahead: usize,
        found: &mut [usize],
        times_ms: &mut [i64],
    ) {
        let Expected { first, first_ms, sample_ms, last } = *self;
        let time = |at: usize| first_ms + (at - first) as i64 * sample_ms + off_ms(at);
        let last_ms = first_ms + (last - first) as i64 * sample_ms;
        let before_last = steps.count_until(last_ms.saturating_sub(1)).min(found.len());
        let (found, found_last) = found.split_at_mut(before_last);
        let (times_ms, times_last_ms) = times_ms.split_at_mut(before_last);
        let passed_ms = steps.first_ms.saturating_sub(first_ms);
        let (mut near, mut rest_ms) =
            (first + (passed_ms / sample_ms) as usize, passed_ms % sample_ms);
        let (stride, more_ms) = ((steps.step_ms / sample_ms) as usize, steps.step_ms % sample_ms);
        for (found, time_ms) in found.iter_mut().zip(times_ms) {
            // The sample that is expected at the step or before it, the one before, or the next
            // one.
            let is_late = off_ms(near) > rest_ms;
            let is_next_early = off_ms(near + 1) <= rest_ms - sample_ms;
            *found = near + usize::from(is_next_early) - usize::from(is_late) + ahead;
            *time_ms = time(*found);
            rest_ms += more_ms;
            let is_over = rest_ms >= sample_ms;
            near += stride + usize::from(is_over);
            rest_ms -= if is_over { sample_ms } else { 0 };
        }
        for (step, (found, time_ms)) in found_last.iter_mut().zip(times_last_ms).enumerate() {
            let is_late = time(last) > steps.time(before_last + step);
            *found = last - usize::from(is_late) + ahead;
            *time_ms = time(*found);
        }
    }
}
