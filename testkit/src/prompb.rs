//! Messages of remote write 1.0 and 2.0 for prost, the twin of our decoder. Strings are bytes,
//! since, as in Prometheus, UTF-8 is checked with the labels and not by the decoder.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    pub metadata: Vec<MetricMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub exemplars: Vec<Exemplar>,
    #[prost(message, repeated, tag = "4")]
    pub histograms: Vec<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Sample {
    #[prost(double, tag = "1")]
    pub value: f64,
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(double, tag = "2")]
    pub value: f64,
    #[prost(int64, tag = "3")]
    pub timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct BucketSpan {
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    #[prost(uint32, tag = "2")]
    pub length: u32,
}

/// Number of observations.
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub enum Count {
    #[prost(uint64, tag = "1")]
    Integer(u64),
    #[prost(double, tag = "2")]
    Float(f64),
}

/// Number of observations in the zero bucket.
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub enum ZeroCount {
    #[prost(uint64, tag = "6")]
    Integer(u64),
    #[prost(double, tag = "7")]
    Float(f64),
}

/// Declares `Histogram`, to which version 2 adds a field.
macro_rules! histogram_message {
    ($($extra:tt)*) => {
        #[derive(Clone, PartialEq, Message)]
        pub struct Histogram {
            #[prost(oneof = "Count", tags = "1, 2")]
            pub count: Option<Count>,
            #[prost(double, tag = "3")]
            pub sum: f64,
            #[prost(sint32, tag = "4")]
            pub schema: i32,
            #[prost(double, tag = "5")]
            pub zero_threshold: f64,
            #[prost(oneof = "ZeroCount", tags = "6, 7")]
            pub zero_count: Option<ZeroCount>,
            #[prost(message, repeated, tag = "8")]
            pub negative_spans: Vec<BucketSpan>,
            #[prost(sint64, repeated, tag = "9")]
            pub negative_deltas: Vec<i64>,
            #[prost(double, repeated, tag = "10")]
            pub negative_counts: Vec<f64>,
            #[prost(message, repeated, tag = "11")]
            pub positive_spans: Vec<BucketSpan>,
            #[prost(sint64, repeated, tag = "12")]
            pub positive_deltas: Vec<i64>,
            #[prost(double, repeated, tag = "13")]
            pub positive_counts: Vec<f64>,
            #[prost(int32, tag = "14")]
            pub reset_hint: i32,
            #[prost(int64, tag = "15")]
            pub timestamp: i64,
            #[prost(double, repeated, tag = "16")]
            pub custom_values: Vec<f64>,
            $($extra)*
        }
    };
}

histogram_message! {}

#[derive(Clone, PartialEq, Message)]
pub struct MetricMetadata {
    #[prost(int32, tag = "1")]
    pub r#type: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub metric_family_name: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub help: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub unit: Vec<u8>,
}

impl WriteRequest {
    /// Creates a request of series with labels and samples.
    pub fn of<'a>(
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

/// Messages of version 2 that differ.
pub mod v2 {
    use std::collections::HashMap;

    use prost::Message;

    use super::{BucketSpan, Count, ZeroCount};

    #[derive(Clone, PartialEq, Message)]
    pub struct Request {
        #[prost(bytes = "vec", repeated, tag = "4")]
        pub symbols: Vec<Vec<u8>>,
        #[prost(message, repeated, tag = "5")]
        pub timeseries: Vec<TimeSeries>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct TimeSeries {
        #[prost(uint32, repeated, tag = "1")]
        pub labels_refs: Vec<u32>,
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub histograms: Vec<Histogram>,
        #[prost(message, repeated, tag = "4")]
        pub exemplars: Vec<Exemplar>,
        #[prost(message, optional, tag = "5")]
        pub metadata: Option<Metadata>,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct Sample {
        #[prost(double, tag = "1")]
        pub value: f64,
        #[prost(int64, tag = "2")]
        pub timestamp: i64,
        #[prost(int64, tag = "3")]
        pub start_timestamp: i64,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Exemplar {
        #[prost(uint32, repeated, tag = "1")]
        pub labels_refs: Vec<u32>,
        #[prost(double, tag = "2")]
        pub value: f64,
        #[prost(int64, tag = "3")]
        pub timestamp: i64,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct Metadata {
        #[prost(int32, tag = "1")]
        pub r#type: i32,
        #[prost(uint32, tag = "3")]
        pub help_ref: u32,
        #[prost(uint32, tag = "4")]
        pub unit_ref: u32,
    }

    histogram_message! {
        #[prost(int64, tag = "17")]
        pub start_timestamp: i64,
    }

    macro_rules! convert_histogram {
        ($from:path, $to:path $(, $extra:ident)?) => {
            impl From<$from> for $to {
                fn from(h: $from) -> $to {
                    $to {
                        count: h.count,
                        sum: h.sum,
                        schema: h.schema,
                        zero_threshold: h.zero_threshold,
                        zero_count: h.zero_count,
                        negative_spans: h.negative_spans,
                        negative_deltas: h.negative_deltas,
                        negative_counts: h.negative_counts,
                        positive_spans: h.positive_spans,
                        positive_deltas: h.positive_deltas,
                        positive_counts: h.positive_counts,
                        reset_hint: h.reset_hint,
                        timestamp: h.timestamp,
                        custom_values: h.custom_values,
                        $($extra: 0,)?
                    }
                }
            }
        };
    }

    convert_histogram!(super::Histogram, Histogram, start_timestamp);
    convert_histogram!(Histogram, super::Histogram);

    /// Symbol table of a request under construction.
    #[derive(Debug)]
    pub struct SymbolTable {
        pub symbols: Vec<Vec<u8>>,
        known: HashMap<Vec<u8>, u32>,
    }

    impl Default for SymbolTable {
        fn default() -> SymbolTable {
            SymbolTable { symbols: vec![Vec::new()], known: HashMap::from([(Vec::new(), 0)]) }
        }
    }

    impl SymbolTable {
        pub fn add(&mut self, text: &[u8]) -> u32 {
            if let Some(known) = self.known.get(text) {
                return *known;
            }
            let reference = self.symbols.len() as u32;
            self.symbols.push(text.to_vec());
            self.known.insert(text.to_vec(), reference);
            reference
        }

        pub fn labels(&mut self, labels: &[super::Label]) -> Vec<u32> {
            labels.iter().flat_map(|l| [self.add(&l.name), self.add(&l.value)]).collect()
        }
    }

    impl Request {
        /// Converts a request of version 1.
        pub fn of(request: &super::WriteRequest) -> Request {
            let mut table = SymbolTable::default();
            let timeseries = request.timeseries.iter().map(|series| TimeSeries {
                labels_refs: table.labels(&series.labels),
                samples: series
                    .samples
                    .iter()
                    .map(|s| Sample { value: s.value, timestamp: s.timestamp, start_timestamp: 0 })
                    .collect(),
                histograms: series.histograms.iter().cloned().map(Histogram::from).collect(),
                exemplars: series
                    .exemplars
                    .iter()
                    .map(|exemplar| Exemplar {
                        labels_refs: table.labels(&exemplar.labels),
                        value: exemplar.value,
                        timestamp: exemplar.timestamp,
                    })
                    .collect(),
                metadata: None,
            });
            let timeseries = timeseries.collect();
            Request { symbols: table.symbols, timeseries }
        }
    }
}
