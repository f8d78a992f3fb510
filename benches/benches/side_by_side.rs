//! Comparison of servers on the same data. See `benches/README.md`.

use std::fs;
use std::io::{self, Error};
use std::process::ExitCode;
use std::time::Duration;

use benches::machine;
use benches::report::{exit, record_path};
use benches::scenario::ask::{Asked, Query, Taken, ask};
use benches::scenario::server::Server;
use benches::side_by_side::chart;
use benches::side_by_side::dataset::Dataset;
use benches::side_by_side::load;
use benches::side_by_side::options::{self, Options};
use benches::side_by_side::queries::{known_difference, queries};
use benches::side_by_side::report::{Report, ServerFigures};

/// Maximum difference of two values, relative to the larger one.
const TOLERANCE: f64 = 1e-6;

fn main() -> ExitCode {
    let options = options::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    exit("side by side", || run(&options))
}

fn run(options: &Options) -> io::Result<()> {
    let mut is_right = true;
    for dataset in &options.datasets.0 {
        let report = compare(options, dataset)?;
        println!("{}", report.markdown());
        is_right &= report.queries.iter().flat_map(|asked| &asked.servers).all(Taken::is_right);
        if options.report.is_record {
            record(&report)?;
        }
    }
    let wrong = || Error::other("results have unknown differences");
    is_right.then_some(()).ok_or_else(wrong)
}

/// Records a report: tables, figures, chart.
fn record(report: &Report) -> io::Result<()> {
    let name = format!("side-by-side-{}", report.dataset);
    let path = record_path(&report.date, &name, "md");
    fs::write(&path, report.markdown())?;
    fs::write(path.with_extension("json"), serde_json::to_vec_pretty(report)?)?;
    fs::write(path.with_extension("svg"), chart::draw(report))?;
    println!("written to {}, .json and .svg", path.display());
    Ok(())
}

fn compare(options: &Options, dataset: &Dataset) -> io::Result<Report> {
    let alignment_s = dataset.alignment_s();
    let end_s = (machine::now_ms() / 1_000 - options.age_s) / alignment_s * alignment_s;
    let open =
        options.servers.iter().map(|target| target.open(&options.directory, dataset.protocol));
    let servers = open.collect::<io::Result<Vec<Server>>>()?;
    let settle = Duration::from_secs(options.settle_s);
    let mut loaded = Vec::new();
    for server in &servers {
        loaded.push(load::load(server, dataset, end_s, settle)?);
    }
    let mut asked = Vec::new();
    for query in queries(dataset, end_s).iter().filter(|query| is_wanted(options, query)) {
        asked.push(ask_all(&servers, query, options.runs)?);
    }
    let mut figures = Vec::new();
    for (server, loaded) in servers.iter().zip(loaded) {
        // Before the snapshot, which changes memory.
        let resident = server.resident();
        let disk_bytes = server.disk_bytes()?;
        figures.push(ServerFigures { name: server.name.clone(), loaded, resident, disk_bytes });
    }
    Ok(Report {
        date: machine::today(),
        machine: machine::description(),
        dataset: dataset.name.to_owned(),
        series: dataset.series_count(),
        scrapes: dataset.scrapes,
        end_s,
        servers: figures,
        queries: asked,
    })
}

fn is_wanted(options: &Options, query: &Query) -> bool {
    let is_in = |filter: &String| query.name.contains(filter) || query.text.contains(filter);
    options.filters.is_empty() || options.filters.iter().any(is_in)
}

/// Queries all servers, and adds known reasons of differences.
fn ask_all(servers: &[Server], query: &Query, runs: usize) -> io::Result<Asked> {
    let mut asked = ask(servers, query, runs, TOLERANCE)?;
    for (server, taken) in servers.iter().zip(&mut asked.servers) {
        if taken.error.is_none() && !taken.compared.is_equal() {
            taken.difference = known_difference(server.program, query.name).map(str::to_owned);
        }
    }
    Ok(asked)
}
