//! Delimited protobuf.
//!
//! Source: `io/prometheus/client/metrics.proto` of Prometheus' client model.

use std::borrow::Cow;

use model::varint::{push_varint, zigzag};
use model::{Histogram, Span};

use super::{ExposedValue, Kind, classic_buckets};
use crate::fields::{push_bytes, push_present_double, push_present_integer};

/// The current family.
#[derive(Debug, Default)]
pub(super) struct Families {
    family: Vec<u8>,
    metric: Vec<u8>,
    part: Vec<u8>,
    nested: Vec<u8>,
}

impl Families {
    /// Starts a family.
    pub(super) fn begin_family(&mut self, name: &str, kind: Kind) {
        push_bytes(&mut self.family, 1, name.as_bytes());
        let number = match kind {
            Kind::Untyped => 3,
            Kind::Histogram => 4,
            Kind::GaugeHistogram => 5,
        };
        push_present_integer(&mut self.family, 3, number);
    }

    /// Ends the family, if there is one, and appends it to `out`.
    pub(super) fn end_family(&mut self, out: &mut Vec<u8>) {
        if !self.family.is_empty() {
            push_varint(out, self.family.len() as u64);
            out.append(&mut self.family);
        }
    }

    /// Size of the family, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.family.len()
    }

    /// Adds a sample.
    pub(super) fn push_metric<'a>(
        &mut self,
        labels: impl Iterator<Item = (Cow<'a, str>, &'a str)>,
        time_ms: i64,
        value: &ExposedValue,
    ) {
        self.metric(labels, time_ms, value);
        push_bytes(&mut self.family, 4, &self.metric);
    }

    /// Returns a sample as a message `Metric`.
    pub(super) fn metric<'a>(
        &mut self,
        labels: impl Iterator<Item = (Cow<'a, str>, &'a str)>,
        time_ms: i64,
        value: &ExposedValue,
    ) -> &[u8] {
        self.metric.clear();
        for (name, value) in labels {
            self.part.clear();
            push_bytes(&mut self.part, 1, name.as_bytes());
            push_bytes(&mut self.part, 2, value.as_bytes());
            push_bytes(&mut self.metric, 1, &self.part);
        }
        self.part.clear();
        match value {
            ExposedValue::Float(value) => {
                push_present_double(&mut self.part, 1, *value);
                push_bytes(&mut self.metric, 5, &self.part);
                push_present_integer(&mut self.metric, 6, time_ms as u64);
            }
            ExposedValue::Histogram(histogram) => {
                if histogram.has_custom_buckets() {
                    self.push_classic(histogram);
                } else {
                    self.push_native(histogram);
                }
                push_present_integer(&mut self.metric, 6, time_ms as u64);
                push_bytes(&mut self.metric, 7, &self.part);
            }
        }
        &self.metric
    }

    fn push_classic(&mut self, histogram: &Histogram) {
        push_present_double(&mut self.part, 2, histogram.sum);
        for (bound, count) in classic_buckets(histogram) {
            self.nested.clear();
            push_present_double(&mut self.nested, 2, bound);
            push_present_double(&mut self.nested, 4, count);
            push_bytes(&mut self.part, 3, &self.nested);
        }
        push_present_double(&mut self.part, 4, histogram.count);
    }

    fn push_native(&mut self, histogram: &Histogram) {
        push_present_double(&mut self.part, 2, histogram.sum);
        push_present_double(&mut self.part, 4, histogram.count);
        let schema = zigzag(i64::from(histogram.schema)) as u32;
        push_present_integer(&mut self.part, 5, u64::from(schema));
        push_present_double(&mut self.part, 6, histogram.zero_threshold);
        push_present_double(&mut self.part, 8, histogram.zero_count);
        self.push_spans(9, &histogram.negative_spans);
        self.push_counts(11, &histogram.negative_counts);
        self.push_spans(12, &histogram.positive_spans);
        self.push_counts(14, &histogram.positive_counts);
    }

    /// Adds counts, not packed, as the message declares them.
    fn push_counts(&mut self, field: u32, counts: &[f64]) {
        for count in counts {
            push_present_double(&mut self.part, field, *count);
        }
    }

    fn push_spans(&mut self, field: u32, spans: &[Span]) {
        for span in spans {
            self.nested.clear();
            let offset = zigzag(i64::from(span.offset)) as u32;
            push_present_integer(&mut self.nested, 1, u64::from(offset));
            push_present_integer(&mut self.nested, 2, u64::from(span.length));
            push_bytes(&mut self.part, field, &self.nested);
        }
    }
}
