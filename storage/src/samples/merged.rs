//! Floats of parts that overlap, merged in order of time.

use std::mem::take;

use model::SampleBatch;

use super::part::push_starts;
use super::scratch::Scratch;

/// Floats with ascending times.
#[derive(Debug, Default)]
pub(crate) struct MergedFloats {
    timestamps: Vec<i64>,
    values: Vec<f64>,
    /// Start timestamps of the first samples; missing ones are 0.
    starts: Vec<i64>,
}

impl MergedFloats {
    /// Takes the floats of the first part.
    pub(crate) fn of(first: &mut Scratch) -> MergedFloats {
        MergedFloats {
            timestamps: take(&mut first.timestamps),
            values: take(&mut first.values),
            starts: take(&mut first.starts),
        }
    }

    /// Adds floats that were written later: of two samples of one time, theirs stays. Their times
    /// ascend.
    pub(crate) fn add_later(&mut self, timestamps: &[i64], values: &[f64], starts: &[i64]) {
        let Some(first_ms) = timestamps.first() else { return };
        if self.timestamps.last().is_none_or(|last_ms| last_ms < first_ms) {
            push_starts(&mut self.starts, self.timestamps.len(), starts);
            self.timestamps.extend_from_slice(timestamps);
            self.values.extend_from_slice(values);
            return;
        }
        let len = self.timestamps.len() + timestamps.len();
        let mut merged = MergedFloats {
            timestamps: Vec::with_capacity(len),
            values: Vec::with_capacity(len),
            starts: Vec::new(),
        };
        let mut from = 0;
        for (at, timestamp_ms) in timestamps.iter().enumerate() {
            let rest = &self.timestamps[from..];
            let until = from + rest.partition_point(|earlier_ms| earlier_ms < timestamp_ms);
            merged.append(
                &self.timestamps[from..until],
                &self.values[from..until],
                slice_of(&self.starts, from, until),
            );
            merged.append(&[*timestamp_ms], &values[at..=at], slice_of(starts, at, at + 1));
            let is_replaced = self.timestamps.get(until) == Some(timestamp_ms);
            from = until + usize::from(is_replaced);
        }
        merged.append(
            &self.timestamps[from..],
            &self.values[from..],
            slice_of(&self.starts, from, self.starts.len()),
        );
        *self = merged;
    }

    fn append(&mut self, timestamps: &[i64], values: &[f64], starts: &[i64]) {
        push_starts(&mut self.starts, self.timestamps.len(), starts);
        self.timestamps.extend_from_slice(timestamps);
        self.values.extend_from_slice(values);
    }

    /// Drops samples outside of a range.
    pub(crate) fn retain(&mut self, start_ms: i64, end_ms: i64) {
        let start = self.timestamps.partition_point(|timestamp_ms| *timestamp_ms < start_ms);
        let end = self.timestamps.partition_point(|timestamp_ms| *timestamp_ms <= end_ms);
        self.timestamps.truncate(end);
        self.values.truncate(end);
        self.starts.truncate(end);
        if start > 0 {
            self.timestamps.drain(..start);
            self.values.drain(..start);
            self.starts.drain(..start.min(self.starts.len()));
        }
    }

    /// Returns the times.
    pub(crate) fn timestamps(&self) -> &[i64] {
        &self.timestamps
    }

    /// Returns the values.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// Returns the start timestamps of the first samples; missing ones are 0.
    pub(crate) fn starts(&self) -> &[i64] {
        &self.starts
    }

    /// Appends samples from index `from` on that are not later than `until_ms` to a batch, until it
    /// is full. Returns their number.
    pub(crate) fn read(&self, from: usize, until_ms: i64, batch: &mut SampleBatch) -> usize {
        let room = model::SAMPLE_BATCH_LEN - batch.len;
        let window = &self.timestamps[from..self.timestamps.len().min(from + room)];
        let count = window.partition_point(|timestamp_ms| *timestamp_ms <= until_ms);
        let (start, end) = (batch.len, batch.len + count);
        push_starts(&mut batch.starts, start, slice_of(&self.starts, from, from + count));
        batch.timestamps[start..end].copy_from_slice(&window[..count]);
        batch.values[start..end].copy_from_slice(&self.values[from..from + count]);
        batch.len = end;
        if let [first_ms, second_ms, ..] = window[..count] {
            let step_ms = second_ms - first_ms;
            if window[..count].windows(2).all(|pair| pair[1] - pair[0] == step_ms) {
                batch.note_even(start, step_ms);
            }
        }
        count
    }
}

/// Returns a part of the start timestamps; missing ones are 0.
fn slice_of(starts: &[i64], from: usize, until: usize) -> &[i64] {
    starts.get(from..until.min(starts.len())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Pseudo-random numbers from a seed.
    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        }
    }

    #[test]
    fn a_merge_equals_a_map_in_which_later_samples_replace_earlier_ones() {
        for seed in 0..500 {
            let mut next = numbers(seed);
            let (mut merged, mut expected) = (MergedFloats::default(), BTreeMap::new());
            for part in 0..1 + next(5) {
                let has_starts = next(3) == 0;
                let times: std::collections::BTreeSet<i64> =
                    (0..next(20)).map(|_| next(40) as i64).collect();
                let timestamps: Vec<i64> = times.into_iter().collect();
                let values: Vec<f64> = timestamps.iter().map(|_| next(100) as f64).collect();
                let starts: Vec<i64> = timestamps
                    .iter()
                    .take(if has_starts { timestamps.len() / 2 } else { 0 })
                    .map(|_| 1 + part as i64)
                    .collect();
                merged.add_later(&timestamps, &values, &starts);
                for (at, timestamp_ms) in timestamps.iter().enumerate() {
                    let start_ms = starts.get(at).copied().unwrap_or(0);
                    expected.insert(*timestamp_ms, (values[at], start_ms));
                }
            }
            let (start_ms, end_ms) = (next(20) as i64, 20 + next(20) as i64);
            merged.retain(start_ms, end_ms);
            let expected: Vec<_> = expected.range(start_ms..=end_ms).collect();
            let found: Vec<_> = (0..merged.timestamps.len())
                .map(|at| {
                    let start_ms = merged.starts.get(at).copied().unwrap_or(0);
                    (merged.timestamps[at], (merged.values[at], start_ms))
                })
                .collect();
            assert_eq!(found.iter().map(|(t, v)| (t, v)).collect::<Vec<_>>(), expected, "{seed}");
        }
    }
}
