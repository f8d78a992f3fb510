//! Merge of floats and histograms of overlapping parts, with the effect on reset hints.

use std::sync::Arc;

use model::{Advance, Histogram, HistogramSample, ResetHint, SampleBatch};

use super::decided::{DecidedHistogram, has_same_value};
use crate::chunk::{ChunkError, HistogramBefore, HistogramDecoder};

/// Float or histogram sample.
#[derive(Debug, Clone)]
pub(super) enum MixedSample {
    /// Float sample.
    Float { timestamp_ms: i64, value: f64, start_ms: i64 },
    /// Histogram sample.
    Histogram(HistogramSample),
}

/// Sample to be merged.
pub(super) struct Mixed {
    pub(super) sample: MixedSample,
    /// Order of writing of its part.
    rank: u32,
    /// See [`DecidedHistogram`].
    before: Option<HistogramBefore>,
}

impl MixedSample {
    /// Returns the time of the sample.
    pub(super) fn timestamp_ms(&self) -> i64 {
        match self {
            MixedSample::Float { timestamp_ms, .. } => *timestamp_ms,
            MixedSample::Histogram(sample) => sample.timestamp_ms,
        }
    }

    /// Adds the sample to a batch that has space for it.
    pub(super) fn push_to(&self, batch: &mut SampleBatch) {
        match self {
            MixedSample::Float { timestamp_ms, value, start_ms } => {
                batch.push_with_start(*timestamp_ms, *value, *start_ms);
            }
            MixedSample::Histogram(sample) => batch.histograms.push(sample.clone()),
        }
    }
}

impl Mixed {
    pub(super) fn float(timestamp_ms: i64, value: f64, start_ms: i64, rank: u32) -> Mixed {
        let sample = MixedSample::Float { timestamp_ms, value, start_ms };
        Mixed { sample, rank, before: None }
    }

    pub(super) fn histogram(decided: DecidedHistogram, rank: u32) -> Mixed {
        let sample = MixedSample::Histogram(decided.sample);
        Mixed { sample, rank, before: decided.before }
    }

    pub(super) fn timestamp_ms(&self) -> i64 {
        self.sample.timestamp_ms()
    }

    /// Returns whether another sample is the same histogram, except for its reset hint.
    fn is_repeated_by(&self, other: &Mixed) -> bool {
        let is_gauge = |sample: &HistogramSample| sample.histogram.reset_hint == ResetHint::Gauge;
        match (&self.sample, &other.sample) {
            (MixedSample::Histogram(a), MixedSample::Histogram(b)) => {
                (a.timestamp_ms, a.start_ms, is_gauge(a))
                    == (b.timestamp_ms, b.start_ms, is_gauge(b))
                    && has_same_value(&a.histogram, &b.histogram)
            }
            _ => false,
        }
    }
}

/// Decodes the histograms of a frame, each with the one that its hint refers to.
pub(super) fn decode(
    bytes: &[u8],
    mut push: impl FnMut(DecidedHistogram),
) -> Result<(), ChunkError> {
    let mut decoder = HistogramDecoder::open(bytes)?;
    let mut before = decoder.before();
    let mut batch = SampleBatch::new();
    loop {
        let advance = decoder.next_batch(i64::MAX, &mut batch)?;
        for sample in batch.histograms.drain(..) {
            let next = HistogramBefore::of(&sample);
            push(DecidedHistogram { sample, before });
            before = Some(next);
        }
        if advance != Advance::Full {
            return Ok(());
        }
    }
}

/// Resets the hint of a histogram to unknown if it refers to another histogram than the current
/// predecessor. Without a predecessor, the hint stays.
pub(super) fn take_back(
    histogram: &mut Arc<Histogram>,
    before: Option<HistogramBefore>,
    last: Option<&HistogramSample>,
) {
    if matches!(histogram.reset_hint, ResetHint::Reset | ResetHint::NotReset)
        && let Some(last) = last
        && before != Some(HistogramBefore::of(last))
    {
        Arc::make_mut(histogram).reset_hint = ResetHint::Unknown;
    }
}

/// Sorts samples, each time once: the later write wins. `last` is the histogram before them.
pub(super) fn resolve(mut all: Vec<Mixed>, last: Option<&HistogramSample>) -> Vec<MixedSample> {
    all.sort_by_key(|mixed| (mixed.timestamp_ms(), mixed.rank));
    let mut merged: Vec<Mixed> = Vec::with_capacity(all.len());
    for mixed in all {
        match merged.last_mut() {
            // Written twice: the first one's hint still holds.
            Some(last) if last.is_repeated_by(&mixed) => {}
            Some(last) if last.timestamp_ms() == mixed.timestamp_ms() => *last = mixed,
            _ => merged.push(mixed),
        }
    }
    let mut last = last.cloned();
    let mut resolved = Vec::with_capacity(merged.len());
    for Mixed { mut sample, before, .. } in merged {
        if let MixedSample::Histogram(sample) = &mut sample {
            take_back(&mut sample.histogram, before, last.as_ref());
            last = Some(sample.clone());
        }
        resolved.push(sample);
    }
    resolved
}
