//! The command line.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::RangedI64ValueParser;
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};

use super::dataset::{DATASETS, Dataset};
use crate::options::{ReportOptions, build_server, count};
use crate::scenario::server::{Program, Server};

/// Options of the harness.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "side_by_side",
    about = "The same data and the same questions for several servers, in turn.",
    long_about = None,
    next_line_help = true
)]
pub struct Options {
    /// A server that runs, NAME=ADDRESS[,pid=N][,dir=PATH]; with its process id, CPU time and
    /// memory are measured, with the directory of its store, bytes on disk. The first server is the
    /// one that the others are compared with.
    #[arg(long, value_name = "SERVER", value_parser = peer)]
    peer: Vec<Target>,
    /// A server to be started on an empty store: [NAME:]tessella[=BINARY], of which the release
    /// binary is built without a path, [NAME:]prometheus=BINARY or
    /// [NAME:]victoria-metrics=BINARY.
    #[arg(long, value_name = "SERVER", value_parser = start)]
    start: Vec<Target>,
    /// Servers of both options, in the order of the command line.
    #[arg(skip)]
    pub servers: Vec<Target>,
    /// small, wide, churn, long, or all of them, one after the other.
    #[arg(long = "dataset", value_name = "NAME", default_value = "small", value_parser = datasets)]
    pub datasets: Datasets,
    /// How old the newest sample is: 3m, 24h, …
    #[arg(long = "age", value_name = "DURATION", default_value = "3m", value_parser = duration_s)]
    pub age_s: i64,
    /// The end of the data as a Unix time, instead of --age; servers that hold these data already
    /// are not loaded again.
    #[arg(
        long = "end",
        value_name = "SECONDS",
        value_parser = RangedI64ValueParser::<i64>::new().range(1..)
    )]
    pub end_s: Option<i64>,
    /// Only queries in whose name or text this is found; may be given again.
    #[arg(long = "queries", value_name = "FILTER")]
    pub filters: Vec<String>,
    /// Runs of each query.
    #[arg(long, value_name = "N", default_value = "9", value_parser = count())]
    pub runs: usize,
    /// Three runs, and no waiting for stores to settle.
    #[arg(long = "quick", conflicts_with_all = ["runs", "settle_s"])]
    is_quick: bool,
    /// How long stores are waited for at most.
    #[arg(long = "settle", value_name = "SECONDS", default_value_t = 300)]
    pub settle_s: u64,
    /// Where stores are made.
    #[arg(long, value_name = "PATH", default_value_os_t = std::env::temp_dir())]
    pub directory: PathBuf,
    /// As .md (tables), .json (every figure) and .svg (the chart), one of each for a dataset.
    #[command(flatten)]
    pub report: ReportOptions,
    /// Only draw the chart of such a record again, beside it.
    #[arg(long, value_name = "JSON")]
    pub chart: Option<PathBuf>,
}

/// Datasets in the order of the list of all.
#[derive(Debug, Clone, PartialEq)]
pub struct Datasets(pub Vec<Dataset>);

/// A server that is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Name in tables.
    pub name: String,
    /// Where it is, or how it is started.
    pub place: Place,
}

/// Where a server is, or how it is started.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// It runs.
    Address {
        /// Host and port.
        address: String,
        /// Its process, where it is on this machine.
        pid: Option<u32>,
        /// Its store, where it is on this machine.
        directory: Option<PathBuf>,
    },
    /// It is started on an empty store.
    Start(Program, Option<PathBuf>),
}

impl Target {
    /// Starts the server, on a store below a directory, or connects to it.
    ///
    /// Errors: it does not become ready.
    pub fn open(&self, directory: &Path) -> io::Result<Server> {
        match &self.place {
            Place::Address { address, pid, directory } => {
                Server::connect(&self.name, address, *pid, directory.clone())
            }
            Place::Start(program, binary) => {
                let binary = binary.clone().map_or_else(build_server, Ok)?;
                Server::start(&self.name, *program, &binary, directory)
            }
        }
    }
}

const PROGRAMS: [(&str, Program); 3] = [
    ("tessella", Program::Tessella),
    ("prometheus", Program::Prometheus),
    ("victoria-metrics", Program::VictoriaMetrics),
];

/// Parses the command line, of which the first word is the program's.
///
/// Errors: what is wrong with it, for the user; or what was asked to be shown.
pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Options, clap::Error> {
    let matches = Options::command().try_get_matches_from(words)?;
    let mut options = Options::from_arg_matches(&matches)?;
    options.servers = servers(&matches);
    if options.is_quick {
        (options.runs, options.settle_s) = (3, 0);
    }
    let wrong = |message| Options::command().error(ErrorKind::ValueValidation, message);
    check(&options).map_err(wrong)?;
    Ok(options)
}

/// The servers in the order of the command line, whichever option names them.
fn servers(matches: &ArgMatches) -> Vec<Target> {
    let mut servers = Vec::new();
    for option in ["peer", "start"] {
        let indices = matches.indices_of(option).into_iter().flatten();
        servers.extend(indices.zip(matches.get_many::<Target>(option).into_iter().flatten()));
    }
    servers.sort_unstable_by_key(|(index, _)| *index);
    servers.into_iter().map(|(_, server)| server.clone()).collect()
}

fn check(options: &Options) -> Result<(), String> {
    if options.servers.is_empty() && options.chart.is_none() {
        return Err("no servers: name them by --peer and --start".to_owned());
    }
    for (index, server) in options.servers.iter().enumerate() {
        if options.servers[..index].iter().any(|earlier| earlier.name == server.name) {
            return Err(format!("two servers are called {}", server.name));
        }
    }
    if options.datasets.0.len() > 1 && !options.peer.is_empty() {
        return Err("a server that runs takes one dataset: it has to be empty".to_owned());
    }
    Ok(())
}

fn peer(text: &str) -> Result<Target, String> {
    let wrong = || format!("{text} is not NAME=ADDRESS[,pid=N][,dir=PATH]");
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let mut parts = rest.split(',');
    let address = parts.next().filter(|address| address.contains(':')).ok_or_else(wrong)?;
    let (mut pid, mut directory) = (None, None);
    for part in parts {
        match part.split_once('=') {
            Some(("pid", value)) => pid = Some(value.parse().map_err(|_| wrong())?),
            Some(("dir", value)) => directory = Some(value.into()),
            _ => return Err(wrong()),
        }
    }
    let place = Place::Address { address: address.to_owned(), pid, directory };
    Ok(Target { name: name.to_owned(), place })
}

fn start(text: &str) -> Result<Target, String> {
    let (what, binary) = match text.split_once('=') {
        Some((what, binary)) => (what, Some(PathBuf::from(binary))),
        None => (text, None),
    };
    let (name, program) = what.split_once(':').unwrap_or((what, what));
    let (_, program) = PROGRAMS
        .into_iter()
        .find(|(known, _)| *known == program)
        .ok_or(format!("{program} is none of tessella, prometheus, victoria-metrics"))?;
    if binary.is_none() && program != Program::Tessella {
        return Err(format!("{text} wants =BINARY"));
    }
    Ok(Target { name: name.to_owned(), place: Place::Start(program, binary) })
}

fn datasets(name: &str) -> Result<Datasets, String> {
    let found: Vec<Dataset> =
        DATASETS.into_iter().filter(|dataset| name == "all" || dataset.name == name).collect();
    match found.is_empty() {
        true => Err(format!("there is no dataset {name}")),
        false => Ok(Datasets(found)),
    }
}

/// Seconds of a duration in the form of Prometheus.
fn duration_s(text: &str) -> Result<i64, String> {
    Ok((model::duration::parse_duration_ns(text)? / 1_000_000_000) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, clap::Error> {
        parse(std::iter::once("side_by_side").chain(line.split_whitespace()).map(OsString::from))
    }

    #[test]
    fn servers_are_named_by_address_or_program() {
        let options = read(
            "--start tessella --peer other=10.0.0.1:80,pid=7,dir=/data \
             --start old:prometheus=/usr/bin/prometheus --age 24h --quick",
        )
        .unwrap();
        let address = Place::Address {
            address: "10.0.0.1:80".to_owned(),
            pid: Some(7),
            directory: Some("/data".into()),
        };
        let prometheus = Place::Start(Program::Prometheus, Some("/usr/bin/prometheus".into()));
        let expected = [
            ("tessella", Place::Start(Program::Tessella, None)),
            ("other", address),
            ("old", prometheus),
        ];
        let expected =
            expected.map(|(name, place)| Target { name: name.to_owned(), place }).to_vec();
        assert_eq!(options.servers, expected);
        assert_eq!((options.age_s, options.runs, options.settle_s), (86_400, 3, 0));
    }

    #[test]
    fn mistakes_are_told() {
        for (line, message) in [
            ("", "no servers: name them by --peer and --start"),
            ("--peer a=b", "a=b is not NAME=ADDRESS[,pid=N][,dir=PATH]"),
            ("--start prometheus", "prometheus wants =BINARY"),
            ("--start influx=/x", "influx is none of tessella, prometheus, victoria-metrics"),
            ("--start tessella --start tessella", "two servers are called tessella"),
            ("--start tessella --dataset huge", "there is no dataset huge"),
            ("--start tessella --runs 0", "0 is not in 1.."),
            ("--start tessella --age 3q", "unknown unit \"q\" in duration \"3q\""),
            ("--start tessella --age", "a value is required for '--age <DURATION>'"),
            ("--start tessella --frob", "unexpected argument '--frob'"),
            (
                "--peer a=b:1 --dataset all",
                "a server that runs takes one dataset: it has to be empty",
            ),
        ] {
            let told = read(line).unwrap_err().to_string();
            assert!(told.contains(message), "{line}: {told}");
        }
    }
}
