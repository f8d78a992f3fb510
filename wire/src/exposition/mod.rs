//! Samples in the formats in which metrics are exposed: text, and protobuf, delimited or as text.
//!
//! A family is a run of samples of one metric and one kind; one that comes again is written again,
//! which Prometheus reads as well as one that comes once.
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

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// The text format, version 0.0.4: it has no native histograms.
    Text,
    /// `io.prometheus.client.MetricFamily`, each behind its length.
    Protobuf,
    /// The same message in the text format of protobuf, a line for each field.
    ProtobufText,
    /// The same on one line for each family.
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
pub enum Exposed {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(Box<Histogram>),
}

/// What the samples of a family are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Untyped,
    Histogram,
    GaugeHistogram,
}

/// Writes samples, those of one metric together.
#[derive(Debug)]
pub struct ExpositionEncoder {
    format: ExpositionFormat,
    escaping: Escaping,
    /// Name and kind of the family that is under way.
    family: Option<(String, Kind)>,
    families: protobuf::Families,
    out: Vec<u8>,
}

impl ExpositionEncoder {
    /// Writes in a format; names that are not plain are escaped.
    pub fn new(format: ExpositionFormat, escaping: Escaping) -> ExpositionEncoder {
        ExpositionEncoder {
            format,
            escaping,
            family: None,
            families: protobuf::Families::default(),
            out: Vec::new(),
        }
    }

    /// Adds a sample. One without a metric's name is left out, and so is a histogram that the format
    /// does not have; one with custom buckets becomes a classic one.
    ///
    /// A label `instance` without a value is added where there is none: so whoever scrapes this does
    /// not add its own.
    pub fn push(&mut self, labels: &Labels, time_ms: i64, value: &Exposed) {
        let kind = match value {
            Exposed::Float(_) => Kind::Untyped,
            Exposed::Histogram(histogram) => {
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

    /// How many bytes there are so far.
    pub fn bytes(&self) -> usize {
        self.out.len() + self.families.bytes()
    }

    /// All that was written.
    pub fn finish(mut self) -> Vec<u8> {
        self.end_family();
        self.out
    }
}

/// The buckets of a histogram with custom bounds as a classic one has them: upper bounds, and all
/// observations up to there; without the last one at +Inf.
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
