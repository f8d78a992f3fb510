//! Scrapes of counters and gauges with labels as in a cluster, sent by independent senders.

use std::io;

use testkit::remote_write::{RequestEncoder, encode_labels};

use crate::scenario::load::{self, Outcome, Protocol, Sender};
use crate::scenario::server::Server;

/// Time between two scrapes.
pub const STEP_MS: i64 = 15_000;

/// Size of a load.
pub struct Scrapes {
    /// Number of concurrent senders.
    pub senders: usize,
    /// Series of each sender.
    pub series_per_sender: usize,
    /// Samples of each series, a multiple of those in a request.
    pub scrapes: usize,
    /// Series in a request.
    pub series_per_request: usize,
    /// Samples of a series in a request.
    pub scrapes_per_request: usize,
    /// Time of the first scrape.
    pub start_ms: i64,
    /// Protocol of the requests.
    pub protocol: Protocol,
}

impl Scrapes {
    /// Loads a server.
    ///
    /// Errors: the server is gone, or refuses samples.
    pub fn send(&self, server: &Server) -> io::Result<Outcome> {
        let parts = (0..self.senders).map(|index| Part::new(self, index)).collect();
        load::send(server, parts, |mut part: Part, sender| {
            (0..self.scrapes)
                .step_by(self.scrapes_per_request)
                .try_for_each(|first| part.send(self, first, sender))
        })
    }
}

/// Series of one sender.
struct Part {
    labels: Vec<Vec<u8>>,
    values: Vec<f64>,
    random: u64,
    encoder: RequestEncoder,
}

impl Part {
    fn new(scrapes: &Scrapes, index: usize) -> Part {
        Part {
            labels: (0..scrapes.series_per_sender).map(|series| labels(index, series)).collect(),
            values: (0..scrapes.series_per_sender).map(|series| (series * 100) as f64).collect(),
            random: index as u64 + 1,
            encoder: RequestEncoder::default(),
        }
    }

    /// Sends the scrapes of one request for all series.
    fn send(&mut self, scrapes: &Scrapes, first: usize, sender: &mut Sender) -> io::Result<()> {
        let mut samples = Vec::new();
        for start in (0..self.labels.len()).step_by(scrapes.series_per_request) {
            self.encoder.clear();
            for series in start..start + scrapes.series_per_request {
                samples.clear();
                for scrape in first..first + scrapes.scrapes_per_request {
                    let time_ms = scrapes.start_ms + scrape as i64 * STEP_MS;
                    samples.push((time_ms, self.next_value(series)));
                }
                self.encoder.push(&self.labels[series], samples.iter().copied());
            }
            let count = scrapes.series_per_request * scrapes.scrapes_per_request;
            sender.send_as(scrapes.protocol, &self.encoder, count)?;
        }
        Ok(())
    }

    /// Returns the next value: two counters for each gauge; one counter in four is constant.
    fn next_value(&mut self, series: usize) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let random = (self.random >> 40) as u32;
        let value = &mut self.values[series];
        match series % 6 {
            2 | 5 => *value = f64::from(random % 100_000) / 100.0,
            3 => {}
            _ => *value += f64::from(random % 50),
        }
        *value
    }
}

fn labels(sender: usize, series: usize) -> Vec<u8> {
    const METRICS: [&str; 6] = [
        "http_request_duration_seconds_bucket",
        "http_requests_total",
        "process_resident_memory_bytes",
        "grpc_server_handled_total",
        "container_cpu_usage_seconds_total",
        "go_goroutines",
    ];
    const HANDLERS: [&str; 5] =
        ["/api/v1/items", "/api/v1/items/{id}", "/api/v1/orders", "/healthz", "/metrics"];
    let target = series / 60;
    encode_labels([
        ("__name__", METRICS[series % METRICS.len()]),
        ("cluster", ["eu-west-1", "us-east-2"][sender % 2]),
        ("handler", HANDLERS[series / 6 % HANDLERS.len()]),
        ("instance", &format!("10.{sender}.{}.{}:9100", target / 250, target % 250)),
        ("job", "kubernetes-pods"),
        ("le", ["0.1", "1.0"][series / 30 % 2]),
        ("method", "GET"),
        ("namespace", ["shop", "search", "billing"][target % 3]),
        ("pod", &format!("backend-7c9d5f{:04x}-{:05x}", target / 10, target * 7_919 % 1_048_575)),
    ])
}
