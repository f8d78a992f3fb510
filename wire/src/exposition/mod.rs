//! Encoding of samples in the exposition formats: text, and protobuf, delimited or as text.
//!
//! A family is a run of samples of one metric and one type. A family may occur more than once,
//! which Prometheus accepts.
//!
//! Source: `web/federate.go` of Prometheus; `expfmt/{encode,text_create}.go` and `model/metric.go`
//! of Prometheus' common library.

mod escape;
mod proto_text;
mod protobuf;
#[cfg(test)]
mod tests;
mod text;

use model::{Histogram, Labels, METRIC_NAME, ResetHint};

pub use escape::Escaping;
use proto_text::Layout;

/// An exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// The text format, version 0.0.4: it has no native histograms.
    Text,
    /// `io.prometheus.client.MetricFamily`, each after its length.
    Protobuf,
    /// This message in the text format of protobuf, with a line for each field.
    ProtobufText,
    /// This message in the text format of protobuf, with a line for each family.
    ProtobufCompactText,
}

impl ExpositionFormat {
    /// The layout of protobuf as text.
    fn layout(self) -> Option<Layout> {
        match self {
            ExpositionFormat::Text | ExpositionFormat::Protobuf => None,
            ExpositionFormat::ProtobufText => Some(Layout::Lines),
            ExpositionFormat::ProtobufCompactText => Some(Layout::Compact),
        }
    }
}

/// The value of a sample.
#[derive(Debug, Clone)]
pub enum ExposedValue {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(Box<Histogram>),
}

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Untyped,
    Histogram,
    GaugeHistogram,
}

/// Encodes samples, grouped by metric.
#[derive(Debug)]
pub struct ExpositionEncoder {
    format: ExpositionFormat,
    escaping: Escaping,
    /// Name and type of the current family.
    family: Option<(String, Kind)>,
    families: protobuf::Families,
    out: Vec<u8>,
}

impl ExpositionEncoder {
    /// Creates an encoder that escapes names with other characters than ASCII letters, digits and
    /// `_:`.
    pub fn new(format: ExpositionFormat, escaping: Escaping) -> ExpositionEncoder {
        ExpositionEncoder {
            format,
            escaping,
            family: None,
            families: protobuf::Families::default(),
            out: Vec::new(),
        }
    }

    /// Adds a sample. A sample without a metric name is dropped, and so is a histogram that the
    /// format does not support; one with custom buckets becomes a classic histogram.
    ///
    /// A missing label `instance` is added with an empty value, so that the scraper does not add
    /// its own.
    pub fn push(&mut self, labels: &Labels, time_ms: i64, value: &ExposedValue) {
        let kind = match value {
            ExposedValue::Float(_) => Kind::Untyped,
            ExposedValue::Histogram(histogram) => {
                if self.format == ExpositionFormat::Text && !histogram.has_custom_buckets() {
                    return;
                }
                match histogram.reset_hint {
                    ResetHint::Gauge => Kind::GaugeHistogram,
                    _ => Kind::Histogram,
                }
            }
        };
        let name = labels.metric_name();
        if name.is_empty() {
            return;
        }
        if !self.family.as_ref().is_some_and(|(n, k)| (&**n, *k) == (name, kind)) {
            self.begin_family(name, kind);
        }
        let pairs = labels.iter().filter(|(name, _)| *name != METRIC_NAME);
        let added = (!labels.has("instance")).then_some(("instance", ""));
        let pairs = pairs.chain(added).map(|(name, value)| (self.escaping.escape(name), value));
        match (self.format, self.format.layout()) {
            (ExpositionFormat::Text, _) => {
                let name = self.escaping.escape(name);
                let pairs: Vec<_> = pairs.collect();
                text::push_metric(&mut self.out, &name, &pairs, time_ms, value);
            }
            (_, Some(layout)) => {
                layout.push_metric(&mut self.out, self.families.metric(pairs, time_ms, value));
            }
            (_, None) => self.families.push_metric(pairs, time_ms, value),
        }
    }

    fn begin_family(&mut self, name: &str, kind: Kind) {
        self.end_family();
        let escaped = self.escaping.escape(name);
        match (self.format, self.format.layout()) {
            (ExpositionFormat::Text, _) => text::push_type(&mut self.out, &escaped, kind),
            (_, Some(layout)) => layout.begin_family(&mut self.out, &escaped, kind),
            (_, None) => self.families.begin_family(&escaped, kind),
        }
        self.family = Some((name.to_owned(), kind));
    }

    fn end_family(&mut self) {
        match self.format.layout() {
            Some(layout) if self.family.is_some() => layout.end_family(&mut self.out),
            Some(_) => {}
            None => self.families.end_family(&mut self.out),
        }
    }

    /// Size of the encoded samples, in bytes.
    pub fn bytes(&self) -> usize {
        self.out.len() + self.families.bytes()
    }

    /// Returns the encoded samples.
    pub fn finish(mut self) -> Vec<u8> {
        self.end_family();
        self.out
    }
}

/// Returns the classic buckets of a histogram with custom bounds: upper bounds and cumulative
/// counts, without +Inf.
fn classic_buckets(histogram: &Histogram) -> Vec<(f64, f64)> {
    let mut counts = vec![0.0; histogram.custom_bounds.len()];
    let (mut index, mut position) = (0_i64, 0);
    for span in &histogram.positive_spans {
        index += i64::from(span.offset);
        for _ in 0..span.length {
            let count = histogram.positive_counts.get(position).copied().unwrap_or(0.0);
            if let Some(slot) = usize::try_from(index).ok().and_then(|at| counts.get_mut(at)) {
                *slot += count;
            }
            index += 1;
            position += 1;
        }
    }
    let mut sum = 0.0;
    let cumulate = |(bound, count): (&f64, f64)| {
        sum += count;
        (*bound, sum)
    };
    histogram.custom_bounds.iter().zip(counts).map(cumulate).collect()
}
