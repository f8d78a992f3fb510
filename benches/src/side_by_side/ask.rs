//! Asks all servers the same, in turn, and times them.

use std::io;
use std::time::{Duration, Instant};

use super::compare::{Answer, Compared, known_difference};
use super::peer::Peer;
use super::queries::Query;

/// One query, asked of all servers.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Asked {
    /// What it is called.
    pub name: String,
    /// PromQL, or what was looked up.
    pub text: String,
    /// For each server, in their order.
    pub servers: Vec<Taken>,
}

/// What a query took on one server.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct Taken {
    /// From the question to the last byte of the answer, each time, in the order of asking.
    pub wall_ms: Vec<f64>,
    /// The server's CPU time, the mean of all times; `None` without a process id.
    pub cpu_ms: Option<f64>,
    /// Bytes of the answer.
    pub bytes: usize,
    /// How the answer compares with that of the first server.
    pub compared: Compared,
    /// Why it may differ.
    pub difference: Option<String>,
    /// Why there was no answer; nothing is measured then.
    #[serde(default)]
    pub error: Option<String>,
}

impl Taken {
    /// The median time.
    pub fn median_ms(&self) -> f64 {
        median(&self.wall_ms)
    }

    /// Whether the answer is the first server's, or differs for a known reason.
    pub fn is_right(&self) -> bool {
        self.error.is_none() && (self.compared.is_equal() || self.difference.is_some())
    }
}

/// Asks once to warm up and compare, then `runs` times: A, B, A, B. A server that refuses the
/// query is asked once.
///
/// Errors: an answer is not what the query is to return, or a server is gone.
pub fn ask(peers: &[Peer], query: &Query, runs: usize) -> io::Result<Asked> {
    let mut clients: Vec<_> = peers.iter().map(Peer::client).collect();
    let mut taken = vec![Taken::default(); peers.len()];
    let mut first = None;
    for (index, peer) in peers.iter().enumerate() {
        let body = match clients[index].text(&query.path) {
            Ok(body) => body,
            Err(error) => {
                taken[index].error = Some(error.to_string());
                continue;
            }
        };
        let answer = Answer::read(query.shape, body.as_bytes())?;
        taken[index].bytes = body.len();
        taken[index].compared = first.as_ref().unwrap_or(&answer).compare(&answer);
        if !taken[index].compared.is_equal() {
            taken[index].difference = known_difference(peer.program, query.name).map(str::to_owned);
        }
        first.get_or_insert(answer);
    }
    drop(first);
    let mut cpu = vec![Some(Duration::ZERO); peers.len()];
    for _ in 0..runs {
        for (index, peer) in peers.iter().enumerate() {
            if taken[index].error.is_some() {
                continue;
            }
            let (cpu_before, started) = (peer.cpu_time()?, Instant::now());
            let (status, _) = clients[index].get(&query.path)?;
            taken[index].wall_ms.push(started.elapsed().as_secs_f64() * 1e3);
            if status != 200 {
                return Err(io::Error::other(format!("{}: status {status}", peer.name)));
            }
            let spent = peer.cpu_time()?.zip(cpu_before).map(|(after, before)| after - before);
            cpu[index] = cpu[index].zip(spent).map(|(sum, spent)| sum + spent);
        }
    }
    for (taken, cpu) in taken.iter_mut().zip(cpu) {
        taken.cpu_ms =
            cpu.filter(|_| taken.error.is_none()).map(|cpu| cpu.as_secs_f64() * 1e3 / runs as f64);
    }
    Ok(Asked { name: query.name.to_owned(), text: query.text.clone(), servers: taken })
}

/// The middle value; of an even number, the upper of the two in the middle. NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_do_not_depend_on_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 3.0);
        assert!(median(&[]).is_nan());
    }
}
