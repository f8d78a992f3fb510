//! Runs our own scripts and those of Prometheus, and compares what fails with the list of
//! known failures, which may only shrink.

#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

#[path = "support/stored.rs"]
#[allow(dead_code, missing_docs, reason = "each test binary uses a part, and the names say it")]
mod stored;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{Engine, EngineOptions};
use model::Source;
use model::memory::MemorySource;
use promqltest::{EvalReport, Failure, KnownFailures, Reach, Script, run_script};
use stored::{Cut, Stores};

/// Where the scripts of Prometheus are, unless `PROMQLTEST_DIR` says so: beside the workspace.
const SHARED_DIR: &str = "../shared/promqltest";

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn scripts_in(dir: &Path) -> Vec<(String, String)> {
    let mut scripts: Vec<(String, String)> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "test"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    scripts.sort();
    scripts
}

/// The scripts of Prometheus; none, and a line that says so, where they are absent.
fn shared_scripts() -> Vec<(String, String)> {
    let dir = std::env::var_os("PROMQLTEST_DIR")
        .map_or_else(|| crate_dir().join("../..").join(SHARED_DIR), PathBuf::from);
    let scripts = scripts_in(&dir);
    if scripts.is_empty() {
        println!("SKIPPED: no *.test in {} (set PROMQLTEST_DIR)", dir.display());
    }
    scripts
}

/// The engine with the settings of Prometheus' own runner.
fn engine() -> Engine {
    Engine::new(EngineOptions { use_start_timestamps: true, ..EngineOptions::default() })
}

/// What holds the samples of a script.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Memory,
    /// The real store; the seed decides how samples are cut into batches, and when it seals.
    Store {
        seed: u64,
    },
}

/// Runs a script on sources of a kind.
async fn run(kind: Kind, script: &Script, engine: &Engine, reach: Reach) -> Vec<EvalReport> {
    let mut stores = match kind {
        Kind::Memory => None,
        Kind::Store { seed } => Some(Stores::new(seed, Cut::default())),
    };
    let reports =
        run_script(script, engine, reach, async |samples: &MemorySource| match &mut stores {
            None => Arc::new(samples.clone()) as Arc<dyn Source>,
            Some(stores) => stores.store(samples).await,
        });
    let reports = reports.await.unwrap();
    if let Some(stores) = &mut stores {
        stores.close().await;
    }
    reports
}

#[derive(Default)]
struct Tally {
    evals: usize,
    plain: usize,
    varied: usize,
    stable_evals: usize,
    stable_varied: usize,
}

impl Tally {
    fn add(&mut self, report: &EvalReport) {
        self.evals += 1;
        self.plain += usize::from(report.plain.is_ok());
        self.varied += usize::from(report.varied.is_ok());
        if report.needs.is_plain() {
            self.stable_evals += 1;
            self.stable_varied += usize::from(report.varied.is_ok());
        }
    }

    fn merge(&mut self, other: &Tally) {
        self.evals += other.evals;
        self.plain += other.plain;
        self.varied += other.varied;
        self.stable_evals += other.stable_evals;
        self.stable_varied += other.stable_varied;
    }

    fn row(&self, name: &str) -> String {
        format!(
            "{name:32} {:5} {:6} {:6} {:13}/{}",
            self.evals, self.plain, self.varied, self.stable_varied, self.stable_evals
        )
    }
}

/// Compares the failures of a script with its entries in the list.
fn check_known(name: &str, reports: &[EvalReport], known: &KnownFailures, problems: &mut String) {
    for report in reports {
        let line = report.line;
        match (&report.varied, known.reason(name, line)) {
            (Err(Failure::Unsupported(reason)), None) => {
                let _ = writeln!(problems, "{name}:{line} {reason}    (not listed)");
            }
            (Err(failure), None) => {
                let _ = writeln!(problems, "{name}:{line} fails: {failure}");
            }
            (Ok(()), Some(reason)) => {
                let _ =
                    writeln!(problems, "{name}:{line} passes; remove it from the list ({reason})");
            }
            _ => {}
        }
    }
    for (line, _) in known.of_script(name) {
        if !reports.iter().any(|report| report.line == line) {
            let _ = writeln!(problems, "{name}:{line} is listed, but no eval stands there");
        }
    }
}

fn run_all(kind: Kind, reach: Reach, scripts: &[(String, String)], known: &KnownFailures) {
    let engine = engine();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut table = format!(
        "{:32} {:>5} {:>6} {:>6} {}\n",
        "script", "evals", "plain", "varied", "stable floats, varied"
    );
    let mut sum = Tally::default();
    let mut problems = String::new();
    for (name, text) in scripts {
        let script = Script::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let reports = runtime.block_on(run(kind, &script, &engine, reach));
        let mut tally = Tally::default();
        reports.iter().for_each(|report| tally.add(report));
        sum.merge(&tally);
        let _ = writeln!(table, "{}", tally.row(name));
        check_known(name, &reports, known, &mut problems);
    }
    println!("\n{kind:?}\n{table}{}", sum.row("all"));
    assert!(problems.is_empty(), "\n{problems}");
}

/// The scripts without native histograms, or those about them.
fn own_scripts(are_about_histograms: bool) -> Vec<(String, String)> {
    let mut scripts = scripts_in(&crate_dir().join("cases"));
    scripts.retain(|(name, _)| name.starts_with("histogram_") == are_about_histograms);
    assert!(!scripts.is_empty());
    scripts
}

fn known_failures() -> KnownFailures {
    let known = std::fs::read_to_string(crate_dir().join("known_failures.txt")).unwrap();
    KnownFailures::parse(&known).unwrap()
}

#[test]
fn own_scripts_pass_in_memory() {
    run_all(Kind::Memory, Reach::Floats, &own_scripts(false), &KnownFailures::default());
}

#[test]
fn own_scripts_about_histograms_pass_in_memory() {
    run_all(Kind::Memory, Reach::Everything, &own_scripts(true), &KnownFailures::default());
}

#[test]
fn own_scripts_pass_on_the_store() {
    run_all(Kind::Store { seed: 1 }, Reach::Floats, &own_scripts(false), &KnownFailures::default());
}

#[test]
fn scripts_of_prometheus_pass_in_memory_but_for_known_failures() {
    run_all(Kind::Memory, Reach::Floats, &shared_scripts(), &known_failures());
}

#[test]
fn scripts_of_prometheus_pass_on_the_store_but_for_known_failures() {
    run_all(Kind::Store { seed: 2 }, Reach::Floats, &shared_scripts(), &known_failures());
}

/// For work on what is not there yet: `PROMQLTEST_EVERYTHING=1` tries every eval of Prometheus'
/// scripts, the known failures too, and tells what fails.
fn run_everything(kind: Kind) {
    if std::env::var_os("PROMQLTEST_EVERYTHING").is_none() {
        println!("SKIPPED: PROMQLTEST_EVERYTHING is not set");
        return;
    }
    run_all(kind, Reach::Everything, &shared_scripts(), &KnownFailures::default());
}

#[test]
fn everything_passes_in_memory_where_that_is_asked_for() {
    run_everything(Kind::Memory);
}

#[test]
fn everything_passes_on_the_store_where_that_is_asked_for() {
    run_everything(Kind::Store { seed: 2 });
}
