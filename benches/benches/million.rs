//! A million active series: the release binary, and a Prometheus if there is one, are loaded with
//! an hour of scrapes, asked, killed and stopped. See `benches/README.md`.

use std::io::{self, Error};
use std::path::PathBuf;
use std::process::ExitCode;

use benches::machine::{self, now_ms};
use benches::measure::{bytes, table};
use benches::options::{ServerOptions, count};
use benches::report;
use benches::scenario::ask::{Query, Taken, ask};
use benches::scenario::server::{Cost, Program, Server};
use benches::scrapes::{STEP_MS, Scrapes};
use clap::Parser;

const SENDERS: usize = 4;
/// Series in a request, and the most scrapes of them.
const SERIES_PER_REQUEST: usize = 500;
const SCRAPES_PER_REQUEST: usize = 20;
const QUERY: &str = "count by (job)({__name__=~\".+\"})";

/// Loads, asks, kills and stops the release binary, and the Prometheus that PROMETHEUS_BINARY names.
#[derive(Parser)]
#[command(name = "million")]
struct Options {
    /// Number of series, a multiple of what the senders send at once.
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = count())]
    series: usize,
    /// Samples of each series, 15 s apart, a multiple of 20 if more.
    #[arg(long, value_name = "N", default_value = "240", value_parser = count())]
    scrapes: usize,
    /// Runs of the query.
    #[arg(long, value_name = "N", default_value = "7", value_parser = count())]
    runs: usize,
    /// One of them alone.
    #[arg(long, value_name = "NAME", value_parser = ["tessella", "prometheus"])]
    only: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(message) = options.check() {
        eprintln!("million: {message}");
        return ExitCode::from(2);
    }
    report::run("A million series", "million", options.server.report.is_record, |report| {
        let mut columns = Vec::new();
        for (program, name, binary) in options.programs()? {
            let directory = &options.server.directory;
            let server = Server::start(name, program, &binary, directory)?;
            columns.push((name, figures(&options, server)?));
        }
        report.push(&format!(
            "## {} series of {} samples\n\n{}\nload (1, 5, 15 min) at the end: {}\n",
            options.series,
            options.scrapes,
            columns_table(&columns),
            machine::load(),
        ));
        Ok(())
    })
}

impl Options {
    fn check(&self) -> Result<(), String> {
        if !self.series.is_multiple_of(SENDERS * SERIES_PER_REQUEST) {
            return Err(format!("--series wants a multiple of {}", SENDERS * SERIES_PER_REQUEST));
        }
        if !self.scrapes.is_multiple_of(self.scrapes_per_request()) {
            return Err(format!("--scrapes wants a multiple of {SCRAPES_PER_REQUEST}"));
        }
        Ok(())
    }

    fn scrapes_per_request(&self) -> usize {
        self.scrapes.min(SCRAPES_PER_REQUEST)
    }

    /// The programs to load, one after the other, with their names and binaries.
    fn programs(&self) -> io::Result<Vec<(Program, &'static str, PathBuf)>> {
        let is_wanted = |name: &str| self.only.as_deref().is_none_or(|only| only == name);
        let mut programs = Vec::new();
        if is_wanted("tessella") {
            programs.push((Program::Tessella, "Tessella", self.server.binary()?));
        }
        let prometheus = std::env::var_os("PROMETHEUS_BINARY").filter(|_| is_wanted("prometheus"));
        programs.extend(prometheus.map(|path| (Program::Prometheus, "Prometheus", path.into())));
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

/// Loads a server, asks it, kills it and stops it.
fn figures(options: &Options, mut server: Server) -> io::Result<Figures> {
    let start_ms = now_ms() - options.scrapes as i64 * STEP_MS;
    let scrapes = Scrapes {
        senders: SENDERS,
        series_per_sender: options.series / SENDERS,
        series_per_request: SERIES_PER_REQUEST,
        scrapes_per_request: options.scrapes_per_request(),
        start_ms,
    };
    let rounds = options.scrapes / options.scrapes_per_request();
    let requests = rounds * scrapes.series_per_sender / SERIES_PER_REQUEST;
    let outcome = scrapes.send(&server, |sent| sent < requests)?;
    let loaded = server.resident();
    // The second after the last sample.
    let at_s = (start_ms + (options.scrapes as i64 - 1) * STEP_MS) / 1_000 + 1;
    let asked = ask_count(&server, options, at_s)?;
    let asked_resident = server.resident();
    let disk = server.directory_bytes()?;
    server.kill()?;
    let killed = server.restart()?;
    let asked_again = ask_count(&server, options, at_s)?;
    let stopped = server.stop()?;
    let clean = server.restart()?;
    let resident = server.resident();

    let mib = |size: u64| bytes(size as usize);
    let (rate, cpu) = (outcome.samples_per_second(), outcome.cpu_seconds_per_million());
    let (p99, longest) = (outcome.latency_ms(0.99), outcome.latency_ms(1.0));
    Ok(vec![
        ("samples a second, CPU seconds a million", format!("{rate:.0}, {cpu:.2}")),
        ("p99 and longest request, ms", format!("{p99:.0}, {longest:.0}")),
        ("requests turned away, and sent again", outcome.sent.turned_away.to_string()),
        ("resident after the load, peak", format!("{}, {}", mib(loaded.now), mib(loaded.peak))),
        ("peak after the queries, too", mib(asked_resident.peak)),
        ("bytes on disk", mib(disk)),
        ("query, first, seconds", first(&asked)),
        ("query, median and longest of the others", others(&asked)),
        ("query, CPU seconds, mean", format!("{:.2}", asked.cpu_ms / 1e3)),
        ("start after kill -9, seconds; CPU", start(&killed)),
        ("query then, first, seconds", first(&asked_again)),
        ("query then, median and longest of the others", others(&asked_again)),
        ("stop, seconds", format!("{:.1}", stopped.as_secs_f64())),
        ("start after it, seconds; CPU", start(&clean)),
        ("resident then, peak", format!("{}, {}", mib(resident.now), mib(resident.peak))),
    ])
}

fn start(cost: &Cost) -> String {
    format!("{:.1}; {:.1}", cost.wall.as_secs_f64(), cost.cpu.as_secs_f64())
}

fn first(taken: &Taken) -> String {
    format!("{:.2}", taken.first_ms / 1e3)
}

fn others(taken: &Taken) -> String {
    let longest_ms = taken.wall_ms.iter().copied().fold(f64::NAN, f64::max);
    format!("{:.2}, {:.2}", taken.median_ms() / 1e3, longest_ms / 1e3)
}

/// Asks the query, and then checks that it counts every series.
fn ask_count(server: &Server, options: &Options, at_s: i64) -> io::Result<Taken> {
    let query = Query::instant("count", QUERY.to_owned(), at_s);
    let asked = ask(std::slice::from_ref(server), &query, options.runs, 0.0)?;
    let count = query.answer(server)?.first_value();
    if count != Some(options.series as f64) {
        return Err(Error::other(format!("not all series are there: {count:?}")));
    }
    asked.servers.into_iter().next().ok_or_else(|| Error::other("no server was asked"))
}
