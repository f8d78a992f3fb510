//! A target to scrape, in Prometheus' protobuf exposition: what Prometheus does not expose of
//! itself. Each scrape sees the next state of a seeded run.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;

const COUNTER: i32 = 0;
const GAUGE: i32 = 1;
const HISTOGRAM: i32 = 4;
const GAUGE_HISTOGRAM: i32 = 5;

// The messages, as far as they are used. Source: `io/prometheus/client/metrics.proto`.

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(int32, optional, tag = "3")]
    r#type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
    #[prost(string, tag = "5")]
    unit: String,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<Label>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Counter>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Counter {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(message, optional, tag = "2")]
    exemplar: Option<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    label: Vec<Label>,
    #[prost(double, tag = "2")]
    value: f64,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    sample_count: u64,
    #[prost(double, tag = "2")]
    sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(double, tag = "4")]
    sample_count_float: f64,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(double, tag = "8")]
    zero_count_float: f64,
    #[prost(message, repeated, tag = "9")]
    negative_span: Vec<Span>,
    #[prost(sint64, repeated, tag = "10")]
    negative_delta: Vec<i64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<Span>,
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
    #[prost(double, repeated, tag = "14")]
    positive_count: Vec<f64>,
    #[prost(message, repeated, tag = "16")]
    exemplars: Vec<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    cumulative_count: u64,
    #[prost(double, tag = "2")]
    upper_bound: f64,
    #[prost(message, optional, tag = "3")]
    exemplar: Option<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

/// Serves the target on a free port for as long as the process lives, and returns its address.
pub fn serve() -> String {
    let mut run = Run::default();
    let content_type = "application/vnd.google.protobuf; \
         proto=io.prometheus.client.MetricFamily; encoding=delimited";
    serve_bodies(content_type, move || {
        let mut body = Vec::new();
        for family in run.next() {
            family.encode_length_delimited(&mut body).unwrap();
        }
        body
    })
}

/// Serves one body for all requests.
pub fn serve_text(content_type: &'static str, text: String) -> String {
    serve_bodies(content_type, move || text.clone().into_bytes())
}

fn serve_bodies(
    content_type: &'static str,
    mut next: impl FnMut() -> Vec<u8> + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A failed scrape shows in `up`.
            let _ = answer(stream, content_type, &mut next);
        }
    });
    address
}

fn answer(
    mut stream: TcpStream,
    content_type: &str,
    next: &mut impl FnMut() -> Vec<u8>,
) -> std::io::Result<()> {
    let (mut head, mut bytes) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            len => head.extend_from_slice(&bytes[..len]),
        }
    }
    let body = next();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)
}

/// State of the run.
#[derive(Default)]
struct Run {
    scrapes: u64,
    /// Observations in buckets of schema 3, of the two series of the latency.
    latency: [[u64; 12]; 2],
    /// Observations in the buckets of the classic histogram.
    classic: [u64; 5],
    shares: [f64; 6],
    requests: u64,
}

impl Run {
    fn next(&mut self) -> Vec<MetricFamily> {
        self.scrapes += 1;
        vec![
            self.latency(),
            self.balance(),
            self.shares(),
            self.classic(),
            self.alternating(),
            self.requests(),
        ]
    }

    /// A number below a limit, out of the scrape and a salt.
    fn number(&self, salt: u64, limit: u64) -> u64 {
        let x = (self.scrapes * 64 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ (x >> 27)) % limit
    }

    /// Counts of integers, native and classic at once, with exemplars; one of the two series is
    /// reset every eleven scrapes, and its buckets become more meanwhile.
    fn latency(&mut self) -> MetricFamily {
        if self.scrapes.is_multiple_of(11) {
            self.latency[1] = [0; 12];
        }
        let seen = 4 + (self.scrapes % 11) as usize / 2;
        for (series, buckets) in [12, seen].into_iter().enumerate() {
            for at in 0..buckets {
                self.latency[series][at] += self.number((series * 12 + at) as u64, 20);
            }
        }
        let metric = ["/", "/search"].into_iter().enumerate().map(|(series, path)| {
            let counts = &self.latency[series];
            let len = counts.iter().rposition(|count| *count > 0).map_or(0, |at| at + 1);
            let total: u64 = counts.iter().sum();
            let bucket = [(0.25, 4), (0.5, 8)].map(|(upper_bound, buckets)| Bucket {
                cumulative_count: counts[..buckets].iter().sum(),
                upper_bound,
                exemplar: None,
            });
            metric(path, |metric| {
                metric.histogram = Some(Histogram {
                    sample_count: total + 2,
                    sample_sum: total as f64 * 0.37,
                    bucket: bucket.to_vec(),
                    schema: 3,
                    zero_threshold: 1e-6,
                    zero_count: 2,
                    // A gap of one between two runs of buckets.
                    positive_span: vec![span(-17, len.min(6)), span(1, len.saturating_sub(6))],
                    positive_delta: deltas(&counts[..len]),
                    exemplars: vec![self.exemplar(0.3), self.exemplar(0.45)],
                    ..Histogram::default()
                });
            })
        });
        family("target_latency_seconds", "How long it took.", HISTOGRAM, "seconds", metric)
    }

    /// A gauge, with buckets on both sides of zero.
    fn balance(&self) -> MetricFamily {
        let above: Vec<u64> = (0..3).map(|at| self.number(30 + at, 9)).collect();
        let below: Vec<u64> = (0..2).map(|at| self.number(40 + at, 9)).collect();
        let total = above.iter().chain(&below).sum::<u64>() + 1;
        let metric = metric("/", |metric| {
            metric.histogram = Some(Histogram {
                sample_count: total,
                sample_sum: self.number(45, 100) as f64 - 50.5,
                schema: 0,
                zero_threshold: 0.001,
                zero_count: 1,
                positive_span: vec![span(1, above.len())],
                positive_delta: deltas(&above),
                negative_span: vec![span(0, 1), span(2, 1)],
                negative_delta: deltas(&below),
                ..Histogram::default()
            });
        });
        family("target_balance", "Gains and \"losses\".", GAUGE_HISTOGRAM, "", [metric])
    }

    /// Counts of floats; every seven scrapes it is reset to another schema.
    fn shares(&mut self) -> MetricFamily {
        if self.scrapes.is_multiple_of(7) {
            self.shares = [0.0; 6];
        }
        for at in 0..self.shares.len() {
            self.shares[at] += self.number(50 + at as u64, 1000) as f64 / 64.0 + 0.1;
        }
        let total: f64 = self.shares.iter().sum();
        let metric = metric("/", |metric| {
            metric.histogram = Some(Histogram {
                sample_count_float: total + 0.5,
                sample_sum: total * 1.7,
                schema: 2 - (self.scrapes / 7 % 3) as i32,
                zero_threshold: 0.01,
                zero_count_float: 0.5,
                positive_span: vec![span(-2, self.shares.len())],
                positive_count: self.shares.to_vec(),
                ..Histogram::default()
            });
        });
        family("target_shares", "", HISTOGRAM, "", [metric])
    }

    /// A classic histogram only.
    fn classic(&mut self) -> MetricFamily {
        for at in 0..self.classic.len() {
            self.classic[at] += self.number(60 + at as u64, 5);
        }
        let bounds = [0.01, 0.1, 1.0, 10.0, f64::INFINITY];
        let bucket = bounds.iter().enumerate().map(|(at, bound)| Bucket {
            cumulative_count: self.classic[..=at].iter().sum(),
            upper_bound: *bound,
            exemplar: (at == 2).then(|| self.exemplar(0.5)),
        });
        let total: u64 = self.classic.iter().sum();
        let metric = metric("/", |metric| {
            metric.histogram = Some(Histogram {
                sample_count: total,
                sample_sum: total as f64 * 0.2,
                bucket: bucket.collect(),
                ..Histogram::default()
            });
        });
        family("target_classic_seconds", "Line\nand \\ line.", HISTOGRAM, "seconds", [metric])
    }

    /// Five floats, then five histograms, in one series.
    fn alternating(&self) -> MetricFamily {
        let is_float = (self.scrapes / 5).is_multiple_of(2);
        let metric = metric("/", |metric| {
            if is_float {
                metric.gauge = Some(Gauge { value: self.scrapes as f64 });
            } else {
                metric.histogram = Some(Histogram {
                    sample_count: self.scrapes * 3,
                    sample_sum: self.scrapes as f64,
                    schema: -1,
                    positive_span: vec![span(0, 2)],
                    positive_delta: deltas(&[self.scrapes, self.scrapes * 2]),
                    ..Histogram::default()
                });
            }
        });
        let kind = if is_float { GAUGE } else { GAUGE_HISTOGRAM };
        family("target_alternating", "Now one, now the other.", kind, "", [metric])
    }

    fn requests(&mut self) -> MetricFamily {
        self.requests += self.number(70, 10);
        let metric = metric("/", |metric| {
            let exemplar = Some(self.exemplar(1.0));
            metric.counter = Some(Counter { value: self.requests as f64, exemplar });
        });
        family("target_requests_total", "Requests, µ included.", COUNTER, "", [metric])
    }

    /// An exemplar with the current time.
    fn exemplar(&self, value: f64) -> Exemplar {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        // Whole milliseconds, which is what both sides keep.
        let nanos = now.subsec_millis() as i32 * 1_000_000;
        Exemplar {
            label: vec![label("trace_id", &format!("{:08x}", self.number(80, 1 << 32)))],
            value: value + self.scrapes as f64 / 1024.0,
            timestamp: Some(Timestamp { seconds: now.as_secs() as i64, nanos }),
        }
    }
}

fn family(
    name: &str,
    help: &str,
    kind: i32,
    unit: &str,
    metric: impl IntoIterator<Item = Metric>,
) -> MetricFamily {
    MetricFamily {
        name: name.to_owned(),
        help: help.to_owned(),
        r#type: Some(kind),
        metric: metric.into_iter().collect(),
        unit: unit.to_owned(),
    }
}

fn metric(path: &str, fill: impl FnOnce(&mut Metric)) -> Metric {
    let mut metric = Metric { label: vec![label("path", path)], ..Metric::default() };
    fill(&mut metric);
    metric
}

fn label(name: &str, value: &str) -> Label {
    Label { name: name.to_owned(), value: value.to_owned() }
}

fn span(offset: i32, length: usize) -> Span {
    Span { offset, length: length as u32 }
}

fn deltas(counts: &[u64]) -> Vec<i64> {
    let mut before = 0;
    counts
        .iter()
        .map(|count| *count as i64 - std::mem::replace(&mut before, *count as i64))
        .collect()
}
