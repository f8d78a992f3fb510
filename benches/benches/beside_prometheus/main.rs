//! The release binary beside a Prometheus: both are written the same native histograms and asked
//! the same queries, in turn. See `benches/README.md`.

mod load;

use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use benches::kernel::cpu_time_of;
use benches::options::{FromCargo, count};
use benches::process::build_server;
use benches::server::Server;
use benches::{machine, measure};
use clap::Parser;
use serde_json::Value;

use load::{Load, METRIC, STEP_MS, Written};

/// Scrapes before the first step: those of the five minutes that its window reaches back.
const SCRAPES_BEFORE: usize = 20;
/// Windows are sealed within a minute of their end, and files written then.
const SEAL_TIMEOUT: Duration = Duration::from_secs(150);

/// A query, and whether it reads the five minutes before the first step, too.
const QUERIES: &[(&str, bool)] = &[
    ("sum(rate(METRIC[5m]))", true),
    ("histogram_quantile(0.9, sum(rate(METRIC[5m])))", true),
    ("histogram_quantile(0.9, METRIC)", false),
    ("sum(METRIC)", false),
];

/// Asks the release binary and a Prometheus the same, in turn.
#[derive(Parser)]
#[command(name = "beside_prometheus")]
struct Options {
    /// The Prometheus, which the environment names.
    #[arg(skip)]
    prometheus: PathBuf,
    /// A binary to ask, instead of building the release binary.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Where stores are made.
    #[arg(long, value_name = "PATH", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// How many series.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = count())]
    series: usize,
    /// How many steps of 15 s.
    #[arg(long, value_name = "N", default_value = "512", value_parser = count())]
    steps: usize,
    /// How often each query is asked.
    #[arg(long, value_name = "N", default_value = "7", value_parser = count())]
    runs: usize,
    /// Also write the output to benches/record/<date>-beside-prometheus.md.
    #[arg(long = "record")]
    is_record: bool,
    #[command(flatten)]
    from_cargo: FromCargo,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    match std::env::var_os("PROMETHEUS_BINARY") {
        Some(prometheus) => options.prometheus = prometheus.into(),
        None => {
            println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to stand beside");
            return ExitCode::SUCCESS;
        }
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("beside Prometheus: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The two servers, ours first, and a directory that is removed with them.
struct Pair {
    servers: [Server; 2],
    directory: StoreDirectory,
}

struct StoreDirectory(PathBuf);

impl Drop for StoreDirectory {
    fn drop(&mut self) {
        // What is left is named after this process and can be removed by hand.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Pair {
    fn start(options: &Options) -> io::Result<Pair> {
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => build_server()?,
        };
        let name = format!("tessella-bench-beside-{}", std::process::id());
        let directory = StoreDirectory(options.directory.join(name));
        let [ours, theirs] = ["tessella", "prometheus"].map(|name| directory.0.join(name));
        std::fs::create_dir_all(&ours)?;
        std::fs::create_dir_all(&theirs)?;
        let servers = [
            Server::start(&binary, &ours)?,
            Server::start_prometheus(&options.prometheus, &theirs)?,
        ];
        Ok(Pair { servers, directory })
    }

    /// CPU time of both so far.
    fn cpu_times(&self) -> io::Result<[Duration; 2]> {
        let [ours, theirs] = &self.servers;
        Ok([cpu_time_of(ours.id())?, cpu_time_of(theirs.id())?])
    }
}

fn run(options: &Options) -> io::Result<()> {
    let mut report =
        format!("# Beside Prometheus, {}\n\n{}\n", machine::today(), machine::description());
    let pair = Pair::start(options)?;
    print!("{report}");
    // A day ago, so that all of it is sealed; at the beginning of a window, so that all runs are
    // cut alike.
    let window_ms = 7_200_000;
    let start_ms = now_ms() / window_ms * window_ms - 12 * window_ms;
    for section in [write_section, query_section] {
        let text = section(options, &pair, start_ms)?;
        print!("{text}");
        report.push_str(&text);
    }
    if options.is_record {
        let path = format!(
            "{}/record/{}-beside-prometheus.md",
            env!("CARGO_MANIFEST_DIR"),
            machine::today()
        );
        std::fs::write(&path, &report)?;
        println!("written to {path}");
    }
    Ok(())
}

fn write_section(options: &Options, pair: &Pair, start_ms: i64) -> io::Result<String> {
    let before = pair.cpu_times()?;
    let addresses = pair.servers.each_ref().map(|server| server.address.as_str());
    let scrapes = options.steps + SCRAPES_BEFORE;
    let written = Load::new(options.series).write(&addresses, start_ms, scrapes)?;
    let after = pair.cpu_times()?;
    let sealed_bytes = wait_until_sealed(&pair.servers[0])?;
    let block_bytes = snapshot(pair)?;
    let Written { histograms, buckets, body_bytes } = written;
    let each = |value: f64| format!("{:.1}", value / histograms as f64);
    let cpu = |at: usize| each((after[at] - before[at]).as_nanos() as f64);
    let mut text = format!(
        "## {} series × {scrapes} scrapes: {histograms} histograms of {} buckets\n\n",
        options.series,
        each(buckets as f64)
    );
    let rows = [
        ["ns of CPU a histogram to take it in".to_owned(), cpu(0), cpu(1)],
        [
            "bytes a histogram on disk, postings and labels aside".to_owned(),
            each(sealed_bytes as f64),
            each(block_bytes as f64),
        ],
    ];
    text.push_str(&measure::table(&["", "Tessella", "Prometheus"], &rows.map(|row| row.to_vec())));
    // Writing into a string cannot fail.
    let _ = writeln!(text, "\n- bytes a histogram on the wire: {}\n", each(body_bytes as f64));
    Ok(text)
}

/// Waits until the bytes of sealed blocks grow no more, and returns them.
fn wait_until_sealed(server: &Server) -> io::Result<u64> {
    let started = Instant::now();
    let mut bytes = 0;
    loop {
        if server.metric("tessella_storage_log_bytes")? == 0.0 {
            let now = server.metric("tessella_storage_sealed_bytes_total")? as u64;
            if now > 0 && now == bytes {
                return Ok(now);
            }
            bytes = now;
        }
        if started.elapsed() > SEAL_TIMEOUT {
            return Err(io::Error::other("the windows are not sealed"));
        }
        std::thread::sleep(Duration::from_secs(2));
    }
}

/// Has Prometheus write all that it holds into blocks, and returns the bytes of their chunks.
fn snapshot(pair: &Pair) -> io::Result<u64> {
    let address = &pair.servers[1].address;
    let head = format!(
        "POST /api/v1/admin/tsdb/snapshot HTTP/1.1\r\nHost: {address}\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let (status, text) = testkit::request(address, &head, &[]);
    if status != 200 {
        return Err(io::Error::other(format!("no snapshot, status {status}: {text}")));
    }
    let mut bytes = 0;
    for entry in std::fs::read_dir(pair.directory.0.join("prometheus/data/snapshots"))? {
        for block in std::fs::read_dir(entry?.path())? {
            for chunks in std::fs::read_dir(block?.path().join("chunks"))? {
                bytes += chunks?.metadata()?.len();
            }
        }
    }
    Ok(bytes)
}

/// What a query took each time: on the wall and on the server's CPU.
#[derive(Default)]
struct Taken {
    wall_ms: Vec<f64>,
    cpu_ms: Vec<f64>,
}

fn query_section(options: &Options, pair: &Pair, start_ms: i64) -> io::Result<String> {
    let from = start_ms / 1000 + SCRAPES_BEFORE as i64 * STEP_MS / 1000;
    let to = from + (options.steps as i64 - 1) * STEP_MS / 1000;
    let mut rows = Vec::new();
    for (query, is_window) in QUERIES {
        let query = query.replace("METRIC", METRIC);
        let path = format!(
            "/api/v1/query_range?query={}&start={from}&end={to}&step={}",
            testkit::percent_encode(&query),
            STEP_MS / 1000
        );
        let (taken, values, differing) = ask_in_turn(options, pair, &path)?;
        let before = if *is_window { SCRAPES_BEFORE - 1 } else { 0 };
        let histograms = (options.series * (options.steps + before)) as f64;
        let [ours, theirs] = taken.map(|taken| (median(taken.wall_ms), median(taken.cpu_ms)));
        let each = |ms: f64| format!("{:.0}", ms * 1e6 / histograms);
        rows.push(vec![
            format!("`{query}`"),
            format!("{:.0} / {:.0}", ours.0, theirs.0),
            format!("{:.1}", theirs.0 / ours.0),
            format!("{:.0} / {:.0}", ours.1, theirs.1),
            format!("{:.1}", theirs.1 / ours.1),
            format!("{} / {}", each(ours.1), each(theirs.1)),
            format!("{values}, {differing}"),
        ]);
    }
    let mut text =
        format!("## {} steps, medians of {} runs, ours / theirs\n\n", options.steps, options.runs);
    let head = [
        "query",
        "wall ms",
        "ratio",
        "CPU ms",
        "ratio",
        "CPU ns a histogram",
        "values, other bits",
    ];
    text.push_str(&measure::table(&head, &rows));
    Ok(text)
}

/// Asks both, one after the other, once to warm up and then as often as is wanted. Says how many
/// values were compared, and how many of them differ in their last bits.
///
/// Errors: values differ by more than a billionth.
fn ask_in_turn(
    options: &Options,
    pair: &Pair,
    path: &str,
) -> io::Result<([Taken; 2], usize, usize)> {
    let mut taken = [Taken::default(), Taken::default()];
    let mut compared = Compared::default();
    for run in 0..=options.runs {
        let mut answers = Vec::new();
        for (server, taken) in pair.servers.iter().zip(&mut taken) {
            let (cpu, wall) = (cpu_time_of(server.id())?, Instant::now());
            let (status, body) = testkit::get(&server.address, path);
            let wall = wall.elapsed();
            let cpu = cpu_time_of(server.id())? - cpu;
            if status != 200 {
                return Err(io::Error::other(format!("{path}: status {status}: {body}")));
            }
            if run > 0 {
                taken.wall_ms.push(wall.as_secs_f64() * 1e3);
                taken.cpu_ms.push(cpu.as_secs_f64() * 1e3);
            } else {
                answers.push(serde_json::from_str::<Value>(&body)?["data"]["result"].take());
            }
        }
        if let [ours, theirs] = answers.as_slice() {
            compared.compare(ours, theirs).map_err(io::Error::other)?;
        }
    }
    Ok((taken, compared.values, compared.differing))
}

/// How many numbers were compared.
#[derive(Default)]
struct Compared {
    values: usize,
    differing: usize,
}

impl Compared {
    fn compare(&mut self, ours: &Value, theirs: &Value) -> Result<(), String> {
        match (ours, theirs) {
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                a.iter().zip(b).try_for_each(|(a, b)| self.compare(a, b))
            }
            (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
                a.iter().try_for_each(|(key, a)| self.compare(a, &b[key]))
            }
            (Value::String(a), Value::String(b)) => match (a.parse::<f64>(), b.parse::<f64>()) {
                (Ok(x), Ok(y)) if a == b || (x - y).abs() <= 1e-9 * x.abs().max(y.abs()) => {
                    self.values += 1;
                    self.differing += usize::from(a != b);
                    Ok(())
                }
                _ if a == b => Ok(()),
                _ => Err(format!("the answers differ: {a} and {b}")),
            },
            _ if ours == theirs => Ok(()),
            _ => Err(format!("the answers differ: {ours:.200} and {theirs:.200}")),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
