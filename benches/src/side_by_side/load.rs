//! Load of a dataset into a server, until it is idle.

use std::io;
use std::time::Duration;

use super::dataset::{Dataset, INTERVAL_MS, Part};
use crate::scenario::load::{Sender, send};
use crate::scenario::process::Resident;
use crate::scenario::server::Server;

/// Number of concurrent senders.
const SENDERS: usize = 4;
/// Minimum number of samples in a request, slightly exceeded.
const REQUEST_SAMPLES: usize = 2_000;
const REQUEST_SAMPLES_LONG: usize = 10_000;

/// Cost of a load.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Loaded {
    /// Samples that were acknowledged.
    pub samples: u64,
    /// Time from the first request to the last response.
    pub seconds: f64,
    /// CPU time of the server during the load.
    pub cpu_seconds: f64,
    /// CPU time of the server from the end of the load until it is idle.
    pub cpu_seconds_after: f64,
    /// Memory at the end of the load.
    pub resident: Resident,
    /// Memory once the server is idle.
    pub resident_settled: Resident,
    /// True if the server is idle before the timeout.
    pub is_settled: bool,
}

/// Loads a dataset that ends at a time into an empty server and waits until it is idle.
///
/// Errors: the server is gone, or refuses samples.
pub fn load(
    server: &Server,
    dataset: &Dataset,
    end_s: i64,
    settle_timeout: Duration,
) -> io::Result<Loaded> {
    let start_ms = end_s * 1_000 - dataset.scrapes as i64 * INTERVAL_MS;
    let is_long = dataset.scrapes_per_request > 1;
    let size = if is_long { REQUEST_SAMPLES_LONG } else { REQUEST_SAMPLES };
    let outcome = send(server, dataset.parts(SENDERS), |part: Part, sender: &mut Sender| {
        part.send(start_ms, size, |encoder, count, _| {
            sender.send_as(dataset.protocol, encoder, count)
        })
    })?;
    let resident = server.resident();
    let (is_settled, cost_after) = server.measure(|| {
        server.flush()?;
        server.settle(settle_timeout)
    })?;
    Ok(Loaded {
        samples: outcome.sent.samples as u64,
        seconds: outcome.cost.wall.as_secs_f64(),
        cpu_seconds: outcome.cost.cpu.as_secs_f64(),
        cpu_seconds_after: cost_after.cpu.as_secs_f64(),
        resident,
        resident_settled: server.resident(),
        is_settled,
    })
}
