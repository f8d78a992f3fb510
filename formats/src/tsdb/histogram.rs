//! Chunks of native histograms, with integer counts or with floats.

use std::sync::Arc;

use model::histogram::{
    CUSTOM_BUCKETS_SCHEMA, HISTOGRAM_BUCKETS_MAX, RESERVED_SCHEMA_MAX, WireCounts, WireHistogram,
};
use model::{Histogram, HistogramSample, ResetHint, Span, is_stale};

use super::bits::{BitReader, XorWindow};
use super::chunk::{ChunkError, ChunkSample};
use super::starts::Starts;

/// A chunk of histograms that is being read.
#[derive(Debug)]
pub(super) struct Histograms<'a> {
    bits: BitReader<'a>,
    starts: Option<Starts>,
    is_gauge: bool,
    layout: Layout,
    time_ms: i64,
    delta_ms: i64,
    sum: f64,
    sum_window: XorWindow,
    counts: Counts,
}

/// What all histograms of a chunk share.
#[derive(Debug, Default)]
struct Layout {
    schema: i32,
    zero_threshold: f64,
    positive_spans: Vec<Span>,
    negative_spans: Vec<Span>,
    custom_bounds: Arc<[f64]>,
}

/// The numbers of the histogram before: all observations, those of the zero bucket, and buckets
/// above zero and below.
#[derive(Debug)]
enum Counts {
    /// With the growth of each; buckets are the difference to the bucket before.
    Integers {
        totals: [(u64, i64); 2],
        buckets: Vec<(i64, i64)>,
    },
    Floats {
        totals: [(f64, XorWindow); 2],
        buckets: Vec<(f64, XorWindow)>,
    },
}

impl<'a> Histograms<'a> {
    /// Begins behind the header.
    pub(super) fn new(
        body: &'a [u8],
        is_gauge: bool,
        has_floats: bool,
        starts: Option<Starts>,
    ) -> Histograms<'a> {
        let counts = match has_floats {
            false => Counts::Integers { totals: [(0, 0); 2], buckets: Vec::new() },
            true => Counts::Floats { totals: Default::default(), buckets: Vec::new() },
        };
        Histograms {
            bits: BitReader::new(body),
            starts,
            is_gauge,
            layout: Layout::default(),
            time_ms: 0,
            delta_ms: 0,
            sum: 0.0,
            sum_window: XorWindow::default(),
            counts,
        }
    }

    /// The next sample, by its number from 0.
    pub(super) fn next(&mut self, index: u32) -> Result<ChunkSample, ChunkError> {
        let before_ms = self.time_ms;
        if index == 0 {
            self.layout = Layout::read(&mut self.bits)?;
            self.time_ms = self.bits.wide_integer()?;
            self.first_counts()?;
        } else {
            self.delta_ms = self.delta_ms.wrapping_add(self.bits.wide_integer()?);
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
                    *total = bits.wide_unsigned()?;
                }
                self.sum = bits.float()?;
                for _ in 0..len {
                    buckets.push((bits.wide_integer()?, 0));
                }
            }
            Counts::Floats { totals, buckets } => {
                for (total, _) in totals {
                    *total = bits.float()?;
                }
                self.sum = bits.float()?;
                for _ in 0..len {
                    buckets.push((bits.float()?, XorWindow::default()));
                }
            }
        }
        Ok(())
    }

    /// Of a staleness marker, the buckets are left out.
    fn next_counts(&mut self) -> Result<(), ChunkError> {
        let bits = &mut self.bits;
        match &mut self.counts {
            Counts::Integers { totals, buckets } => {
                for (total, growth) in totals {
                    *growth = growth.wrapping_add(bits.wide_integer()?);
                    *total = total.wrapping_add_signed(*growth);
                }
                self.sum = self.sum_window.next(bits, self.sum)?;
                if !is_stale(self.sum) {
                    for (count, growth) in buckets {
                        *growth = growth.wrapping_add(bits.wide_integer()?);
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

    /// The histogram as it would be written by a sender.
    ///
    /// Source of the hint: `counterResetHint` in `tsdb/chunkenc/histogram_meta.go` of Prometheus.
    fn wire(&self, index: u32) -> WireHistogram {
        let layout = &self.layout;
        let positive = span_len(&layout.positive_spans) as usize;
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
                let counts = |side: &[(f64, XorWindow)]| side.iter().map(|(c, _)| *c).collect();
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

impl Layout {
    /// Source: `readHistogramChunkLayout` in `tsdb/chunkenc/histogram_meta.go` of Prometheus.
    fn read(bits: &mut BitReader<'_>) -> Result<Layout, ChunkError> {
        let zero_threshold = match bits.bits(8)? {
            0 => 0.0,
            255 => bits.float()?,
            exponent => f64::from_bits((1023 - 244 + exponent) << 52),
        };
        let custom = i64::from(CUSTOM_BUCKETS_SCHEMA);
        let schema = bits.wide_integer()?;
        if schema != custom && !(-9..=i64::from(RESERVED_SCHEMA_MAX)).contains(&schema) {
            return Err(ChunkError::Invalid("a histogram of an unknown schema"));
        }
        let positive_spans = read_spans(bits)?;
        let negative_spans = read_spans(bits)?;
        let mut custom_bounds = Vec::new();
        if schema == custom {
            let count = bits.wide_unsigned()?;
            check_count(count)?;
            for _ in 0..count {
                custom_bounds.push(match bits.wide_unsigned()? {
                    0 => bits.float()?,
                    thousandths => (thousandths - 1) as f64 / 1000.0,
                });
            }
        }
        let layout = Layout {
            schema: schema as i32,
            zero_threshold,
            positive_spans,
            negative_spans,
            custom_bounds: Arc::from(custom_bounds),
        };
        check_count(layout.bucket_count())?;
        Ok(layout)
    }

    fn bucket_count(&self) -> u64 {
        span_len(&self.positive_spans) + span_len(&self.negative_spans)
    }
}

fn span_len(spans: &[Span]) -> u64 {
    spans.iter().map(|span| u64::from(span.length)).sum()
}

fn read_spans(bits: &mut BitReader<'_>) -> Result<Vec<Span>, ChunkError> {
    let out_of_range = || ChunkError::Invalid("a span that is out of range");
    let count = bits.wide_unsigned()?;
    check_count(count)?;
    let mut spans = Vec::new();
    for _ in 0..count {
        let length = u32::try_from(bits.wide_unsigned()?).map_err(|_| out_of_range())?;
        let offset = i32::try_from(bits.wide_integer()?).map_err(|_| out_of_range())?;
        spans.push(Span { offset, length });
    }
    Ok(spans)
}

/// Keeps a claim from taking memory that nothing stands behind.
fn check_count(count: u64) -> Result<(), ChunkError> {
    match count <= HISTOGRAM_BUCKETS_MAX as u64 {
        true => Ok(()),
        false => Err(ChunkError::TooManyBuckets),
    }
}
