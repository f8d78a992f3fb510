//! Flags of the server with units and defaults, under the names of Prometheus where it has them.

mod external;
mod list;
pub(crate) mod names;
pub(crate) mod object_store;
mod remote_write;
mod tenancy;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser, ValueEnum};
use engine::EngineOptions;
use engine::parse::ParseOptions;
use regex::Regex;

use crate::build_info::LONG_VERSION;
use crate::external_labels::check_label;
use crate::units::{parse_bytes, parse_count, parse_duration};
pub use external::ExternalUrl;
use external::parse_external_url;
pub(crate) use external::parse_path;
use list::ListedFlags;
use names::HEAD_FLAG;
use object_store::ObjectStoreArgs;
use remote_write::RemoteWriteArgs;
use tenancy::TenancyArgs;

/// Minimum lag of a reader: each half of it costs a request.
const LAG_MIN: Duration = Duration::from_millis(100);
/// Minimum duration of a lease: renewals that are shorter apart may be late with a slow object
/// store.
const LEASE_MIN: Duration = Duration::from_secs(3);

pub(crate) const ABOUT: &str = "A Prometheus-compatible time series engine on object storage. Without a \
                     command, it serves.";

pub(crate) const UNITS: &str = "Durations are written as in Prometheus: 15s, 5m, 1h30m, 7d. \
                     Sizes are bytes or carry a unit counted in 1,024: 512MiB, 2GB.";

/// Flags of the server.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "tessella",
    version = LONG_VERSION.as_str(),
    about = ABOUT,
    long_about = None,
    after_help = UNITS,
    next_line_help = true
)]
pub struct Args {
    /// Parsed before the others, which consume the values.
    #[command(flatten)]
    listed: ListedFlags,

    /// Role of the process: the writer of the store, one of any number of readers of a store that
    /// another process writes, or a standby, a reader that becomes the writer once there is no
    /// other.
    #[arg(long = "mode", value_name = "MODE", value_enum, default_value_t = Mode::Writer)]
    pub mode: Mode,

    /// Maximum delay of a reader behind the acknowledged writes, as a duration of at least 100ms.
    /// The reader polls the object store every half of it.
    #[arg(long = "reader.lag", value_name = "DURATION", default_value = "10s", value_parser = parse_lag)]
    pub reader_lag: Duration,

    /// Address and port to listen on; port 0 selects a free one, which the log names.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = "127.0.0.1:9090", value_parser = parse_address)]
    pub listen_address: ListenAddress,

    /// YAML file with TLS, headers, users and tokens, in the format of Prometheus; without it, the
    /// server accepts unencrypted requests of everyone.
    #[arg(long = "web.config.file", value_name = "PATH")]
    pub web_config_file: Option<PathBuf>,

    /// Maximum time to receive a response that does not fit into the buffer of a connection, as a
    /// duration; then the response is dropped.
    #[arg(long = "web.write-timeout", value_name = "DURATION", default_value = "5m", value_parser = parse_positive_duration)]
    pub write_timeout: Duration,

    /// Maximum time in which a client may receive less than 16 KiB per second of a response, as a
    /// duration; then its connection is closed.
    #[arg(long = "web.write-stall-timeout", value_name = "DURATION", default_value = "1m", value_parser = parse_positive_duration)]
    pub write_stall_timeout: Duration,

    /// URL under which clients reach the server, for instance through a reverse proxy; its path is
    /// the default of --web.route-prefix.
    #[arg(long = "web.external-url", value_name = "URL", default_value = "", hide_default_value = true, value_parser = parse_external_url)]
    pub external_url: ExternalUrl,

    /// Prefix of the paths of all endpoints; without the flag, the path of --web.external-url.
    #[arg(long = "web.route-prefix", value_name = "PATH", value_parser = parse_path)]
    pub route_prefix: Option<String>,

    /// Title of the web page.
    #[arg(long = "web.page-title", value_name = "TITLE", default_value = "Tessella")]
    pub page_title: String,

    /// Regular expression for origins whose pages may read the API, anchored on both sides.
    #[arg(long = "web.cors.origin", value_name = "REGEX", default_value = ".*", value_parser = parse_origin)]
    pub cors_origin: Origin,

    /// Admin endpoints of the API, which delete series, clean tombstones, and take snapshots.
    #[arg(long = "web.enable-admin-api", value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub enable_admin_api: bool,

    /// Endpoint for OTLP metrics, /api/v1/otlp/v1/metrics, with the limits of remote write
    /// (--remote-write.max-...).
    #[arg(long = "web.enable-otlp-receiver", value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub enable_otlp_receiver: bool,

    /// Endpoints for reload, promotion and shutdown: /-/reload, /-/promote and /-/quit.
    #[arg(long = "web.enable-lifecycle", value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub enable_lifecycle: bool,

    /// Log line for each finished request: method, path, status, response bytes, duration, client
    /// address, user and user agent.
    #[arg(long = "web.request-log", value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub request_log: bool,

    /// Maximum number of results of a request to the search endpoints; 0 disables the limit.
    #[arg(long = "web.search.max-limit", value_name = "COUNT", default_value_t = 10_000, value_parser = parse_count::<u32, 0>)]
    pub search_limit_max: u32,

    /// Maximum number of open connections. A further one replaces a connection that has sent no
    /// request yet, is idle, or leaves its response unread; without one, it waits.
    #[arg(long = "web.max-connections", value_name = "COUNT", default_value_t = 512, value_parser = parse_count::<u32, 1>)]
    pub connections_max: u32,

    /// Maximum time to send a form, and to keep a connection idle, as a duration; the head of a
    /// request has 10 s, or this time if it is less.
    #[arg(long = "web.read-timeout", value_name = "DURATION", default_value = "5m", value_parser = parse_positive_duration)]
    pub read_timeout: Duration,

    /// Maximum time for running requests after a shutdown starts, as a duration.
    #[arg(long = "web.shutdown-timeout", value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub shutdown_timeout: Duration,

    /// YAML configuration file; without it, all settings have their defaults.
    #[arg(long = "config.file", value_name = "PATH")]
    pub config_file: Option<PathBuf>,

    /// Location of the store: a path, file:///path, memory:///, s3://bucket/prefix,
    /// gs://bucket/prefix or az://container/prefix (with the usual environment variables AWS_,
    /// GOOGLE_ or AZURE_).
    #[arg(long = "storage.url", value_name = "URL", default_value = "./data")]
    pub storage_url: String,

    #[command(flatten)]
    pub(crate) object_store: ObjectStoreArgs,

    /// Immediate takeover of a store on an object store from its owner, without waiting until the
    /// owner stops or its lease expires (--storage.lease-duration). The previous owner can no longer write, and
    /// exits. A store on a local disk cannot be taken from a running process.
    #[arg(long = "take-over", value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub take_over: bool,

    /// Duration of the lease of a store on an object store, from 3s to 1h. The writer renews it three
    /// times within it; another process takes the store over if it was not renewed for as long.
    #[arg(long = "storage.lease-duration", value_name = "DURATION", default_value = "1m", value_parser = parse_lease)]
    pub lease_duration: Duration,

    /// New store where the manifest of an old one is missing; the files of the old store are
    /// deleted. Without it, such a store is not opened.
    #[arg(long = "storage.discard-leftovers", value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub discard_leftovers: bool,

    /// Maximum age of a sample relative to the newest sample of the store, as a duration; 0 accepts
    /// what Prometheus accepts by default. Without the flag, samples of any age within the
    /// retention are accepted.
    #[arg(long = "storage.out-of-order-window", value_name = "DURATION", value_parser = parse_duration)]
    pub out_of_order_window: Option<Duration>,

    /// Retention time of samples, as a duration; 0 keeps them forever. Default: storage.retention
    /// of the configuration file, or 0.
    #[arg(long = "storage.retention.time", value_name = "DURATION", value_parser = parse_duration)]
    pub retention: Option<Duration>,

    /// Maximum size of the store's files: beyond it the oldest days are deleted, except the newest;
    /// 0 disables the limit. Default: storage.retention of the configuration file, or 0.
    #[arg(long = "storage.retention.size", value_name = "SIZE", value_parser = parse_bytes)]
    pub retention_bytes: Option<u64>,

    /// Time for which the clock and the newest sample must agree that samples are past the
    /// retention before these are deleted, as a duration. A step of the clock suspends deletion for
    /// six times as long.
    #[arg(long = "storage.retention.confirmation", value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub retention_confirmation: Duration,

    /// Minimum time between two commits of the log, as a duration: a longer one saves requests to
    /// the object store, and delays senders.
    #[arg(long = "storage.commit-interval", value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub commit_interval: Duration,

    /// Maximum time until a write is durable, as a duration; then it is rejected with status 503.
    /// Timeouts of senders should be slightly longer.
    #[arg(long = "storage.write-timeout", value_name = "DURATION", default_value = "10s", value_parser = parse_positive_duration)]
    pub storage_write_timeout: Duration,

    /// Maximum time until the object store answers a read of a query, as a duration; then the query
    /// fails.
    #[arg(long = "storage.read-timeout", value_name = "DURATION", default_value = "30s", value_parser = parse_positive_duration)]
    pub storage_read_timeout: Duration,

    /// Maximum size of the block cache in memory.
    #[arg(long = "storage.cache-size", value_name = "SIZE", default_value = "128MiB", value_parser = parse_bytes)]
    pub cache_bytes_max: u64,

    /// Folder on a local disk that caches reads of a remote object store; without it, there is no
    /// cache on disk.
    #[arg(long = "storage.disk-cache.folder", value_name = "PATH")]
    pub disk_cache_folder: Option<PathBuf>,

    /// Maximum size of the cache on disk.
    #[arg(long = "storage.disk-cache.size", value_name = "SIZE", default_value = "10GiB", value_parser = parse_positive_bytes)]
    pub disk_cache_bytes_max: u64,

    /// Time span before now whose days are loaded into the caches after a start, as a duration; 0
    /// disables it.
    #[arg(long = "storage.warm-up-span", value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub warm_up_span: Duration,

    /// Maximum memory of the index of sealed days, as a size; 0 disables the cache.
    #[arg(long = "storage.index-cache-size", value_name = "SIZE", default_value = "128MiB", value_parser = parse_bytes)]
    pub index_cache_bytes_max: u64,

    /// Maximum memory of decoded samples that are cached for later queries, as a size; 0 disables
    /// the cache.
    #[arg(long = "storage.columns-cache-size", value_name = "SIZE", default_value = "128MiB", value_parser = parse_bytes)]
    pub columns_bytes_max: u64,

    /// Maximum size of the log; beyond it, the head is sealed early.
    #[arg(long = "storage.log-size", value_name = "SIZE", default_value = "512MiB", value_parser = parse_bytes)]
    pub log_bytes_max: u64,

    /// Maximum memory of the head, as a size: the head is sealed early from three quarters on, and
    /// new series are rejected from seven eighths on. When head memory is full, writes are rejected
    /// with 503 and senders retry; 0 disables the limit.
    #[arg(long = HEAD_FLAG, value_name = "SIZE", default_value = "4GiB", value_parser = parse_bytes)]
    pub head_bytes_max: u64,

    /// Maximum number of exemplars; beyond it, the oldest are removed. 0 disables exemplars.
    #[arg(long = "storage.exemplars.exemplars-limit", value_name = "COUNT", default_value_t = storage::EXEMPLARS_MAX as u32)]
    pub exemplars_max: u32,

    /// Maximum number of samples per query of a remote read in the format of plain samples; 0
    /// disables the limit. The streamed format has only the limits of queries.
    #[arg(
        long = "storage.remote.read-sample-limit",
        value_name = "COUNT",
        default_value_t = 50_000_000, value_parser = parse_count::<u64, 0>)]
    pub remote_read_samples_max: u64,

    /// Maximum number of concurrent remote reads, within --query.max-concurrency; 0 disables the
    /// limit.
    #[arg(
        long = "storage.remote.read-concurrent-limit",
        value_name = "COUNT",
        default_value_t = 10, value_parser = parse_count::<u32, 0>)]
    pub remote_read_concurrency_max: u32,

    /// Size of a frame of a streamed remote read, in bytes; the last chunk of a frame may exceed
    /// it.
    #[arg(
        long = "storage.remote.read-max-bytes-in-frame",
        value_name = "BYTES",
        default_value_t = 1_048_576, value_parser = parse_count::<u32, 0>)]
    pub remote_read_frame_bytes_max: u32,

    /// Maximum age of a sample that an instant selector returns, as a duration.
    #[arg(long = "query.lookback-delta", value_name = "DURATION", default_value = "5m", value_parser = parse_positive_duration)]
    pub lookback_delta: Duration,

    /// Minimum time of a query that is logged with its cost, as a duration; 0 logs none.
    #[arg(long = "query.log-slower-than", value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub query_logged_from: Duration,

    /// Maximum time of a query, including the time in the queue, as a duration.
    #[arg(long = "query.timeout", value_name = "DURATION", default_value = "2m", value_parser = parse_positive_duration)]
    pub query_timeout: Duration,

    /// Maximum number of samples that one query may decode, and that its answer may have.
    #[arg(long = "query.max-samples", value_name = "COUNT", default_value_t = 1_000_000_000, value_parser = parse_count::<u64, 1>)]
    pub query_samples_max: u64,

    /// Maximum number of series that one query may select. The default is twice that of
    /// --remote-write.max-active-series, for series that have ended within the range.
    #[arg(long = "query.max-series", value_name = "COUNT", default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub query_series_max: u64,

    /// Maximum number of reads of the object store per query; reads from a cache do not count.
    #[arg(long = "query.max-object-store-reads", value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub query_object_store_reads_max: u64,

    /// Maximum number of steps of a query, and of inner steps of each subquery.
    #[arg(long = "query.max-steps", value_name = "COUNT", default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub query_steps_max: u64,

    /// Maximum memory of one query, as a size.
    #[arg(long = "query.max-memory", value_name = "SIZE", default_value = "1GiB", value_parser = parse_positive_bytes)]
    pub query_memory_bytes_max: u64,

    /// Maximum memory of all queries, including answers until they are sent, as a size; a query
    /// beyond it is rejected with status 503.
    #[arg(long = "query.max-memory-total", value_name = "SIZE", default_value = "4GiB", value_parser = parse_positive_bytes)]
    pub query_memory_total_bytes_max: u64,

    /// Maximum number of concurrent queries; more wait in a queue, except a few short ones.
    #[arg(long = "query.max-concurrency", value_name = "COUNT", default_value_t = 20, value_parser = parse_count::<u32, 1>)]
    pub query_concurrency_max: u32,

    /// Maximum number of queries in the queue; more are rejected with status 503.
    #[arg(long = "query.max-queue", value_name = "COUNT", default_value_t = 500)]
    pub query_queue_max: u32,

    /// Maximum number of unread query responses per client address, while they hold less than half
    /// of --query.max-memory-total; beyond it, the response that was not read from for the longest
    /// time is dropped. A reverse proxy is one client; with tenants, each tenant is.
    #[arg(long = "query.max-sending-per-client", value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub query_sending_per_client_max: u32,

    /// Maximum memory of the result cache for range queries, as a size; 0 disables it.
    #[arg(long = "query.result-cache-size", value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub query_results_bytes_max: u64,

    /// Removal of metric names at the end of a query, as with the feature
    /// promql-delayed-name-removal of Prometheus; false removes them in each function and operator,
    /// as Prometheus does by default.
    #[arg(long = "query.delayed-name-removal", value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub delayed_name_removal: bool,

    /// Experimental functions, aggregations, range selectors and fill modifiers; false leaves the
    /// language of Prometheus without feature flags.
    #[arg(long = "query.experimental", value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub experimental: bool,

    /// Use of start timestamps in functions of counters, as with the feature use-start-timestamps
    /// of Prometheus; without it, start_timestamp() returns nothing.
    #[arg(long = "query.use-start-timestamps", value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub use_start_timestamps: bool,

    /// Storage of OTLP data points with delta temporality as they are, with unknown type, as with
    /// the feature otlp-native-delta-ingestion of Prometheus; without it, they are rejected.
    #[arg(long = "otlp.native-delta-ingestion", value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub otlp_native_delta: bool,

    #[command(flatten)]
    pub(crate) remote_write: RemoteWriteArgs,

    /// Storage of the server's own metrics every 15 s, with job="tessella-self".
    #[arg(long = "self-metrics", value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub self_metrics: bool,

    /// Address of the gRPC services: those of Thanos, OTLP metrics and health; none without the flag.
    /// TLS and access are those of --web.config.file; without TLS, clients need HTTP/2 with prior
    /// knowledge, which those of gRPC have.
    #[arg(long = "grpc.listen-address", value_name = "ADDRESS", value_parser = parse_address)]
    pub grpc_listen_address: Option<ListenAddress>,

    /// Label of all series in gRPC, remote read and federation, which names this server among
    /// others, as in shard=3; may be repeated. It is not stored, and overrides stored labels and
    /// those of global.external_labels.
    #[arg(long = "external-label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub external_labels: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) tenancy: TenancyArgs,

    /// Minimum level of log messages.
    #[arg(long = "log.level", value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,

    /// Format of log messages.
    #[arg(long = "log.format", value_name = "FORMAT", default_value = "logfmt")]
    pub log_format: LogFormat,
}

/// Address to listen on: a host, which may be a name or empty for all, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress(pub String);

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Origins whose pages may read the API.
#[derive(Debug, Clone)]
pub struct Origin(Regex);

impl Origin {
    /// Returns whether pages of an origin may read the API.
    pub fn is_match(&self, origin: &str) -> bool {
        self.0.is_match(origin)
    }
}

/// Role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Writes to the store.
    Writer,
    /// Reads a store that another process writes.
    Reader,
    /// Reads a store, and writes to it once it has no other writer.
    Standby,
}

impl Mode {
    /// Returns the name in flags.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Writer => "writer",
            Mode::Reader => "reader",
            Mode::Standby => "standby",
        }
    }
}

/// Minimum level of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// All messages.
    Debug,
    /// Events and above.
    Info,
    /// Possible problems and above.
    Warn,
    /// Errors.
    Error,
}

/// Format of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `key=value` pairs.
    Logfmt,
    /// One JSON object per line.
    Json,
}

pub(crate) fn parse_address(text: &str) -> Result<ListenAddress, String> {
    let wrong = || format!("{text:?} is not an address and port, such as 127.0.0.1:9090");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let _: u16 = port.parse().map_err(|_| wrong())?;
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let address = format!("{host}:{port}");
    let is_name =
        host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if !(is_name || is_bracketed && address.parse::<SocketAddr>().is_ok()) {
        return Err(wrong());
    }
    Ok(ListenAddress(address))
}

/// Parses a label, whose value may be in quotes, as in Thanos.
fn parse_label(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("{text:?} is not a label, such as shard=3"))?;
    let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    check_label(name, value)?;
    Ok((name.to_owned(), value.to_owned()))
}

fn parse_origin(text: &str) -> Result<Origin, String> {
    Regex::new(&format!("^(?s:{text})$")).map(Origin).map_err(|error| error.to_string())
}

pub(crate) fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be greater than 0".to_owned()),
        duration => Ok(duration),
    }
}

fn parse_lag(text: &str) -> Result<Duration, String> {
    let lag = parse_duration(text)?;
    if lag < LAG_MIN { Err("must be at least 100ms".to_owned()) } else { Ok(lag) }
}

fn parse_lease(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    let is_in_range = (LEASE_MIN..=storage::LEASE_DURATION_MAX).contains(&duration);
    if is_in_range { Ok(duration) } else { Err("must be from 3s to 1h".to_owned()) }
}

pub(crate) fn parse_positive_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("must be greater than 0".to_owned()),
        bytes => Ok(bytes),
    }
}

impl Args {
    /// Returns the prefix of all paths, with a slash at its start and none at its end; empty
    /// without one.
    pub fn route_prefix(&self) -> &str {
        self.route_prefix.as_deref().unwrap_or(self.external_url.path())
    }

    /// Returns the parts of PromQL that are enabled.
    pub fn parse_options(&self) -> ParseOptions {
        if self.experimental { ParseOptions::ALL } else { ParseOptions::STABLE }
    }

    /// Returns the options of the engine.
    pub fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            delayed_name_removal: self.delayed_name_removal,
            parse: self.parse_options(),
            result_cache_bytes_max: self.query_results_bytes_max,
            steps_max: self.query_steps_max,
            use_start_timestamps: self.use_start_timestamps,
            ..EngineOptions::default()
        }
    }
}
