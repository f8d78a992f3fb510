//! Load by remote write or OTLP: concurrent senders, each request acknowledged before the next.

use std::collections::BTreeMap;
use std::io::{self, Error};
use std::time::{Duration, Instant};

use prost::Message;
use testkit::otlppb::CUMULATIVE;
use testkit::prompb::{WriteRequest, v2};
use testkit::remote_write::RequestEncoder;
use wire::fields::{push_bytes, push_integer};

use super::server::{Cost, Program, Server};
use crate::http::Client;

/// Timeout of the retries of a request, and the pause before each.
const RETRY_TIMEOUT: Duration = Duration::from_secs(300);
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Start timestamp of counters, in 2017.
const START_NS: u64 = 1_500_000_000_000_000_000;

/// Protocol of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// Remote write 1.0.
    #[default]
    V1,
    /// Remote write 2.0.
    V2,
    /// OTLP over HTTP, in protobuf without compression.
    Otlp,
}

impl Protocol {
    /// Returns the flags that a program needs to receive it.
    pub fn args(self, program: Program) -> Vec<String> {
        let flags: &[&str] = match (self, program) {
            (Protocol::Otlp, Program::Tessella | Program::Prometheus) => {
                &["--web.enable-otlp-receiver"]
            }
            (Protocol::V2, Program::Prometheus) => &[
                "--web.remote-write-receiver.accepted-protobuf-messages=io.prometheus.write.v2.Request",
            ],
            _ => &[],
        };
        flags.iter().map(|flag| (*flag).to_owned()).collect()
    }

    /// Returns the path and the headers of requests.
    fn target(self, program: Program) -> (&'static str, &'static str) {
        match (self, program) {
            (Protocol::V1, _) => (
                "/api/v1/write",
                "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n\
                 X-Prometheus-Remote-Write-Version: 0.1.0\r\n",
            ),
            (Protocol::V2, _) => (
                "/api/v1/write",
                "Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request\r\n\
                 Content-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 2.0.0\r\n",
            ),
            (Protocol::Otlp, Program::VictoriaMetrics) => {
                ("/opentelemetry/v1/metrics", "Content-Type: application/x-protobuf\r\n")
            }
            (Protocol::Otlp, _) => {
                ("/api/v1/otlp/v1/metrics", "Content-Type: application/x-protobuf\r\n")
            }
        }
    }
}

/// Sender: its connection, and its acknowledged requests.
pub struct Sender {
    client: Client,
    server: String,
    program: Program,
    body: Vec<u8>,
    sent: Sent,
}

/// Requests that were acknowledged.
#[derive(Debug, Default)]
pub struct Sent {
    /// Time of each from sending to acknowledgement, including retries.
    pub latencies: Vec<Duration>,
    /// Number of samples.
    pub samples: usize,
    /// Bytes of the request bodies.
    pub body_bytes: usize,
    /// Number of retries after status 503.
    pub retries: usize,
}

/// Outcome of a load.
pub struct Outcome {
    /// All requests; latencies are sorted, without the first of each sender.
    pub sent: Sent,
    /// Longest first request, in which connections and series are new.
    pub first: Duration,
    /// Cost of the load.
    pub cost: Cost,
}

impl Sender {
    /// Returns the number of requests so far.
    pub fn request_count(&self) -> usize {
        self.sent.latencies.len()
    }

    /// Sends a request of encoded series and waits until it is acknowledged.
    ///
    /// Errors: the server is gone, or refuses it.
    pub fn send(&mut self, encoder: &RequestEncoder, samples: usize) -> io::Result<()> {
        let mut body = std::mem::take(&mut self.body);
        encoder.compress(&mut body);
        let sent = self.send_body(Protocol::V1, &body, samples);
        self.body = body;
        sent
    }

    /// Sends a request of encoded series in any protocol, as [`Self::send`].
    ///
    /// Errors: as those of [`Self::send`].
    pub fn send_as(
        &mut self,
        protocol: Protocol,
        encoder: &RequestEncoder,
        samples: usize,
    ) -> io::Result<()> {
        match protocol {
            Protocol::V1 => self.send(encoder, samples),
            _ => self.send_body(protocol, &body_of(encoder, protocol), samples),
        }
    }

    /// Sends a request whose body is encoded.
    ///
    /// Errors: as those of [`Self::send`].
    pub fn send_body(&mut self, protocol: Protocol, body: &[u8], samples: usize) -> io::Result<()> {
        let (path, headers) = protocol.target(self.program);
        let begin = Instant::now();
        loop {
            match self.client.post(path, headers, body)? {
                (200..300, _) => break,
                // Like all senders.
                (503, _) if begin.elapsed() < RETRY_TIMEOUT => {
                    self.sent.retries += 1;
                    std::thread::sleep(RETRY_PAUSE);
                }
                (status, text) => {
                    let text = String::from_utf8_lossy(text);
                    return Err(Error::other(format!("{}: status {status}: {text}", self.server)));
                }
            }
        }
        self.sent.latencies.push(begin.elapsed());
        self.sent.samples += samples;
        self.sent.body_bytes += body.len();
        Ok(())
    }
}

impl Outcome {
    fn new(senders: impl Iterator<Item = Sent>, cost: Cost) -> Outcome {
        let (mut all, mut first) = (Sent::default(), Duration::ZERO);
        for sent in senders {
            first = first.max(sent.latencies.first().copied().unwrap_or_default());
            all.latencies.extend(sent.latencies.into_iter().skip(1));
            all.samples += sent.samples;
            all.body_bytes += sent.body_bytes;
            all.retries += sent.retries;
        }
        all.latencies.sort_unstable();
        Outcome { sent: all, first, cost }
    }

    /// Returns the latency in ms at a quantile.
    pub fn latency_ms(&self, quantile: f64) -> f64 {
        let last = self.sent.latencies.len().saturating_sub(1);
        let latency = self.sent.latencies.get((last as f64 * quantile).round() as usize);
        latency.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
    }

    /// Returns acknowledged samples per second.
    pub fn samples_per_second(&self) -> f64 {
        self.sent.samples as f64 / self.cost.wall.as_secs_f64()
    }

    /// Returns acknowledged samples per CPU second of the server.
    pub fn samples_per_cpu_second(&self) -> f64 {
        self.sent.samples as f64 / self.cost.cpu.as_secs_f64()
    }

    /// Returns CPU seconds of the server per million samples.
    pub fn cpu_seconds_per_million(&self) -> f64 {
        self.cost.cpu.as_secs_f64() * 1e6 / self.sent.samples as f64
    }
}

/// Sends each part by its own sender, concurrently.
///
/// Errors: the server is gone, or refuses samples.
pub fn send<P: Send>(
    server: &Server,
    parts: Vec<P>,
    run: impl Fn(P, &mut Sender) -> io::Result<()> + Sync,
) -> io::Result<Outcome> {
    eprintln!("load {}", server.name);
    let run_part = |part| {
        let (client, name) = (server.client(), server.name.clone());
        let (program, body, sent) = (server.program, Vec::new(), Sent::default());
        let mut sender = Sender { client, server: name, program, body, sent };
        run(part, &mut sender).map(|()| sender.sent)
    };
    let run_all = || {
        std::thread::scope(|scope| {
            let running: Vec<_> =
                parts.into_iter().map(|part| scope.spawn(|| run_part(part))).collect();
            let ended = |run: std::thread::ScopedJoinHandle<'_, io::Result<Sent>>| {
                run.join().unwrap_or_else(|_| Err(Error::other("a sender panicked")))
            };
            running.into_iter().map(ended).collect::<io::Result<Vec<Sent>>>()
        })
    };
    let (senders, cost) = server.measure(run_all)?;
    Ok(Outcome::new(senders.into_iter(), cost))
}

/// Returns the body of a request of another protocol with the same series.
fn body_of(encoder: &RequestEncoder, protocol: Protocol) -> Vec<u8> {
    let request = WriteRequest::decode(encoder.message()).expect("it was encoded here");
    let compressed = |message: Vec<u8>| {
        snap::raw::Encoder::new().compress_vec(&message).expect("a request is below 4 GiB")
    };
    match protocol {
        Protocol::V1 => compressed(request.encode_to_vec()),
        Protocol::V2 => compressed(v2::Request::of(&request).encode_to_vec()),
        Protocol::Otlp => otlp(&request),
    }
}

/// Returns a request with a metric for each name, and all labels as attributes of data points. Counters
/// are sums with a start timestamp, as OpenTelemetry's libraries send them.
///
/// It is encoded by hand: a slow sender makes commits smaller, which raises the server's cost of a
/// sample.
fn otlp(request: &WriteRequest) -> Vec<u8> {
    const FIXED64: u8 = 1;
    let push_fixed = |out: &mut Vec<u8>, field: u8, bits: u64| {
        out.push(field << 3 | FIXED64);
        out.extend_from_slice(&bits.to_le_bytes());
    };
    let mut metrics = BTreeMap::<&[u8], Vec<u8>>::new();
    let (mut point, mut value, mut attribute) = (Vec::new(), Vec::new(), Vec::new());
    for series in &request.timeseries {
        let name = series.labels.iter().find(|label| label.name == b"__name__");
        let name = name.map_or(&[][..], |label| &label.value);
        let points = metrics.entry(name).or_default();
        for sample in &series.samples {
            point.clear();
            if is_counter(name) {
                push_fixed(&mut point, 2, START_NS);
            }
            push_fixed(&mut point, 3, sample.timestamp as u64 * 1_000_000);
            push_fixed(&mut point, 4, sample.value.to_bits());
            for label in series.labels.iter().filter(|label| label.name != b"__name__") {
                value.clear();
                push_bytes(&mut value, 1, &label.value);
                attribute.clear();
                push_bytes(&mut attribute, 1, &label.name);
                push_bytes(&mut attribute, 2, &value);
                push_bytes(&mut point, 7, &attribute);
            }
            push_bytes(points, 1, &point);
        }
    }
    let mut scope = Vec::new();
    for (name, mut data) in metrics {
        let (is_counter, mut metric) = (is_counter(name), Vec::new());
        if is_counter {
            push_integer(&mut data, 2, CUMULATIVE as u64);
            push_integer(&mut data, 3, 1);
        }
        push_bytes(&mut metric, 1, name);
        push_bytes(&mut metric, if is_counter { 7 } else { 5 }, &data);
        push_bytes(&mut scope, 2, &metric);
    }
    let [mut resource, mut request] = [const { Vec::new() }; 2];
    push_bytes(&mut resource, 2, &scope);
    push_bytes(&mut request, 1, &resource);
    request
}

/// Returns whether receivers of OTLP give a sum this name; they add `_total` to others.
fn is_counter(name: &[u8]) -> bool {
    name.ends_with(b"_total")
}
