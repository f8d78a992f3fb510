//! Samples for both servers: counters with resets, gauges with gaps and staleness markers,
//! histograms of all kinds, names in UTF-8, and a metric that ends long before the others.

use prost::Message;

use crate::pair::STEP_SECONDS;
use testkit::prompb::{
    BucketSpan, Count, Exemplar, Histogram, Label, MetricMetadata, Sample, TimeSeries,
    WriteRequest, ZeroCount,
};

/// Scrapes of each series: an hour.
pub const SCRAPES: i64 = 241;

/// The staleness marker.
const STALE: u64 = 0x7ff0_0000_0000_0002;

/// The schema of histograms with bounds of their own.
const CUSTOM_BUCKETS: i32 = -53;

/// Reset hint of a gauge histogram.
const GAUGE_HINT: i32 = 3;

/// Kinds of metrics as remote write numbers them and as OpenMetrics calls them, with names, units
/// and descriptions.
const METADATA: &[(i32, &str, &str, &str, &str)] = &[
    (1, "counter", "http_requests", "", "Requests answered, by code."),
    (2, "gauge", "temperature_celsius", "celsius", "How warm it is in a room."),
    (2, "gauge", "backup_age_seconds", "seconds", "Seconds since the last backup."),
    (2, "gauge", "disk.free", "", "Bytes that are \\\"free\\\"."),
    (3, "histogram", "latency_seconds", "seconds", "Time to an answer."),
    (3, "histogram", "request_bytes", "bytes", "Sizes of requests."),
    (4, "gaugehistogram", "balance", "", "What accounts hold."),
    (6, "info", "build", "", "What runs."),
    (0, "unknown", "mixed", "", "Numbers first, distributions later."),
];

/// Requests with an hour up to `end`, in seconds.
///
/// Series are sorted by labels, as Prometheus responds in the order of arrival.
/// Exemplars of histograms come after them: in one request Prometheus looks at exemplars first, and
/// does not know their series yet.
pub fn requests(end: i64) -> Vec<Vec<u8>> {
    let start_ms = (end - (SCRAPES - 1) * STEP_SECONDS) * 1000;
    let mut run = Run { start_ms, series: Vec::new() };
    run.counters();
    run.gauges();
    run.classic_histogram();
    run.histograms();
    run.series.sort_by(|a, b| key(a).cmp(&key(b)));
    let metadata = METADATA.iter().map(|(kind, _, name, unit, help)| MetricMetadata {
        r#type: *kind,
        metric_family_name: (*name).into(),
        help: help.replace("\\\"", "\"").into(),
        unit: (*unit).into(),
    });
    let of_histograms = run.series.iter_mut().filter(|series| !series.histograms.is_empty());
    let late = of_histograms.map(|series| TimeSeries {
        labels: series.labels.clone(),
        exemplars: std::mem::take(&mut series.exemplars),
        ..TimeSeries::default()
    });
    let late = WriteRequest { timeseries: late.collect(), metadata: metadata.collect() };
    let first = WriteRequest { timeseries: run.series, metadata: Vec::new() };
    let compressed = |request: WriteRequest| {
        snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).unwrap()
    };
    [first, late].map(compressed).into()
}

/// The metadata as a target exposes them, without a sample.
pub fn open_metrics() -> String {
    let mut text = String::new();
    for (_, kind, name, unit, help) in METADATA {
        text.push_str(&format!("# TYPE \"{name}\" {kind}\n"));
        if !unit.is_empty() {
            text.push_str(&format!("# UNIT \"{name}\" {unit}\n"));
        }
        text.push_str(&format!("# HELP \"{name}\" {help}\n"));
    }
    text + "# EOF\n"
}

fn key(series: &TimeSeries) -> Vec<(&[u8], &[u8])> {
    series.labels.iter().map(|label| (&*label.name, &*label.value)).collect()
}

fn labels(of: &[(&str, &str)]) -> Vec<Label> {
    let mut of = of.to_vec();
    of.sort_unstable();
    of.into_iter().map(|(name, value)| Label { name: name.into(), value: value.into() }).collect()
}

/// Returns a pseudorandom number below `limit`.
fn drawn(at: i64, salt: i64, limit: i64) -> i64 {
    let mixed = (at + 1).wrapping_mul(6_364_136_223_846_793_005)
        ^ (salt + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
    (mixed.wrapping_mul(2_862_933_555_777_941_757) as u64 >> 40) as i64 % limit
}

struct Run {
    start_ms: i64,
    series: Vec<TimeSeries>,
}

impl Run {
    /// Timestamp of a scrape, which is some milliseconds late.
    fn time(&self, at: i64) -> i64 {
        self.start_ms
            + at * STEP_SECONDS * 1000
            + if at + 1 < SCRAPES { drawn(at, 0, 40) } else { 0 }
    }

    fn push(&mut self, of: &[(&str, &str)], value: impl Fn(i64) -> Option<f64>) {
        let sample = |at| Some(Sample { value: value(at)?, timestamp: self.time(at) });
        let samples = (0..SCRAPES).filter_map(sample).collect();
        self.series.push(TimeSeries { labels: labels(of), samples, ..TimeSeries::default() });
    }

    /// Adds an exemplar to the last series in every nth scrape.
    fn exemplars(&mut self, every: usize, salt: i64) {
        let exemplar = |at: i64| Exemplar {
            labels: labels(&[("trace_id", &format!("{salt:x}{at:x}")), ("who", "ä")]),
            value: drawn(at, salt, 1000) as f64 / 512.0,
            timestamp: self.time(at),
        };
        let exemplars = (0..SCRAPES).step_by(every).map(exemplar).collect();
        self.series.last_mut().unwrap().exemplars = exemplars;
    }

    fn counters(&mut self) {
        let kinds = [("200", "/a"), ("200", "/b"), ("404", "/a"), ("500", "/b")];
        for (place, (code, handler)) in (0..).zip(kinds) {
            for (salt, instance) in [(1, "a:80"), (2, "b:80")] {
                let reset = 90 + 10 * place;
                let value = |at| {
                    let since = at % reset;
                    Some((since * (place + salt) * 3 + drawn(since, salt, 3)) as f64)
                };
                let of = [
                    ("__name__", "http_requests_total"),
                    ("code", code),
                    ("handler", handler),
                    ("instance", instance),
                ];
                self.push(&of, value);
                self.exemplars(12 + place as usize, place * 2 + salt);
            }
        }
        let sum = |at| Some(at as f64 * 0.1 + drawn(at, 9, 10) as f64 / 128.0);
        self.push(&[("__name__", "cpu.seconds.total"), ("host.name", "größer")], sum);
    }

    fn gauges(&mut self) {
        for (salt, room) in [(1, "attic"), (2, "cellar"), (3, "hall")] {
            let value = |at: i64| match at {
                // Longer and shorter than the lookback.
                60..=95 | 120..=123 => None,
                // The series of the attic end, and return at once or later.
                140 | 170 if salt == 1 => Some(f64::from_bits(STALE)),
                171..=175 if salt == 1 => None,
                200 if salt == 2 => Some(f64::NAN),
                201 if salt == 2 => Some(f64::INFINITY),
                202 if salt == 2 => Some(f64::NEG_INFINITY),
                _ => Some(18.0 + drawn(at, salt, 90) as f64 / 7.0 - 4.0 * salt as f64),
            };
            self.push(&[("__name__", "temperature_celsius"), ("room", room)], value);
        }
        for (salt, instance) in [(1, "a:80"), (2, "b:80")] {
            let is_up = |at| Some(f64::from(u8::from(drawn(at, salt, 9) > 0)));
            self.push(&[("__name__", "up"), ("instance", instance), ("job", "shop")], is_up);
            let free = |at| Some(1e9 - (at * 12_345 * salt) as f64);
            self.push(
                &[("__name__", "disk.free"), ("instance", instance), ("mount.point", "/ä b")],
                free,
            );
            // A new version starts at the end of the old one.
            for (version, from, to) in [("1.0", 0, 110), ("1.1", 110, SCRAPES)] {
                let value = |at: i64| match at {
                    _ if at == to => Some(f64::from_bits(STALE)),
                    _ => (from..to).contains(&at).then_some(1.0),
                };
                let of = [("__name__", "build_info"), ("instance", instance), ("version", version)];
                self.push(&of, value);
            }
        }
        let age = |at: i64| (at < 80).then_some(at as f64 * 15.0);
        self.push(&[("__name__", "backup_age_seconds"), ("instance", "a:80")], age);
    }

    fn classic_histogram(&mut self) {
        let counts = |at: i64, place: i64| {
            (0..=place).map(|p| (at * (p + 1)) + drawn(at, p, 1 + p % 2)).sum::<i64>()
        };
        for instance in ["a:80", "b:80"] {
            for (place, bound) in (0..).zip(["100", "1000", "10000", "+Inf"]) {
                let of =
                    [("__name__", "request_bytes_bucket"), ("instance", instance), ("le", bound)];
                self.push(&of, |at| Some(counts(at, place) as f64));
            }
            self.push(&[("__name__", "request_bytes_count"), ("instance", instance)], |at| {
                Some(counts(at, 3) as f64)
            });
            self.push(&[("__name__", "request_bytes_sum"), ("instance", instance)], |at| {
                Some(counts(at, 3) as f64 * 777.7)
            });
        }
    }

    fn push_histograms(&mut self, of: &[(&str, &str)], value: impl Fn(i64) -> Option<Histogram>) {
        let histogram = |at| Some(Histogram { timestamp: self.time(at), ..value(at)? });
        let histograms = (0..SCRAPES).filter_map(histogram).collect();
        self.series.push(TimeSeries { labels: labels(of), histograms, ..TimeSeries::default() });
    }

    fn histograms(&mut self) {
        for (salt, instance) in [(1, "a:80"), (2, "b:80")] {
            let of = [("__name__", "latency_seconds"), ("instance", instance)];
            self.push_histograms(&of, |at| latency(at, salt));
            self.exemplars(20, 30 + salt);
            let of = [("__name__", "balance"), ("instance", instance)];
            self.push_histograms(&of, |at| Some(balance(at, salt)));
            let of = [("__name__", "sizes_bytes"), ("instance", instance)];
            self.push_histograms(&of, |at| Some(sizes(at, salt)));
        }
        let of = [("__name__", "mixed"), ("instance", "a:80")];
        self.push_histograms(&of, |at| (at >= 150).then(|| latency(at, 3)).flatten());
        let sample = |at| Sample { value: drawn(at, 5, 50) as f64 / 3.0, timestamp: self.time(at) };
        let samples = (0..150).map(sample).collect();
        self.series.last_mut().unwrap().samples = samples;
    }
}

/// A counter histogram with exponential buckets and integer counts, with a reset and a gap.
fn latency(at: i64, salt: i64) -> Option<Histogram> {
    if (100..130).contains(&at) {
        return None;
    }
    let since = at % 85;
    let counts = [0, 1, 2, 3, 4]
        .map(|bucket| since * (bucket + salt) + drawn(since, bucket, 1 + bucket % 2));
    let zeros = since / 4;
    Some(Histogram {
        count: Some(Count::Integer((counts.iter().sum::<i64>() + zeros) as u64)),
        sum: since as f64 * 0.3 * salt as f64,
        // The schema is coarser after the second start.
        schema: if at < 170 { 3 } else { 1 },
        zero_threshold: 1e-6,
        zero_count: Some(ZeroCount::Integer(zeros as u64)),
        positive_spans: vec![
            BucketSpan { offset: -6, length: 3 },
            BucketSpan { offset: 4, length: 2 },
        ],
        positive_deltas: std::iter::once(counts[0])
            .chain(counts.windows(2).map(|w| w[1] - w[0]))
            .collect(),
        ..Histogram::default()
    })
}

/// A gauge histogram with exponential buckets and float counts, on both sides of zero.
fn balance(at: i64, salt: i64) -> Histogram {
    let count = |bucket: i64| drawn(at, bucket + salt, 64) as f64 / 8.0;
    let (negative, positive) = ([1, 2].map(count), [3, 4, 5].map(count));
    let zeros = count(6);
    Histogram {
        count: Some(Count::Float(negative.iter().chain(&positive).sum::<f64>() + zeros)),
        sum: count(7) - 3.0,
        schema: 0,
        zero_threshold: 0.01,
        zero_count: Some(ZeroCount::Float(zeros)),
        negative_spans: vec![BucketSpan { offset: 0, length: 2 }],
        negative_counts: negative.to_vec(),
        positive_spans: vec![BucketSpan { offset: 1, length: 3 }],
        positive_counts: positive.to_vec(),
        reset_hint: GAUGE_HINT,
        ..Histogram::default()
    }
}

/// A counter histogram with custom buckets.
fn sizes(at: i64, salt: i64) -> Histogram {
    let counts = [1, 3, 2].map(|share| at * share * salt);
    Histogram {
        count: Some(Count::Integer(counts.iter().sum::<i64>() as u64)),
        sum: at as f64 * 99.9 * salt as f64,
        schema: CUSTOM_BUCKETS,
        zero_count: Some(ZeroCount::Integer(0)),
        positive_spans: vec![BucketSpan { offset: 0, length: 3 }],
        positive_deltas: vec![counts[0], counts[1] - counts[0], counts[2] - counts[1]],
        custom_values: vec![10.0, 100.0, 1000.0],
        ..Histogram::default()
    }
}
