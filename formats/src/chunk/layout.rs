//! Layout of a chunk of histograms: schema, zero threshold, spans and custom bounds, which all of
//! its histograms share.
//!
//! Source: `tsdb/chunkenc/histogram_meta.go` of Prometheus.

use std::sync::Arc;

use model::histogram::{CUSTOM_BUCKETS_SCHEMA, HISTOGRAM_BUCKETS_MAX, RESERVED_SCHEMA_MAX};
use model::{Histogram, Span};

use super::bits::{BitReader, BitWriter};
use super::sample::ChunkError;

/// Zero thresholds of 2^-243 to 2^10 take one byte, which holds the exponent plus this.
const THRESHOLD_EXPONENT_BIAS: i64 = 244;

/// The layout of a chunk of histograms.
#[derive(Debug, Default)]
pub(super) struct HistogramLayout {
    pub(super) schema: i32,
    pub(super) zero_threshold: f64,
    pub(super) positive_spans: Vec<Span>,
    pub(super) negative_spans: Vec<Span>,
    pub(super) custom_bounds: Arc<[f64]>,
}

impl HistogramLayout {
    /// Returns the layout of a histogram.
    pub(super) fn of(histogram: &Histogram) -> HistogramLayout {
        HistogramLayout {
            schema: i32::from(histogram.schema),
            zero_threshold: histogram.zero_threshold,
            positive_spans: histogram.positive_spans.clone(),
            negative_spans: histogram.negative_spans.clone(),
            custom_bounds: Arc::clone(&histogram.custom_bounds),
        }
    }

    /// Returns whether a histogram has this layout.
    pub(super) fn fits(&self, histogram: &Histogram) -> bool {
        self.schema == i32::from(histogram.schema)
            && self.zero_threshold.to_bits() == histogram.zero_threshold.to_bits()
            && self.positive_spans == histogram.positive_spans
            && self.negative_spans == histogram.negative_spans
            && self.custom_bounds == histogram.custom_bounds
    }

    /// Writes the layout.
    pub(super) fn write(&self, bits: &mut BitWriter) {
        push_zero_threshold(bits, self.zero_threshold);
        bits.push_varbit(i64::from(self.schema));
        for spans in [&self.positive_spans, &self.negative_spans] {
            bits.push_unsigned_varbit(spans.len() as u64);
            for span in spans {
                bits.push_unsigned_varbit(u64::from(span.length));
                bits.push_varbit(i64::from(span.offset));
            }
        }
        if self.schema == i32::from(CUSTOM_BUCKETS_SCHEMA) {
            bits.push_unsigned_varbit(self.custom_bounds.len() as u64);
            for bound in &*self.custom_bounds {
                push_custom_bound(bits, *bound);
            }
        }
    }

    /// Reads a layout.
    ///
    /// Errors: an unknown schema, or more than [`HISTOGRAM_BUCKETS_MAX`] buckets, spans or bounds.
    pub(super) fn read(bits: &mut BitReader<'_>) -> Result<HistogramLayout, ChunkError> {
        let zero_threshold = match bits.bits(8)? {
            0 => 0.0,
            255 => bits.float()?,
            exponent => f64::from_bits((1023 - THRESHOLD_EXPONENT_BIAS as u64 + exponent) << 52),
        };
        let custom = i64::from(CUSTOM_BUCKETS_SCHEMA);
        let schema = bits.varbit()?;
        if schema != custom && !(-9..=i64::from(RESERVED_SCHEMA_MAX)).contains(&schema) {
            return Err(ChunkError::Invalid("a histogram of an unknown schema"));
        }
        let positive_spans = read_spans(bits)?;
        let negative_spans = read_spans(bits)?;
        let mut custom_bounds = Vec::new();
        if schema == custom {
            let count = bits.unsigned_varbit()?;
            check_count(count)?;
            for _ in 0..count {
                custom_bounds.push(match bits.unsigned_varbit()? {
                    0 => bits.float()?,
                    thousandths => (thousandths - 1) as f64 / 1000.0,
                });
            }
        }
        let layout = HistogramLayout {
            schema: schema as i32,
            zero_threshold,
            positive_spans,
            negative_spans,
            custom_bounds: Arc::from(custom_bounds),
        };
        check_count(layout.bucket_count())?;
        Ok(layout)
    }

    /// Number of buckets on both sides.
    pub(super) fn bucket_count(&self) -> u64 {
        self.positive_count() + span_len(&self.negative_spans)
    }

    /// Number of buckets above zero.
    pub(super) fn positive_count(&self) -> u64 {
        span_len(&self.positive_spans)
    }
}

/// Writes a power of two between 2^-243 and 2^10, or 0, in one byte; other thresholds follow 255.
fn push_zero_threshold(bits: &mut BitWriter, threshold: f64) {
    let mantissa_bits = threshold.to_bits() & ((1 << 52) - 1);
    let exponent = (threshold.to_bits() >> 52 & 0x7ff) as i64 - 1023;
    if threshold.to_bits() == 0 {
        bits.push(0, 8);
    } else if threshold > 0.0 && mantissa_bits == 0 && (-243..=10).contains(&exponent) {
        bits.push((exponent + THRESHOLD_EXPONENT_BIAS) as u64, 8);
    } else {
        bits.push(255, 8);
        bits.push(threshold.to_bits(), 64);
    }
}

/// Writes a multiple of 0.001 up to 33,554.43 as a whole number plus 1; other bounds follow a 0.
fn push_custom_bound(bits: &mut BitWriter, bound: f64) {
    let thousandths = bound * 1000.0;
    let whole = thousandths.round();
    if (0.0..=33_554_430.0).contains(&thousandths)
        && whole / 1000.0 == bound
        && bound.to_bits() != (-0.0_f64).to_bits()
    {
        bits.push_unsigned_varbit(whole as u64 + 1);
    } else {
        bits.push(0, 1);
        bits.push(bound.to_bits(), 64);
    }
}

fn span_len(spans: &[Span]) -> u64 {
    spans.iter().map(|span| u64::from(span.length)).sum()
}

fn read_spans(bits: &mut BitReader<'_>) -> Result<Vec<Span>, ChunkError> {
    let out_of_range = || ChunkError::Invalid("a span that is out of range");
    let count = bits.unsigned_varbit()?;
    check_count(count)?;
    let mut spans = Vec::new();
    for _ in 0..count {
        let length = u32::try_from(bits.unsigned_varbit()?).map_err(|_| out_of_range())?;
        let offset = i32::try_from(bits.varbit()?).map_err(|_| out_of_range())?;
        spans.push(Span { offset, length });
    }
    Ok(spans)
}

/// Bounds the memory that a count in a damaged chunk can claim.
fn check_count(count: u64) -> Result<(), ChunkError> {
    match count <= HISTOGRAM_BUCKETS_MAX as u64 {
        true => Ok(()),
        false => Err(ChunkError::TooManyBuckets),
    }
}
