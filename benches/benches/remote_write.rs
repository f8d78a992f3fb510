//! Writes and restarts: the release binary, and a Prometheus if there is one, are loaded over HTTP,
//! queried, killed, stopped and started. See `benches/README.md`.

use std::io::{self, Error};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use benches::machine::{self, now_ms};
use benches::measure::{bytes, table};
use benches::options::{ServerOptions, count, duration_s};
use benches::report;
use benches::scenario::ask::{Query, Taken, ask};
use benches::scenario::load::{Outcome, Protocol};
use benches::scenario::server::{Cost, NodeSettings, Program, Server};
use benches::scrapes::{STEP_MS, Scrapes};
use clap::Parser;

const QUERY: &str = "count by (job)({__name__=~\".+\"})";

/// Loads, queries, kills and stops the release binary, and the Prometheus that PROMETHEUS_BINARY
/// names. With --load-only, also loads the VictoriaMetrics of VICTORIA_METRICS_BINARY.
#[derive(Parser)]
#[command(name = "remote_write")]
struct Options {
    /// Number of concurrent senders.
    #[arg(long, value_name = "N", default_value = "4", value_parser = count())]
    senders: usize,
    /// Number of series, a multiple of senders × series in a request.
    #[arg(long, value_name = "N", default_value = "12000", value_parser = count())]
    series: usize,
    /// Samples of each series, 15 s apart, a multiple of those in a request.
    #[arg(long, value_name = "N", default_value = "84", value_parser = count())]
    scrapes: usize,
    /// Series in a request.
    #[arg(long, value_name = "N", default_value = "3000", value_parser = count())]
    series_per_request: usize,
    /// Samples of a series in a request.
    #[arg(long, value_name = "N", default_value = "1", value_parser = count())]
    scrapes_per_request: usize,
    /// Protocol of the requests.
    #[arg(long, value_enum, default_value_t)]
    protocol: Protocol,
    /// Only loads, without queries and restarts.
    #[arg(long)]
    load_only: bool,
    /// Age of the newest sample, such as 1h.
    #[arg(long = "age", value_name = "DURATION", default_value = "0s", value_parser = duration_s)]
    age_s: i64,
    /// Pause after the load in seconds.
    #[arg(long = "settle", value_name = "N", default_value_t = 0)]
    settle_s: u64,
    /// Runs of the query.
    #[arg(long, value_name = "N", default_value = "7", value_parser = count())]
    runs: usize,
    /// Program to run, instead of all.
    #[arg(long, value_name = "NAME", value_parser = ["tessella", "prometheus", "victoria-metrics"])]
    only: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(message) = options.check() {
        eprintln!("remote write: {message}");
        return ExitCode::from(2);
    }
    report::run("Remote write", "remote-write", options.server.report.is_record, |report| {
        let mut columns = Vec::new();
        for (program, name, binary) in options.programs()? {
            let directory = &options.server.directory;
            let settings = NodeSettings { args: options.protocol.args(program), store: None };
            let server = Server::start_node(name, program, &binary, directory, settings)?;
            columns.push((name, figures(&options, server)?));
        }
        report.push(&format!(
            "## {} senders, {:?}, {} series of {} samples, {} × {} in a request\n\n{}\n\
             load (1, 5, 15 min) at the end: {}\n",
            options.senders,
            options.protocol,
            options.series,
            options.scrapes,
            options.series_per_request,
            options.scrapes_per_request,
            columns_table(&columns),
            machine::load(),
        ));
        Ok(())
    })
}

impl Options {
    fn check(&self) -> Result<(), String> {
        let series = self.senders * self.series_per_request;
        if !self.series.is_multiple_of(series) {
            return Err(format!("--series must be a multiple of {series}"));
        }
        if !self.scrapes.is_multiple_of(self.scrapes_per_request) {
            return Err(format!("--scrapes must be a multiple of {}", self.scrapes_per_request));
        }
        Ok(())
    }

    /// Returns the programs to load, with names and binaries.
    fn programs(&self) -> io::Result<Vec<(Program, &'static str, PathBuf)>> {
        let is_wanted = |name: &str| self.only.as_deref().is_none_or(|only| only == name);
        let mut programs = Vec::new();
        if is_wanted("tessella") {
            programs.push((Program::Tessella, "Tessella", self.server.binary()?));
        }
        let prometheus = std::env::var_os("PROMETHEUS_BINARY").filter(|_| is_wanted("prometheus"));
        programs.extend(prometheus.map(|path| (Program::Prometheus, "Prometheus", path.into())));
        let victoria = std::env::var_os("VICTORIA_METRICS_BINARY")
            .filter(|_| self.load_only && is_wanted("victoria-metrics"));
        programs.extend(
            victoria.map(|path| (Program::VictoriaMetrics, "VictoriaMetrics", path.into())),
        );
        Ok(programs)
    }
}

/// Named figures of one server.
type Figures = Vec<(&'static str, String)>;

fn columns_table(columns: &[(&str, Figures)]) -> String {
    let mut head = vec![""];
    head.extend(columns.iter().map(|(name, _)| *name));
    let Some((_, first)) = columns.first() else { return String::new() };
    let row = |(at, (name, _)): (usize, &(&str, String))| {
        let figures = columns.iter().map(|(_, figures)| figures[at].1.clone());
        std::iter::once((*name).to_owned()).chain(figures).collect()
    };
    table(&head, &first.iter().enumerate().map(row).collect::<Vec<_>>())
}

/// Loads a server, queries it, kills it and stops it.
fn figures(options: &Options, mut server: Server) -> io::Result<Figures> {
    let newest_ms = now_ms() - options.age_s * 1_000;
    let scrapes = Scrapes {
        senders: options.senders,
        series_per_sender: options.series / options.senders,
        scrapes: options.scrapes,
        series_per_request: options.series_per_request,
        scrapes_per_request: options.scrapes_per_request,
        start_ms: newest_ms - options.scrapes as i64 * STEP_MS,
        protocol: options.protocol,
    };
    let outcome = scrapes.send(&server)?;
    let mut figures = load_figures(&server, &outcome, options.settle_s)?;
    if options.load_only {
        return Ok(figures);
    }
    // The second after the last sample.
    let at_s = (newest_ms - STEP_MS) / 1_000 + 1;
    let asked = ask_count(&server, options, at_s)?;
    let asked_peak = server.resident().peak;
    server.kill()?;
    let killed = server.restart()?;
    let killed_resident = server.resident().now;
    let asked_again = ask_count(&server, options, at_s)?;
    let stopped = server.stop()?;
    let clean = server.restart()?;
    let resident = server.resident();
    figures.extend([
        ("peak with the queries", mib(asked_peak)),
        ("query, first, seconds", first(&asked)),
        ("query, median and longest of the others", others(&asked)),
        ("query, CPU seconds, mean", format!("{:.2}", asked.cpu_ms / 1e3)),
        ("start after kill -9, seconds; CPU", start(&killed)),
        ("resident after it", mib(killed_resident)),
        ("query after it, first, seconds", first(&asked_again)),
        ("query after it, median and longest of the others", others(&asked_again)),
        ("stop, seconds", format!("{:.1}", stopped.as_secs_f64())),
        ("start after it, seconds; CPU", start(&clean)),
        ("resident after it, peak", format!("{}, {}", mib(resident.now), mib(resident.peak))),
    ]);
    Ok(figures)
}

/// Figures of the load, and of the pause after it.
fn load_figures(server: &Server, outcome: &Outcome, settle_s: u64) -> io::Result<Figures> {
    let (loaded, written) = (server.resident(), server.directory_bytes()?);
    let pause = || {
        std::thread::sleep(Duration::from_secs(settle_s));
        Ok(())
    };
    let ((), after) = server.measure(pause)?;
    let (settled, kept) = (server.resident(), server.directory_bytes()?);
    let samples = outcome.sent.samples as f64;
    let sealed = match server.program {
        Program::Tessella => {
            let bytes = server.metric("tessella_storage_sealed_bytes_total")?;
            format!("{}, {:.2} a sample", mib(bytes as u64), bytes / samples)
        }
        _ => "–".to_owned(),
    };
    let (rate, cpu) = (outcome.samples_per_second(), outcome.cpu_seconds_per_million());
    let with_pause = samples / (outcome.cost.cpu + after.cpu).as_secs_f64();
    let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|quantile| outcome.latency_ms(quantile));
    let first_ms = outcome.first.as_secs_f64() * 1e3;
    Ok(vec![
        ("samples a second, CPU seconds a million", format!("{rate:.0}, {cpu:.2}")),
        (
            "samples a CPU second, with the pause",
            format!("{:.0}, {with_pause:.0}", outcome.samples_per_cpu_second()),
        ),
        ("p50, p99 and longest request, ms", format!("{p50:.1}, {p99:.1}, {longest:.1}")),
        ("first request of each sender, longest, ms", format!("{first_ms:.1}")),
        ("requests answered with 503 and retried", outcome.sent.retries.to_string()),
        ("bytes a sample on the wire", format!("{:.2}", outcome.sent.body_bytes as f64 / samples)),
        ("resident after the load, peak", format!("{}, {}", mib(loaded.now), mib(loaded.peak))),
        ("resident after the pause", mib(settled.now)),
        (
            "bytes on disk after the load, after the pause",
            format!("{}, {}", mib(written), mib(kept)),
        ),
        ("bytes of sealed blocks after the pause", sealed),
    ])
}

fn mib(size: u64) -> String {
    bytes(size as usize)
}

fn start(cost: &Cost) -> String {
    format!("{:.2}; {:.2}", cost.wall.as_secs_f64(), cost.cpu.as_secs_f64())
}

fn first(taken: &Taken) -> String {
    format!("{:.2}", taken.first_ms / 1e3)
}

fn others(taken: &Taken) -> String {
    let longest_ms = taken.wall_ms.iter().copied().fold(f64::NAN, f64::max);
    format!("{:.2}, {:.2}", taken.median_ms() / 1e3, longest_ms / 1e3)
}

/// Asks the query, and checks that it counts every series.
fn ask_count(server: &Server, options: &Options, at_s: i64) -> io::Result<Taken> {
    let query = Query::instant("count", QUERY.to_owned(), at_s);
    let asked = ask(std::slice::from_ref(server), &query, options.runs, 0.0)?;
    let count = query.answer(server)?.first_value();
    if count != Some(options.series as f64) {
        return Err(Error::other(format!("{count:?} of {} series found", options.series)));
    }
    asked.servers.into_iter().next().ok_or_else(|| Error::other("no server was asked"))
}
