//! Loads a dataset by remote write, and says what it cost.

use std::io::{self, Error};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::compare::Answer;
use super::dataset::{Dataset, INTERVAL_MS};
use super::peer::Peer;
use super::progress::Progress;
use super::queries::{Shape, instant_path};
use crate::process::Resident;

/// Connections, each acknowledged before its next request.
const SENDERS: usize = 4;
/// Samples of a request, or a few more.
const REQUEST_SAMPLES: usize = 2_000;
const REQUEST_SAMPLES_LONG: usize = 10_000;

const HEADERS: &str = "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n\
     X-Prometheus-Remote-Write-Version: 0.1.0\r\n";

/// What a load was and what it cost. What needs a process id or a directory may be missing.
#[derive(Debug, Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
pub struct Loaded {
    /// Samples that were acknowledged.
    pub samples: u64,
    /// Time from the first request to the last answer.
    pub seconds: f64,
    /// The server's CPU time during it.
    pub cpu_seconds: Option<f64>,
    /// The server's CPU time from its end until the server came to rest.
    pub cpu_seconds_after: Option<f64>,
    /// Memory at the end of it.
    pub resident: Option<Resident>,
    /// Memory once the server came to rest.
    pub resident_settled: Option<Resident>,
    /// Whether it came to rest before the harness lost patience.
    pub is_settled: bool,
}

/// Whether a server holds a dataset that ends at a time.
///
/// Errors: it holds something else.
pub fn is_loaded(peer: &Peer, dataset: &Dataset, end_s: i64) -> io::Result<bool> {
    let path = instant_path("count({__name__!=\"\"})", end_s);
    let answer = Answer::read(Shape::Values, peer.client().text(&path)?.as_bytes())?;
    let series = match answer.first_value() {
        None => return Ok(false),
        Some(count) => count as usize,
    };
    if series == dataset.series_count() {
        return Ok(true);
    }
    Err(Error::other(format!("{} is neither empty nor loaded: {series} series", peer.name)))
}

/// Loads a dataset that ends at a time into an empty server and waits until it is at rest.
///
/// Errors: the server is gone, or refuses samples.
pub fn load(
    peer: &Peer,
    dataset: &Dataset,
    end_s: i64,
    settle_timeout: Duration,
) -> io::Result<Loaded> {
    let total = (dataset.series_count() * dataset.scrapes) as u64;
    let progress = Progress::new(&format!("load {}", peer.name), total);
    let start_ms = end_s * 1_000 - dataset.scrapes as i64 * INTERVAL_MS;
    let (samples, cpu, started) = (AtomicU64::new(0), peer.cpu_time()?, Instant::now());
    let send = |part: super::dataset::Part| {
        let (mut client, mut body) = (peer.client(), Vec::new());
        let size =
            if dataset.scrapes_per_request > 1 { REQUEST_SAMPLES_LONG } else { REQUEST_SAMPLES };
        part.send(start_ms, size, |encoder, count, _| {
            encoder.compress(&mut body);
            let (status, answer) = client.post("/api/v1/write", HEADERS, &body)?;
            if status / 100 != 2 {
                let text = String::from_utf8_lossy(answer);
                return Err(Error::other(format!("{}: status {status}: {text}", peer.name)));
            }
            samples.fetch_add(count as u64, Ordering::Relaxed);
            progress.add(count as u64);
            Ok(())
        })
    };
    std::thread::scope(|scope| {
        let parts = dataset.parts(SENDERS);
        let running: Vec<_> = parts.into_iter().map(|part| scope.spawn(|| send(part))).collect();
        running
            .into_iter()
            .try_for_each(|run| run.join().unwrap_or_else(|_| Err(Error::other("a sender died"))))
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu_loaded = peer.cpu_time()?;
    progress.finish();
    let resident = peer.resident();
    peer.flush()?;
    let is_settled = peer.settle(settle_timeout)?;
    let between = |a: Option<Duration>, b: Option<Duration>| Some((b? - a?).as_secs_f64());
    Ok(Loaded {
        samples: samples.into_inner(),
        seconds,
        cpu_seconds: between(cpu, cpu_loaded),
        cpu_seconds_after: between(cpu_loaded, peer.cpu_time()?),
        resident,
        resident_settled: peer.resident(),
        is_settled,
    })
}
