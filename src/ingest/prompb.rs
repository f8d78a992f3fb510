//! The messages of `prompb` for prost, to test against, with bytes in place of strings: like Prometheus' decoder, and
//! unlike prost's strings, ours leaves the judgement of UTF-8 to the check of labels.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    pub(super) metadata: Vec<MetricMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(super) exemplars: Vec<Exemplar>,
    #[prost(message, repeated, tag = "4")]
    pub(super) histograms: Vec<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Label {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(double, tag = "1")]
    pub(super) value: f64,
    #[prost(int64, tag = "2")]
    pub(super) timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
    #[prost(double, tag = "2")]
    pub(super) value: f64,
    #[prost(int64, tag = "3")]
    pub(super) timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct BucketSpan {
    #[prost(sint32, tag = "1")]
    pub(super) offset: i32,
    #[prost(uint32, tag = "2")]
    pub(super) length: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(uint64, tag = "1")]
    pub(super) count_int: u64,
    #[prost(double, tag = "2")]
    pub(super) count_float: f64,
    #[prost(double, tag = "3")]
    pub(super) sum: f64,
    #[prost(sint32, tag = "4")]
    pub(super) schema: i32,
    #[prost(double, tag = "5")]
    pub(super) zero_threshold: f64,
    #[prost(uint64, tag = "6")]
    pub(super) zero_count_int: u64,
    #[prost(double, tag = "7")]
    pub(super) zero_count_float: f64,
    #[prost(message, repeated, tag = "8")]
    pub(super) negative_spans: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "9")]
    pub(super) negative_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "10")]
    pub(super) negative_counts: Vec<f64>,
    #[prost(message, repeated, tag = "11")]
    pub(super) positive_spans: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "12")]
    pub(super) positive_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "13")]
    pub(super) positive_counts: Vec<f64>,
    #[prost(int32, tag = "14")]
    pub(super) reset_hint: i32,
    #[prost(int64, tag = "15")]
    pub(super) timestamp: i64,
    #[prost(double, repeated, tag = "16")]
    pub(super) custom_values: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetricMetadata {
    #[prost(int32, tag = "1")]
    pub(super) r#type: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) metric_family_name: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) help: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) unit: Vec<u8>,
}

impl WriteRequest {
    /// A request of series, each with its labels and samples.
    pub(super) fn of<'a>(
        series: impl IntoIterator<Item = (&'a [(&'a str, &'a str)], &'a [(i64, f64)])>,
    ) -> WriteRequest {
        let label =
            |(name, value): &(&str, &str)| Label { name: (*name).into(), value: (*value).into() };
        let sample =
            |(timestamp, value): &(i64, f64)| Sample { value: *value, timestamp: *timestamp };
        let timeseries = series.into_iter().map(|(labels, samples)| TimeSeries {
            labels: labels.iter().map(label).collect(),
            samples: samples.iter().map(sample).collect(),
            ..TimeSeries::default()
        });
        WriteRequest { timeseries: timeseries.collect(), metadata: Vec::new() }
    }
}
