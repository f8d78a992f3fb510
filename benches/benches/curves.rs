//! Cost of a query against the size of one dimension. See `benches/README.md`.

use std::fs;
use std::io::{self, Error};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use benches::curves::chart;
use benches::curves::data::{YEAR, hours};
use benches::curves::dimension::{CLIENTS, Dimension, dimensions, query_of_clients};
use benches::curves::report::{Curve, CurvePoint, PointCost, Report};
use benches::http::Client;
use benches::machine;
use benches::measure::median;
use benches::options::{ReportOptions, count};
use benches::report::{exit, record_path};
use benches::scenario::ask::{Query, Taken, ask};
use benches::scenario::load::Protocol;
use benches::scenario::server::Server;
use benches::scenario::target::{self, Target};
use benches::side_by_side::queries::known_difference;
use clap::Parser;

/// Maximum difference of two values, relative to the larger one.
const TOLERANCE: f64 = 1e-6;
/// Age of the newest sample.
const AGE_S: i64 = 180;
/// Number of queries of all concurrent clients together, at least.
const CLIENT_QUERIES: usize = 256;

/// Measures how the cost of queries grows with series, range, steps, groups and clients.
#[derive(Parser)]
#[command(name = "curves", next_line_help = true)]
struct Options {
    /// Server to start on an empty store: [NAME:]tessella[=BINARY], [NAME:]prometheus=BINARY or
    /// [NAME:]victoria-metrics=BINARY. The first server is the reference.
    #[arg(long = "start", value_name = "SERVER", value_parser = target::parse, required = true)]
    servers: Vec<Target>,
    /// Maximum number of series of a metric.
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = count())]
    series_max: usize,
    /// Runs of each query.
    #[arg(long, value_name = "N", default_value = "5", value_parser = count())]
    runs: usize,
    /// Maximum time to wait for stores to settle; 0 does not wait.
    #[arg(long = "settle", value_name = "SECONDS", default_value_t = 300)]
    settle_s: u64,
    /// Directory for stores.
    #[arg(long, value_name = "PATH", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// Report, recorded as .md (tables), .json (every figure) and .svg (chart).
    #[command(flatten)]
    report: ReportOptions,
}

fn main() -> ExitCode {
    let options = Options::parse();
    exit("curves", || run(&options))
}

fn run(options: &Options) -> io::Result<()> {
    target::check_names(&options.servers).map_err(Error::other)?;
    let end_s = (machine::now_ms() / 1_000 - AGE_S) / 60 * 60;
    let open = options.servers.iter().map(|target| target.open(&options.directory, Protocol::V1));
    let servers = open.collect::<io::Result<Vec<Server>>>()?;
    for server in &servers {
        // The oldest samples first, which no server refuses as late.
        for metric in std::iter::once(YEAR).chain(hours(options.series_max)) {
            metric.load(server, end_s)?;
        }
        server.flush()?;
        server.settle(Duration::from_secs(options.settle_s))?;
    }
    let mut curves = Vec::new();
    for dimension in dimensions(end_s, options.series_max) {
        curves.push(curve(&servers, dimension, options.runs)?);
    }
    curves.push(curve_of_clients(&servers, &query_of_clients(end_s))?);
    let report = Report {
        date: machine::today(),
        machine: machine::description(),
        servers: servers.iter().map(|server| server.name.clone()).collect(),
        curves,
    };
    print!("{}", report.markdown());
    if options.report.is_record {
        let path = record_path(&report.date, "curves", "md");
        fs::write(&path, report.markdown())?;
        fs::write(path.with_extension("json"), serde_json::to_vec_pretty(&report)?)?;
        fs::write(path.with_extension("svg"), chart::draw(&report))?;
        println!("written to {}, .json and .svg", path.display());
    }
    Ok(())
}

/// Measures all sizes of a dimension, and compares the results of the servers.
fn curve(servers: &[Server], dimension: Dimension, runs: usize) -> io::Result<Curve> {
    let mut points = Vec::new();
    for point in dimension.points {
        let asked = ask(servers, &point.query, runs, TOLERANCE)?;
        for (server, taken) in servers.iter().zip(&asked.servers) {
            let is_known = known_difference(server.program, point.query.name).is_some();
            if taken.error.is_none() && !taken.compared.is_equal() && !is_known {
                let (name, text) = (&server.name, &point.query.text);
                return Err(Error::other(format!("{name} has another result: {text}")));
            }
            if let Some(error) = &taken.error {
                eprintln!("{}: {error}", server.name);
            }
        }
        let cost = |taken: &Taken| PointCost { median_ms: taken.median_ms(), cpu_ms: taken.cpu_ms };
        let servers = asked.servers.iter().map(cost).collect();
        points.push(CurvePoint { size: point.size, label: point.label, servers });
    }
    Ok(Curve { name: dimension.name.to_owned(), what: dimension.what.to_owned(), points })
}

/// Measures a query by the number of clients that send it at the same time, each again and again.
fn curve_of_clients(servers: &[Server], query: &Query) -> io::Result<Curve> {
    let mut points = Vec::new();
    for clients in CLIENTS {
        let costs = servers.iter().map(|server| cost_with_clients(server, query, clients));
        let servers = costs.collect::<io::Result<Vec<PointCost>>>()?;
        points.push(CurvePoint { size: clients, label: clients.to_string(), servers });
    }
    let what = "Sum of rate of 1,000 series into 10 groups, 50 steps; all clients send it again \
                and again, and ms are those of a query";
    Ok(Curve { name: "clients".to_owned(), what: what.to_owned(), points })
}

fn cost_with_clients(server: &Server, query: &Query, clients: usize) -> io::Result<PointCost> {
    eprintln!("{}: {clients} clients", server.name);
    let each = CLIENT_QUERIES.div_ceil(clients);
    let send = |mut client: Client| -> io::Result<Vec<f64>> {
        let timed = |_| {
            let begin = Instant::now();
            match client.get(&query.path)?.0 {
                200 => Ok(begin.elapsed().as_secs_f64() * 1e3),
                status => Err(Error::other(format!("{}: status {status}", server.name))),
            }
        };
        (0..each).map(timed).collect()
    };
    let send_all = || {
        std::thread::scope(|scope| {
            let senders: Vec<_> =
                (0..clients).map(|_| scope.spawn(|| send(server.client()))).collect();
            let mut all = Vec::new();
            for sender in senders {
                let times = sender.join().map_err(|_| Error::other("a client panicked"))??;
                all.extend(times);
            }
            Ok(all)
        })
    };
    let (times, cost) = server.measure(send_all)?;
    let cpu_ms = cost.cpu.as_secs_f64() * 1e3 / times.len() as f64;
    Ok(PointCost { median_ms: median(&times), cpu_ms })
}
