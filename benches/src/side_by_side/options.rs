//! Command line.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use super::dataset::{DATASETS, Dataset};
use crate::options::{ReportOptions, build_server, count, duration_s};
use crate::scenario::server::{Program, Server};

/// Loads the same data into several servers and asks all of them the same queries, in turn.
#[derive(Debug, Clone, Parser)]
#[command(name = "side_by_side", next_line_help = true)]
pub struct Options {
    /// Server to start on an empty store: [NAME:]tessella[=BINARY] (default: the release binary,
    /// which is built), [NAME:]prometheus=BINARY or [NAME:]victoria-metrics=BINARY. The first server
    /// is the reference of the comparison.
    #[arg(long = "start", value_name = "SERVER", value_parser = target, required = true)]
    pub servers: Vec<Target>,
    /// Dataset: small, wide, churn, late, long, or all of them, one after the other.
    #[arg(long = "dataset", value_name = "NAME", default_value = "small", value_parser = datasets)]
    pub datasets: Datasets,
    /// Age of the newest sample, such as 3m or 24h.
    #[arg(long = "age", value_name = "DURATION", default_value = "3m", value_parser = duration_s)]
    pub age_s: i64,
    /// Part of the name or text of the queries to ask; may be repeated.
    #[arg(long = "queries", value_name = "FILTER")]
    pub filters: Vec<String>,
    /// Runs of each query.
    #[arg(long, value_name = "N", default_value = "9", value_parser = count())]
    pub runs: usize,
    /// Maximum time to wait for stores to settle; 0 does not wait.
    #[arg(long = "settle", value_name = "SECONDS", default_value_t = 300)]
    pub settle_s: u64,
    /// Directory for stores.
    #[arg(long, value_name = "PATH", default_value_os_t = std::env::temp_dir())]
    pub directory: PathBuf,
    /// Report, recorded for each dataset as .md (tables), .json (every figure) and .svg (chart).
    #[command(flatten)]
    pub report: ReportOptions,
}

/// Datasets in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Datasets(pub Vec<Dataset>);

/// Server to start.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Name in tables.
    pub name: String,
    program: Program,
    binary: Option<PathBuf>,
}

impl Target {
    /// Starts the server on a store below a directory.
    ///
    /// Errors: it does not become ready.
    pub fn open(&self, directory: &Path) -> io::Result<Server> {
        let binary = self.binary.clone().map_or_else(build_server, Ok)?;
        Server::start(&self.name, self.program, &binary, directory)
    }
}

const PROGRAMS: [(&str, Program); 3] = [
    ("tessella", Program::Tessella),
    ("prometheus", Program::Prometheus),
    ("victoria-metrics", Program::VictoriaMetrics),
];

/// Parses the command line, of which the first word is the program's.
///
/// Errors: a mistake in it, for the user; or the help text.
pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Options, clap::Error> {
    let options = Options::try_parse_from(words)?;
    for (index, server) in options.servers.iter().enumerate() {
        if options.servers[..index].iter().any(|earlier| earlier.name == server.name) {
            let message = format!("two servers have the name {}", server.name);
            return Err(Options::command().error(ErrorKind::ValueValidation, message));
        }
    }
    Ok(options)
}

fn target(text: &str) -> Result<Target, String> {
    let (what, binary) = match text.split_once('=') {
        Some((what, binary)) => (what, Some(PathBuf::from(binary))),
        None => (text, None),
    };
    let (name, program) = what.split_once(':').unwrap_or((what, what));
    let (_, program) = PROGRAMS
        .into_iter()
        .find(|(known, _)| *known == program)
        .ok_or(format!("{program} is not one of tessella, prometheus, victoria-metrics"))?;
    if binary.is_none() && program != Program::Tessella {
        return Err(format!("{text} needs =BINARY"));
    }
    Ok(Target { name: name.to_owned(), program, binary })
}

fn datasets(name: &str) -> Result<Datasets, String> {
    let found: Vec<Dataset> =
        DATASETS.into_iter().filter(|dataset| name == "all" || dataset.name == name).collect();
    match found.is_empty() {
        true => Err(format!("unknown dataset {name}")),
        false => Ok(Datasets(found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, clap::Error> {
        parse(std::iter::once("side_by_side").chain(line.split_whitespace()).map(OsString::from))
    }

    #[test]
    fn servers_are_named_by_program_or_prefix() {
        let options = read("--start tessella --start old:prometheus=/p --age 24h").unwrap();
        let target = |name: &str, program, binary: Option<&str>| Target {
            name: name.to_owned(),
            program,
            binary: binary.map(PathBuf::from),
        };
        let old = target("old", Program::Prometheus, Some("/p"));
        assert_eq!(options.servers, [target("tessella", Program::Tessella, None), old]);
        assert_eq!((options.age_s, options.runs, options.settle_s), (86_400, 9, 300));
    }

    #[test]
    fn mistakes_are_reported() {
        for (line, message) in [
            ("", "--start <SERVER>"),
            ("--start prometheus", "prometheus needs =BINARY"),
            ("--start influx=/x", "influx is not one of tessella, prometheus, victoria-metrics"),
            ("--start tessella --start tessella", "two servers have the name tessella"),
            ("--start tessella --dataset huge", "unknown dataset huge"),
            ("--start tessella --runs 0", "0 is not in 1.."),
            ("--start tessella --age 3q", "unknown unit \"q\" in duration \"3q\""),
            ("--start tessella --age", "a value is required for '--age <DURATION>'"),
            ("--start tessella --frob", "unexpected argument '--frob'"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(message), "{line}: {error}");
        }
    }
}
