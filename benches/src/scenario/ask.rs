//! Queries asked of all servers in turn, and timed.

use std::hint;
use std::io::{self, Error};
use std::time::{Duration, Instant};

use testkit::percent_encode;

use super::answer::{Answer, Compared, Shape};
use super::server::Server;
use crate::measure::median;

/// Parameter that turns off result caches. VictoriaMetrics then also does not align steps.
pub const NO_CACHE: &str = "&nocache=1";

/// A query with a lower median on all servers is short: a median of a few runs varies by half.
const SHORT_MS: f64 = 2.0;
/// Factor of the runs of a short query.
const SHORT_RUNS_FACTOR: usize = 5;
/// Interval in which idle servers use no CPU time.
const IDLE_TIME: Duration = Duration::from_micros(500);
/// Maximum cores that idle servers use.
const IDLE_CORES: f64 = 0.1;
/// Maximum time to wait for idle servers.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// One query.
#[derive(Debug, Clone)]
pub struct Query {
    /// Name in tables.
    pub name: &'static str,
    /// PromQL, or the lookup.
    pub text: String,
    /// Kind of the result.
    pub shape: Shape,
    /// Path and query string.
    pub path: String,
}

/// Steps of a range query.
#[derive(Debug, Clone, Copy)]
pub struct Steps {
    /// Unix time of the first step.
    pub start_s: i64,
    /// Unix time of the last step.
    pub end_s: i64,
    /// Time between two steps.
    pub step_s: i64,
}

impl Query {
    /// Returns an instant query.
    pub fn instant(name: &'static str, text: String, at_s: i64) -> Query {
        let encoded = percent_encode(&text);
        let path = format!("/api/v1/query?query={encoded}&time={at_s}{NO_CACHE}");
        Query { name, text, shape: Shape::Values, path }
    }

    /// Returns a range query.
    pub fn range(name: &'static str, text: String, steps: Steps) -> Query {
        let Steps { start_s, end_s, step_s } = steps;
        let path = format!(
            "/api/v1/query_range?query={}&start={start_s}&end={end_s}&step={step_s}{NO_CACHE}",
            percent_encode(&text),
        );
        Query { name, text, shape: Shape::Values, path }
    }

    /// Queries a server once.
    ///
    /// Errors: it returns an error, or a result of another shape.
    pub fn answer(&self, server: &Server) -> io::Result<Answer> {
        Answer::read(self.shape, server.client().text(&self.path)?.as_bytes())
    }
}

/// Query with its cost on all servers.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Asked {
    /// Name of the query.
    pub name: String,
    /// PromQL, or the lookup.
    pub text: String,
    /// For each server, in their order.
    pub servers: Vec<Taken>,
}

/// Cost of a query on one server.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Taken {
    /// Time of the first query, for warm-up.
    pub first_ms: f64,
    /// Time from request to the last byte of the response, for each run.
    pub wall_ms: Vec<f64>,
    /// The server's CPU time, the mean of all runs.
    pub cpu_ms: f64,
    /// Bytes of the response.
    pub bytes: usize,
    /// Comparison with the result of the first server.
    pub compared: Compared,
    /// Known reason of a difference.
    pub difference: Option<String>,
    /// Error of the server; nothing is measured then.
    pub error: Option<String>,
}

impl Taken {
    /// Returns the median time.
    pub fn median_ms(&self) -> f64 {
        median(&self.wall_ms)
    }

    /// Returns whether the result equals that of the first server, or differs for a known reason.
    pub fn is_right(&self) -> bool {
        self.error.is_none() && (self.compared.is_equal() || self.difference.is_some())
    }
}

/// Queries once to warm up and compare, then `runs` times, and [`SHORT_RUNS_FACTOR`] times as often
/// if the query is short: A, B, A, B, each once all servers are idle. Values may differ by
/// `tolerance`, relative to the larger one. A server that returns an error is queried once.
///
/// Errors: a result has another shape, or a server is gone.
pub fn ask(servers: &[Server], query: &Query, runs: usize, tolerance: f64) -> io::Result<Asked> {
    eprintln!("ask {}", query.name);
    let mut clients: Vec<_> = servers.iter().map(Server::client).collect();
    let mut taken = vec![Taken::default(); servers.len()];
    let mut first = None;
    for (index, server) in servers.iter().enumerate() {
        let (body, cost) = server.measure(|| Ok(clients[index].text(&query.path)))?;
        let body = match body {
            Ok(body) => body,
            Err(error) => {
                taken[index] =
                    Taken { cpu_ms: f64::NAN, error: Some(error.to_string()), ..Taken::default() };
                continue;
            }
        };
        let answer = Answer::read(query.shape, body.as_bytes())?;
        taken[index].first_ms = cost.wall.as_secs_f64() * 1e3;
        taken[index].bytes = body.len();
        taken[index].compared = first.as_ref().unwrap_or(&answer).compare(&answer, tolerance);
        first.get_or_insert(answer);
    }
    drop(first);
    let (mut run, mut run_count) = (0, runs);
    while run < run_count {
        for (index, server) in servers.iter().enumerate() {
            if taken[index].error.is_some() {
                continue;
            }
            wait_until_idle(servers)?;
            let client = &mut clients[index];
            let (status, cost) = server.measure(|| Ok(client.get(&query.path)?.0))?;
            if status != 200 {
                return Err(Error::other(format!("{}: status {status}", server.name)));
            }
            taken[index].wall_ms.push(cost.wall.as_secs_f64() * 1e3);
            taken[index].cpu_ms += cost.cpu.as_secs_f64() * 1e3;
        }
        run += 1;
        if run == runs && is_short(&taken) {
            run_count = SHORT_RUNS_FACTOR * runs;
        }
    }
    taken.iter_mut().for_each(|taken| taken.cpu_ms /= run_count as f64);
    Ok(Asked { name: query.name.to_owned(), text: query.text.clone(), servers: taken })
}

/// Returns whether a query is short on all servers that answer.
fn is_short(taken: &[Taken]) -> bool {
    taken.iter().all(|taken| taken.error.is_some() || taken.median_ms() < SHORT_MS)
}

/// Waits until no server computes, at most [`WAIT_MAX`]: one that still works after its response
/// would take cores from the next one. Waits without sleeping: a sleeping core would be
/// slower at first.
fn wait_until_idle(servers: &[Server]) -> io::Result<()> {
    let cpu_time = || servers.iter().map(Server::cpu_time).sum::<io::Result<Duration>>();
    let (begin, mut before) = (Instant::now(), cpu_time()?);
    while begin.elapsed() < WAIT_MAX {
        let pause = Instant::now();
        while pause.elapsed() < IDLE_TIME {
            hint::spin_loop();
        }
        let now = cpu_time()?;
        // A child that ended is no longer counted.
        let used = now.saturating_sub(before);
        if used.as_secs_f64() < IDLE_CORES * pause.elapsed().as_secs_f64() {
            break;
        }
        before = now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_escaped() {
        let query = Query::instant("q", "a{b=~\"c+\"}".to_owned(), 7);
        assert_eq!(query.path, "/api/v1/query?query=a%7Bb%3D~%22c%2B%22%7D&time=7&nocache=1");
    }
}
