//! Scaling over shards: nodes under a running Thanos Query. See `benches/README.md`.

mod calls;
mod data;
mod panels;
mod relay;
mod root;

use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use benches::machine::now_ms;
use benches::measure::{bytes, list};
use benches::options::{ServerOptions, count};
use benches::report::{self, Report};
use benches::scenario::ask::Steps;
use benches::scenario::process::Resident;
use benches::scenario::server::Server;
use clap::Parser;

use calls::{AtOnce, Range};
use panels::{Panel, QUERIES};
use root::{Node, Root};

/// Time from the first scrape to the last one.
const SPAN_MS: i64 = (data::SCRAPES as i64 - 1) * data::STEP_MS;
/// Step of range queries.
const STEP_S: i64 = 60;

/// Starts the release binary as one, two and four shards under the Thanos Query that THANOS_BINARY
/// names.
#[derive(Parser)]
#[command(name = "scaling")]
struct Options {
    /// Number of targets, of 100 series each.
    #[arg(long, value_name = "N", default_value = "400", value_parser = count())]
    targets: usize,
    /// Numbers of nodes.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4", value_parser = count())]
    nodes: Vec<usize>,
    /// Runs of each query.
    #[arg(long, value_name = "N", default_value = "15", value_parser = count())]
    runs: usize,
    /// Numbers of wide responses at once.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,4,16,64", value_parser = count())]
    responses: Vec<usize>,
    /// Maximum memory of all queries of the node with responses at once.
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    memory_total: String,
    /// Sections to run, instead of all.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ["panels", "samples", "responses"])]
    sections: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Options {
    fn has(&self, section: &str) -> bool {
        self.sections.is_empty() || self.sections.iter().any(|name| name == section)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let is_record = options.server.report.is_record;
    report::run("Scaling", "scaling", is_record, |report| run(&options, report))
}

fn run(options: &Options, report: &mut Report) -> io::Result<()> {
    let binary = options.server.binary()?;
    let start_ms = now_ms() / data::STEP_MS * data::STEP_MS - SPAN_MS;
    match std::env::var_os("THANOS_BINARY").map(PathBuf::from) {
        Some(thanos) if options.has("panels") => {
            report.push(&panel_section(options, &binary, &thanos, start_ms)?);
        }
        Some(_) => {}
        None => println!("SKIPPED: THANOS_BINARY is not set"),
    }
    if options.has("samples") || options.has("responses") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(node_sections(options, &binary, start_ms, report))?;
    }
    Ok(())
}

/// Returns the time of the last scrape, in seconds.
fn end_s(start_ms: i64) -> i64 {
    (start_ms + SPAN_MS) / 1_000
}

/// Starts nodes with all targets, which are sharded by their number.
fn loaded(
    options: &Options,
    binary: &Path,
    count: usize,
    start_ms: i64,
    args: &[String],
) -> io::Result<Vec<Node>> {
    let directory = &options.server.directory;
    let start = |shard| Node::start(shard, count, binary, directory, args);
    let nodes = (0..count).map(start).collect::<io::Result<Vec<Node>>>()?;
    for (shard, node) in nodes.iter().enumerate() {
        let targets = (0..options.targets).filter(|target| target % count == shard);
        data::write(&node.server, targets, start_ms)?;
    }
    Ok(nodes)
}

fn panel_section(
    options: &Options,
    binary: &Path,
    thanos: &Path,
    start_ms: i64,
) -> io::Result<String> {
    let end_s = end_s(start_ms);
    let steps = Steps { start_s: start_ms / 1_000 + 300, end_s, step_s: STEP_S };
    let (mut panels, mut figures): (Vec<Vec<Panel>>, Vec<(String, String)>) = Default::default();
    for count in &options.nodes {
        let nodes = loaded(options, binary, *count, start_ms, &[])?;
        let resident: Vec<String> =
            nodes.iter().map(|node| bytes(node.server.resident().now as usize)).collect();
        let root = Root::start(thanos, &nodes, &options.server.directory)?;
        let ask =
            |query: &(&'static str, &str)| panels::ask(&root, &nodes, *query, steps, options.runs);
        panels.push(QUERIES.iter().map(ask).collect::<io::Result<_>>()?);
        let peak = bytes(root.resident().peak as usize);
        figures.push((
            format!("{count} nodes"),
            format!("resident after the load {}; root, peak {peak}", resident.join(", ")),
        ));
    }
    let mut rows = Vec::new();
    for query in 0..QUERIES.len() {
        let of_query: Vec<&Panel> = panels.iter().map(|of_count| &of_count[query]).collect();
        rows.extend(panels::rows(&of_query)?);
    }
    let figures: Vec<(&str, String)> =
        figures.iter().map(|(name, text)| (&name[..], text.clone())).collect();
    Ok(format!(
        "## {} series by an hour, {} steps, {} runs\n\n{}\n{}\n{}",
        options.targets * data::TARGET_SERIES,
        (steps.end_s - steps.start_s) / STEP_S + 1,
        options.runs,
        panels::to_table(&rows),
        panels::texts(),
        list(&figures),
    ))
}

async fn node_sections(
    options: &Options,
    binary: &Path,
    start_ms: i64,
    report: &mut Report,
) -> io::Result<()> {
    let node = |args: &[String]| {
        let node = loaded(options, binary, 1, start_ms, args)?.pop();
        node.ok_or_else(|| Error::other("no node was started"))
    };
    let end_s = end_s(start_ms);
    let range = Range { start_s: start_ms / 1_000 + 300, end_s, step_s: STEP_S };
    let series = options.targets * data::TARGET_SERIES;
    if options.has("samples") {
        let node = node(&[])?;
        let table = calls::answers_against_samples(&node, range, options.runs).await?;
        let reader = node.start_reader(binary, &options.server.directory)?;
        let [writer, reader] = [&node.server, &reader].map(Server::resident);
        let resident =
            |of: Resident| format!("{}, peak {}", bytes(of.now as usize), bytes(of.peak as usize));
        let figures = [
            ("resident, writer", resident(writer)),
            ("resident, reader of its store", resident(reader)),
            (
                "sealed bytes; 0 if all samples are in the head",
                node.server.metric("tessella_storage_sealed_bytes_total")?.to_string(),
            ),
        ];
        report.push(&format!(
            "## Answers and raw samples of one node, {series} series\n\n{table}\n{}",
            list(&figures)
        ));
    }
    if options.has("responses") {
        let text = "http_requests_total";
        // A step for each scrape.
        let range = Range { step_s: data::STEP_MS / 1_000, ..range };
        let limit = format!("--query.max-memory-total={}", options.memory_total);
        let mut rows = Vec::new();
        for is_reading in [true, false] {
            let node = node(std::slice::from_ref(&limit))?;
            for count in &options.responses {
                let at_once = AtOnce { count: *count, is_reading };
                rows.push(calls::memory_of_responses(&node, text, range, at_once).await?);
            }
        }
        report.push(&format!(
            "## Responses of `{text}` at once, {series} series, {limit}\n\n{}",
            calls::responses_table(&rows)
        ));
    }
    Ok(())
}
