//! A real Prometheus with the same samples.

use std::process::{Command, Stdio};
use std::time::Duration;

use model::memory::MemorySource;
use promqltest::generate::{SPAN_MS, START_MS};
use prost::Message;

use crate::message::{WriteRequest, markers, time_series};
use testkit::{Child, TemporaryDirectory, free_port, get, request, temporary_directory};

/// Feature flags for everything that the engine supports.
const FEATURES: &str = "promql-experimental-functions,promql-delayed-name-removal,\
    promql-duration-expr,promql-extended-range-selectors,promql-binop-fill-modifiers";

/// Time range of one write: far less than Prometheus' limit for late samples.
const SLICE_MS: i64 = 600_000;

pub struct Prometheus {
    address: String,
    _child: Child,
    _directory: TemporaryDirectory,
}

impl Prometheus {
    /// Starts Prometheus on a free port and waits until it is ready.
    pub fn start(binary: &str) -> Prometheus {
        let directory = temporary_directory("differential");
        let config = directory.path().join("prometheus.yml");
        std::fs::write(&config, "").unwrap();
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

    /// Writes all samples in order of time: out-of-order histograms would get separate chunks with
    /// different hints.
    pub fn write(&self, samples: &MemorySource) {
        self.write_once(&markers(samples, START_MS - SLICE_MS));
        let mut from_ms = i64::MIN;
        let mut to_ms = START_MS;
        while from_ms < START_MS + 2 * SPAN_MS {
            self.write_once(&time_series(samples, from_ms, to_ms));
            (from_ms, to_ms) = (to_ms, to_ms + SLICE_MS);
        }
    }

    fn write_once(&self, request: &WriteRequest) {
        let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).unwrap();
        let head = self.head("/api/v1/write", "application/x-protobuf", body.len())
            + "Content-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\n\r\n";
        let (status, answer) = testkit::request(&self.address, &head, &body);
        assert!(status == 204 || status == 200, "{status}: {answer}");
    }

    /// Posts a form to an endpoint and returns the JSON response.
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
