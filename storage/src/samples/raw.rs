//! Hands over floats that are already decoded.

use model::{FilledSteps, LookupSteps, SampleBatch, StepRanges, is_stale, stale_nan};

use super::part::push_starts;

/// Returns the number of next samples up to a bound that lie in no window, and the end of the
/// window of the samples after them.
#[inline]
pub(super) fn seen(
    samples: &[(i64, f64)],
    until_ms: i64,
    windows: Option<&StepRanges>,
) -> (usize, i64) {
    let (Some(windows), Some((first_ms, _))) = (windows, samples.first()) else {
        return (0, until_ms);
    };
    let mut window = windows.from(*first_ms);
    let passed = samples.partition_point(|(time_ms, _)| *time_ms <= window.0.min(until_ms));
    if let Some((next_ms, _)) = samples.get(passed) {
        window = windows.from(*next_ms);
    }
    (passed, window.1.min(until_ms))
}

/// Writes the newest value up to each step to `out`, or a staleness marker for steps without one,
/// for the first steps up to `until_ms`. Writes nothing if the first step is before the first
/// sample.
pub(super) fn fill_steps(
    samples: &[(i64, f64)],
    steps: LookupSteps,
    until_ms: i64,
    out: &mut [f64],
) -> FilledSteps {
    let mut filled = FilledSteps { are_all_seen: true, ..FilledSteps::default() };
    let count = steps.count_until(until_ms).min(out.len());
    let mut end = 0;
    for (step, out) in out[..count].iter_mut().enumerate() {
        let step_ms = steps.time(step);
        while samples.get(end).is_some_and(|(time_ms, _)| *time_ms <= step_ms) {
            end += 1;
        }
        let Some((time_ms, value)) = samples[..end].last() else { break };
        let is_old = step_ms - time_ms >= steps.lookback_ms;
        *out = if is_old { stale_nan() } else { *value };
        filled.are_all_seen &= !is_stale(*out);
        (filled.steps, filled.samples) = (step + 1, end);
        (filled.newest_ms, filled.newest) = (*time_ms, *value);
    }
    filled
}

/// Appends samples and their start timestamps up to a bound to a batch, until it is full. Returns
/// their number.
pub(super) fn push_samples(
    samples: &[(i64, f64)],
    starts: &[i64],
    until_ms: i64,
    batch: &mut SampleBatch,
) -> usize {
    let room = model::SAMPLE_BATCH_LEN - batch.len;
    let window = &samples[..room.min(samples.len())];
    let take = window.partition_point(|(t, _)| *t <= until_ms);
    push_starts(&mut batch.starts, batch.len, &starts[..take.min(starts.len())]);
    let start = batch.len;
    for (timestamp_ms, value) in &window[..take] {
        batch.push(*timestamp_ms, *value);
    }
    if let [(first_ms, _), (second_ms, _), ..] = window[..take] {
        let step_ms = second_ms - first_ms;
        if window[..take].windows(2).all(|pair| pair[1].0 - pair[0].0 == step_ms) {
            batch.note_even(start, step_ms);
        }
    }
    take
}
