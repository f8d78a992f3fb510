//! Answers to remote read, as they are sent.

use model::varint::{push_varint, varint_len, zigzag};
use model::{Histogram, Labels, ResetHint, Span};

use super::chunk::EncodedChunk;
use super::counts::{WholeCounts, deltas};
use crate::fields::{
    push_bytes, push_double, push_doubles, push_integer, push_present_double, push_present_integer,
    push_signed,
};

/// Encodes one series with its samples for an answer of plain samples.
#[derive(Debug, Default)]
pub struct SeriesEncoder {
    series: Vec<u8>,
    part: Vec<u8>,
    nested: Vec<u8>,
}

impl SeriesEncoder {
    /// Begins a series.
    pub fn begin(&mut self, labels: &Labels) {
        self.series.clear();
        push_labels(&mut self.series, labels, &mut self.part);
    }

    /// Adds a float.
    pub fn push_float(&mut self, time_ms: i64, value: f64) {
        self.part.clear();
        push_double(&mut self.part, 1, value);
        push_integer(&mut self.part, 2, time_ms as u64);
        push_bytes(&mut self.series, 2, &self.part);
    }

    /// Adds a histogram: of whole numbers, or of floats.
    pub fn push_histogram(&mut self, time_ms: i64, histogram: &Histogram) {
        let out = &mut self.part;
        out.clear();
        let whole = WholeCounts::of(histogram);
        match whole {
            Some(whole) => push_present_integer(out, 1, whole.count),
            None => push_present_double(out, 2, histogram.count),
        }
        push_double(out, 3, histogram.sum);
        push_integer(out, 4, u64::from(zigzag(i64::from(histogram.schema)) as u32));
        push_double(out, 5, histogram.zero_threshold);
        match whole {
            Some(whole) => push_present_integer(out, 6, whole.zero_count),
            None => push_present_double(out, 7, histogram.zero_count),
        }
        for (field, spans, counts) in [
            (8, &histogram.negative_spans, &histogram.negative_counts),
            (11, &histogram.positive_spans, &histogram.positive_counts),
        ] {
            push_spans(out, field, spans, &mut self.nested);
            match whole {
                Some(_) => push_signed(out, field + 1, deltas(counts)),
                None => push_doubles(out, field + 2, counts),
            }
        }
        let hint: ResetHint = histogram.reset_hint;
        push_integer(out, 14, u64::from(hint.number()));
        push_integer(out, 15, time_ms as u64);
        push_doubles(out, 16, &histogram.custom_bounds);
        push_bytes(&mut self.series, 4, out);
    }

    /// How many bytes the series has so far.
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

/// Puts the series of each query together to an answer of plain samples.
#[derive(Debug, Default)]
pub struct ResultEncoder {
    message: Vec<u8>,
    result: Vec<u8>,
}

impl ResultEncoder {
    /// Adds a series to the result of the query that is under way.
    pub fn push_series(&mut self, series: &SeriesEncoder) {
        push_bytes(&mut self.result, 1, &series.series);
    }

    /// Ends the result of a query.
    pub fn end_query(&mut self) {
        push_bytes(&mut self.message, 1, &self.result);
        // Its memory is not needed for the next one, which may be small.
        self.result = Vec::new();
    }

    /// How many bytes the results that have ended have.
    pub fn bytes(&self) -> usize {
        self.message.len()
    }

    /// The answer, compressed.
    ///
    /// Errors: a message of 4 GiB and more, which cannot be.
    pub fn compress(self) -> Result<Vec<u8>, snap::Error> {
        snap::raw::Encoder::new().compress_vec(&self.message)
    }
}

/// Puts the chunks of series into frames. A frame holds chunks of one series.
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
    /// Frames for the answer to the query at an index. A frame is ended with the chunk with which
    /// it has so many bytes.
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

    /// Begins a series.
    pub fn begin(&mut self, labels: &Labels) {
        self.labels.clear();
        push_labels(&mut self.labels, labels, &mut self.part);
        self.series.clear();
        self.series.extend_from_slice(&self.labels);
    }

    /// Adds a chunk of the series, and the frame to `out` that is complete with it.
    pub fn push(&mut self, chunk: &EncodedChunk, out: &mut Vec<u8>) {
        self.part.clear();
        push_integer(&mut self.part, 1, chunk.min_ms as u64);
        push_integer(&mut self.part, 2, chunk.max_ms as u64);
        push_integer(&mut self.part, 3, chunk.encoding as u64);
        push_bytes(&mut self.part, 4, &chunk.data);
        push_bytes(&mut self.series, 2, &self.part);
        if self.series.len() >= self.frame_bytes_max {
            self.push_frame(out);
        }
    }

    /// Ends the series; its last frame goes to `out`.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if self.series.len() > self.labels.len() {
            self.push_frame(out);
        }
    }

    /// A frame with the labels of the series alone.
    pub fn push_labels_alone(&mut self, out: &mut Vec<u8>) {
        self.push_frame(out);
    }

    fn push_frame(&mut self, out: &mut Vec<u8>) {
        let mut head = std::mem::take(&mut self.nested);
        head.clear();
        push_bytes(&mut head, 1, &[]);
        // The length of the series stands in place of the empty one.
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
