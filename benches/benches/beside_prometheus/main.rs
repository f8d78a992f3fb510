//! Comparison of the release binary with Prometheus on native histograms: the same data, the same
//! queries, in turn. See `benches/README.md`.

mod load;

use std::io::{self, Error};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use benches::machine::now_ms;
use benches::measure::{list, table};
use benches::options::{ServerOptions, count};
use benches::report;
use benches::scenario::ask::{Asked, Query, Steps, Taken, ask};
use benches::scenario::server::{Program, Server};
use clap::Parser;

use load::{Load, METRIC, STEP_MS, Written};

/// Scrapes before the first step, for a range of five minutes.
const SCRAPES_BEFORE: usize = 20;
/// Timeout for sealing, which takes a minute after the end of a window.
const SEAL_TIMEOUT: Duration = Duration::from_secs(150);
const WINDOW_MS: i64 = 7_200_000;
/// Maximum difference of two values, relative to the larger one.
const TOLERANCE: f64 = 1e-9;

/// Queries, and whether each reads the five minutes before the first step.
const QUERIES: &[(&str, bool)] = &[
    ("sum(rate(METRIC[5m]))", true),
    ("histogram_quantile(0.9, sum(rate(METRIC[5m])))", true),
    ("histogram_quantile(0.9, METRIC)", false),
    ("sum(METRIC)", false),
];

/// Compares the release binary with Prometheus on native histograms.
#[derive(Parser)]
#[command(name = "beside_prometheus")]
struct Options {
    /// Number of series.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = count())]
    series: usize,
    /// Number of steps of 15 s.
    #[arg(long, value_name = "N", default_value = "512", value_parser = count())]
    steps: usize,
    /// Runs of each query.
    #[arg(long, value_name = "N", default_value = "7", value_parser = count())]
    runs: usize,
    #[command(flatten)]
    server: ServerOptions,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let Some(prometheus) = std::env::var_os("PROMETHEUS_BINARY").map(PathBuf::from) else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set");
        return ExitCode::SUCCESS;
    };
    let is_record = options.server.report.is_record;
    report::run("Beside Prometheus", "beside-prometheus", is_record, |report| {
        let directory = &options.server.directory;
        let ours = options.server.binary()?;
        let servers = [
            Server::start("tessella", Program::Tessella, &ours, directory)?,
            Server::start("prometheus", Program::Prometheus, &prometheus, directory)?,
        ];
        // A day ago, so that all data are sealed; at the start of a window, so that all runs have
        // the same windows.
        let start_ms = now_ms() / WINDOW_MS * WINDOW_MS - 12 * WINDOW_MS;
        report.push(&write_section(&options, &servers, start_ms)?);
        report.push(&query_section(&options, &servers, start_ms)?);
        Ok(())
    })
}

fn write_section(options: &Options, servers: &[Server; 2], start_ms: i64) -> io::Result<String> {
    let scrapes = options.steps + SCRAPES_BEFORE;
    let write = |server| Load::new(options.series).write(server, start_ms, scrapes);
    let (ours, theirs) = (write(&servers[0])?, write(&servers[1])?);
    let sealed_bytes = wait_until_sealed(&servers[0])?;
    // Of the blocks of Prometheus only the chunks count; other files hold labels and postings.
    let chunk_bytes = servers[1].snapshot_bytes(Some("chunks"))?;
    let sent = &ours.outcome.sent;
    let each = |value: f64| format!("{:.1}", value / sent.samples as f64);
    let cpu = |written: &Written| each(written.outcome.cost.cpu.as_secs_f64() * 1e9);
    let rows = [
        ["CPU ns a histogram, write".to_owned(), cpu(&ours), cpu(&theirs)],
        [
            "bytes a histogram on disk, without postings and labels".to_owned(),
            each(sealed_bytes as f64),
            each(chunk_bytes as f64),
        ],
    ];
    Ok(format!(
        "## {} series × {scrapes} scrapes: {} histograms of {} buckets\n\n{}\n{}",
        options.series,
        sent.samples,
        each(ours.bucket_count as f64),
        table(&["", "Tessella", "Prometheus"], &rows.map(|row| row.to_vec())),
        list(&[("bytes a histogram on the wire", each(sent.body_bytes as f64))]),
    ))
}

/// Waits until all windows are sealed, and returns the bytes of sealed blocks.
fn wait_until_sealed(server: &Server) -> io::Result<u64> {
    let begin = Instant::now();
    let mut bytes = 0;
    loop {
        if server.metric("tessella_storage_log_bytes")? == 0.0 {
            let now = server.metric("tessella_storage_sealed_bytes_total")? as u64;
            if now > 0 && now == bytes {
                return Ok(now);
            }
            bytes = now;
        }
        if begin.elapsed() > SEAL_TIMEOUT {
            return Err(Error::other("the windows are not sealed"));
        }
        std::thread::sleep(Duration::from_secs(2));
    }
}

fn query_section(options: &Options, servers: &[Server; 2], start_ms: i64) -> io::Result<String> {
    let start_s = (start_ms + SCRAPES_BEFORE as i64 * STEP_MS) / 1_000;
    let step_s = STEP_MS / 1_000;
    let steps = Steps { start_s, end_s: start_s + (options.steps as i64 - 1) * step_s, step_s };
    let mut rows = Vec::new();
    for (name, is_window) in QUERIES {
        let query = Query::range(name, name.replace("METRIC", METRIC), steps);
        let asked = ask(servers, &query, options.runs, TOLERANCE)?;
        if !asked.servers.iter().all(Taken::is_right) {
            return Err(Error::other(format!("results differ: {:?}", asked.servers)));
        }
        let before = if *is_window { SCRAPES_BEFORE - 1 } else { 0 };
        rows.push(query_row(&asked, options.series * (options.steps + before)));
    }
    let head = [
        "query",
        "wall ms",
        "ratio",
        "CPU ms",
        "ratio",
        "CPU ns a histogram",
        "values, other bits",
    ];
    let (steps, runs) = (options.steps, options.runs);
    let table = table(&head, &rows);
    Ok(format!(
        "## {steps} steps, {runs} runs or more: medians and mean CPU, ours / theirs\n\n{table}"
    ))
}

fn query_row(asked: &Asked, histogram_count: usize) -> Vec<String> {
    let (ours, theirs) = (&asked.servers[0], &asked.servers[1]);
    let (wall, cpu) = ([ours.median_ms(), theirs.median_ms()], [ours.cpu_ms, theirs.cpu_ms]);
    let each = |ms: f64| ms * 1e6 / histogram_count as f64;
    vec![
        format!("`{}`", asked.text),
        format!("{:.0} / {:.0}", wall[0], wall[1]),
        format!("{:.1}", wall[1] / wall[0]),
        format!("{:.0} / {:.0}", cpu[0], cpu[1]),
        format!("{:.1}", cpu[1] / cpu[0]),
        format!("{:.0} / {:.0}", each(cpu[0]), each(cpu[1])),
        format!("{}, {}", theirs.compared.values, theirs.compared.other_bits),
    ]
}
