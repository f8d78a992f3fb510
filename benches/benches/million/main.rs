//! A million active series: the release binary, and a Prometheus if there is one, are loaded with
//! an hour of scrapes, asked, killed and stopped. See `benches/README.md`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use benches::http::{Client, percent_encode};
use benches::machine;
use benches::measure::{bytes, table};
use benches::options::{FromCargo, count};
use benches::process::{build_server, directory_bytes};
use benches::server::Server;
use clap::Parser;

use benches::load::{Load, STEP_MS};

const SENDERS: usize = 4;
/// Series in a request, and the most scrapes of them.
const SERIES_PER_REQUEST: usize = 500;
const SCRAPES_PER_REQUEST: usize = 20;
const QUERY: &str = "count by (job)({__name__=~\".+\"})";

/// Loads, asks, kills and stops the release binary, and the Prometheus that PROMETHEUS_BINARY names.
#[derive(Parser)]
#[command(name = "million")]
struct Options {
    /// A binary to load, instead of building the release binary.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Where stores are made.
    #[arg(long, value_name = "PATH", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// How many series, a multiple of what the senders send at once.
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = count())]
    series: usize,
    /// How many samples of each, 15 s apart, a multiple of 20 if more.
    #[arg(long, value_name = "N", default_value = "240", value_parser = count())]
    scrapes: usize,
    /// How often the query is asked.
    #[arg(long, value_name = "N", default_value = "7", value_parser = count())]
    runs: usize,
    /// One of them alone.
    #[arg(long, value_name = "NAME", value_parser = ["tessella", "prometheus"])]
    only: Option<String>,
    /// Also write the output to benches/record/<date>-million.md.
    #[arg(long = "record")]
    is_record: bool,
    #[command(flatten)]
    from_cargo: FromCargo,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(message) = options.check() {
        eprintln!("million: {message}");
        return ExitCode::from(2);
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("million: {error}");
            ExitCode::FAILURE
        }
    }
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
}

/// How a server is started on its directory.
type Start<'a> = Box<dyn Fn(&Path) -> io::Result<Server> + 'a>;

fn run(options: &Options) -> io::Result<()> {
    let text = format!("# A million series, {}\n\n{}\n", machine::today(), machine::description());
    print!("{text}");
    let mut report = text;
    let prometheus = std::env::var_os("PROMETHEUS_BINARY").map(PathBuf::from);
    let is_wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    let mut columns: Vec<(&str, Vec<(&str, String)>)> = Vec::new();
    if is_wanted("tessella") {
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => build_server()?,
        };
        let start: Start<'_> = Box::new(move |directory| Server::start(&binary, directory));
        columns.push(("Tessella", figures(options, "tessella", &start)?));
    }
    if let Some(binary) = prometheus.filter(|_| is_wanted("prometheus")) {
        let start: Start<'_> =
            Box::new(move |directory| Server::start_prometheus(&binary, directory));
        columns.push(("Prometheus", figures(options, "prometheus", &start)?));
    }
    let text = format!(
        "## {} series of {} samples\n\n{}\nload (1, 5, 15 min) at the end: {}\n",
        options.series,
        options.scrapes,
        side_by_side(&columns),
        std::fs::read_to_string("/proc/loadavg")?.split(' ').take(3).collect::<Vec<_>>().join(" "),
    );
    print!("{text}");
    report.push_str(&text);
    if options.is_record {
        let path = format!("{}/record/{}-million.md", env!("CARGO_MANIFEST_DIR"), machine::today());
        std::fs::write(&path, &report)?;
        println!("written to {path}");
    }
    Ok(())
}

fn side_by_side(columns: &[(&str, Vec<(&str, String)>)]) -> String {
    let mut head = vec![""];
    head.extend(columns.iter().map(|(name, _)| *name));
    let Some((_, first)) = columns.first() else { return String::new() };
    let rows: Vec<Vec<String>> = first
        .iter()
        .enumerate()
        .map(|(row, (name, _))| {
            let figures = columns.iter().map(|(_, figures)| figures[row].1.clone());
            std::iter::once((*name).to_owned()).chain(figures).collect()
        })
        .collect();
    table(&head, &rows)
}

/// A store that is removed when it goes out of scope.
struct StoreDirectory(PathBuf);

impl Drop for StoreDirectory {
    fn drop(&mut self) {
        // What is left is named after this process and can be removed by hand.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Loads a server, asks it, kills it and stops it; names and figures.
fn figures(
    options: &Options,
    name: &str,
    start: &Start<'_>,
) -> io::Result<Vec<(&'static str, String)>> {
    let name = format!("tessella-bench-million-{name}-{}", std::process::id());
    let directory = StoreDirectory(options.directory.join(name));
    std::fs::create_dir_all(&directory.0)?;
    let server = start(&directory.0)?;
    let load = Load {
        senders: SENDERS,
        samples_per_request: SERIES_PER_REQUEST * options.scrapes_per_request(),
        scrapes_per_request: options.scrapes_per_request(),
        series_per_sender: options.series / SENDERS,
        start_ms: now_ms() - options.scrapes as i64 * STEP_MS,
    };
    let end_ms = load.start_ms + (options.scrapes as i64 - 1) * STEP_MS;
    let rounds = options.scrapes / options.scrapes_per_request();
    let requests = rounds * load.series_per_sender / SERIES_PER_REQUEST;
    let cpu_before = server.cpu_time()?;
    let outcome = load.run_requests(&server.address, requests)?;
    let cpu = server.cpu_time()? - cpu_before;
    let loaded = server.resident();
    eprintln!("loaded in {:?}, {loaded:?}", outcome.elapsed);
    let (_, p99, longest) = outcome.latencies_ms();
    let asked = ask(&server, options, end_ms)?;
    let asked_resident = server.resident();

    let disk = directory_bytes(&directory.0)?;
    server.kill()?;
    let (server, killed) = restarted(start, &directory.0)?;
    let asked_again = ask(&server, options, end_ms)?;
    let stopping = Instant::now();
    server.stop()?;
    let stopped = stopping.elapsed();
    let (server, clean) = restarted(start, &directory.0)?;
    let resident = server.resident();
    let mib = |size: u64| bytes(size as usize);
    Ok(vec![
        (
            "samples a second, CPU seconds a million",
            format!(
                "{:.0}, {:.2}",
                outcome.samples() as f64 / outcome.elapsed.as_secs_f64(),
                cpu.as_secs_f64() * 1e6 / outcome.samples() as f64
            ),
        ),
        ("p99 and longest request, ms", format!("{p99:.0}, {longest:.0}")),
        ("requests turned away, and sent again", outcome.turned_away.to_string()),
        ("resident after the load, peak", format!("{}, {}", mib(loaded.now), mib(loaded.peak))),
        ("peak after the queries, too", mib(asked_resident.peak)),
        ("bytes on disk", mib(disk)),
        ("query, first, seconds", asked.first()),
        ("query, median and longest of the others", asked.others()),
        ("query, CPU seconds, median", format!("{:.2}", asked.cpu_seconds)),
        ("start after kill -9, seconds; CPU", killed.to_string()),
        ("query then, first, seconds", asked_again.first()),
        ("query then, median and longest of the others", asked_again.others()),
        ("stop, seconds", format!("{:.1}", stopped.as_secs_f64())),
        ("start after it, seconds; CPU", clean.to_string()),
        ("resident then, peak", format!("{}, {}", mib(resident.now), mib(resident.peak))),
    ])
}

/// What a start took.
struct Restart {
    elapsed: Duration,
    cpu: Duration,
}

impl std::fmt::Display for Restart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1}; {:.1}", self.elapsed.as_secs_f64(), self.cpu.as_secs_f64())
    }
}

fn restarted(start: &Start<'_>, directory: &Path) -> io::Result<(Server, Restart)> {
    let started = Instant::now();
    let server = start(directory)?;
    let elapsed = started.elapsed();
    let cpu = server.cpu_time()?;
    eprintln!("started in {elapsed:?}, {cpu:?} of CPU");
    Ok((server, Restart { elapsed, cpu }))
}

/// What the query took, each time.
struct Asked {
    first_seconds: f64,
    others_seconds: Vec<f64>,
    cpu_seconds: f64,
}

impl Asked {
    fn first(&self) -> String {
        format!("{:.2}", self.first_seconds)
    }

    fn others(&self) -> String {
        let at = |index: usize| self.others_seconds.get(index).copied().unwrap_or(f64::NAN);
        let count = self.others_seconds.len();
        format!("{:.2}, {:.2}", at(count / 2), at(count.saturating_sub(1)))
    }
}

/// Asks the query, and checks that it counts every series.
fn ask(server: &Server, options: &Options, time_ms: i64) -> io::Result<Asked> {
    let path = format!(
        "/api/v1/query?nocache=1&query={}&time={}",
        percent_encode(QUERY),
        time_ms as f64 / 1000.0
    );
    let mut client = Client::new(&server.address);
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..=options.runs {
        let (started, cpu_before) = (Instant::now(), server.cpu_time()?);
        let text = client.text(&path)?;
        wall.push(started.elapsed().as_secs_f64());
        cpu.push((server.cpu_time()? - cpu_before).as_secs_f64());
        if !text.contains(&format!("\"{}\"]", options.series)) {
            return Err(io::Error::other(format!("not all series are there: {text:.300}")));
        }
    }
    let first_seconds = wall.remove(0);
    wall.sort_by(f64::total_cmp);
    cpu.sort_by(f64::total_cmp);
    eprintln!("asked in {first_seconds:.2} s, then {wall:.2?}, CPU {cpu:.2?}");
    Ok(Asked { first_seconds, others_seconds: wall, cpu_seconds: cpu[cpu.len() / 2] })
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
