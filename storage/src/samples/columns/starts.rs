//! Start timestamps of the samples of a column: mostly one for all.

use std::ops::Range;

/// Start timestamps in runs, each with the index of its first sample.
#[derive(Debug, PartialEq)]
pub(super) struct Starts(Box<[(u32, i64)]>);

impl Starts {
    /// Returns the runs of the start timestamps of the first samples; later ones are 0. Returns `None`
    /// if all are 0, which means that they are not known.
    pub(super) fn of(starts: &[i64]) -> Option<Starts> {
        if starts.iter().all(|start_ms| *start_ms == 0) {
            return None;
        }
        let mut runs = Vec::new();
        let mut at = 0;
        for run in starts.chunk_by(|a, b| a == b) {
            runs.push((at, run[0]));
            at += run.len() as u32;
        }
        runs.push((at, 0));
        Some(Starts(runs.into()))
    }

    /// Returns the size on the heap.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Starts>() + size_of_val(&*self.0)
    }

    /// Appends the start timestamps of some samples after those of `before` samples, of which missing
    /// ones become 0.
    pub(super) fn push_to(&self, samples: Range<usize>, before: usize, out: &mut Vec<i64>) {
        out.resize(before, 0);
        let first = self.0.partition_point(|(at, _)| *at as usize <= samples.start);
        let runs = &self.0[first.saturating_sub(1)..];
        let ends = runs[1..].iter().map(|(at, _)| *at as usize).chain([usize::MAX]);
        let mut at = samples.start;
        for ((_, start_ms), end) in runs.iter().zip(ends) {
            if at >= samples.end {
                return;
            }
            let end = end.min(samples.end);
            out.resize(out.len() + end.saturating_sub(at), *start_ms);
            at = at.max(end);
        }
    }
}
