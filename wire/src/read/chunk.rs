//! Samples of one series as chunks of Prometheus' format.
//!
//! ```text
//! count:2 BE │ floats:     first time: varint │ first value:64 │ …
//! count:2 BE │ flags:1 │ histograms: layout │ time, counts, sum, buckets │ …
//! ```
//!
//! A chunk of histograms has one layout, and says of its first one alone whether the counter was
//! reset before: the others went on. So it is cut where that changes, where whole numbers begin or
//! end, and around staleness markers, which have no layout.
//!
//! Source: `tsdb/chunkenc/{xor,histogram,float_histogram,histogram_meta}.go` of Prometheus.

use model::histogram::CUSTOM_BUCKETS_SCHEMA;
use model::varint::{push_varint, zigzag};
use model::{Histogram, ResetHint, Span};

use super::bits::{Bits, XorFloat};
use super::counts::{WholeCounts, deltas};

/// So many samples are in a chunk at most.
///
/// Source: `DefaultSamplesPerChunk` in `tsdb/head.go` of Prometheus.
const CHUNK_SAMPLES_MAX: u16 = 120;
/// A chunk of histograms is cut once it is longer.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// How a chunk is encoded, under the numbers of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkEncoding {
    /// Floats.
    Xor = 1,
    /// Histograms that count in whole numbers.
    Histogram = 2,
    /// Histograms of floats.
    FloatHistogram = 3,
}

/// A chunk that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedChunk {
    /// Time of its first sample, ms since the epoch.
    pub min_ms: i64,
    /// Time of its last sample.
    pub max_ms: i64,
    /// What is in it.
    pub encoding: ChunkEncoding,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// A sample, to be encoded.
#[derive(Debug, Clone, Copy)]
pub enum ReadSample<'a> {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(&'a Histogram),
}

/// Encodes the samples of one series, in the order of time.
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
    bits: Bits,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Floats(XorFloat),
    Whole(Box<WholeColumns>),
    Fractions(Box<FloatColumns>),
    /// One staleness marker among histograms.
    Stale,
}

/// What the histograms of a chunk share.
#[derive(Debug)]
struct Layout {
    schema: i8,
    zero_threshold: u64,
    positive_spans: Vec<Span>,
    negative_spans: Vec<Span>,
    custom_bounds: Vec<f64>,
    is_gauge: bool,
    hint: ResetHint,
}

/// A column of whole numbers of which the next one is told by how the growth changed.
#[derive(Debug, Clone, Copy, Default)]
struct Growing {
    value: i64,
    growth: i64,
}

#[derive(Debug)]
struct WholeColumns {
    layout: Layout,
    count: Growing,
    zero_count: Growing,
    sum: XorFloat,
    buckets: Vec<Growing>,
}

#[derive(Debug)]
struct FloatColumns {
    layout: Layout,
    count: XorFloat,
    zero_count: XorFloat,
    sum: XorFloat,
    buckets: Vec<XorFloat>,
}

impl ChunkEncoder {
    /// Adds a sample; returns the chunk before it where that is complete.
    pub fn push(&mut self, time_ms: i64, sample: ReadSample<'_>) -> Option<EncodedChunk> {
        let is_pushed = match (&mut self.open, sample) {
            (Some(open), _) if open.is_full() => false,
            (Some(open), ReadSample::Float(value)) => open.try_push_float(time_ms, value),
            (Some(open), ReadSample::Histogram(histogram)) => {
                open.try_push_histogram(time_ms, histogram)
            }
            (None, _) => false,
        };
        if is_pushed {
            return None;
        }
        let complete = self.finish();
        self.open = Some(match sample {
            ReadSample::Float(value) => OpenChunk::of_float(time_ms, value),
            ReadSample::Histogram(histogram) => OpenChunk::of_histogram(time_ms, histogram),
        });
        complete
    }

    /// The last chunk, if any sample came.
    pub fn finish(&mut self) -> Option<EncodedChunk> {
        self.open.take().map(OpenChunk::finish)
    }
}

impl OpenChunk {
    fn new(time_ms: i64, bits: Bits, content: Content) -> OpenChunk {
        OpenChunk { min_ms: time_ms, max_ms: time_ms, delta_ms: 0, count: 1, bits, content }
    }

    fn of_float(time_ms: i64, value: f64) -> OpenChunk {
        let mut bits = Bits::default();
        let mut time = Vec::new();
        push_varint(&mut time, zigzag(time_ms));
        bits.push_bytes(&time);
        let column = XorFloat::begin(value, &mut bits);
        OpenChunk::new(time_ms, bits, Content::Floats(column))
    }

    fn of_histogram(time_ms: i64, histogram: &Histogram) -> OpenChunk {
        let mut bits = Bits::default();
        if histogram.is_stale() {
            let empty = Layout::of(&Histogram::default());
            empty.write(&mut bits);
            bits.push_varbit(time_ms);
            bits.push_varbit_unsigned(0);
            bits.push_varbit_unsigned(0);
            bits.push(histogram.sum.to_bits(), 64);
            return OpenChunk::new(time_ms, bits, Content::Stale);
        }
        let layout = Layout::of(histogram);
        layout.write(&mut bits);
        bits.push_varbit(time_ms);
        let content = match WholeCounts::of(histogram) {
            Some(whole) => {
                let columns = WholeColumns::begin(layout, histogram, whole, &mut bits);
                Content::Whole(Box::new(columns))
            }
            None => {
                let columns = FloatColumns::begin(layout, histogram, &mut bits);
                Content::Fractions(Box::new(columns))
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
        let whole = WholeCounts::of(histogram);
        let goes_on = match (&self.content, whole) {
            (Content::Whole(columns), Some(_)) => columns.layout.goes_on_with(histogram),
            (Content::Fractions(columns), None) => columns.layout.goes_on_with(histogram),
            _ => false,
        };
        if !goes_on {
            return false;
        }
        // The distance before the second sample counts as 0.
        let delta_ms = time_ms.wrapping_sub(self.max_ms);
        self.bits.push_varbit(delta_ms.wrapping_sub(self.delta_ms));
        match (&mut self.content, whole) {
            (Content::Whole(columns), Some(whole)) => {
                columns.push(histogram, whole, &mut self.bits);
            }
            (Content::Fractions(columns), _) => columns.push(histogram, &mut self.bits),
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
            Content::Whole(columns) => {
                data.push(columns.layout.flags());
                ChunkEncoding::Histogram
            }
            Content::Fractions(columns) => {
                data.push(columns.layout.flags());
                ChunkEncoding::FloatHistogram
            }
            Content::Stale => {
                data.push(0);
                ChunkEncoding::Histogram
            }
        };
        data.extend_from_slice(&self.bits.finish());
        EncodedChunk { min_ms: self.min_ms, max_ms: self.max_ms, encoding, data }
    }
}

/// Tells by how much the distance between two floats differs from the one before.
fn push_time_change(bits: &mut Bits, change_ms: i64) {
    let fits = |count: u32| {
        let half = 1_i64 << (count - 1);
        -half < change_ms && change_ms <= half
    };
    if change_ms == 0 {
        bits.push(0, 1);
        return;
    }
    for (prefix, prefix_bits, count) in [(0b10, 2, 14), (0b110, 3, 17), (0b1110, 4, 20)] {
        if fits(count) {
            bits.push(prefix, prefix_bits);
            bits.push(change_ms as u64, count);
            return;
        }
    }
    bits.push(0b1111, 4);
    bits.push(change_ms as u64, 64);
}

impl Layout {
    fn of(histogram: &Histogram) -> Layout {
        Layout {
            schema: histogram.schema,
            zero_threshold: histogram.zero_threshold.to_bits(),
            positive_spans: histogram.positive_spans.clone(),
            negative_spans: histogram.negative_spans.clone(),
            custom_bounds: histogram.custom_bounds.to_vec(),
            is_gauge: histogram.reset_hint == ResetHint::Gauge,
            hint: histogram.reset_hint,
        }
    }

    /// Whether a histogram may stand in the chunk behind others.
    fn goes_on_with(&self, histogram: &Histogram) -> bool {
        let hint_goes_on = match histogram.reset_hint {
            ResetHint::NotReset => !self.is_gauge,
            ResetHint::Gauge => self.is_gauge,
            ResetHint::Unknown | ResetHint::Reset => false,
        };
        hint_goes_on
            && self.schema == histogram.schema
            && self.zero_threshold == histogram.zero_threshold.to_bits()
            && self.positive_spans == histogram.positive_spans
            && self.negative_spans == histogram.negative_spans
            && self.custom_bounds == *histogram.custom_bounds
    }

    /// What the head of a chunk says about its first histogram.
    fn flags(&self) -> u8 {
        match self.hint {
            ResetHint::Unknown => 0b0000_0000,
            ResetHint::NotReset => 0b0100_0000,
            ResetHint::Reset => 0b1000_0000,
            ResetHint::Gauge => 0b1100_0000,
        }
    }

    fn write(&self, bits: &mut Bits) {
        push_zero_threshold(bits, f64::from_bits(self.zero_threshold));
        bits.push_varbit(i64::from(self.schema));
        for spans in [&self.positive_spans, &self.negative_spans] {
            bits.push_varbit_unsigned(spans.len() as u64);
            for span in spans {
                bits.push_varbit_unsigned(u64::from(span.length));
                bits.push_varbit(i64::from(span.offset));
            }
        }
        if self.schema == CUSTOM_BUCKETS_SCHEMA {
            bits.push_varbit_unsigned(self.custom_bounds.len() as u64);
            for bound in &self.custom_bounds {
                push_custom_bound(bits, *bound);
            }
        }
    }
}

/// A power of two between 2^-243 and 2^10 takes one byte, as 0 does; others follow 255.
fn push_zero_threshold(bits: &mut Bits, threshold: f64) {
    let mantissa_bits = threshold.to_bits() & ((1 << 52) - 1);
    let exponent = (threshold.to_bits() >> 52 & 0x7ff) as i64 - 1023;
    if threshold.to_bits() == 0 {
        bits.push(0, 8);
    } else if threshold > 0.0 && mantissa_bits == 0 && (-243..=10).contains(&exponent) {
        bits.push((exponent + 244) as u64, 8);
    } else {
        bits.push(255, 8);
        bits.push(threshold.to_bits(), 64);
    }
}

/// A multiple of 0.001 up to 33,554.43 is written as a whole number above 0; others follow a 0.
fn push_custom_bound(bits: &mut Bits, bound: f64) {
    let thousands = bound * 1000.0;
    let whole = thousands.round();
    if (0.0..=33_554_430.0).contains(&thousands)
        && whole / 1000.0 == bound
        && bound.to_bits() != (-0.0_f64).to_bits()
    {
        bits.push_varbit_unsigned(whole as u64 + 1);
    } else {
        bits.push(0, 1);
        bits.push(bound.to_bits(), 64);
    }
}

impl Growing {
    fn push(&mut self, value: i64, bits: &mut Bits) {
        let growth = value - self.value;
        bits.push_varbit(growth - self.growth);
        *self = Growing { value, growth };
    }
}

impl WholeColumns {
    fn begin(
        layout: Layout,
        histogram: &Histogram,
        whole: WholeCounts,
        bits: &mut Bits,
    ) -> WholeColumns {
        bits.push_varbit_unsigned(whole.count);
        bits.push_varbit_unsigned(whole.zero_count);
        let sum = XorFloat::begin(histogram.sum, bits);
        let buckets = deltas(&histogram.positive_counts).chain(deltas(&histogram.negative_counts));
        let buckets = buckets.map(|delta| {
            bits.push_varbit(delta);
            Growing { value: delta, growth: 0 }
        });
        let begin = |count: u64| Growing { value: count as i64, growth: 0 };
        WholeColumns {
            buckets: buckets.collect(),
            layout,
            count: begin(whole.count),
            zero_count: begin(whole.zero_count),
            sum,
        }
    }

    fn push(&mut self, histogram: &Histogram, whole: WholeCounts, bits: &mut Bits) {
        self.count.push(whole.count as i64, bits);
        self.zero_count.push(whole.zero_count as i64, bits);
        self.sum.push(histogram.sum, bits);
        let deltas = deltas(&histogram.positive_counts).chain(deltas(&histogram.negative_counts));
        for (column, delta) in self.buckets.iter_mut().zip(deltas) {
            column.push(delta, bits);
        }
    }
}

impl FloatColumns {
    fn begin(layout: Layout, histogram: &Histogram, bits: &mut Bits) -> FloatColumns {
        let count = XorFloat::begin(histogram.count, bits);
        let zero_count = XorFloat::begin(histogram.zero_count, bits);
        let sum = XorFloat::begin(histogram.sum, bits);
        let counts = histogram.positive_counts.iter().chain(&histogram.negative_counts);
        let buckets = counts.map(|count| XorFloat::begin(*count, bits)).collect();
        FloatColumns { layout, count, zero_count, sum, buckets }
    }

    fn push(&mut self, histogram: &Histogram, bits: &mut Bits) {
        self.count.push(histogram.count, bits);
        self.zero_count.push(histogram.zero_count, bits);
        self.sum.push(histogram.sum, bits);
        let counts = histogram.positive_counts.iter().chain(&histogram.negative_counts);
        for (column, count) in self.buckets.iter_mut().zip(counts) {
            column.push(*count, bits);
        }
    }
}
