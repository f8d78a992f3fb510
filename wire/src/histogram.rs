//! A native histogram as both messages write it.

use std::sync::Arc;

use model::ResetHint;
use model::histogram::{HISTOGRAM_BUCKETS_MAX, Histogram, HistogramError, Span};
use model::histogram::{WireCounts, WireHistogram};
use model::varint::unzigzag;

use crate::protobuf::{Reader, WireError, zigzag32};

/// Of each list so many are kept until its message has been read.
const LEN_MAX: usize = HISTOGRAM_BUCKETS_MAX + 1;

/// The fields of one histogram, as they were sent; the memory is used again.
///
/// Source: `Histogram` in `prompb/types.proto` and `prompb/io/prometheus/write/v2/types.proto` of
/// Prometheus; the second adds the start.
#[derive(Debug, Default)]
pub(super) struct HistogramFields {
    pub(super) timestamp_ms: i64,
    /// 0 where it is not known; the first message has no such field.
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
    /// The custom bounds of the histogram before: those of a series are mostly alike.
    shared_bounds: Option<Arc<[f64]>>,
}

/// A number of observations: of the two kinds the one that was given last.
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

/// The buckets above zero, or those below.
#[derive(Debug, Default)]
struct Side {
    spans: Vec<Span>,
    /// Of integers: each count less the one before.
    deltas: Vec<i64>,
    /// Of floats.
    counts: Vec<f64>,
}

/// Why a histogram could not be read.
#[derive(Debug)]
pub(super) enum HistogramFieldsError {
    /// The bytes are none.
    Wire(WireError),
    /// More of these than are taken, in the plural.
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
    /// Memory: of each list one more than [`HISTOGRAM_BUCKETS_MAX`] at most. What stands behind
    /// that is read as well, so that a malformed message is found, and dropped.
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

    /// The histogram that the fields make.
    ///
    /// Errors: what is wrong with it, as Prometheus words it.
    pub(super) fn make_histogram(&mut self) -> Result<Histogram, HistogramError> {
        let (positive, negative) = (&self.positive, &self.negative);
        // What was given as the other kind counts for nothing.
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
            // Prometheus cuts the number to a byte as well.
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

    /// Bytes that one histogram takes on the heap, beside its spans and counts.
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

/// Keeps one more of a list, unless there are too many.
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
