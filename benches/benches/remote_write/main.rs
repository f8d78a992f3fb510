//! The remote write harness: the release binary on local disk, loaded over HTTP by several senders,
//! each acknowledged after its sync. See `benches/README.md`.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use benches::machine;
use benches::options::{FromCargo, count};
use benches::process::{build_server, directory_bytes};
use benches::server::Server;
use clap::Parser;

use benches::load::{Load, STEP_MS};

/// Samples in the log when the restart is timed.
const RESTART_SAMPLES: usize = 1_000_000;

/// Loads the release binary over HTTP.
#[derive(Parser)]
#[command(name = "remote_write")]
struct Options {
    /// A binary to load, instead of building the release binary.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Where stores are made.
    #[arg(long, value_name = "PATH", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// How many seconds the load goes on.
    #[arg(long, value_name = "N", default_value = "20", value_parser = count())]
    seconds: usize,
    /// How many send at once.
    #[arg(long, value_name = "N", default_value = "4", value_parser = count())]
    senders: usize,
    /// Samples in a request.
    #[arg(long, value_name = "N", default_value = "3000", value_parser = count())]
    samples: usize,
    /// Series of each sender, a multiple of the samples.
    #[arg(long, value_name = "N", default_value = "3000", value_parser = count())]
    series: usize,
    /// How many seconds the store is left alone afterwards.
    #[arg(long = "settle", value_name = "N", default_value = "90", value_parser = count())]
    settle_seconds: usize,
    /// Also write the output to benches/record/<date>-remote-write.md.
    #[arg(long = "record")]
    is_record: bool,
    #[command(flatten)]
    from_cargo: FromCargo,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if !options.series.is_multiple_of(options.samples) {
        eprintln!("remote write harness: --series wants a multiple of --samples");
        return ExitCode::from(2);
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("remote write harness: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => build_server()?,
    };
    let mut report =
        format!("# Remote write, {}\n\n{}\n", machine::today(), machine::description());
    print!("{report}");
    for section in [load_section, restart_section] {
        let text = section(options, &binary)?;
        print!("{text}");
        report.push_str(&text);
    }
    if options.is_record {
        let path =
            format!("{}/record/{}-remote-write.md", env!("CARGO_MANIFEST_DIR"), machine::today());
        std::fs::create_dir_all(format!("{}/record", env!("CARGO_MANIFEST_DIR")))?;
        std::fs::write(&path, &report)?;
        println!("written to {path}");
    }
    Ok(())
}

/// A store that is removed when it goes out of scope.
struct StoreDirectory(PathBuf);

impl StoreDirectory {
    fn new(options: &Options, name: &str) -> io::Result<StoreDirectory> {
        let name = format!("tessella-bench-{name}-{}", std::process::id());
        let path = options.directory.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(StoreDirectory(path))
    }
}

impl Drop for StoreDirectory {
    fn drop(&mut self) {
        // What is left is named after this process and can be removed by hand.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn load_section(options: &Options, binary: &Path) -> io::Result<String> {
    let directory = StoreDirectory::new(options, "load")?;
    let server = Server::start(binary, &directory.0)?;
    let load = Load {
        senders: options.senders,
        samples_per_request: options.samples,
        scrapes_per_request: 1,
        series_per_sender: options.series,
        // So that most of the load falls into windows that have closed.
        start_ms: now_ms() - 24 * 3_600_000,
    };
    let cpu_before = server.cpu_time()?;
    let outcome = load.run_for(&server.address, Duration::from_secs(options.seconds as u64))?;
    let cpu_seconds = (server.cpu_time()? - cpu_before).as_secs_f64();
    let resident = server.resident();
    let samples = outcome.samples();
    let million = samples as f64 / 1e6;
    let mut text = format!(
        "## {} senders, {} samples a request, {} series each, {} s\n\n",
        options.senders, options.samples, options.series, options.seconds
    );
    let (p50, p99, max) = outcome.latencies_ms();
    let rows = [
        ("samples a second", format!("{:.0}", samples as f64 / outcome.elapsed.as_secs_f64())),
        ("requests", outcome.latencies.len().to_string()),
        ("request p50, p99, longest", format!("{p50:.1}, {p99:.1}, {max:.1} ms")),
        ("requests that were turned away, and sent again", outcome.turned_away.to_string()),
        (
            "first request of each sender, longest",
            format!("{:.1} ms", outcome.first.as_secs_f64() * 1e3),
        ),
        ("server's CPU", format!("{cpu_seconds:.1} s, {:.2} s a million", cpu_seconds / million)),
        (
            "bytes a sample on the wire",
            format!("{:.2}", outcome.body_bytes as f64 / samples as f64),
        ),
        ("resident after the load, peak", format!("{}, {}", mib(resident.now), mib(resident.peak))),
    ];
    push_table(&mut text, &rows);
    let written = directory_bytes(&directory.0)?;
    std::thread::sleep(Duration::from_secs(options.settle_seconds as u64));
    let kept = directory_bytes(&directory.0)?;
    let resident = server.resident();
    let sealed = server.metric("tessella_storage_sealed_bytes_total")?;
    let rows = [
        ("bytes on disk after the load", mib(written)),
        (
            "bytes on disk once left alone, what is to be deleted included",
            format!("{} after {} s", mib(kept), options.settle_seconds),
        ),
        (
            "bytes of sealed blocks",
            format!("{}, {:.2} a sample", mib(sealed as u64), sealed / samples as f64),
        ),
        ("resident then", mib(resident.now)),
    ];
    push_table(&mut text, &rows);
    Ok(text)
}

fn restart_section(options: &Options, binary: &Path) -> io::Result<String> {
    let directory = StoreDirectory::new(options, "restart")?;
    let server = Server::start(binary, &directory.0)?;
    let request_count = RESTART_SAMPLES.div_ceil(options.samples);
    let scrapes = (request_count * options.samples).div_ceil(options.senders * options.series);
    let load = Load {
        senders: options.senders,
        samples_per_request: options.samples,
        scrapes_per_request: 1,
        series_per_sender: options.series,
        // Up to now, so that little of it can be sealed.
        start_ms: now_ms() - scrapes as i64 * STEP_MS,
    };
    let outcome = load.run_requests(&server.address, request_count.div_ceil(options.senders))?;
    server.kill()?;
    let started = Instant::now();
    let server = Server::start(binary, &directory.0)?;
    let seconds = started.elapsed().as_secs_f64();
    let resident = server.resident();
    let mut text =
        format!("## Restart after kill -9 with {} samples in the log\n\n", outcome.samples());
    let rows = [
        ("until ready", format!("{seconds:.2} s")),
        ("resident then", mib(resident.now)),
        ("bytes on disk", mib(directory_bytes(&directory.0)?)),
    ];
    push_table(&mut text, &rows);
    Ok(text)
}

fn push_table(text: &mut String, rows: &[(&str, String)]) {
    for (name, figure) in rows {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "- {name}: {figure}");
    }
    text.push('\n');
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1024.0 / 1024.0)
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
