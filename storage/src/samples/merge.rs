//! Merging floats and histograms of overlapping parts, and what remains of reset hints then.

use std::sync::Arc;

use model::{Advance, Histogram, HistogramSample, ResetHint, SampleBatch};

use super::decided::{Decided, has_same_value};
use crate::chunk::{ChunkError, HistogramBefore, HistogramDecoder};

/// A sample of either kind.
#[derive(Debug, Clone)]
pub(super) enum MixedSample {
    /// A float.
    Float { timestamp_ms: i64, value: f64, start_ms: i64 },
    /// A histogram.
    Histogram(HistogramSample),
}

/// A sample that is to be merged with others.
pub(super) struct Mixed {
    pub(super) sample: MixedSample,
    /// The order of writing of its part.
    rank: u32,
    /// See [`Decided`].
    before: Option<HistogramBefore>,
}

impl MixedSample {
    /// Its time.
    pub(super) fn timestamp_ms(&self) -> i64 {
        match self {
            MixedSample::Float { timestamp_ms, .. } => *timestamp_ms,
            MixedSample::Histogram(sample) => sample.timestamp_ms,
        }
    }

    /// Adds the sample to a batch that has room for it.
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

    pub(super) fn histogram(decided: Decided, rank: u32) -> Mixed {
        let sample = MixedSample::Histogram(decided.sample);
        Mixed { sample, rank, before: decided.before }
    }

    pub(super) fn timestamp_ms(&self) -> i64 {
        self.sample.timestamp_ms()
    }

    /// Whether another sample is the same histogram, but for what is known of a reset.
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

/// The histograms of a frame, each with the one that its hint was decided against.
pub(super) fn decode(bytes: &[u8], mut push: impl FnMut(Decided)) -> Result<(), ChunkError> {
    let mut decoder = HistogramDecoder::open(bytes)?;
    let mut before = decoder.before();
    let mut batch = SampleBatch::new();
    loop {
        let advance = decoder.next_batch(i64::MAX, &mut batch)?;
        for sample in batch.histograms.drain(..) {
            let next = HistogramBefore::of(&sample);
            push(Decided { sample, before });
            before = Some(next);
        }
        if advance != Advance::Full {
            return Ok(());
        }
    }
}

/// Takes back the hint of a histogram that was decided against another one than that which is
/// before it now. Without one before it there is nothing to be wrong about.
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

/// The samples in order, each time once: the later write wins. `last` is the histogram before
/// them.
pub(super) fn resolve(mut all: Vec<Mixed>, last: Option<&HistogramSample>) -> Vec<MixedSample> {
    all.sort_by_key(|mixed| (mixed.timestamp_ms(), mixed.rank));
    let mut merged: Vec<Mixed> = Vec::with_capacity(all.len());
    for mixed in all {
        match merged.last_mut() {
            // Written twice: what the first knows of the one before it still holds.
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
