//! `tessella reshard-plan`: the targets that move if the number of shards changes.
//!
//! It reads targets from servers or stores, and computes their shards as senders do. It changes
//! nothing.

mod hash;
mod layout;
mod plan;
mod report;
mod slots;
mod targets;

use std::time::Duration;

use clap::ValueEnum;

use super::client::ClientArgs;
use super::store_args::StoreReadArgs;
use super::{ToolError, print_report};
use crate::flags::{parse_address, parse_path, parse_positive_bytes, parse_positive_duration};
use crate::time::Time;
use layout::Change;
use plan::Plan;

/// Maximum number of shards.
const SHARDS_MAX: usize = slots::SLOTS;

/// Flags of `reshard-plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct ReshardPlanArgs {
    /// Present number of shards.
    #[arg(long = "from", value_name = "N", value_parser = parse_shards)]
    pub from: usize,

    /// Number of shards after the change.
    #[arg(long = "to", value_name = "N", value_parser = parse_shards)]
    pub to: usize,

    /// Rule by which senders choose a shard: relabelling with the number of shards as modulus,
    /// relabelling with 1024 slots, or vmagent's shardByURL.
    #[arg(long = "algorithm", value_name = "NAME", default_value = "slots")]
    pub algorithm: Algorithm,

    /// Labels by which senders shard, in the order of the sender.
    #[arg(long = "label", value_name = "NAME", value_delimiter = ',', default_value = "job,instance", value_parser = parse_label)]
    pub labels: Vec<String>,

    /// Text between the values of labels, for hashmod and slots.
    #[arg(long = "separator", value_name = "TEXT", default_value = ";")]
    pub separator: String,

    /// Slots of a shard at present, such as 0-255,512-767; once for each shard. Without it, shards
    /// have equal ranges in their order.
    #[arg(long = "slots", value_name = "RANGES")]
    pub slots: Vec<String>,

    /// URL of vmagent's -remoteWrite.url, once for each shard, in the same order.
    #[arg(long = "url", value_name = "URL")]
    pub urls: Vec<String>,

    /// Address and port, or URL, of a server with targets; once for each shard. https:// connects by
    /// TLS, as --tls does.
    #[arg(long = "server", value_name = "ADDRESS", value_parser = parse_server)]
    pub servers: Vec<ServerAddress>,

    /// Location of a store with targets; once for each shard.
    #[arg(long = "storage.url", value_name = "URL")]
    pub storage_urls: Vec<String>,

    /// End of the samples, in seconds since the epoch or as RFC 3339; without it, the present time.
    #[arg(long = "time", value_name = "TIME", value_parser = Time::parse)]
    pub(crate) time: Option<Time>,

    /// Range of the samples before the end, as a duration.
    #[arg(long = "range", value_name = "DURATION", default_value = "5m", value_parser = parse_positive_duration)]
    pub range: Duration,

    /// Maximum number of targets in the list of the largest ones.
    #[arg(long = "top", value_name = "N", default_value = "10")]
    pub top: usize,

    /// Format of the output: text, or JSON with all targets for programs.
    #[arg(long = "format", value_name = "FORMAT", default_value = "table")]
    pub format: PlanFormat,

    /// Maximum memory of a query of a store, as a size.
    #[arg(long = "max-memory", value_name = "SIZE", default_value = "1GiB", value_parser = parse_positive_bytes)]
    pub memory_bytes_max: u64,

    /// Path of the servers' --web.route-prefix, or the path of their --web.external-url.
    #[arg(long = "web.route-prefix", value_name = "PATH", default_value = "/", value_parser = parse_path)]
    pub route_prefix: String,

    #[command(flatten)]
    pub(crate) client: ClientArgs,

    #[command(flatten)]
    pub(crate) reading: StoreReadArgs,
}

/// Address of a server with targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// Host and port.
    pub address: String,
    /// Whether the URL begins with `https://`.
    pub is_tls: bool,
}

/// Rule by which senders choose a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    /// Relabelling with `hashmod`, whose modulus is the number of shards.
    Hashmod,
    /// Relabelling with `hashmod` to 1024 slots, and ranges of slots.
    Slots,
    /// `-remoteWrite.shardByURL` of vmagent.
    Vmagent,
}

/// Format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// Aligned text.
    Table,
    /// JSON for programs.
    Json,
}

fn parse_shards(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=SHARDS_MAX).contains(count));
    count.ok_or_else(|| format!("{text:?} is not a number of shards, from 1 to {SHARDS_MAX}"))
}

fn parse_server(text: &str) -> Result<ServerAddress, String> {
    let (is_tls, address) = match text.split_once("://") {
        None => (false, text),
        Some(("http", address)) => (false, address),
        Some(("https", address)) => (true, address),
        Some(_) => return Err(format!("{text:?} begins with neither http:// nor https://")),
    };
    let is_url = address.len() < text.len();
    let address = if is_url { address.strip_suffix('/').unwrap_or(address) } else { address };
    if is_url && address.contains('/') {
        return Err(format!("{text:?} has a path: name it by --web.route-prefix"));
    }
    Ok(ServerAddress { address: parse_address(address)?.0, is_tls })
}

fn parse_label(text: &str) -> Result<String, String> {
    let is_valid = model::labels::is_valid_label_name(text);
    if is_valid { Ok(text.to_owned()) } else { Err(format!("{text:?} is not the name of a label")) }
}

impl ReshardPlanArgs {
    /// Returns the end of the samples.
    fn time_ms(&self) -> i64 {
        self.time.expect("run sets the present time").lookup_ms()
    }
}

/// Reads the targets, and prints the plan.
pub(super) async fn run(args: ReshardPlanArgs) -> Result<(), ToolError> {
    let args = ReshardPlanArgs { time: args.time.or_else(|| Some(Time::now())), ..args };
    if args.servers.is_empty() && args.storage_urls.is_empty() {
        return Err(ToolError::Usage(
            "no source of targets: name servers by --server, or stores by --storage.url".to_owned(),
        ));
    }
    let change = Change::of(&args)?;
    let targets = targets::read(&args).await?;
    let plan = Plan::new(&args, &change, targets);
    match args.format {
        PlanFormat::Table => print_report(&report::text(&args, &change, &plan)),
        PlanFormat::Json => {
            print_report(&format!("{:#}\n", report::to_json(&args, &change, &plan)))
        }
    }
}
