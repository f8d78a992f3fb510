//! The remote write harness: the release binary on local disk, loaded over HTTP by several senders,
//! each acknowledged after its sync. See `benches/README.md`.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use benches::machine::now_ms;
use benches::measure::{bytes, list};
use benches::options::{ServerOptions, count};
use benches::report;
use benches::scenario::server::{Program, Server};
use benches::scrapes::{STEP_MS, Scrapes};
use clap::Parser;

/// Samples in the log when the restart is timed.
const RESTART_SAMPLES: usize = 1_000_000;

/// Loads the release binary over HTTP.
#[derive(Parser)]
#[command(name = "remote_write")]
struct Options {
    /// Duration of the load in seconds.
    #[arg(long, value_name = "N", default_value = "20", value_parser = count())]
    seconds: usize,
    /// Number of concurrent senders.
    #[arg(long, value_name = "N", default_value = "4", value_parser = count())]
    senders: usize,
    /// Samples in a request.
    #[arg(long, value_name = "N", default_value = "3000", value_parser = count())]
    samples: usize,
    /// Series of each sender, a multiple of the samples.
    #[arg(long, value_name = "N", default_value = "3000", value_parser = count())]
    series: usize,
    /// Pause after the load in seconds.
    #[arg(long = "settle", value_name = "N", default_value = "90", value_parser = count())]
    settle_seconds: usize,
    #[command(flatten)]
    server: ServerOptions,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if !options.series.is_multiple_of(options.samples) {
        eprintln!("remote write harness: --series wants a multiple of --samples");
        return ExitCode::from(2);
    }
    report::run("Remote write", "remote-write", options.server.report.is_record, |report| {
        let binary = options.server.binary()?;
        report.push(&load_section(&options, &binary)?);
        report.push(&restart_section(&options, &binary)?);
        Ok(())
    })
}

impl Options {
    fn start(&self, name: &str, binary: &Path) -> io::Result<Server> {
        Server::start(name, Program::Tessella, binary, &self.server.directory)
    }

    fn scrapes(&self, start_ms: i64) -> Scrapes {
        Scrapes {
            senders: self.senders,
            series_per_sender: self.series,
            series_per_request: self.samples,
            scrapes_per_request: 1,
            start_ms,
        }
    }
}

fn load_section(options: &Options, binary: &Path) -> io::Result<String> {
    let server = options.start("remote-write-load", binary)?;
    // A day ago, so that most of the load falls into windows that have closed.
    let scrapes = options.scrapes(now_ms() - 24 * 3_600_000);
    let (begin, time) = (Instant::now(), Duration::from_secs(options.seconds as u64));
    let outcome = scrapes.send(&server, |_| begin.elapsed() < time)?;
    let (resident, written) = (server.resident(), disk(&server)?);
    std::thread::sleep(Duration::from_secs(options.settle_seconds as u64));
    let (resident_then, kept) = (server.resident(), disk(&server)?);
    let sealed = server.metric("tessella_storage_sealed_bytes_total")?;
    let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|quantile| outcome.latency_ms(quantile));
    let (cpu, cpu_million) = (outcome.cost.cpu.as_secs_f64(), outcome.cpu_seconds_per_million());
    let samples = outcome.sent.samples as f64;
    let first_ms = outcome.first.as_secs_f64() * 1e3;
    let peak = bytes(resident.peak as usize);
    let rows = [
        ("samples a second", format!("{:.0}", outcome.samples_per_second())),
        ("requests", outcome.sent.latencies.len().to_string()),
        ("request p50, p99, longest", format!("{p50:.1}, {p99:.1}, {longest:.1} ms")),
        ("requests that were turned away, and sent again", outcome.sent.turned_away.to_string()),
        ("first request of each sender, longest", format!("{first_ms:.1} ms")),
        ("server's CPU", format!("{cpu:.1} s, {cpu_million:.2} s a million")),
        ("bytes a sample on the wire", format!("{:.2}", outcome.sent.body_bytes as f64 / samples)),
        ("resident after the load, peak", format!("{}, {peak}", bytes(resident.now as usize))),
        ("bytes on disk after the load", bytes(written)),
        (
            "bytes on disk once left alone, what is to be deleted included",
            format!("{} after {} s", bytes(kept), options.settle_seconds),
        ),
        (
            "bytes of sealed blocks",
            format!("{}, {:.2} a sample", bytes(sealed as usize), sealed / samples),
        ),
        ("resident then", bytes(resident_then.now as usize)),
    ];
    Ok(format!(
        "## {} senders, {} samples a request, {} series each, {} s\n\n{}",
        options.senders,
        options.samples,
        options.series,
        options.seconds,
        list(&rows)
    ))
}

fn restart_section(options: &Options, binary: &Path) -> io::Result<String> {
    let mut server = options.start("remote-write-restart", binary)?;
    let request_count = RESTART_SAMPLES.div_ceil(options.samples);
    let scrape_count = (request_count * options.samples).div_ceil(options.senders * options.series);
    // Up to now, so that little of it can be sealed.
    let scrapes = options.scrapes(now_ms() - scrape_count as i64 * STEP_MS);
    let each = request_count.div_ceil(options.senders);
    let outcome = scrapes.send(&server, |sent| sent < each)?;
    server.kill()?;
    let cost = server.restart()?;
    let rows = [
        ("until ready", format!("{:.2} s", cost.wall.as_secs_f64())),
        ("resident then", bytes(server.resident().now as usize)),
        ("bytes on disk", bytes(disk(&server)?)),
    ];
    let samples = outcome.sent.samples;
    let title = format!("## Restart after kill -9 with {samples} samples in the log");
    Ok(format!("{title}\n\n{}", list(&rows)))
}

fn disk(server: &Server) -> io::Result<usize> {
    Ok(server.directory_bytes()? as usize)
}
