//! The command line.

use std::path::PathBuf;

use super::dataset::{DATASETS, Dataset};

/// What the harness prints when it is asked wrongly.
pub const USAGE: &str = "\
usage: cargo bench -p benches --bench side_by_side -- [options]

Servers, the first of which the others are compared with:
  --peer NAME=ADDRESS[,pid=N][,dir=PATH]
                    a server that runs; with its process id, CPU time and memory are measured,
                    with the directory of its store, bytes on disk
  --start [NAME:]tessella[=BINARY]
                    starts a server on an empty store; without a path the release binary is built
  --start [NAME:]prometheus=BINARY, --start [NAME:]victoria-metrics=BINARY
                    the same for these

Data and questions:
  --dataset NAME    small (the default), wide, churn, long, or all of them, one after the other
  --age DURATION    how old the newest sample is: 3m (the default), 24h, …
  --end SECONDS     the end of the data as a Unix time, instead of --age; servers that hold these
                    data already are not loaded again
  --queries FILTER  only queries in whose name or text this is found; may be given again
  --runs N          how often each query is asked (9)
  --quick           three runs, and no waiting for stores to settle
  --settle SECONDS  how long stores are waited for at most (300)
  --directory PATH  where stores are made (the system's directory for temporary files)
  --record          writes the output into benches/record/<date>-side-by-side-<dataset>, as .md
                    (tables), .json (every figure) and .svg (the chart)
  --chart JSON      only draws the chart of such a record again, beside it";

/// What is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// In the order of the command line.
    pub servers: Vec<Server>,
    /// In the order of the list of all.
    pub datasets: Vec<Dataset>,
    /// Age of the newest sample.
    pub age_s: i64,
    /// End of the data, if it is to be a certain time.
    pub end_s: Option<i64>,
    /// Empty: all.
    pub filters: Vec<String>,
    /// How often each query is asked.
    pub runs: usize,
    /// How long stores are waited for.
    pub settle_s: u64,
    /// Where stores are made.
    pub directory: PathBuf,
    /// Whether the output is kept.
    pub is_record: bool,
    /// A record to be drawn, and nothing else.
    pub chart: Option<PathBuf>,
}

/// A server, and how to get at it.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// What tables call it.
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

/// What can be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// This project's server.
    Tessella,
    /// Prometheus, taking remote write.
    Prometheus,
    /// VictoriaMetrics, single node.
    VictoriaMetrics,
}

const PROGRAMS: [(&str, Program); 3] = [
    ("tessella", Program::Tessella),
    ("prometheus", Program::Prometheus),
    ("victoria-metrics", Program::VictoriaMetrics),
];

/// Reads the command line.
///
/// Errors: what is wrong with it, for the user.
pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        servers: Vec::new(),
        datasets: vec![DATASETS[0]],
        age_s: 180,
        end_s: None,
        filters: Vec::new(),
        runs: 9,
        settle_s: 300,
        directory: std::env::temp_dir(),
        is_record: false,
        chart: None,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} wants a value"));
        match argument.as_str() {
            // What cargo adds.
            "--bench" => {}
            "--peer" => options.servers.push(peer(&value()?)?),
            "--start" => options.servers.push(start(&value()?)?),
            "--dataset" => options.datasets = datasets(&value()?)?,
            "--age" => options.age_s = duration_s(&value()?)?,
            "--end" => options.end_s = Some(number(&value()?)? as i64),
            "--queries" => options.filters.push(value()?),
            "--runs" => options.runs = number(&value()?)? as usize,
            "--settle" => options.settle_s = number(&value()?)?,
            "--directory" => options.directory = value()?.into(),
            "--quick" => (options.runs, options.settle_s) = (3, 0),
            "--chart" => options.chart = Some(value()?.into()),
            "--record" => options.is_record = true,
            other => return Err(format!("unknown option {other}")),
        }
    }
    check(&options)?;
    Ok(options)
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
    let is_running = |server: &Server| matches!(server.place, Place::Address { .. });
    if options.datasets.len() > 1 && options.servers.iter().any(is_running) {
        return Err("a server that runs takes one dataset: it has to be empty".to_owned());
    }
    Ok(())
}

fn peer(text: &str) -> Result<Server, String> {
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
    Ok(Server { name: name.to_owned(), place })
}

fn start(text: &str) -> Result<Server, String> {
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
    Ok(Server { name: name.to_owned(), place: Place::Start(program, binary) })
}

fn datasets(name: &str) -> Result<Vec<Dataset>, String> {
    let found: Vec<Dataset> =
        DATASETS.into_iter().filter(|dataset| name == "all" || dataset.name == name).collect();
    if found.is_empty() { Err(format!("there is no dataset {name}")) } else { Ok(found) }
}

/// Seconds of `90s`, `3m`, `24h` or `2d`.
fn duration_s(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text} is not a duration like 90s, 3m, 24h or 2d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let count: i64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    count.checked_mul(seconds).filter(|seconds| *seconds >= 0).ok_or_else(wrong)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or(format!("{text} is not a number above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        parse(line.split_whitespace().map(str::to_owned))
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
            expected.map(|(name, place)| Server { name: name.to_owned(), place }).to_vec();
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
            ("--start tessella --runs 0", "0 is not a number above 0"),
            ("--start tessella --age 3y", "3y is not a duration like 90s, 3m, 24h or 2d"),
            ("--start tessella --age", "--age wants a value"),
            ("--start tessella --frob", "unknown option --frob"),
            (
                "--peer a=b:1 --dataset all",
                "a server that runs takes one dataset: it has to be empty",
            ),
        ] {
            assert_eq!(read(line).unwrap_err(), message, "{line}");
        }
    }
}
