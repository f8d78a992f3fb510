//! Load by remote write: several senders at once, each acknowledged before its next request.

use std::io::{self, Error};
use std::time::{Duration, Instant};

use testkit::remote_write::RequestEncoder;

use super::server::{Cost, Server};
use crate::http::Client;

/// Time limit of the retries of a request, and the pause before each.
const PATIENCE: Duration = Duration::from_secs(300);
const RETRY_PAUSE: Duration = Duration::from_millis(200);

const HEADERS: &str = "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n\
     X-Prometheus-Remote-Write-Version: 0.1.0\r\n";

/// One sender: its connection, and what came of its requests so far.
pub struct Sender {
    client: Client,
    server: String,
    body: Vec<u8>,
    sent: Sent,
}

/// Requests that were acknowledged.
#[derive(Debug, Default)]
pub struct Sent {
    /// Time of each from sending to acknowledgement, all attempts together.
    pub latencies: Vec<Duration>,
    /// Samples in them.
    pub samples: usize,
    /// Bytes of their bodies.
    pub body_bytes: usize,
    /// Requests that were answered with 503 and retried.
    pub turned_away: usize,
}

/// Outcome of a load.
pub struct Outcome {
    /// All requests; the latencies are sorted, without the first one of each sender.
    pub sent: Sent,
    /// The longest first request, in which connections and series are new.
    pub first: Duration,
    /// Cost of the load.
    pub cost: Cost,
}

impl Sender {
    /// Number of requests so far.
    pub fn request_count(&self) -> usize {
        self.sent.latencies.len()
    }

    /// Sends a request of encoded series and waits until it is acknowledged.
    ///
    /// Errors: the server is gone, or refuses it.
    pub fn send(&mut self, encoder: &RequestEncoder, samples: usize) -> io::Result<()> {
        let mut body = std::mem::take(&mut self.body);
        encoder.compress(&mut body);
        let sent = self.send_body(&body, samples);
        self.body = body;
        sent
    }

    /// Sends a compressed request.
    ///
    /// Errors: as those of [`Self::send`].
    pub fn send_body(&mut self, body: &[u8], samples: usize) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            match self.client.post("/api/v1/write", HEADERS, body)? {
                (200..300, _) => break,
                // As every sender does.
                (503, _) if begin.elapsed() < PATIENCE => {
                    self.sent.turned_away += 1;
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
            all.turned_away += sent.turned_away;
        }
        all.latencies.sort_unstable();
        Outcome { sent: all, first, cost }
    }

    /// Latency in ms at a quantile.
    pub fn latency_ms(&self, quantile: f64) -> f64 {
        let last = self.sent.latencies.len().saturating_sub(1);
        let latency = self.sent.latencies.get((last as f64 * quantile).round() as usize);
        latency.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
    }

    /// Samples that were acknowledged in a second.
    pub fn samples_per_second(&self) -> f64 {
        self.sent.samples as f64 / self.cost.wall.as_secs_f64()
    }

    /// CPU seconds of the server for a million samples.
    pub fn cpu_seconds_per_million(&self) -> f64 {
        self.cost.cpu.as_secs_f64() * 1e6 / self.sent.samples as f64
    }
}

/// Has each part sent by a sender of its own, all at once.
///
/// Errors: the server is gone, or refuses samples.
pub fn send<P: Send>(
    server: &Server,
    parts: Vec<P>,
    run: impl Fn(P, &mut Sender) -> io::Result<()> + Sync,
) -> io::Result<Outcome> {
    eprintln!("load {}", server.name);
    let run_part = |part| {
        let (client, server) = (server.client(), server.name.clone());
        let mut sender = Sender { client, server, body: Vec::new(), sent: Sent::default() };
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
