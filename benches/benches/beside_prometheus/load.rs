//! Seeded scrapes of native histograms: latencies in buckets of schema 3.

use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use benches::data::Random;
use benches::scenario::load::{Outcome, Protocol, send};
use benches::scenario::server::Server;
use prost::Message;
use testkit::prompb::{BucketSpan, Count, Histogram, Label, TimeSeries, WriteRequest, ZeroCount};

/// Name of the metric.
pub const METRIC: &str = "latency_seconds";
/// Time between two scrapes.
pub const STEP_MS: i64 = 15_000;
/// Observations of a series between two scrapes.
const OBSERVATIONS: u64 = 40;
/// Observations before the first scrape.
const OBSERVATIONS_BEFORE: u64 = 2_000;
/// Average number of scrapes between two resets.
const RESET_EVERY: u64 = 1_000;

/// State of all series.
pub struct Load {
    series: Vec<Series>,
}

/// Outcome of a load.
pub struct Written {
    /// Requests; their samples are histograms.
    pub outcome: Outcome,
    /// Number of buckets of all histograms.
    pub bucket_count: usize,
}

struct Series {
    labels: Vec<Label>,
    random: Random,
    /// Index of the first bucket.
    offset: i32,
    counts: Vec<u64>,
    sum: f64,
}

impl Load {
    pub fn new(series_count: usize) -> Load {
        Load { series: (0..series_count).map(Series::new).collect() }
    }

    /// Writes scrapes to a server, one per request.
    pub fn write(self, server: &Server, start_ms: i64, scrape_count: usize) -> io::Result<Written> {
        let bucket_count = AtomicUsize::new(0);
        let outcome = send(server, vec![self], |mut load: Load, sender| {
            for scrape in 0..scrape_count as i64 {
                let time_ms = start_ms + scrape * STEP_MS;
                let timeseries: Vec<TimeSeries> =
                    load.series.iter_mut().map(|series| series.scrape(time_ms)).collect();
                let histograms = timeseries.iter().flat_map(|series| &series.histograms);
                let buckets: usize = histograms.map(|found| found.positive_deltas.len()).sum();
                bucket_count.fetch_add(buckets, Relaxed);
                let message = WriteRequest { timeseries, metadata: Vec::new() }.encode_to_vec();
                let body = snap::raw::Encoder::new().compress_vec(&message)?;
                sender.send_body(Protocol::V1, &body, load.series.len())?;
            }
            Ok(())
        })?;
        Ok(Written { outcome, bucket_count: bucket_count.into_inner() })
    }
}

impl Series {
    fn new(index: usize) -> Series {
        let mut random = Random::new(index as u64);
        let label = |(name, value): (&str, String)| Label {
            name: name.as_bytes().to_vec(),
            value: value.into_bytes(),
        };
        let pairs = [
            ("__name__", METRIC.to_owned()),
            ("instance", format!("host-{index:06}.example:9100")),
            ("job", "api".to_owned()),
            ("path", format!("/v1/resource/{:03}", index % 32)),
        ];
        let mut series = Series {
            labels: pairs.map(label).to_vec(),
            offset: random.below(24) as i32 - 40,
            counts: vec![0; 22 + random.below(19) as usize],
            sum: 0.0,
            random,
        };
        series.observe(OBSERVATIONS_BEFORE);
        series
    }

    /// Adds observations in a bell-shaped distribution.
    fn observe(&mut self, count: u64) {
        for _ in 0..count {
            let mean = (self.random.unit() + self.random.unit() + self.random.unit()) / 3.0;
            let at = (mean * self.counts.len() as f64) as usize;
            self.counts[at] += 1;
            self.sum += f64::from((at as i32 + self.offset) as f32 / 8.0).exp2();
        }
    }

    fn scrape(&mut self, time_ms: i64) -> TimeSeries {
        if self.random.below(RESET_EVERY) == 0 {
            self.counts.fill(0);
            self.sum = 0.0;
        }
        self.observe(OBSERVATIONS);
        let (positive_spans, positive_deltas) = self.buckets();
        let histogram = Histogram {
            count: Some(Count::Integer(self.counts.iter().sum())),
            sum: self.sum,
            schema: 3,
            zero_threshold: 2f64.powi(-128),
            zero_count: Some(ZeroCount::Integer(0)),
            positive_spans,
            positive_deltas,
            timestamp: time_ms,
            ..Histogram::default()
        };
        TimeSeries {
            labels: self.labels.clone(),
            histograms: vec![histogram],
            ..TimeSeries::default()
        }
    }

    /// Returns spans and deltas of populated buckets.
    fn buckets(&self) -> (Vec<BucketSpan>, Vec<i64>) {
        let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::new());
        // The first offset counts from 0, others from the end of the previous span.
        let (mut next, mut before) = (0, 0);
        for (at, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let index = at as i32 + self.offset;
            match spans.last_mut() {
                Some(span) if index == next => span.length += 1,
                _ => spans.push(BucketSpan { offset: index - next, length: 1 }),
            }
            deltas.push(*count as i64 - before);
            (next, before) = (index + 1, *count as i64);
        }
        (spans, deltas)
    }
}
