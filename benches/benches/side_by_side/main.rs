//! Servers side by side on the same data. See `benches/README.md`.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use benches::machine;
use benches::side_by_side::ask::{Taken, ask};
use benches::side_by_side::chart;
use benches::side_by_side::dataset::Dataset;
use benches::side_by_side::load;
use benches::side_by_side::options::{self, Options};
use benches::side_by_side::peer::Peer;
use benches::side_by_side::progress::Progress;
use benches::side_by_side::queries::queries;
use benches::side_by_side::report::{Report, Server};

fn main() -> ExitCode {
    let options = options::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let done = match &options.chart {
        Some(path) => redraw(path).map(|()| true),
        None => run(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("side by side: answers differ that are not known to");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("side by side: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says whether all answers were right.
fn run(options: &Options) -> io::Result<bool> {
    let mut is_right = true;
    for dataset in &options.datasets {
        let report = compare(options, dataset)?;
        let text = report.markdown();
        println!("{text}");
        is_right &= report.queries.iter().flat_map(|asked| &asked.servers).all(Taken::is_right);
        if options.is_record {
            record(&report)?;
        }
    }
    Ok(is_right)
}

/// Keeps a report: tables, figures, chart.
fn record(report: &Report) -> io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("record")
        .join(format!("{}-side-by-side-{}", report.date, report.dataset));
    fs::write(path.with_extension("md"), report.markdown())?;
    fs::write(path.with_extension("json"), serde_json::to_vec_pretty(report)?)?;
    fs::write(path.with_extension("svg"), chart::draw(report))?;
    println!("written to {}.{{md,json,svg}}", path.display());
    Ok(())
}

/// Draws the chart of a record again.
fn redraw(path: &Path) -> io::Result<()> {
    let report: Report = serde_json::from_slice(&fs::read(path)?)?;
    fs::write(path.with_extension("svg"), chart::draw(&report))
}

fn compare(options: &Options, dataset: &Dataset) -> io::Result<Report> {
    let end_s = options.end_s.unwrap_or_else(|| (now_s() - options.age_s) / 60 * 60);
    let peers = options
        .servers
        .iter()
        .map(|server| Peer::open(server, &options.directory))
        .collect::<io::Result<Vec<Peer>>>()?;
    let mut loaded = Vec::new();
    for peer in &peers {
        loaded.push(if load::is_loaded(peer, dataset, end_s)? {
            None
        } else {
            let settle = Duration::from_secs(options.settle_s);
            Some(load::load(peer, dataset, end_s, settle)?)
        });
    }
    let is_wanted = |name: &str, text: &str| {
        let filters = &options.filters;
        filters.is_empty() || filters.iter().any(|f| name.contains(f) || text.contains(f))
    };
    let mut queries = queries(dataset, end_s);
    queries.retain(|query| is_wanted(query.name, &query.text));
    let progress = Progress::new(&format!("ask, {}", dataset.name), queries.len() as u64);
    let mut asked = Vec::new();
    for query in &queries {
        asked.push(ask(&peers, query, options.runs)?);
        progress.add(1);
    }
    progress.finish();
    let mut servers = Vec::new();
    for (peer, loaded) in peers.iter().zip(loaded) {
        // The memory before what the disk is asked for.
        let resident = peer.resident();
        let disk_bytes = peer.disk_bytes()?;
        servers.push(Server { name: peer.name.clone(), loaded, resident, disk_bytes });
    }
    Ok(Report {
        date: machine::today(),
        machine: machine::description(),
        dataset: dataset.name.to_owned(),
        series: dataset.series_count(),
        scrapes: dataset.scrapes,
        end_s,
        servers,
        queries: asked,
    })
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
