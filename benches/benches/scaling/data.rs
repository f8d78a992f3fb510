//! Targets of a cluster: counters, classic histograms and gauges, sharded by target.

use std::io;

use benches::data::Random;
use benches::scenario::load::{self, Outcome, Sender};
use benches::scenario::server::Server;
use testkit::remote_write::{RequestEncoder, encode_labels};

/// Time between two scrapes.
pub const STEP_MS: i64 = 15_000;
/// Scrapes of a target: an hour.
pub const SCRAPES: usize = 240;
/// Series of a target.
pub const TARGET_SERIES: usize = 100;

/// Targets of a job.
const JOB_TARGETS: usize = 40;
/// Scrapes in a request.
const REQUEST_SCRAPES: usize = 20;
/// Targets in a request.
const REQUEST_TARGETS: usize = 5;

const HANDLERS: [&str; 6] =
    ["/api/items", "/api/items/{id}", "/api/orders", "/healthz", "/login", "/metrics"];
const CODES: [&str; 5] = ["200", "201", "400", "404", "500"];
const BOUNDS: [&str; 12] =
    ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];

/// Series of a target with its state.
struct Series {
    labels: Vec<u8>,
    kind: Kind,
    value: f64,
    random: Random,
}

/// Rule of the next value.
#[derive(Clone, Copy)]
enum Kind {
    /// A counter that grows by up to a number.
    Counter(u64),
    /// A gauge around a number.
    Gauge(u64),
    Constant,
}

/// Writes the targets of a shard to its node, from `start_ms` on.
pub fn write(
    server: &Server,
    targets: impl Iterator<Item = usize>,
    start_ms: i64,
) -> io::Result<Outcome> {
    let targets: Vec<usize> = targets.collect();
    let parts: Vec<Vec<usize>> =
        (0..2).map(|part| targets.iter().copied().skip(part).step_by(2).collect()).collect();
    load::send(server, parts, |targets, sender| {
        targets
            .chunks(REQUEST_TARGETS)
            .try_for_each(|targets| write_group(targets, start_ms, sender))
    })
}

fn write_group(targets: &[usize], start_ms: i64, sender: &mut Sender) -> io::Result<()> {
    let mut series: Vec<Series> = targets.iter().flat_map(|target| series(*target)).collect();
    let mut encoder = RequestEncoder::default();
    for first in (0..SCRAPES).step_by(REQUEST_SCRAPES) {
        encoder.clear();
        for each in &mut series {
            let samples: Vec<(i64, f64)> = (first..first + REQUEST_SCRAPES)
                .map(|scrape| (start_ms + scrape as i64 * STEP_MS, each.next_value()))
                .collect();
            encoder.push(&each.labels, samples);
        }
        sender.send(&encoder, series.len() * REQUEST_SCRAPES)?;
    }
    Ok(())
}

impl Series {
    fn next_value(&mut self) -> f64 {
        let random = &mut self.random;
        match self.kind {
            Kind::Counter(growth) => self.value += random.below(growth + 1) as f64,
            Kind::Gauge(mean) => self.value = (mean / 2 + random.below(mean)) as f64,
            Kind::Constant => {}
        }
        self.value
    }
}

/// Returns the series of a target.
fn series(target: usize) -> Vec<Series> {
    let job = format!("job{:02}", target / JOB_TARGETS);
    let instance = format!("10.0.{}.{}:9100", target / 250, target % 250);
    let mut all = Vec::with_capacity(TARGET_SERIES);
    let mut push = |name: &str, more: &[(&str, &str)], kind, value: f64| {
        let mut labels = vec![("__name__", name), ("instance", &instance), ("job", &job)];
        labels.extend(more);
        labels.sort_unstable();
        let random = Random::new((target * TARGET_SERIES + all.len()) as u64);
        all.push(Series { labels: encode_labels(labels), kind, value, random });
    };
    for handler in HANDLERS {
        for code in CODES {
            let growth = if code == "200" { 400 } else { 8 };
            push(
                "http_requests_total",
                &[("code", code), ("handler", handler)],
                Kind::Counter(growth),
                0.0,
            );
        }
    }
    for handler in &HANDLERS[..4] {
        for (index, le) in BOUNDS.iter().enumerate() {
            let kind = Kind::Counter(20 * (index as u64 + 1));
            push("request_seconds_bucket", &[("handler", handler), ("le", le)], kind, 0.0);
        }
    }
    for cpu in ["0", "1", "2", "3", "4", "5"] {
        for mode in ["idle", "system", "user"] {
            push("cpu_seconds_total", &[("cpu", cpu), ("mode", mode)], Kind::Counter(15), 0.0);
        }
    }
    push("memory_bytes", &[], Kind::Gauge(1 << 30), 0.0);
    push("memory_limit_bytes", &[], Kind::Constant, (2_u64 << 30) as f64);
    push("up", &[], Kind::Constant, 1.0);
    push("target_info", &[("version", &format!("1.{}", target % 3))], Kind::Constant, 1.0);
    all
}
