//! Command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use super::dataset::{DATASETS, Dataset};
use crate::options::{ReportOptions, count, duration_s};
use crate::scenario::target::{self, Target};

/// Loads the same data into several servers and asks all of them the same queries, in turn.
#[derive(Debug, Clone, Parser)]
#[command(name = "side_by_side", next_line_help = true)]
pub struct Options {
    /// Server to start on an empty store: [NAME:]tessella[=BINARY] (default: the release binary,
    /// which is built), [NAME:]prometheus=BINARY or [NAME:]victoria-metrics=BINARY. The first server
    /// is the reference of the comparison.
    #[arg(long = "start", value_name = "SERVER", value_parser = target::parse, required = true)]
    pub servers: Vec<Target>,
    /// Dataset: small, wide, churn, late, jitter, mixed, gaps, otlp, long, year, or all, one
    /// after the other.
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

/// Parses the command line, of which the first word is the program's.
///
/// Errors: a mistake in it, for the user; or the help text.
pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Options, clap::Error> {
    let options = Options::try_parse_from(words)?;
    target::check_names(&options.servers)
        .map_err(|message| Options::command().error(ErrorKind::ValueValidation, message))?;
    Ok(options)
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
    fn defaults_are_those_of_the_documentation() {
        let options = read("--start tessella --start old:prometheus=/p --age 24h").unwrap();
        let names: Vec<&str> = options.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["tessella", "old"]);
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
