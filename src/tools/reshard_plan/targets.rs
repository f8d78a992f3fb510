//! Targets of shards: distinct values of the labels by which senders shard.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::result::SampleValue;
use engine::{Engine, EngineOptions, QueryOptions, Value};
use model::labels::is_legacy_label_name;
use model::{BudgetLimits, Source};
use serde::Deserialize;
use storage::Store;

use super::ReshardPlanArgs;
use super::plan::Amount;
use crate::ingest::self_metrics;
use crate::tools::ToolError;
use crate::tools::client::{ClientArgs, RequestLimits};
use crate::units::{millis, quoted};

/// Maximum number of targets.
const TARGETS_MAX: usize = 1_000_000;
/// The response to a query; the timeout is above that of the server.
const LIMITS: RequestLimits =
    RequestLimits { timeout: Duration::from_secs(150), bytes_max: 512 << 20 };

/// Target, with its amount in each source that has it.
pub(super) type Targets = BTreeMap<Vec<String>, BTreeMap<usize, Amount>>;

/// Reads the targets of all sources: servers first, then stores.
///
/// Errors: a source cannot be read, or there are too many targets.
pub(super) async fn read(args: &ReshardPlanArgs) -> Result<Targets, ToolError> {
    let mut targets = Targets::new();
    for (number, server) in args.servers.iter().enumerate() {
        let client =
            ClientArgs { is_tls: args.client.is_tls || server.is_tls, ..args.client.clone() };
        let ask = |text: &str| ask_server(args, &client, &server.address, text);
        let [series, samples] = queries(args);
        add(&mut targets, args, number, ask(&series)?, |amount, count| amount.series += count)?;
        add(&mut targets, args, number, ask(&samples)?, |amount, count| amount.samples += count)?;
    }
    for (index, url) in args.storage_urls.iter().enumerate() {
        let number = args.servers.len() + index;
        let store = Arc::new(Store::open_once(url, args.reading.options()?).await?);
        let found = ask_store(args, &store).await;
        store.close().await?;
        let [series, samples] = found?;
        add(&mut targets, args, number, series, |amount, count| amount.series += count)?;
        add(&mut targets, args, number, samples, |amount, count| amount.samples += count)?;
    }
    Ok(targets)
}

/// Labels of a result, and its value.
type Found = Vec<(BTreeMap<String, String>, f64)>;

fn add(
    targets: &mut Targets,
    args: &ReshardPlanArgs,
    source: usize,
    found: Found,
    add: impl Fn(&mut Amount, u64),
) -> Result<(), ToolError> {
    for (mut labels, count) in found {
        let values = args.labels.iter().map(|name| labels.remove(name).unwrap_or_default());
        let of_target = targets.entry(values.collect()).or_default();
        add(of_target.entry(source).or_default(), count as u64);
    }
    if targets.len() > TARGETS_MAX {
        return Err(ToolError::Incomplete(format!(
            "{} targets exceed the maximum of {TARGETS_MAX}: name fewer labels by --label",
            targets.len()
        )));
    }
    Ok(())
}

/// Returns queries for the series and samples of each target, without servers' own metrics.
fn queries(args: &ReshardPlanArgs) -> [String; 2] {
    let name = |name: &String| {
        if is_legacy_label_name(name) { name.clone() } else { quoted(name) }
    };
    let labels = args.labels.iter().map(name).collect::<Vec<_>>().join(", ");
    let selector = format!("{{__name__!=\"\", job!=\"{}\"}}", self_metrics::JOB);
    let counts = format!("count_over_time({selector}[{}ms])", millis(args.range));
    ["count", "sum"].map(|function| format!("{function} by ({labels}) ({counts})"))
}

/// Response of the HTTP API.
#[derive(Deserialize)]
struct Response {
    data: Option<Data>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

fn ask_server(
    args: &ReshardPlanArgs,
    client: &ClientArgs,
    address: &str,
    text: &str,
) -> Result<Found, ToolError> {
    let seconds = args.time_ms() as f64 / 1e3;
    let prefix = &args.route_prefix;
    let path = format!("{prefix}/api/v1/query?query={}&time={seconds:.3}", percent_encoded(text));
    let answer = client.get(address, &path, &LIMITS)?;
    let invalid = |what: &str| ToolError::NotReady(format!("{address}: {what}"));
    let head = b"\r\n\r\n";
    let at = answer.windows(head.len()).position(|bytes| bytes == head);
    let body = at.map_or(&[][..], |at| &answer[at + head.len()..]);
    let response: Response = serde_json::from_slice(body).map_err(|_| {
        let line = String::from_utf8_lossy(&answer);
        invalid(&format!("not a response of the query API: {:?}", line.lines().next()))
    })?;
    let Some(data) = response.data else {
        return Err(invalid(response.error.as_deref().unwrap_or("a response without data")));
    };
    let number = |sample: Sample| {
        let value = sample.value.1.parse().map_err(|_| invalid("a value that is no number"))?;
        Ok((sample.metric, value))
    };
    data.result.into_iter().map(number).collect()
}

async fn ask_store(args: &ReshardPlanArgs, store: &Arc<Store>) -> Result<[Found; 2], ToolError> {
    let engine = Engine::new(EngineOptions::default());
    let limits =
        BudgetLimits { memory_bytes_max: args.memory_bytes_max, ..BudgetLimits::default() };
    let options = QueryOptions { limits, ..QueryOptions::default() };
    let mut both = Vec::new();
    for text in queries(args) {
        let source = Arc::clone(store) as Arc<dyn Source>;
        let output = engine.instant(source, &text, args.time_ms(), &options).await;
        let output = output.map_err(|error| ToolError::Incomplete(error.to_string()))?;
        let Value::Vector { samples, .. } = output.value else { unreachable!("a vector") };
        let found = samples.into_iter().filter_map(|(labels, value)| match value {
            SampleValue::Float(value) => {
                let pairs = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
                Some((pairs.collect(), value))
            }
            SampleValue::Histogram(_) => None,
        });
        both.push(found.collect());
    }
    let [series, samples] = <[Found; 2]>::try_from(both).expect("there are two queries");
    Ok([series, samples])
}

fn percent_encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
