//! Steps over evenly spaced samples: after some steps, their samples repeat, some samples later.

use model::PERIOD_MAX;

/// Number of periods whose samples are found together.
pub(super) const PERIODS_AT_ONCE: usize = 128;

/// Number of steps, and of samples, after which the samples of steps repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repetition {
    pub(super) period: usize,
    pub(super) stride: usize,
}

impl Repetition {
    /// Returns the repetition of steps; `None` if there is none within few steps and samples.
    #[inline]
    pub(super) fn of(step_ms: i64, sample_ms: i64) -> Option<Repetition> {
        if step_ms < 1 || sample_ms < 1 {
            return None;
        }
        if step_ms % sample_ms == 0 {
            return Some(Repetition { period: 1, stride: (step_ms / sample_ms) as usize });
        }
        let (mut common_ms, mut rest_ms) = (step_ms, sample_ms);
        while rest_ms != 0 {
            (common_ms, rest_ms) = (rest_ms, common_ms % rest_ms);
        }
        let (period, stride) = (sample_ms / common_ms, step_ms / common_ms);
        (period.max(stride) <= PERIOD_MAX as i64)
            .then_some(Repetition { period: period as usize, stride: stride as usize })
    }
}

/// Writes values to every `distance`th place.
#[inline]
pub(super) fn spread<T: Copy>(values: &[T], out: &mut [T], distance: usize) {
    out.iter_mut().step_by(distance).zip(values).for_each(|(out, value)| *out = *value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_steps_repeat_after_their_common_time() {
        for (step_ms, sample_ms, expected) in [
            (15_000, 15_000, Some((1, 1))),
            (900_000_000, 15_000, Some((1, 60_000))),
            (5_000, 15_000, Some((3, 1))),
            (20_000, 15_000, Some((3, 4))),
            (7_000, 15_000, Some((15, 7))),
            (1_000, 15_000, Some((15, 1))),
            (1_000, 30_000, None),
            (16_001, 15_000, None),
            (0, 15_000, None),
            (5_000, 0, None),
        ] {
            let expected = expected.map(|(period, stride)| Repetition { period, stride });
            assert_eq!(Repetition::of(step_ms, sample_ms), expected, "{step_ms} {sample_ms}");
        }
    }
}
