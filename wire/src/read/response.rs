//! Encoding of responses.

use model::histogram::{IntegerCounts, bucket_deltas};
use model::varint::{push_varint, varint_len, zigzag};
use model::{Histogram, Labels, Span};

use crate::fields::{
    push_bytes, push_double, push_doubles, push_integer, push_present_double, push_present_integer,
    push_signed,
};

/// Encodes one series with its samples for a response of type `SAMPLES`.
#[derive(Debug, Default)]
pub struct SeriesEncoder {
    series: Vec<u8>,
    part: Vec<u8>,
    nested: Vec<u8>,
}

impl SeriesEncoder {
    /// Starts a series.
    pub fn begin(&mut self, labels: &Labels) {
        self.series.clear();
        push_labels(&mut self.series, labels, &mut self.part);
    }

    /// Adds a float.
    pub fn push_float(&mut self, time_ms: i64, value: f64) {
        let value_bytes = if value.to_bits() == 0 { 0 } else { 9 };
        let time_bytes = if time_ms == 0 { 0 } else { 1 + varint_len(time_ms as u64) };
        // A sample is shorter than 128 bytes, so that its length is one byte.
        self.series.extend_from_slice(&[2 << 3 | 2, (value_bytes + time_bytes) as u8]);
        push_double(&mut self.series, 1, value);
        push_integer(&mut self.series, 2, time_ms as u64);
    }

    /// Adds a histogram, with integer counts if all of them are integers.
    pub fn push_histogram(&mut self, time_ms: i64, histogram: &Histogram) {
        self.push_histogram_with(IntegerCounts::of(histogram), time_ms, histogram);
    }

    /// Adds a histogram with counts as floats.
    pub(crate) fn push_float_histogram(&mut self, time_ms: i64, histogram: &Histogram) {
        self.push_histogram_with(None, time_ms, histogram);
    }

    fn push_histogram_with(
        &mut self,
        counts: Option<IntegerCounts>,
        time_ms: i64,
        histogram: &Histogram,
    ) {
        let out = &mut self.part;
        out.clear();
        match counts {
            Some(counts) => push_present_integer(out, 1, counts.count),
            None => push_present_double(out, 2, histogram.count),
        }
        push_double(out, 3, histogram.sum);
        push_integer(out, 4, u64::from(zigzag(i64::from(histogram.schema)) as u32));
        push_double(out, 5, histogram.zero_threshold);
        match counts {
            Some(counts) => push_present_integer(out, 6, counts.zero_count),
            None => push_present_double(out, 7, histogram.zero_count),
        }
        for (field, spans, buckets) in [
            (8, &histogram.negative_spans, &histogram.negative_counts),
            (11, &histogram.positive_spans, &histogram.positive_counts),
        ] {
            push_spans(out, field, spans, &mut self.nested);
            match counts {
                Some(_) => push_signed(out, field + 1, bucket_deltas(buckets)),
                None => push_doubles(out, field + 2, buckets),
            }
        }
        push_integer(out, 14, u64::from(histogram.reset_hint.number()));
        push_integer(out, 15, time_ms as u64);
        push_doubles(out, 16, &histogram.custom_bounds);
        push_bytes(&mut self.series, 4, out);
    }

    /// The encoded `TimeSeries`.
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.series
    }

    /// Size of the series, in bytes.
    pub fn bytes(&self) -> usize {
        self.series.len()
    }
}

fn push_spans(out: &mut Vec<u8>, field: u32, spans: &[Span], part: &mut Vec<u8>) {
    for span in spans {
        part.clear();
        push_integer(part, 1, u64::from(zigzag(i64::from(span.offset)) as u32));
        push_integer(part, 2, u64::from(span.length));
        push_bytes(out, field, part);
    }
}

fn push_labels(out: &mut Vec<u8>, labels: &Labels, part: &mut Vec<u8>) {
    for (name, value) in labels.iter() {
        part.clear();
        push_bytes(part, 1, name.as_bytes());
        push_bytes(part, 2, value.as_bytes());
        push_bytes(out, 1, part);
    }
}

/// Encodes a response of type `SAMPLES`: the series of each query.
#[derive(Debug, Default)]
pub struct ResultEncoder {
    message: Vec<u8>,
    result: Vec<u8>,
}

impl ResultEncoder {
    /// Adds a series to the result of the current query.
    pub fn push_series(&mut self, series: &SeriesEncoder) {
        push_bytes(&mut self.result, 1, &series.series);
    }

    /// Ends the result of a query.
    pub fn end_query(&mut self) {
        push_bytes(&mut self.message, 1, &self.result);
        // Freed, as the next result may be small.
        self.result = Vec::new();
    }

    /// Size of the finished results, in bytes.
    pub fn bytes(&self) -> usize {
        self.message.len()
    }

    /// Returns the compressed response.
    ///
    /// Errors: a message of 4 GiB or more.
    pub fn compress(self) -> Result<Vec<u8>, snap::Error> {
        snap::raw::Encoder::new().compress_vec(&self.message)
    }
}

/// A chunk of a series.
#[derive(Debug, Clone, Copy)]
pub struct ChunkRef<'a> {
    /// Timestamp of its first sample, ms since the epoch.
    pub min_ms: i64,
    /// Timestamp of its last sample.
    pub max_ms: i64,
    /// Number of its encoding in Prometheus.
    pub encoding: u8,
    /// Its bytes.
    pub data: &'a [u8],
}

/// Encodes the frames of a response of type `STREAMED_XOR_CHUNKS`. A frame has chunks of one
/// series.
#[derive(Debug)]
pub struct FrameEncoder {
    frame_bytes_max: usize,
    query_index: u64,
    labels: Vec<u8>,
    series: Vec<u8>,
    part: Vec<u8>,
    nested: Vec<u8>,
}

impl FrameEncoder {
    /// Creates an encoder for the query at an index. A frame ends with the chunk that makes it
    /// reach `frame_bytes_max`.
    pub fn new(query_index: usize, frame_bytes_max: usize) -> FrameEncoder {
        FrameEncoder {
            frame_bytes_max,
            query_index: query_index as u64,
            labels: Vec::new(),
            series: Vec::new(),
            part: Vec::new(),
            nested: Vec::new(),
        }
    }

    /// Starts a series.
    pub fn begin(&mut self, labels: &Labels) {
        self.labels.clear();
        push_labels(&mut self.labels, labels, &mut self.part);
        self.series.clear();
        self.series.extend_from_slice(&self.labels);
    }

    /// Adds a chunk of the series; appends the frame to `out` if it is complete.
    pub fn push(&mut self, chunk: ChunkRef<'_>, out: &mut Vec<u8>) {
        self.part.clear();
        push_integer(&mut self.part, 1, chunk.min_ms as u64);
        push_integer(&mut self.part, 2, chunk.max_ms as u64);
        push_integer(&mut self.part, 3, u64::from(chunk.encoding));
        push_bytes(&mut self.part, 4, chunk.data);
        push_bytes(&mut self.series, 2, &self.part);
        if self.series.len() >= self.frame_bytes_max {
            self.push_frame(out);
        }
    }

    /// Ends the series; appends its last frame to `out`.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if self.series.len() > self.labels.len() {
            self.push_frame(out);
        }
    }

    /// Appends a frame without chunks.
    pub fn push_labels_alone(&mut self, out: &mut Vec<u8>) {
        self.push_frame(out);
    }

    fn push_frame(&mut self, out: &mut Vec<u8>) {
        let mut head = std::mem::take(&mut self.nested);
        head.clear();
        push_bytes(&mut head, 1, &[]);
        // Replaces the length of the empty message by that of the series.
        head.pop();
        push_varint(&mut head, self.series.len() as u64);
        let mut tail = std::mem::take(&mut self.part);
        tail.clear();
        push_integer(&mut tail, 2, self.query_index);
        let parts = [&head[..], &self.series, &tail];
        let length: usize = parts.iter().map(|part| part.len()).sum();
        out.reserve(varint_len(length as u64) + 4 + length);
        push_varint(out, length as u64);
        let crc = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        out.extend_from_slice(&crc.to_be_bytes());
        for part in parts {
            out.extend_from_slice(part);
        }
        (self.nested, self.part) = (head, tail);
        self.series.truncate(self.labels.len());
    }
}
