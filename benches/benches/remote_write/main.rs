//! The remote write harness: the release binary on local disk, loaded over HTTP by several senders,
//! each acknowledged after its sync. See `benches/README.md`.

mod load;

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use benches::machine;
use benches::process::{build_server, directory_bytes};
use benches::server::Server;

use load::{Load, STEP_MS};

const USAGE: &str = "\
usage: cargo bench -p benches --bench remote_write -- [options]
  --binary PATH    a binary to load, instead of building the release binary
  --directory PATH where stores are made (the system's directory for temporary files)
  --seconds N      how long the load goes on (20)
  --senders N      how many send at once (4)
  --samples N      samples in a request (3000)
  --series N       series of each sender, a multiple of the samples (3000)
  --settle N       how many seconds the store is left alone afterwards (90)
  --record         also write the output to benches/record/<date>-remote-write.md";

/// Samples in the log when the restart is timed.
const RESTART_SAMPLES: usize = 1_000_000;

struct Options {
    binary: Option<PathBuf>,
    directory: PathBuf,
    seconds: u64,
    senders: usize,
    samples: usize,
    series: usize,
    settle_seconds: u64,
    is_record: bool,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("remote write harness: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        binary: None,
        directory: std::env::temp_dir(),
        seconds: 20,
        senders: 4,
        samples: 3_000,
        series: 3_000,
        settle_seconds: 90,
        is_record: false,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} wants a value"));
        match argument.as_str() {
            // What cargo adds.
            "--bench" => {}
            "--record" => options.is_record = true,
            "--binary" => options.binary = Some(value()?.into()),
            "--directory" => options.directory = value()?.into(),
            "--seconds" => options.seconds = number(&value()?)?,
            "--senders" => options.senders = number(&value()?)? as usize,
            "--samples" => options.samples = number(&value()?)? as usize,
            "--series" => options.series = number(&value()?)? as usize,
            "--settle" => options.settle_seconds = number(&value()?)?,
            other => return Err(format!("unknown option {other}")),
        }
    }
    if !options.series.is_multiple_of(options.samples) {
        return Err("--series wants a multiple of --samples".to_owned());
    }
    Ok(options)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or(format!("{text} is not a number above 0"))
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
        series_per_sender: options.series,
        // So that most of the load falls into windows that have closed.
        start_ms: now_ms() - 24 * 3_600_000,
    };
    let cpu_before = server.cpu_time()?;
    let outcome = load.run_for(&server.address, Duration::from_secs(options.seconds))?;
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
    std::thread::sleep(Duration::from_secs(options.settle_seconds));
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
