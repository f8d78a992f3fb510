//! Decoding of native histograms, with integer counts or float counts.

use std::sync::Arc;

use model::histogram::{WireCounts, WireHistogram};
use model::{Histogram, HistogramSample, ResetHint, is_stale};

use super::bits::BitReader;
use super::layout::HistogramLayout;
use super::sample::{ChunkError, ChunkSample};
use super::start_timestamps::StartDecoder;
use super::xor::XorDecoder;

/// Decodes the samples of a chunk of histograms.
#[derive(Debug)]
pub(super) struct HistogramDecoder<'a> {
    bits: BitReader<'a>,
    starts: Option<StartDecoder>,
    is_gauge: bool,
    layout: HistogramLayout,
    time_ms: i64,
    delta_ms: i64,
    sum: f64,
    sum_window: XorDecoder,
    counts: Counts,
}

/// Numbers of the histogram before: the totals are its count and its zero count; the buckets are
/// the positive, then the negative ones.
#[derive(Debug)]
enum Counts {
    /// Each with its delta; the value of a bucket is the difference to the bucket before it.
    Integers {
        totals: [(u64, i64); 2],
        buckets: Vec<(i64, i64)>,
    },
    Floats {
        totals: [(f64, XorDecoder); 2],
        buckets: Vec<(f64, XorDecoder)>,
    },
}

impl<'a> HistogramDecoder<'a> {
    /// Starts after the header of the chunk.
    pub(super) fn new(
        body: &'a [u8],
        is_gauge: bool,
        has_floats: bool,
        starts: Option<StartDecoder>,
    ) -> HistogramDecoder<'a> {
        let counts = match has_floats {
            false => Counts::Integers { totals: [(0, 0); 2], buckets: Vec::new() },
            true => Counts::Floats { totals: Default::default(), buckets: Vec::new() },
        };
        HistogramDecoder {
            bits: BitReader::new(body),
            starts,
            is_gauge,
            layout: HistogramLayout::default(),
            time_ms: 0,
            delta_ms: 0,
            sum: 0.0,
            sum_window: XorDecoder::default(),
            counts,
        }
    }

    /// Decodes the next sample; `index` counts from 0.
    pub(super) fn next(&mut self, index: u32) -> Result<ChunkSample, ChunkError> {
        let before_ms = self.time_ms;
        if index == 0 {
            self.layout = HistogramLayout::read(&mut self.bits)?;
            self.time_ms = self.bits.varbit()?;
            self.first_counts()?;
        } else {
            self.delta_ms = self.delta_ms.wrapping_add(self.bits.varbit()?);
            self.time_ms = self.time_ms.wrapping_add(self.delta_ms);
            self.next_counts()?;
        }
        let timestamp_ms = self.time_ms;
        let start_ms = match &mut self.starts {
            Some(starts) => starts.next(&mut self.bits, index, timestamp_ms, before_ms)?,
            None => 0,
        };
        let histogram = match is_stale(self.sum) {
            true => Ok(Histogram::stale()),
            false => self.wire(index).into_histogram(),
        };
        Ok(match histogram {
            Ok(histogram) => ChunkSample::Histogram(HistogramSample {
                timestamp_ms,
                start_ms,
                histogram: Arc::new(histogram),
            }),
            Err(error) => ChunkSample::Invalid { timestamp_ms, detail: error.to_string() },
        })
    }

    fn first_counts(&mut self) -> Result<(), ChunkError> {
        let bits = &mut self.bits;
        let len = self.layout.bucket_count();
        match &mut self.counts {
            Counts::Integers { totals, buckets } => {
                for (total, _) in totals {
                    *total = bits.unsigned_varbit()?;
                }
                self.sum = bits.float()?;
                for _ in 0..len {
                    buckets.push((bits.varbit()?, 0));
                }
            }
            Counts::Floats { totals, buckets } => {
                for (total, _) in totals {
                    *total = bits.float()?;
                }
                self.sum = bits.float()?;
                for _ in 0..len {
                    buckets.push((bits.float()?, XorDecoder::default()));
                }
            }
        }
        Ok(())
    }

    /// Decodes counts after the first. A staleness marker has no buckets.
    fn next_counts(&mut self) -> Result<(), ChunkError> {
        let bits = &mut self.bits;
        match &mut self.counts {
            Counts::Integers { totals, buckets } => {
                for (total, growth) in totals {
                    *growth = growth.wrapping_add(bits.varbit()?);
                    *total = total.wrapping_add_signed(*growth);
                }
                self.sum = self.sum_window.next(bits, self.sum)?;
                if !is_stale(self.sum) {
                    for (count, growth) in buckets {
                        *growth = growth.wrapping_add(bits.varbit()?);
                        *count = count.wrapping_add(*growth);
                    }
                }
            }
            Counts::Floats { totals, buckets } => {
                for (total, window) in totals {
                    *total = window.next(bits, *total)?;
                }
                self.sum = self.sum_window.next(bits, self.sum)?;
                if !is_stale(self.sum) {
                    for (count, window) in buckets {
                        *count = window.next(bits, *count)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the histogram in the form that senders write, which is then checked.
    ///
    /// Source of the reset hint: `counterResetHint` in `tsdb/chunkenc/histogram_meta.go` of
    /// Prometheus.
    fn wire(&self, index: u32) -> WireHistogram {
        let layout = &self.layout;
        let positive = layout.positive_count() as usize;
        let counts = match &self.counts {
            Counts::Integers { totals: [count, zero_count], buckets } => {
                let (above, below) = buckets.split_at(positive);
                let deltas = |side: &[(i64, i64)]| side.iter().map(|(delta, _)| *delta).collect();
                WireCounts::Integer {
                    count: count.0,
                    zero_count: zero_count.0,
                    positive_deltas: deltas(above),
                    negative_deltas: deltas(below),
                }
            }
            Counts::Floats { totals: [count, zero_count], buckets } => {
                let (above, below) = buckets.split_at(positive);
                let counts = |side: &[(f64, XorDecoder)]| side.iter().map(|(c, _)| *c).collect();
                WireCounts::Float {
                    count: count.0,
                    zero_count: zero_count.0,
                    positive_counts: counts(above),
                    negative_counts: counts(below),
                }
            }
        };
        WireHistogram {
            reset_hint: match index {
                _ if self.is_gauge => ResetHint::Gauge,
                0 => ResetHint::Unknown,
                _ => ResetHint::NotReset,
            },
            schema: layout.schema,
            zero_threshold: layout.zero_threshold,
            sum: self.sum,
            positive_spans: layout.positive_spans.clone(),
            negative_spans: layout.negative_spans.clone(),
            custom_bounds: Arc::clone(&layout.custom_bounds),
            counts,
        }
    }
}
