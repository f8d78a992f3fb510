//! A real Prometheus that holds the same samples.

use std::process::{Command, Stdio};
use std::time::Duration;

use model::memory::MemorySource;
use prost::Message;

use crate::process::{Child, TemporaryDirectory, free_port, get, request, temporary_directory};

/// Everything that the engine understands, Prometheus has behind these.
const FEATURES: &str = "promql-experimental-functions,promql-delayed-name-removal,\
    promql-duration-expr,promql-extended-range-selectors,promql-binop-fill-modifiers";

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
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
    // Optional, so that a negative zero is written too.
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

pub struct Prometheus {
    address: String,
    _child: Child,
    _directory: TemporaryDirectory,
}

impl Prometheus {
    /// Starts a Prometheus on a free port, and waits until it is ready.
    pub fn start(binary: &str) -> Prometheus {
        let directory = temporary_directory("differential");
        let config = directory.path().join("prometheus.yml");
        // Series are written one after the other, so that times go back and forth.
        std::fs::write(&config, "storage: {tsdb: {out_of_order_time_window: 30d}}\n").unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let child = Command::new(binary)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--web.enable-remote-write-receiver")
            .arg(format!("--enable-feature={FEATURES}"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let prometheus = Prometheus { address, _child: Child(child), _directory: directory };
        for _ in 0..600 {
            if get(&prometheus.address, "/-/ready").0 == 200 {
                return prometheus;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("Prometheus is not ready after 30 s");
    }

    /// Writes all samples.
    pub fn write(&self, samples: &MemorySource) {
        let timeseries = samples.iter().map(|(labels, timestamps, values)| TimeSeries {
            labels: labels
                .iter()
                .map(|(name, value)| Label { name: name.to_owned(), value: value.to_owned() })
                .collect(),
            samples: timestamps
                .iter()
                .zip(values)
                .map(|(timestamp, value)| Sample { value: Some(*value), timestamp: *timestamp })
                .collect(),
        });
        let body = WriteRequest { timeseries: timeseries.collect() }.encode_to_vec();
        let body = snap::raw::Encoder::new().compress_vec(&body).unwrap();
        let head = self.head("/api/v1/write", "application/x-protobuf", body.len())
            + "Content-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\n\r\n";
        let (status, answer) = request(&self.address, &head, &body);
        assert!(status == 204 || status == 200, "{status}: {answer}");
    }

    /// The JSON that an endpoint answers to a form.
    pub fn ask(&self, path: &str, form: &str) -> serde_json::Value {
        let head = self.head(path, "application/x-www-form-urlencoded", form.len()) + "\r\n";
        let (status, answer) = request(&self.address, &head, form.as_bytes());
        serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{status}: {answer}"))
    }

    fn head(&self, path: &str, content_type: &str, length: usize) -> String {
        format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: {content_type}\r\nContent-Length: {length}\r\n",
            self.address
        )
    }
}
