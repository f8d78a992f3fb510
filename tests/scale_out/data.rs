//! Series of 24 targets with an hour of samples, sharded by target.

use prost::Message;
use testkit::prompb::{
    BucketSpan, Count, Exemplar, Histogram, Label, MetricMetadata, Sample, TimeSeries,
    WriteRequest, ZeroCount,
};

/// Time of the last samples, in seconds since the epoch.
pub const END_SECONDS: i64 = 1_700_003_640;
/// Number of shards.
pub const SHARDS: i64 = 2;

const SAMPLES: i64 = 240;
const INTERVAL_MS: i64 = 15_000;
const JOBS: i64 = 3;
const INSTANCES: i64 = 8;

/// Number of targets.
pub const TARGETS: i64 = JOBS * INSTANCES;

/// Series of a request.
pub struct Selected {
    /// Shard of the series; all without it.
    pub shard: Option<i64>,
    /// Whether series have the label `shard`, as external labels give it to those of a shard.
    pub has_shard_label: bool,
    /// Whether there are native histograms.
    pub has_native: bool,
}

impl Selected {
    /// All series, with the label `shard`.
    pub const ALL: Selected = Selected { shard: None, has_shard_label: true, has_native: true };

    pub fn of_shard(shard: i64) -> Selected {
        Selected { shard: Some(shard), has_shard_label: false, has_native: true }
    }
}

/// Returns a remote write request.
pub fn request(selected: &Selected) -> Vec<u8> {
    let mut request = WriteRequest::default();
    for job in 0..JOBS {
        for instance in 0..INSTANCES {
            let own = instance % SHARDS;
            if selected.shard.is_none_or(|shard| shard == own) {
                let shard = selected.has_shard_label.then_some(own);
                let mut target = Target { job, instance, shard, request: &mut request };
                target.push_all();
                if selected.has_native {
                    target.push_native();
                }
            }
        }
    }
    for name in ["http_requests_total", "temperature"] {
        request.metadata.push(MetricMetadata {
            r#type: 1,
            metric_family_name: name.into(),
            help: format!("Help of {name}.").into_bytes(),
            unit: Vec::new(),
        });
    }
    let message = request.encode_to_vec();
    snap::raw::Encoder::new().compress_vec(&message).unwrap()
}

struct Target<'a> {
    job: i64,
    instance: i64,
    /// Value of the label `shard`, which external labels give to series of shards.
    shard: Option<i64>,
    request: &'a mut WriteRequest,
}

impl Target<'_> {
    fn push_all(&mut self) {
        let (job, instance) = (self.job, self.instance);
        let number = job * INSTANCES + instance;
        for (code, rate) in [("200", 7), ("404", 1), ("500", 2)] {
            let rate = rate + number;
            self.push("http_requests_total", &[("code", code)], |step| {
                // A reset in the middle of some.
                let since = if number % 5 == 0 && step > 100 { step - 100 } else { step };
                (since * rate) as f64
            });
        }
        let bounds = [("0.1", 3), ("0.5", 7), ("1", 9), ("+Inf", 10)];
        for (le, share) in bounds {
            self.push("latency_seconds_bucket", &[("le", le)], |step| {
                (step * share * (1 + number % 3)) as f64
            });
        }
        self.push("temperature", &[], |step| {
            20.0 + ((step * 7 + number * 13) % 37) as f64 / 2.0 + number as f64 / 10.0
        });
        self.push("memory_bytes", &[], |step| (1_000_000 + step * 1_000 + number * 50) as f64);
        self.push("memory_limit_bytes", &[], |_| (4_000_000 + number * 1_000) as f64);
        self.push("up", &[], |_| 1.0);
        let version = format!("1.{}", number % 3);
        self.push("target_info", &[("version", &version)], |_| 1.0);
    }

    fn labels(&self, name: &str, more: &[(&str, &str)]) -> Vec<Label> {
        let (job, instance) = (self.job, self.instance);
        let mut labels = vec![
            label("__name__", name),
            label("job", &format!("job{job}")),
            label("instance", &format!("host{instance}:9100")),
        ];
        labels.extend(more.iter().map(|(name, value)| label(name, value)));
        labels.extend(self.shard.map(|shard| label("shard", &shard.to_string())));
        labels.sort_by(|a, b| a.name.cmp(&b.name));
        labels
    }

    fn push(&mut self, name: &str, more: &[(&str, &str)], value: impl Fn(i64) -> f64) {
        let sample = |step| Sample { value: value(step), timestamp: time_ms(step) };
        self.request.timeseries.push(TimeSeries {
            labels: self.labels(name, more),
            samples: (0..SAMPLES).map(sample).collect(),
            ..TimeSeries::default()
        });
    }

    /// Adds a native histogram whose buckets grow with each sample.
    fn push_native(&mut self) {
        let number = self.job * INSTANCES + self.instance;
        let histograms = (0..SAMPLES).map(|step| {
            let (first, second) = (step * (1 + number % 4), step * 2);
            Histogram {
                count: Some(Count::Integer((first + second) as u64)),
                sum: (first + 3 * second) as f64,
                schema: 3,
                zero_threshold: 0.001,
                zero_count: Some(ZeroCount::Integer(0)),
                positive_spans: vec![BucketSpan { offset: (number % 3) as i32, length: 2 }],
                positive_deltas: vec![first, second - first],
                timestamp: time_ms(step),
                ..Histogram::default()
            }
        });
        let exemplar = Exemplar {
            labels: vec![label("trace_id", &format!("trace-{number}"))],
            value: 0.25,
            timestamp: END_SECONDS * 1_000,
        };
        self.request.timeseries.push(TimeSeries {
            labels: self.labels("native_seconds", &[]),
            histograms: histograms.collect(),
            exemplars: vec![exemplar],
            ..TimeSeries::default()
        });
    }
}

fn time_ms(step: i64) -> i64 {
    END_SECONDS * 1_000 - (SAMPLES - 1 - step) * INTERVAL_MS
}

fn label(name: &str, value: &str) -> Label {
    Label { name: name.into(), value: value.into() }
}
