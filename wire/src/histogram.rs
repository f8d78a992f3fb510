//! Decoding of native histograms, which both messages encode alike.

use std::sync::Arc;

use model::ResetHint;
use model::histogram::{HISTOGRAM_BUCKETS_MAX, Histogram, HistogramError, Span};
use model::histogram::{WireCounts, WireHistogram};
use model::varint::unzigzag;

use crate::protobuf::{Reader, WireError, zigzag32};

/// Maximum number of items kept of each list: one over the limit.
const LEN_MAX: usize = HISTOGRAM_BUCKETS_MAX + 1;

/// The fields of one histogram as received; their memory is reused.
///
/// Source: `Histogram` in `prompb/types.proto` and `prompb/io/prometheus/write/v2/types.proto` of
/// Prometheus; the second adds the start timestamp.
#[derive(Debug, Default)]
pub(super) struct HistogramFields {
    pub(super) timestamp_ms: i64,
    /// Start timestamp; 0 if unknown. Version 1 has no such field.
    pub(super) start_ms: i64,
    count: Count,
    zero_count: Count,
    sum: f64,
    schema: i32,
    zero_threshold: f64,
    reset_hint: i32,
    positive: Side,
    negative: Side,
    custom_values: Vec<f64>,
    /// Custom bounds of the histogram before, which those of a series mostly share.
    shared_bounds: Option<Arc<[f64]>>,
}

/// Number of observations; of the two fields the last one wins.
#[derive(Debug, Clone, Copy)]
enum Count {
    Integer(u64),
    Float(f64),
}

impl Default for Count {
    fn default() -> Count {
        Count::Integer(0)
    }
}

/// Buckets above or below zero.
#[derive(Debug, Default)]
struct Side {
    spans: Vec<Span>,
    /// Integer counts, each as the difference to the one before.
    deltas: Vec<i64>,
    /// Float counts.
    counts: Vec<f64>,
}

/// Error of reading a histogram.
#[derive(Debug)]
pub(super) enum HistogramFieldsError {
    /// The bytes are not a histogram.
    Wire(WireError),
    /// Too many items, named in the plural.
    TooMany(&'static str),
}

impl From<WireError> for HistogramFieldsError {
    fn from(error: WireError) -> HistogramFieldsError {
        HistogramFieldsError::Wire(error)
    }
}

impl HistogramFields {
    /// Reads one message. Absent fields are zero; of repeated single ones the last one wins.
    ///
    /// Memory: at most [`HISTOGRAM_BUCKETS_MAX`] + 1 items of each list. Further items are read, as
    /// the message may be malformed, but dropped.
    pub(super) fn read(
        &mut self,
        mut message: Reader<'_>,
        has_start: bool,
    ) -> Result<(), HistogramFieldsError> {
        self.clear();
        while !message.is_at_end() {
            let key = message.key()?;
            match key.field {
                1 => self.count = Count::Integer(message.integer(key)?),
                2 => self.count = Count::Float(message.double(key)?),
                3 => self.sum = message.double(key)?,
                4 => self.schema = zigzag32(message.integer(key)?),
                5 => self.zero_threshold = message.double(key)?,
                6 => self.zero_count = Count::Integer(message.integer(key)?),
                7 => self.zero_count = Count::Float(message.double(key)?),
                8 => push(&mut self.negative.spans, span(message.nested(key)?)?),
                11 => push(&mut self.positive.spans, span(message.nested(key)?)?),
                9 => message.varints(key, |n| push(&mut self.negative.deltas, unzigzag(n)))?,
                10 => message.doubles(key, LEN_MAX, &mut self.negative.counts)?,
                12 => message.varints(key, |n| push(&mut self.positive.deltas, unzigzag(n)))?,
                13 => message.doubles(key, LEN_MAX, &mut self.positive.counts)?,
                14 => self.reset_hint = message.integer(key)? as i32,
                15 => self.timestamp_ms = message.integer(key)? as i64,
                16 => message.doubles(key, LEN_MAX, &mut self.custom_values)?,
                17 if has_start => self.start_ms = message.integer(key)? as i64,
                _ => message.skip(key)?,
            }
        }
        self.check_len()
    }

    fn check_len(&self) -> Result<(), HistogramFieldsError> {
        let (positive, negative) = (&self.positive, &self.negative);
        for (what, len) in [
            ("buckets", positive.deltas.len() + negative.deltas.len()),
            ("buckets", positive.counts.len() + negative.counts.len()),
            ("spans", positive.spans.len().max(negative.spans.len())),
            ("custom bounds", self.custom_values.len()),
        ] {
            if len > HISTOGRAM_BUCKETS_MAX {
                return Err(HistogramFieldsError::TooMany(what));
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        let parts = std::mem::take(self);
        *self = HistogramFields {
            positive: parts.positive.cleared(),
            negative: parts.negative.cleared(),
            custom_values: parts.custom_values,
            shared_bounds: parts.shared_bounds,
            ..HistogramFields::default()
        };
        self.custom_values.clear();
    }

    /// Makes the histogram.
    ///
    /// Errors: an invalid histogram, in the words of Prometheus.
    pub(super) fn make_histogram(&mut self) -> Result<Histogram, HistogramError> {
        let (positive, negative) = (&self.positive, &self.negative);
        // Counts of the other kind are ignored.
        let counts = match self.count {
            Count::Integer(count) => WireCounts::Integer {
                count,
                zero_count: match self.zero_count {
                    Count::Integer(zero_count) => zero_count,
                    Count::Float(_) => 0,
                },
                positive_deltas: positive.deltas.clone(),
                negative_deltas: negative.deltas.clone(),
            },
            Count::Float(count) => WireCounts::Float {
                count,
                zero_count: match self.zero_count {
                    Count::Float(zero_count) => zero_count,
                    Count::Integer(_) => 0.0,
                },
                positive_counts: positive.counts.clone(),
                negative_counts: negative.counts.clone(),
            },
        };
        let wire = WireHistogram {
            // Prometheus truncates the number to a byte, too.
            reset_hint: ResetHint::from_number(self.reset_hint as u8).unwrap_or_default(),
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            sum: self.sum,
            positive_spans: positive.spans.clone(),
            negative_spans: negative.spans.clone(),
            counts,
            custom_bounds: self.custom_bounds(),
        };
        wire.into_histogram()
    }

    fn custom_bounds(&mut self) -> Arc<[f64]> {
        match &self.shared_bounds {
            _ if self.custom_values.is_empty() => Arc::default(),
            Some(shared) if same_bits(shared, &self.custom_values) => Arc::clone(shared),
            _ => {
                let bounds: Arc<[f64]> = Arc::from(&self.custom_values[..]);
                self.shared_bounds = Some(Arc::clone(&bounds));
                bounds
            }
        }
    }

    /// Size of one histogram on the heap, without its spans and counts.
    pub(super) const OWN_BYTES: usize = size_of::<Histogram>() + 2 * size_of::<usize>();

    pub(super) fn heap_bytes(&self) -> usize {
        self.positive.heap_bytes()
            + self.negative.heap_bytes()
            + 8 * self.custom_values.capacity()
            + self.shared_bounds.as_ref().map_or(0, |bounds| size_of_val(&**bounds))
    }
}

fn same_bits(left: &[f64], right: &[f64]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(l, r)| l.to_bits() == r.to_bits())
}

impl Side {
    fn cleared(mut self) -> Side {
        self.spans.clear();
        self.deltas.clear();
        self.counts.clear();
        self
    }

    fn heap_bytes(&self) -> usize {
        8 * (self.spans.capacity() + self.deltas.capacity() + self.counts.capacity())
    }
}

/// Adds an item, unless there are too many.
#[inline]
fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() < LEN_MAX {
        list.push(item);
    }
}

fn span(mut message: Reader<'_>) -> Result<Span, WireError> {
    let mut span = Span::default();
    while !message.is_at_end() {
        let key = message.key()?;
        match key.field {
            1 => span.offset = zigzag32(message.integer(key)?),
            2 => span.length = message.integer(key)? as u32,
            _ => message.skip(key)?,
        }
    }
    Ok(span)
}
