//! Messages of remote write 1.0.

use model::memory::MemorySource;
use model::{Histogram, HistogramSample, Labels, stale_nan};
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    histograms: Vec<WrittenHistogram>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    // Optional, so that negative zero is encoded.
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct WrittenHistogram {
    #[prost(oneof = "Count", tags = "1, 2")]
    count: Option<Count>,
    #[prost(double, tag = "3")]
    sum: f64,
    #[prost(sint32, tag = "4")]
    schema: i32,
    #[prost(double, tag = "5")]
    zero_threshold: f64,
    #[prost(oneof = "ZeroCount", tags = "6, 7")]
    zero_count: Option<ZeroCount>,
    #[prost(message, repeated, tag = "8")]
    negative_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "9")]
    negative_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "10")]
    negative_counts: Vec<f64>,
    #[prost(message, repeated, tag = "11")]
    positive_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "12")]
    positive_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "13")]
    positive_counts: Vec<f64>,
    #[prost(int32, tag = "14")]
    reset_hint: i32,
    #[prost(int64, tag = "15")]
    timestamp: i64,
    #[prost(double, repeated, tag = "16")]
    custom_values: Vec<f64>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Count {
    #[prost(uint64, tag = "1")]
    Integer(u64),
    #[prost(double, tag = "2")]
    Float(f64),
}

#[derive(Clone, PartialEq, Oneof)]
enum ZeroCount {
    #[prost(uint64, tag = "6")]
    Integer(u64),
    #[prost(double, tag = "7")]
    Float(f64),
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

/// Returns the samples from `from_ms` to before `to_ms`.
///
/// A series with alternating kinds of samples occurs once per run of one kind, because a receiver
/// processes floats before histograms.
pub fn time_series(samples: &MemorySource, from_ms: i64, to_ms: i64) -> WriteRequest {
    let mut timeseries: Vec<TimeSeries> = Vec::new();
    for ((labels, times, values), (_, histograms)) in samples.iter().zip(samples.histograms()) {
        let is_in = |time_ms: &i64| (from_ms..to_ms).contains(time_ms);
        let mut floats = times.iter().zip(values).filter(|(time_ms, _)| is_in(time_ms)).peekable();
        let mut histograms = histograms.iter().filter(|h| is_in(&h.timestamp_ms)).peekable();
        while floats.peek().is_some() || histograms.peek().is_some() {
            let mut stretch = TimeSeries { labels: written_labels(labels), ..Default::default() };
            let histogram_ms = histograms.peek().map_or(i64::MAX, |h| h.timestamp_ms);
            while let Some((time_ms, value)) = floats.next_if(|(time, _)| **time < histogram_ms) {
                stretch.samples.push(Sample { value: Some(*value), timestamp: *time_ms });
            }
            if stretch.samples.is_empty() {
                let float_ms = floats.peek().map_or(i64::MAX, |(time_ms, _)| **time_ms);
                while let Some(sample) = histograms.next_if(|h| h.timestamp_ms < float_ms) {
                    stretch.histograms.push(written_histogram(sample));
                }
            }
            timeseries.push(stretch);
        }
    }
    WriteRequest { timeseries }
}

/// Returns a staleness marker at one time for every series, sorted by labels: by default,
/// Prometheus visits series in the order in which they were created.
pub fn markers(samples: &MemorySource, timestamp: i64) -> WriteRequest {
    let timeseries = samples.iter().map(|(labels, _, _)| TimeSeries {
        labels: written_labels(labels),
        samples: vec![Sample { value: Some(stale_nan()), timestamp }],
        ..Default::default()
    });
    WriteRequest { timeseries: timeseries.collect() }
}

fn written_labels(labels: &Labels) -> Vec<Label> {
    let label = |(name, value): (&str, &str)| Label { name: name.into(), value: value.into() };
    labels.iter().map(label).collect()
}

/// Encodes counts as integers if all are, like an instrumented program.
fn written_histogram(sample: &HistogramSample) -> WrittenHistogram {
    let histogram: &Histogram = &sample.histogram;
    let spans = |spans: &[model::Span]| -> Vec<Span> {
        spans.iter().map(|span| Span { offset: span.offset, length: span.length }).collect()
    };
    let mut written = WrittenHistogram {
        sum: histogram.sum,
        schema: i32::from(histogram.schema),
        zero_threshold: histogram.zero_threshold,
        negative_spans: spans(&histogram.negative_spans),
        positive_spans: spans(&histogram.positive_spans),
        reset_hint: i32::from(histogram.reset_hint.number()),
        timestamp: sample.timestamp_ms,
        custom_values: histogram.custom_bounds.to_vec(),
        ..Default::default()
    };
    let counts = histogram.positive_counts.iter().chain(&histogram.negative_counts);
    if counts.chain([&histogram.count]).all(|count| count.fract() == 0.0) {
        written.count = Some(Count::Integer(histogram.count as u64));
        written.zero_count = Some(ZeroCount::Integer(histogram.zero_count as u64));
        written.positive_deltas = deltas(&histogram.positive_counts);
        written.negative_deltas = deltas(&histogram.negative_counts);
    } else {
        written.count = Some(Count::Float(histogram.count));
        written.zero_count = Some(ZeroCount::Float(histogram.zero_count));
        written.positive_counts = histogram.positive_counts.clone();
        written.negative_counts = histogram.negative_counts.clone();
    }
    written
}

fn deltas(counts: &[f64]) -> Vec<i64> {
    let befores = std::iter::once(&0.0).chain(counts);
    counts.iter().zip(befores).map(|(count, before)| (count - before) as i64).collect()
}
