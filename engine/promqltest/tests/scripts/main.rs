//! Runs our own scripts and those of Prometheus, in memory and on the real store: every eval as
//! written and in the variations of Prometheus' own runner.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod independence;
mod result_cache;
mod shown;
mod stored;
mod summaries;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{Engine, EngineOptions};
use model::Source;
use model::memory::MemorySource;
use promqltest::{EvalReport, Script, run_script};
use stored::{Caches, Cut, Stores};

/// Default directory of the scripts of Prometheus, next to the workspace; see `PROMQLTEST_DIR`.
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

/// Returns the scripts of Prometheus; prints a line and returns none if they are absent.
fn shared_scripts() -> Vec<(String, String)> {
    let dir = std::env::var_os("PROMQLTEST_DIR")
        .map_or_else(|| crate_dir().join("../..").join(SHARED_DIR), PathBuf::from);
    let scripts = scripts_in(&dir);
    if scripts.is_empty() {
        println!("SKIPPED: no *.test in {} (set PROMQLTEST_DIR)", dir.display());
    }
    scripts
}

/// Returns an engine with the settings of Prometheus' own runner.
fn engine() -> Engine {
    Engine::new(EngineOptions { use_start_timestamps: true, ..EngineOptions::default() })
}

/// Storage of a script's samples.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Memory,
    /// The real store; the seed determines the cuts into batches and the times of sealing.
    Store {
        seed: u64,
        caches: Caches,
    },
}

/// Runs a script on sources of one kind.
async fn run(kind: Kind, script: &Script, engine: &Engine) -> Vec<EvalReport> {
    let mut stores = match kind {
        Kind::Memory => None,
        Kind::Store { seed, caches } => Some(Stores::new(seed, Cut::plain(caches))),
    };
    let reports = run_script(script, engine, async |samples: &MemorySource| match &mut stores {
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

fn run_all(kind: Kind, scripts: &[(String, String)]) {
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
        let reports = runtime.block_on(run(kind, &script, &engine));
        let mut tally = Tally::default();
        reports.iter().for_each(|report| tally.add(report));
        sum.merge(&tally);
        let _ = writeln!(table, "{}", tally.row(name));
        for report in &reports {
            if let Err(failure) = &report.varied {
                let _ = writeln!(problems, "{name}:{} fails: {failure}", report.line);
            }
        }
    }
    println!("\n{kind:?}\n{table}{}", sum.row("all"));
    assert!(problems.is_empty(), "\n{problems}");
}

fn own_scripts() -> Vec<(String, String)> {
    let scripts = scripts_in(&crate_dir().join("cases"));
    assert!(!scripts.is_empty());
    scripts
}

#[test]
fn own_scripts_pass_in_memory() {
    run_all(Kind::Memory, &own_scripts());
}

#[test]
fn own_scripts_pass_on_the_store() {
    for caches in [Caches::Off, Caches::Tight, Caches::On] {
        run_all(Kind::Store { seed: 1, caches }, &own_scripts());
    }
}

#[test]
fn scripts_of_prometheus_pass_in_memory() {
    run_all(Kind::Memory, &shared_scripts());
}

#[test]
fn scripts_of_prometheus_pass_on_the_store() {
    run_all(Kind::Store { seed: 2, caches: Caches::On }, &shared_scripts());
}

#[test]
fn scripts_of_prometheus_pass_on_the_store_without_caches() {
    run_all(Kind::Store { seed: 2, caches: Caches::Off }, &shared_scripts());
}
