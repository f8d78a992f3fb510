//! Counts the instructions of each stage and compares them with the table in `benches/README.md`.
//! Counts do not depend on the load of the machine.
//!
//! The program starts itself under callgrind, which counts one run of each stage, without the
//! preparation of its data. Without valgrind it prints a message and succeeds.

mod stages;

use std::ffi::CString;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use benches::kernel::{count_instructions, cpu_time, is_counting};
use benches::options::{FromCargo, count};
use benches::stage_table::{self, Figure};
use clap::Parser;
use stages::{APPEND, Run, STAGES, Stage};

/// Runs before the counted one, for lazy initialization and caches.
const WARM_UPS: usize = 2;
/// Runs without callgrind, of which the fastest is shown.
const TIMED_RUNS: usize = 15;
/// Time in which a thread that has handed over its result goes to sleep.
const SETTLE: Duration = Duration::from_millis(2);
/// Tunables for the same `memcpy` and `memset` of the C library on all CPUs: otherwise filling the
/// buffer of a result took a third of its instructions on one CPU, and a tenth of that on another.
const SAME_ON_ALL_CPUS: &str = "glibc.cpu.hwcaps=-AVX2,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM";

/// Prefixes of callgrind's lines with the name of a count, and with the count.
const NAME: &str = "desc: Trigger: Client Request: ";
const COUNT: &str = "totals: ";

/// Counts the instructions of each stage.
#[derive(Parser)]
#[command(name = "instructions")]
struct Options {
    /// Write the figures into the table of benches/README.md.
    #[arg(long = "update")]
    is_update: bool,
    /// Count N times and show the spread.
    #[arg(long, value_name = "N", default_value = "1", value_parser = count())]
    repeat: usize,
    /// Count under callgrind; used by the program to start itself.
    #[arg(long = "count", hide = true)]
    is_count: bool,
    #[command(flatten)]
    from_cargo: FromCargo,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.is_count {
        count_all();
        return ExitCode::SUCCESS;
    }
    match check(&options) {
        Ok(is_good) => ExitCode::from(u8::from(!is_good)),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn all_stages() -> impl Iterator<Item = Stage> {
    STAGES.into_iter().chain([APPEND]).map(|make| make())
}

/// Runs and counts each stage once, under callgrind.
fn count_all() {
    assert!(is_counting(), "--count needs callgrind");
    for mut stage in all_stages() {
        for _ in 0..WARM_UPS {
            (stage.prepare)()();
        }
        let run = (stage.prepare)();
        let name = CString::new(stage.name).expect("names have no zero bytes");
        count_instructions(&name, run);
    }
}

/// Prints all figures, and returns whether no stage exceeds the table.
fn check(options: &Options) -> Result<bool, String> {
    if !cfg!(target_arch = "x86_64") {
        println!("SKIPPED: instructions are counted on x86-64 only");
        return Ok(true);
    }
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: valgrind is not installed, so instructions are not counted");
        return Ok(true);
    }
    let counts: Vec<Vec<(String, u64)>> =
        (0..options.repeat).map(|_| count_apart()).collect::<Result<_, _>>()?;
    let mut figures = Vec::new();
    for mut stage in all_stages() {
        let counts: Vec<u64> = counts.iter().filter_map(|all| of(all, stage.name)).collect();
        let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) else {
            return Err(format!("no count of callgrind for {}", stage.name));
        };
        if options.repeat > 1 {
            let spread = (*most as f64 / *least as f64 - 1.0) * 100.0;
            println!("{}: {least} to {most} instructions, spread {spread:.2} %", stage.name);
        }
        let of_one = stage.count as f64;
        figures.push(Figure {
            stage: stage.name.to_owned(),
            unit: stage.unit.to_owned(),
            instructions: *least as f64 / of_one,
            cpu_ns: fastest_ns(&mut stage.prepare) / of_one,
        });
    }
    print!("{}", stage_table::rows(&figures));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let document = std::fs::read_to_string(&path).map_err(failed)?;
    if options.is_update {
        std::fs::write(&path, stage_table::update(&document, &figures)?).map_err(failed)?;
        println!("written to {}", path.display());
        return Ok(true);
    }
    let verdict = stage_table::compare(&document, &figures)?;
    verdict.hints.iter().for_each(|hint| println!("better: {hint}"));
    verdict.faults.iter().for_each(|fault| println!("FAILED: {fault}"));
    let how = "cargo bench -p benches --bench instructions -- --update";
    if !verdict.faults.is_empty() {
        println!("if this is intended, `{how}` updates the table");
    }
    Ok(verdict.faults.is_empty())
}

fn of(counts: &[(String, u64)], name: &str) -> Option<u64> {
    counts.iter().find(|(counted, _)| counted == name).map(|(_, count)| *count)
}

/// Returns the CPU time of the fastest run, without callgrind.
fn fastest_ns(prepare: &mut dyn FnMut() -> Run) -> f64 {
    let times = (0..TIMED_RUNS).map(|_| {
        let run = prepare();
        let before = cpu_time();
        run();
        // The time of the query's thread counts once that thread sleeps.
        std::thread::sleep(SETTLE);
        (cpu_time() - before).as_nanos() as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Runs this program under callgrind in a fixed environment; returns the names of the stages with
/// their counts.
fn count_apart() -> Result<Vec<(String, u64)>, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let directory = env!("CARGO_TARGET_TMPDIR");
    std::fs::create_dir_all(directory).map_err(|error| format!("{directory}: {error}"))?;
    let path = format!("{directory}/instructions.{}.out", std::process::id());
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--instr-atstart=no", "--combine-dumps=yes", "--quiet"])
        .arg(format!("--callgrind-out-file={path}"))
        .arg(program)
        .arg("--count");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("GLIBC_TUNABLES", SAME_ON_ALL_CPUS);
    let status = command.status().map_err(|error| format!("valgrind: {error}"))?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"));
    // The file of a failed run is not needed either.
    let _ = std::fs::remove_file(&path);
    if !status.success() {
        return Err(format!("valgrind: {status}"));
    }
    Ok(counts(&text?))
}

/// Parses the counts in a file of callgrind. Its last dump has no name.
fn counts(text: &str) -> Vec<(String, u64)> {
    let mut counts = Vec::new();
    let mut name = None;
    for line in text.lines() {
        if let Some(named) = line.strip_prefix(NAME) {
            name = Some(named.to_owned());
        } else if let Some(count) = line.strip_prefix(COUNT).and_then(|text| text.parse().ok()) {
            counts.extend(name.take().map(|name| (name, count)));
        }
    }
    counts
}
