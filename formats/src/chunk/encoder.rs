//! Encoding of samples as chunks.
//!
//! A chunk of histograms has one layout, and only its first histogram may be a counter reset. So a
//! chunk ends where these change, where integer counts begin or end, and around staleness markers,
//! which have no layout.

use model::histogram::{IntegerCounts, bucket_deltas};
use model::varint::{push_varint, zigzag};
use model::{Histogram, ResetHint};

use super::bits::{BitWriter, fits_signed};
use super::layout::HistogramLayout;
use super::xor::XorEncoder;

/// Maximum number of samples of a chunk.
///
/// Source: `DefaultSamplesPerChunk` in `tsdb/head.go` of Prometheus.
const CHUNK_SAMPLES_MAX: u16 = 120;
/// Size from which a chunk takes no more samples.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// Encodings of chunks, under their numbers in Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkEncoding {
    /// Floats.
    Xor = 1,
    /// Histograms with integer counts.
    Histogram = 2,
    /// Histograms with float counts.
    FloatHistogram = 3,
}

/// A complete chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedChunk {
    /// Timestamp of its first sample, ms since the epoch.
    pub min_ms: i64,
    /// Timestamp of its last sample.
    pub max_ms: i64,
    /// Its encoding.
    pub encoding: ChunkEncoding,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// A sample to encode.
#[derive(Debug, Clone, Copy)]
pub enum SampleRef<'a> {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(&'a Histogram),
}

/// Encodes the samples of one series, in the order of their timestamps.
#[derive(Debug, Default)]
pub struct ChunkEncoder {
    open: Option<OpenChunk>,
}

#[derive(Debug)]
struct OpenChunk {
    min_ms: i64,
    max_ms: i64,
    delta_ms: i64,
    count: u16,
    bits: BitWriter,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Floats(XorEncoder),
    IntegerHistograms(Box<IntegerColumns>),
    FloatHistograms(Box<FloatColumns>),
    /// One staleness marker.
    StaleHistogram,
}

/// A column of integers, encoded as the change of their delta.
#[derive(Debug, Clone, Copy, Default)]
struct DeltaOfDelta {
    value: i64,
    delta: i64,
}

#[derive(Debug)]
struct IntegerColumns {
    layout: HistogramLayout,
    hint: ResetHint,
    count: DeltaOfDelta,
    zero_count: DeltaOfDelta,
    sum: XorEncoder,
    buckets: Vec<DeltaOfDelta>,
}

#[derive(Debug)]
struct FloatColumns {
    layout: HistogramLayout,
    hint: ResetHint,
    count: XorEncoder,
    zero_count: XorEncoder,
    sum: XorEncoder,
    buckets: Vec<XorEncoder>,
}

impl ChunkEncoder {
    /// Adds a sample; returns the chunk before it if that is complete.
    pub fn push(&mut self, time_ms: i64, sample: SampleRef<'_>) -> Option<EncodedChunk> {
        let is_pushed = match (&mut self.open, sample) {
            (Some(open), _) if open.is_full() => false,
            (Some(open), SampleRef::Float(value)) => open.try_push_float(time_ms, value),
            (Some(open), SampleRef::Histogram(histogram)) => {
                open.try_push_histogram(time_ms, histogram)
            }
            (None, _) => false,
        };
        if is_pushed {
            return None;
        }
        let complete = self.finish();
        self.open = Some(match sample {
            SampleRef::Float(value) => OpenChunk::of_float(time_ms, value),
            SampleRef::Histogram(histogram) => OpenChunk::of_histogram(time_ms, histogram),
        });
        complete
    }

    /// Returns the last chunk, if there are samples.
    pub fn finish(&mut self) -> Option<EncodedChunk> {
        self.open.take().map(OpenChunk::finish)
    }
}

impl OpenChunk {
    fn new(time_ms: i64, bits: BitWriter, content: Content) -> OpenChunk {
        OpenChunk { min_ms: time_ms, max_ms: time_ms, delta_ms: 0, count: 1, bits, content }
    }

    fn of_float(time_ms: i64, value: f64) -> OpenChunk {
        let mut bits = BitWriter::default();
        let mut time = Vec::new();
        push_varint(&mut time, zigzag(time_ms));
        bits.push_bytes(&time);
        let column = XorEncoder::begin(value, &mut bits);
        OpenChunk::new(time_ms, bits, Content::Floats(column))
    }

    fn of_histogram(time_ms: i64, histogram: &Histogram) -> OpenChunk {
        let mut bits = BitWriter::default();
        if histogram.is_stale() {
            HistogramLayout::default().write(&mut bits);
            bits.push_varbit(time_ms);
            bits.push_unsigned_varbit(0);
            bits.push_unsigned_varbit(0);
            bits.push(histogram.sum.to_bits(), 64);
            return OpenChunk::new(time_ms, bits, Content::StaleHistogram);
        }
        let layout = HistogramLayout::of(histogram);
        layout.write(&mut bits);
        bits.push_varbit(time_ms);
        let content = match IntegerCounts::of(histogram) {
            Some(counts) => {
                let columns = IntegerColumns::begin(layout, histogram, counts, &mut bits);
                Content::IntegerHistograms(Box::new(columns))
            }
            None => {
                let columns = FloatColumns::begin(layout, histogram, &mut bits);
                Content::FloatHistograms(Box::new(columns))
            }
        };
        OpenChunk::new(time_ms, bits, content)
    }

    fn is_full(&self) -> bool {
        self.count >= CHUNK_SAMPLES_MAX || self.bits.len() >= CHUNK_BYTES_MAX
    }

    fn try_push_float(&mut self, time_ms: i64, value: f64) -> bool {
        let Content::Floats(column) = &mut self.content else { return false };
        let delta_ms = time_ms.wrapping_sub(self.max_ms);
        if self.count == 1 {
            let mut delta = Vec::new();
            push_varint(&mut delta, delta_ms as u64);
            self.bits.push_bytes(&delta);
        } else {
            push_time_change(&mut self.bits, delta_ms.wrapping_sub(self.delta_ms));
        }
        column.push(value, &mut self.bits);
        self.advance(time_ms, delta_ms);
        true
    }

    fn try_push_histogram(&mut self, time_ms: i64, histogram: &Histogram) -> bool {
        if histogram.is_stale() {
            return false;
        }
        let counts = IntegerCounts::of(histogram);
        let (layout, hint) = match (&self.content, counts) {
            (Content::IntegerHistograms(columns), Some(_)) => (&columns.layout, columns.hint),
            (Content::FloatHistograms(columns), None) => (&columns.layout, columns.hint),
            _ => return false,
        };
        let is_continued = match histogram.reset_hint {
            ResetHint::NotReset => hint != ResetHint::Gauge,
            ResetHint::Gauge => hint == ResetHint::Gauge,
            ResetHint::Unknown | ResetHint::Reset => false,
        };
        if !is_continued || !layout.fits(histogram) {
            return false;
        }
        // The delta before the second sample counts as 0.
        let delta_ms = time_ms.wrapping_sub(self.max_ms);
        self.bits.push_varbit(delta_ms.wrapping_sub(self.delta_ms));
        match (&mut self.content, counts) {
            (Content::IntegerHistograms(columns), Some(counts)) => {
                columns.push(histogram, counts, &mut self.bits);
            }
            (Content::FloatHistograms(columns), _) => columns.push(histogram, &mut self.bits),
            _ => {}
        }
        self.advance(time_ms, delta_ms);
        true
    }

    fn advance(&mut self, time_ms: i64, delta_ms: i64) {
        (self.max_ms, self.delta_ms) = (time_ms, delta_ms);
        self.count += 1;
    }

    fn finish(self) -> EncodedChunk {
        let mut data = self.count.to_be_bytes().to_vec();
        let encoding = match &self.content {
            Content::Floats(_) => ChunkEncoding::Xor,
            Content::IntegerHistograms(columns) => {
                data.push(flags(columns.hint));
                ChunkEncoding::Histogram
            }
            Content::FloatHistograms(columns) => {
                data.push(flags(columns.hint));
                ChunkEncoding::FloatHistogram
            }
            Content::StaleHistogram => {
                data.push(0);
                ChunkEncoding::Histogram
            }
        };
        data.extend_from_slice(&self.bits.finish());
        EncodedChunk { min_ms: self.min_ms, max_ms: self.max_ms, encoding, data }
    }
}

/// Writes the change of the distance between two floats.
fn push_time_change(bits: &mut BitWriter, change_ms: i64) {
    if change_ms == 0 {
        bits.push(0, 1);
        return;
    }
    for (prefix, prefix_bits, width) in [(0b10, 2, 14), (0b110, 3, 17), (0b1110, 4, 20)] {
        if fits_signed(change_ms, width) {
            bits.push(prefix, prefix_bits);
            bits.push(change_ms as u64, width);
            return;
        }
    }
    bits.push(0b1111, 4);
    bits.push(change_ms as u64, 64);
}

/// Flags in the header of a chunk of histograms, which describe its first one.
fn flags(hint: ResetHint) -> u8 {
    match hint {
        ResetHint::Unknown => 0b0000_0000,
        ResetHint::NotReset => 0b0100_0000,
        ResetHint::Reset => 0b1000_0000,
        ResetHint::Gauge => 0b1100_0000,
    }
}

impl DeltaOfDelta {
    fn push(&mut self, value: i64, bits: &mut BitWriter) {
        let delta = value - self.value;
        bits.push_varbit(delta - self.delta);
        *self = DeltaOfDelta { value, delta };
    }
}

impl IntegerColumns {
    fn begin(
        layout: HistogramLayout,
        histogram: &Histogram,
        counts: IntegerCounts,
        bits: &mut BitWriter,
    ) -> IntegerColumns {
        bits.push_unsigned_varbit(counts.count);
        bits.push_unsigned_varbit(counts.zero_count);
        let sum = XorEncoder::begin(histogram.sum, bits);
        let buckets = bucket_deltas(&histogram.positive_counts)
            .chain(bucket_deltas(&histogram.negative_counts));
        let buckets = buckets.map(|delta| {
            bits.push_varbit(delta);
            DeltaOfDelta { value: delta, delta: 0 }
        });
        let begin = |count: u64| DeltaOfDelta { value: count as i64, delta: 0 };
        IntegerColumns {
            buckets: buckets.collect(),
            layout,
            hint: histogram.reset_hint,
            count: begin(counts.count),
            zero_count: begin(counts.zero_count),
            sum,
        }
    }

    fn push(&mut self, histogram: &Histogram, counts: IntegerCounts, bits: &mut BitWriter) {
        self.count.push(counts.count as i64, bits);
        self.zero_count.push(counts.zero_count as i64, bits);
        self.sum.push(histogram.sum, bits);
        let deltas = bucket_deltas(&histogram.positive_counts)
            .chain(bucket_deltas(&histogram.negative_counts));
        for (column, delta) in self.buckets.iter_mut().zip(deltas) {
            column.push(delta, bits);
        }
    }
}

impl FloatColumns {
    fn begin(layout: HistogramLayout, histogram: &Histogram, bits: &mut BitWriter) -> FloatColumns {
        let count = XorEncoder::begin(histogram.count, bits);
        let zero_count = XorEncoder::begin(histogram.zero_count, bits);
        let sum = XorEncoder::begin(histogram.sum, bits);
        let counts = histogram.positive_counts.iter().chain(&histogram.negative_counts);
        let buckets = counts.map(|count| XorEncoder::begin(*count, bits)).collect();
        FloatColumns { layout, hint: histogram.reset_hint, count, zero_count, sum, buckets }
    }

    fn push(&mut self, histogram: &Histogram, bits: &mut BitWriter) {
        self.count.push(histogram.count, bits);
        self.zero_count.push(histogram.zero_count, bits);
        self.sum.push(histogram.sum, bits);
        let counts = histogram.positive_counts.iter().chain(&histogram.negative_counts);
        for (column, count) in self.buckets.iter_mut().zip(counts) {
            column.push(*count, bits);
        }
    }
}
