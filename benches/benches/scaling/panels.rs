//! Dashboard queries through the root: cost at each node and at the root.

use std::collections::BTreeMap;
use std::io::{self, Error};
use std::time::{Duration, Instant};

use benches::measure::{median, table};
use benches::scenario::answer::{Answer, Shape};
use benches::scenario::ask::{Query, Steps};

use crate::root::{Node, Root};

/// Maximum difference of two values, relative to the larger one.
const TOLERANCE: f64 = 1e-6;

/// Names and PromQL.
pub const QUERIES: [(&str, &str); 12] = [
    ("sum of rates", "sum by (job) (rate(http_requests_total[5m]))"),
    (
        "share of errors",
        "sum(rate(http_requests_total{code=\"500\"}[5m])) / sum(rate(http_requests_total[5m]))",
    ),
    ("topk of sums", "topk(5, sum by (instance) (rate(http_requests_total[5m])))"),
    ("topk of series", "topk(10, memory_bytes)"),
    (
        "quantile of a histogram",
        "histogram_quantile(0.99, sum by (le, job) (rate(request_seconds_bucket[5m])))",
    ),
    ("average", "avg by (job) (memory_bytes)"),
    ("operator without on", "sum by (job) (memory_bytes / memory_limit_bytes)"),
    (
        "join with shard",
        "sum by (version) (memory_bytes * on (shard, job, instance) group_left (version) target_info)",
    ),
    (
        "join without shard",
        "sum by (version) (memory_bytes * on (job, instance) group_left (version) target_info)",
    ),
    ("count", "count by (job) (up == 1)"),
    ("raw, a series for each target", "memory_bytes"),
    ("raw, 30 series for each target", "http_requests_total"),
];

/// Cost of a query over some number of nodes.
pub struct Panel {
    pub name: &'static str,
    text: String,
    median_ms: f64,
    /// CPU of each node, mean of the runs.
    nodes_ms: Vec<f64>,
    root_ms: f64,
    bytes: f64,
    points: usize,
    answer: Answer,
}

/// Asks a query of the root: once to warm up, then `runs` times.
pub fn ask(
    root: &Root,
    nodes: &[Node],
    (name, text): (&'static str, &str),
    steps: Steps,
    runs: usize,
) -> io::Result<Panel> {
    eprintln!("ask {name} of {} nodes", nodes.len());
    let mut query = Query::range(name, text.to_owned(), steps);
    if text.starts_with("topk") {
        query.shape = Shape::Ranked;
    }
    let mut client = root.client();
    let body = client.text(&query.path)?;
    let answer = without_shard(Answer::read(query.shape, body.as_bytes())?);
    let cpu = || nodes.iter().map(|node| node.server.cpu_time()).collect::<io::Result<Vec<_>>>();
    let bytes = || nodes.iter().map(|node| node.relay.bytes()).sum::<u64>();
    let (nodes_before, root_before, bytes_before) = (cpu()?, root.cpu_time()?, bytes());
    let mut wall_ms = Vec::new();
    for _ in 0..runs {
        let begin = Instant::now();
        let (status, _) = client.get(&query.path)?;
        wall_ms.push(begin.elapsed().as_secs_f64() * 1e3);
        if status != 200 {
            return Err(Error::other(format!("{name}: status {status}")));
        }
    }
    let each = |time: Duration| time.as_secs_f64() * 1e3 / runs as f64;
    let nodes_ms = cpu()?.into_iter().zip(nodes_before).map(|(now, before)| each(now - before));
    Ok(Panel {
        name,
        text: text.to_owned(),
        median_ms: median(&wall_ms),
        nodes_ms: nodes_ms.collect(),
        root_ms: each(root.cpu_time()? - root_before),
        bytes: (bytes() - bytes_before) as f64 / runs as f64,
        points: points(&answer),
        answer,
    })
}

/// Removes the external label, which differs between numbers of shards.
fn without_shard(answer: Answer) -> Answer {
    match answer {
        Answer::Values(series) => Answer::Values(
            series
                .into_iter()
                .map(|(mut labels, points)| {
                    labels.remove("shard");
                    (labels, points)
                })
                .collect(),
        ),
        other => other,
    }
}

fn points(answer: &Answer) -> usize {
    match answer {
        Answer::Values(series) => series.values().map(BTreeMap::len).sum(),
        Answer::Ranked(points) => points.len(),
        Answer::List(list) => list.len(),
    }
}

/// Returns the table of one query over each number of nodes.
///
/// Errors: the results differ.
pub fn rows(of_query: &[&Panel]) -> io::Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    for panel in of_query {
        let compared = of_query[0].answer.compare(&panel.answer, TOLERANCE);
        if !compared.is_equal() {
            return Err(Error::other(format!("{}: results differ: {compared:?}", panel.text)));
        }
        let (count, sum) = (panel.nodes_ms.len(), panel.nodes_ms.iter().sum::<f64>());
        let largest = panel.nodes_ms.iter().copied().fold(0.0, f64::max);
        rows.push(vec![
            panel.name.to_owned(),
            count.to_string(),
            format!("{:.1}", sum / count as f64),
            format!("{largest:.1}"),
            format!("{sum:.1}"),
            format!("{:.1}", panel.root_ms),
            format!("{:.1}", panel.bytes / 1024.0),
            panel.points.to_string(),
            format!("{:.1}", panel.median_ms),
        ]);
    }
    Ok(rows)
}

/// Returns the table.
pub fn to_table(rows: &[Vec<String>]) -> String {
    let head = [
        "query",
        "nodes",
        "CPU ms a node",
        "largest",
        "all nodes",
        "root",
        "KiB to the root",
        "points of the result",
        "median, ms",
    ];
    table(&head, rows)
}

/// Returns the queries with their names.
pub fn texts() -> String {
    QUERIES.iter().map(|(name, text)| format!("- {name}: `{text}`\n")).collect()
}
