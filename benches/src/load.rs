//! What the senders send: scrapes of counters and gauges with the labels that a cluster has.

use std::io;
use std::time::{Duration, Instant};

use testkit::remote_write::{Connection, RequestEncoder, encode_labels};

/// Time between two scrapes.
pub const STEP_MS: i64 = 15_000;
/// How long a request is sent again that is turned away, and how long after.
const PATIENCE: Duration = Duration::from_secs(300);
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A number of senders that share nothing.
pub struct Load {
    /// Connections that send at once.
    pub senders: usize,
    /// Samples of a request, over all of its series.
    pub samples_per_request: usize,
    /// Samples of a series in a request, which is as many scrapes at once.
    pub scrapes_per_request: usize,
    /// Series of a sender; no other sender has them.
    pub series_per_sender: usize,
    /// Time of the first scrape.
    pub start_ms: i64,
}

/// What came of it.
pub struct Outcome {
    /// Of every request but the first of each sender, sorted.
    pub latencies: Vec<Duration>,
    /// The longest first request, in which connections and series are new.
    pub first: Duration,
    /// Time from the first request to the last answer.
    pub elapsed: Duration,
    /// Bytes of all bodies, as sent.
    pub body_bytes: u64,
    /// Requests that were answered with 503, and sent again.
    pub turned_away: usize,
    request_count: usize,
    samples_per_request: usize,
}

impl Outcome {
    /// Samples that were acknowledged.
    pub fn samples(&self) -> usize {
        self.request_count * self.samples_per_request
    }

    /// Median, 99th percentile and longest of the latencies.
    pub fn latencies_ms(&self) -> (f64, f64, f64) {
        let at = |quantile: f64| {
            let last = self.latencies.len().saturating_sub(1);
            let index = (last as f64 * quantile).round() as usize;
            self.latencies.get(index).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
        };
        (at(0.5), at(0.99), at(1.0))
    }
}

impl Load {
    /// Sends for a time.
    pub fn run_for(&self, address: &str, time: Duration) -> io::Result<Outcome> {
        let started = Instant::now();
        self.run(address, |_| started.elapsed() < time)
    }

    /// Sends a number of requests by each sender.
    pub fn run_requests(&self, address: &str, count: usize) -> io::Result<Outcome> {
        self.run(address, |sent| sent < count)
    }

    fn run(&self, address: &str, goes_on: impl Fn(usize) -> bool + Sync) -> io::Result<Outcome> {
        let mut senders: Vec<Sender> =
            (0..self.senders).map(|index| Sender::new(self, index)).collect();
        let started = Instant::now();
        let results: Vec<io::Result<()>> = std::thread::scope(|scope| {
            let running: Vec<_> = senders
                .iter_mut()
                .map(|sender| scope.spawn(|| sender.run(address, &goes_on)))
                .collect();
            running
                .into_iter()
                .map(|run| run.join().unwrap_or_else(|_| Err(io::Error::other("a sender died"))))
                .collect()
        });
        let elapsed = started.elapsed();
        results.into_iter().collect::<io::Result<()>>()?;
        let first = senders.iter().filter_map(|s| s.latencies.first().copied()).max();
        let mut latencies: Vec<Duration> =
            senders.iter().flat_map(|sender| sender.latencies.iter().skip(1)).copied().collect();
        latencies.sort_unstable();
        Ok(Outcome {
            latencies,
            first: first.unwrap_or_default(),
            elapsed,
            body_bytes: senders.iter().map(|sender| sender.body_bytes).sum(),
            turned_away: senders.iter().map(|sender| sender.turned_away).sum(),
            request_count: senders.iter().map(|sender| sender.latencies.len()).sum(),
            samples_per_request: self.samples_per_request,
        })
    }
}

struct Sender {
    labels: Vec<Vec<u8>>,
    values: Vec<f64>,
    series_per_request: usize,
    scrapes_per_request: usize,
    time_ms: i64,
    random: u64,
    latencies: Vec<Duration>,
    body_bytes: u64,
    turned_away: usize,
}

impl Sender {
    fn new(load: &Load, index: usize) -> Sender {
        Sender {
            labels: (0..load.series_per_sender).map(|series| labels(index, series)).collect(),
            values: (0..load.series_per_sender).map(|series| (series * 100) as f64).collect(),
            series_per_request: load.samples_per_request / load.scrapes_per_request,
            scrapes_per_request: load.scrapes_per_request,
            time_ms: load.start_ms,
            random: index as u64 + 1,
            latencies: Vec::new(),
            body_bytes: 0,
            turned_away: 0,
        }
    }

    fn run(&mut self, address: &str, goes_on: &impl Fn(usize) -> bool) -> io::Result<()> {
        let mut connection = Connection::open(address)?;
        let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
        let mut samples = Vec::new();
        loop {
            for start in (0..self.labels.len()).step_by(self.series_per_request) {
                if !goes_on(self.latencies.len()) {
                    return Ok(());
                }
                encoder.clear();
                for series in start..start + self.series_per_request {
                    samples.clear();
                    for scrape in 0..self.scrapes_per_request {
                        let value = self.next_value(series);
                        samples.push((self.time_ms + scrape as i64 * STEP_MS, value));
                    }
                    encoder.push(&self.labels[series], samples.iter().copied());
                }
                encoder.compress(&mut body);
                self.body_bytes += body.len() as u64;
                let sent = Instant::now();
                loop {
                    match connection.write(&body)? {
                        (200 | 204, _) => break,
                        // As every sender does; the latency is that of all attempts.
                        (503, _) if sent.elapsed() < PATIENCE => {
                            self.turned_away += 1;
                            std::thread::sleep(RETRY_PAUSE);
                        }
                        (status, text) => {
                            return Err(io::Error::other(format!("status {status}: {text}")));
                        }
                    }
                }
                self.latencies.push(sent.elapsed());
            }
            self.time_ms += self.scrapes_per_request as i64 * STEP_MS;
        }
    }

    /// Two counters for each gauge; of the counters one in four stands still.
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
