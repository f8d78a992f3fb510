//! A sender of all that remote write 2.0 carries: floats, native histograms, exemplars, metadata.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use serde_json::Value;

use super::{Book, Fate, Sender, data, now_ms};
use testkit::prompb::v2::{self, SymbolTable};
use testkit::prompb::{BucketSpan, Count, Label, ZeroCount};
use testkit::remote_write::Connection;

/// Series of each kind.
const SERIES: usize = 5;
const SAMPLES: i64 = 4;
const STEP_MS: i64 = 50;
const AGE_MS: i64 = 3 * 3_600_000;
const KINDS: [(&str, i32); 2] = [("crash_floats", 2), ("crash_histograms", 3)];
/// Exemplars of a request: one of each series.
const EXEMPLARS: usize = KINDS.len() * SERIES;
/// Number of exemplars in the ring, a multiple of those of a request.
pub const RING: usize = 60 * EXEMPLARS;
/// Entries of metadata that are kept of a metric.
const ENTRIES: usize = 10;

pub struct Everything {
    start_ms: i64,
    book: Book,
}

impl Everything {
    pub fn new(seed: u64) -> Everything {
        Everything { start_ms: now_ms() - AGE_MS, book: Book::new(seed) }
    }

    fn time_ms(&self, request: usize, sample: i64) -> i64 {
        self.start_ms + (request as i64 * SAMPLES + sample) * STEP_MS
    }

    fn number(&self, time_ms: i64) -> i64 {
        (time_ms - self.start_ms) / STEP_MS
    }

    /// The counts of the three buckets of a histogram.
    fn counts(&self, series: usize, time_ms: i64) -> [i64; 3] {
        let number = self.number(time_ms) + series as i64;
        [1 + number % 5, number, 2 + number % 3]
    }

    fn histogram(&self, series: usize, timestamp: i64) -> v2::Histogram {
        let counts = self.counts(series, timestamp);
        v2::Histogram {
            count: Some(Count::Integer(counts.iter().sum::<i64>() as u64)),
            sum: self.sum(timestamp),
            zero_threshold: 0.001,
            zero_count: Some(ZeroCount::Integer(0)),
            positive_spans: vec![BucketSpan { offset: 1, length: 3 }],
            positive_deltas: vec![counts[0], counts[1] - counts[0], counts[2] - counts[1]],
            timestamp,
            ..v2::Histogram::default()
        }
    }

    fn sum(&self, time_ms: i64) -> f64 {
        self.number(time_ms) as f64 + 0.25
    }

    fn value(&self, series: usize, time_ms: i64) -> f64 {
        (self.number(time_ms) * 100 + series as i64) as f64 + 0.5
    }

    fn request(&self, request: usize) -> Vec<u8> {
        let mut table = SymbolTable::default();
        let mut timeseries = Vec::new();
        for (metric, kind) in KINDS {
            for series in 0..SERIES {
                timeseries.push(self.series(&mut table, request, (metric, kind), series));
            }
        }
        let message = v2::Request { symbols: table.symbols, timeseries };
        snap::raw::Encoder::new().compress_vec(&message.encode_to_vec()).unwrap()
    }

    fn series(
        &self,
        table: &mut SymbolTable,
        request: usize,
        (metric, kind): (&str, i32),
        series: usize,
    ) -> v2::TimeSeries {
        let label = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
        let labels = [label("__name__", metric), label("series", &series.to_string())];
        let trace = [label("trace_id", &request.to_string())];
        let times = (0..SAMPLES).map(|sample| self.time_ms(request, sample));
        let has_histograms = metric == KINDS[1].0;
        let sample = |timestamp| v2::Sample {
            value: self.value(series, timestamp),
            timestamp,
            start_timestamp: 0,
        };
        let histogram = |timestamp| self.histogram(series, timestamp);
        v2::TimeSeries {
            labels_refs: table.labels(&labels),
            samples: times.clone().filter(|_| !has_histograms).map(sample).collect(),
            histograms: times.filter(|_| has_histograms).map(histogram).collect(),
            exemplars: vec![v2::Exemplar {
                labels_refs: table.labels(&trace),
                value: request as f64,
                timestamp: self.time_ms(request, SAMPLES - 1),
            }],
            metadata: Some(v2::Metadata {
                r#type: kind,
                help_ref: table.add(format!("request {request}").as_bytes()),
                unit_ref: 0,
            }),
        }
    }

    /// Counts the correct stored samples of a metric, by request.
    fn count_samples(&self, address: &str, metric: &str, found: &mut BTreeMap<usize, usize>) {
        let answer = data(address, "query", &[("query", &format!("{metric}[1d]"))]);
        let mut seen = BTreeSet::new();
        for of_series in answer["result"].as_array().unwrap() {
            let series: usize = of_series["metric"]["series"].as_str().unwrap().parse().unwrap();
            for kind in ["values", "histograms"] {
                for pair in of_series[kind].as_array().into_iter().flatten() {
                    let time_ms = (pair[0].as_f64().unwrap() * 1_000.0).round() as i64;
                    assert!(seen.insert((series, time_ms)), "doubled at {time_ms} of {series}");
                    self.check_value(series, time_ms, kind, &pair[1]);
                    let request = self.number(time_ms).div_euclid(SAMPLES) as usize;
                    *found.entry(request).or_default() += 1;
                }
            }
        }
    }

    fn check_value(&self, series: usize, time_ms: i64, kind: &str, found: &Value) {
        if kind == "values" {
            let found: f64 = found.as_str().unwrap().parse().unwrap();
            assert_eq!(found, self.value(series, time_ms), "altered at {time_ms} of {series}");
            return;
        }
        let counts = self.counts(series, time_ms);
        let buckets = found["buckets"].as_array().unwrap().iter();
        let buckets: Vec<&str> = buckets.map(|bucket| bucket[3].as_str().unwrap()).collect();
        // Empty ones are not shown.
        let expected = counts.iter().filter(|count| **count > 0).map(i64::to_string);
        assert_eq!(buckets, expected.collect::<Vec<_>>(), "altered at {time_ms} of {series}");
        let number = |name: &str| found[name].as_str().unwrap().parse::<f64>().unwrap();
        assert_eq!(number("count"), counts.iter().sum::<i64>() as f64, "altered at {time_ms}");
        assert_eq!(number("sum"), self.sum(time_ms), "altered at {time_ms}");
    }

    /// Checks that the ring holds the latest exemplars of stored requests.
    fn check_exemplars(&self, address: &str, stored: &[usize]) {
        let (start, end) = (self.start_ms / 1000 - 1, now_ms() / 1000 + 3600);
        let query = "{__name__=~\"crash_.*\"}";
        let parameters =
            [("query", query), ("start", &start.to_string()), ("end", &end.to_string())];
        let answer = data(address, "query_exemplars", &parameters);
        let mut found = BTreeMap::new();
        for of_series in answer.as_array().unwrap() {
            let labels = &of_series["seriesLabels"];
            let series = [&labels["__name__"], &labels["series"]].map(|v| v.as_str().unwrap());
            for exemplar in of_series["exemplars"].as_array().unwrap() {
                let trace = exemplar["labels"]["trace_id"].as_str().unwrap();
                let request: usize = trace.parse().unwrap();
                let value: f64 = exemplar["value"].as_str().unwrap().parse().unwrap();
                let time_ms = (exemplar["timestamp"].as_f64().unwrap() * 1000.0).round() as i64;
                assert_eq!(value, request as f64);
                assert_eq!(time_ms, self.time_ms(request, SAMPLES - 1));
                let seen: &mut BTreeSet<[String; 2]> = found.entry(request).or_default();
                assert!(seen.insert(series.map(str::to_owned)), "exemplar of {request} twice");
            }
        }
        let kept = stored.len().saturating_sub(RING / EXEMPLARS);
        let requests: Vec<usize> = found.keys().copied().collect();
        assert_eq!(requests, stored[kept..], "requests whose exemplars are there");
        for (request, seen) in found {
            assert_eq!(seen.len(), EXEMPLARS, "exemplars of request {request}: {seen:?}");
        }
    }

    /// Checks that each metric has the metadata of the last stored requests, the latest first.
    fn check_metadata(&self, address: &str, stored: &[usize]) {
        for (metric, kind) in KINDS {
            let answer = data(address, "metadata", &[("metric", metric)]);
            let entries = answer[metric].as_array().cloned().unwrap_or_default();
            let helps: Vec<&str> = entries.iter().map(|e| e["help"].as_str().unwrap()).collect();
            let latest = stored.iter().rev().take(ENTRIES);
            let expected: Vec<String> =
                latest.map(|request| format!("request {request}")).collect();
            assert_eq!(helps, expected, "metadata of {metric}");
            let expected = ["unknown", "counter", "gauge", "histogram"][kind as usize];
            assert!(entries.iter().all(|entry| entry["type"] == expected), "{entries:?}");
        }
    }
}

impl Sender for Everything {
    fn send(&self, connection: &mut Connection, request: usize) -> std::io::Result<(u16, String)> {
        connection.write_v2(&self.request(request))
    }

    fn check(&mut self, address: &str) -> usize {
        let mut found = BTreeMap::new();
        for (metric, _) in KINDS {
            self.count_samples(address, metric, &mut found);
        }
        let count = found.values().sum();
        let mut stored = Vec::new();
        for (request, fate) in self.book.fates.iter().enumerate() {
            match found.remove(&request) {
                Some(samples) => {
                    assert_eq!(samples, KINDS.len() * SERIES * SAMPLES as usize, "of {request}");
                    stored.push(request);
                }
                None => assert_eq!(*fate, Fate::Unknown, "request {request} is lost"),
            }
        }
        assert!(found.is_empty(), "stored requests that were not sent: {found:?}");
        self.check_exemplars(address, &stored);
        self.check_metadata(address, &stored);
        count
    }

    fn book(&self) -> &Book {
        &self.book
    }

    fn book_mut(&mut self) -> &mut Book {
        &mut self.book
    }
}
