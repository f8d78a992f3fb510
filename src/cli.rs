//! The command line: every flag with its unit and default, under Prometheus' name where
//! Prometheus has one.

mod object_store;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser, ValueEnum};
use engine::EngineOptions;
use engine::parse::ParseOptions;
use regex::Regex;

use crate::units::{parse_bytes, parse_duration};
use object_store::ObjectStoreArgs;
use wire::{DECOMPRESSED_BYTES_CEILING, Limits};

/// What the process was started with.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "tessella",
    version,
    about = "A Prometheus-compatible time series engine on object storage.",
    long_about = None,
    after_help = "Durations are written as in Prometheus: 15s, 5m, 1h30m, 7d. \
                  Sizes are bytes or carry a unit counted in 1,024: 512MiB, 2GB.",
    next_line_help = true
)]
pub struct Args {
    /// Address and port to listen on; port 0 takes any free one, which the log names.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = "127.0.0.1:9090", value_parser = parse_address)]
    pub listen_address: ListenAddress,

    /// Which origins' pages may read the API, as a regular expression that must match whole.
    #[arg(long = "web.cors.origin", value_name = "REGEX", default_value = ".*", value_parser = parse_origin)]
    pub cors_origin: Origin,

    /// Enable the admin endpoints of the API, which delete series, clean up behind that, and copy
    /// the store.
    #[arg(long = "web.enable-admin-api", value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub enable_admin_api: bool,

    /// Enable shutting down and reloading the configuration by requests to /-/quit and /-/reload.
    #[arg(long = "web.enable-lifecycle", value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub enable_lifecycle: bool,

    /// How many connections may be open at once; more wait to be accepted.
    #[arg(long = "web.max-connections", value_name = "COUNT", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub connections_max: u32,

    /// How long a client may take to send the head of a request, or keep a connection idle, as
    /// a duration.
    #[arg(long = "web.read-timeout", value_name = "DURATION", default_value = "5m", value_parser = parse_positive_duration)]
    pub read_timeout: Duration,

    /// How long requests that are being answered may still take once a shutdown begins.
    #[arg(long = "web.shutdown-timeout", value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub shutdown_timeout: Duration,

    /// Configuration file in YAML; without one every setting has its default.
    #[arg(long = "config.file", value_name = "PATH")]
    pub config_file: Option<PathBuf>,

    /// Where series are stored: a path, file:///path, memory:///, s3://bucket/prefix,
    /// gs://bucket/prefix or az://container/prefix (with the usual variables AWS_, GOOGLE_ or
    /// AZURE_ in the environment).
    #[arg(long = "storage.url", value_name = "URL", default_value = "./data")]
    pub storage_url: String,

    #[command(flatten)]
    pub(crate) object_store: ObjectStoreArgs,

    /// How far behind the newest sample of the store a sample may lie, as a duration; 0 takes
    /// what Prometheus takes by default, and without the flag samples of any age within the
    /// retention are accepted.
    #[arg(long = "storage.out-of-order-window", value_name = "DURATION", value_parser = parse_duration)]
    pub out_of_order_window: Option<Duration>,

    /// How long samples are kept, as a duration; 0 keeps them for ever.
    #[arg(long = "storage.retention.time", value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub retention: Duration,

    /// How many bytes the files of the store may take, as a size: the oldest days are deleted
    /// beyond it, but for the newest one; 0 sets no bound.
    #[arg(long = "storage.retention.size", value_name = "SIZE", default_value = "0B", value_parser = parse_bytes)]
    pub retention_bytes: u64,

    /// The least time between two commits of the log, as a duration: more of it costs fewer
    /// requests to an object store, and lets senders wait longer.
    #[arg(long = "storage.commit-interval", value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub commit_interval: Duration,

    /// How long a write waits to become durable before it is refused with status 503, as a
    /// duration; senders should have a little more patience.
    #[arg(long = "storage.write-timeout", value_name = "DURATION", default_value = "10s", value_parser = parse_positive_duration)]
    pub storage_write_timeout: Duration,

    /// How long a query waits for an answer of the object store before it fails, as a duration.
    #[arg(long = "storage.read-timeout", value_name = "DURATION", default_value = "30s", value_parser = parse_positive_duration)]
    pub storage_read_timeout: Duration,

    /// How much memory decoded blocks may take in the cache, as a size.
    #[arg(long = "storage.cache-size", value_name = "SIZE", default_value = "128MiB", value_parser = parse_bytes)]
    pub cache_bytes_max: u64,

    /// Folder on a local disk for what has been read of an object store behind a network, and
    /// for nothing else; without it nothing is kept on disk.
    #[arg(long = "storage.disk-cache.folder", value_name = "PATH")]
    pub disk_cache_folder: Option<PathBuf>,

    /// How much of that disk may be taken, as a size.
    #[arg(long = "storage.disk-cache.size", value_name = "SIZE", default_value = "10GiB", value_parser = parse_positive_bytes)]
    pub disk_cache_bytes_max: u64,

    /// How far back from now days are read ahead of queries after a start, as a duration, as far
    /// as the caches hold them; 0 reads none.
    #[arg(long = "storage.warm-up-span", value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub warm_up_span: Duration,

    /// How much memory the index of sealed days may take, as a size; 0 reads it for each query.
    #[arg(long = "storage.index-cache-size", value_name = "SIZE", default_value = "128MiB", value_parser = parse_bytes)]
    pub index_cache_bytes_max: u64,

    /// How much memory decoded samples may take, kept for the next query that reads them, as a
    /// size; 0 keeps none.
    #[arg(long = "storage.columns-cache-size", value_name = "SIZE", default_value = "128MiB", value_parser = parse_bytes)]
    pub columns_bytes_max: u64,

    /// How large the log may grow before what is in memory is sealed early, as a size.
    #[arg(long = "storage.log-size", value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes)]
    pub log_bytes_max: u64,

    /// How many exemplars are kept in all; the oldest make room, and 0 keeps none.
    #[arg(long = "storage.exemplars.exemplars-limit", value_name = "COUNT", default_value_t = storage::EXEMPLARS_MAX as u32)]
    pub exemplars_max: u32,

    /// How far back an instant selector looks for a sample, as a duration.
    #[arg(long = "query.lookback-delta", value_name = "DURATION", default_value = "5m", value_parser = parse_positive_duration)]
    pub lookback_delta: Duration,

    /// Queries that take longer are logged with what they cost, as a duration; 0 logs none.
    #[arg(long = "query.log-slower-than", value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub query_logged_from: Duration,

    /// How long a query may take, waiting for its turn included, as a duration.
    #[arg(long = "query.timeout", value_name = "DURATION", default_value = "2m", value_parser = parse_positive_duration)]
    pub query_timeout: Duration,

    /// How many samples one query may decode.
    #[arg(long = "query.max-samples", value_name = "COUNT", default_value_t = 50_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub query_samples_max: u64,

    /// How many series one query may select.
    #[arg(long = "query.max-series", value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub query_series_max: u64,

    /// How many reads of the object store one query may make; what a cache holds is none.
    #[arg(long = "query.max-object-store-reads", value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub query_object_store_reads_max: u64,

    /// How many steps a query or a subquery may have.
    #[arg(long = "query.max-steps", value_name = "COUNT", default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub query_steps_max: u64,

    /// How much memory one query may hold, as a size.
    #[arg(long = "query.max-memory", value_name = "SIZE", default_value = "1GiB", value_parser = parse_positive_bytes)]
    pub query_memory_bytes_max: u64,

    /// How much memory all queries may hold together, their answers until they are sent
    /// included, as a size; a query that asks for more is refused with status 503.
    #[arg(long = "query.max-memory-total", value_name = "SIZE", default_value = "4GiB", value_parser = parse_positive_bytes)]
    pub query_memory_total_bytes_max: u64,

    /// How many queries run at once; more wait for their turn, but for a few that cost little.
    #[arg(long = "query.max-concurrency", value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub query_concurrency_max: u32,

    /// How many queries may wait for their turn; more are refused with status 503.
    #[arg(long = "query.max-queue", value_name = "COUNT", default_value_t = 500)]
    pub query_queue_max: u32,

    /// How much memory answers to range queries may take that are kept to be used again, as a
    /// size; 0 keeps none.
    #[arg(long = "query.result-cache-size", value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub query_results_bytes_max: u64,

    /// Whether the metric's name is removed at the end of a query, as Prometheus does with its
    /// feature promql-delayed-name-removal; false removes it in each function and operator, as
    /// Prometheus does without.
    #[arg(long = "query.delayed-name-removal", value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub delayed_name_removal: bool,

    /// Whether experimental functions, aggregations, range selectors and fill modifiers are
    /// understood; false leaves what Prometheus understands without feature flags.
    #[arg(long = "query.experimental", value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub experimental: bool,

    /// Whether functions of counters use what is known of their starts, as Prometheus does with
    /// its feature use-start-timestamps; without it, start_timestamp() gives nothing.
    #[arg(long = "query.use-start-timestamps", value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    pub use_start_timestamps: bool,

    #[command(flatten)]
    pub(crate) remote_write: RemoteWriteArgs,

    /// Whether the server writes its own metrics into its store every 15 s, with
    /// job="tessella".
    #[arg(long = "self-metrics", value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub self_metrics: bool,

    /// Only log messages of this level and above.
    #[arg(long = "log.level", value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,

    /// How log messages are written.
    #[arg(long = "log.format", value_name = "FORMAT", default_value = "logfmt")]
    pub log_format: LogFormat,
}

/// Limits of remote write.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RemoteWriteArgs {
    /// How large a remote write request may be as sent, as a size.
    #[arg(long = "remote-write.max-body-size", value_name = "SIZE", default_value = "16MiB", value_parser = parse_bytes)]
    pub(crate) body_bytes_max: u64,

    /// How large a remote write request may be once decompressed, as a size up to 1GiB.
    #[arg(long = "remote-write.max-decompressed-size", value_name = "SIZE", default_value = "32MiB", value_parser = parse_decompressed)]
    pub(crate) decompressed_bytes_max: u64,

    /// How many series a remote write request may hold.
    #[arg(
        long = "remote-write.max-series-per-request",
        value_name = "COUNT",
        default_value_t = 100_000
    )]
    pub(crate) series_max: u32,

    /// How many samples a remote write request may hold.
    #[arg(
        long = "remote-write.max-samples-per-request",
        value_name = "COUNT",
        default_value_t = 1_000_000
    )]
    pub(crate) samples_max: u32,

    /// How many labels a series may have.
    #[arg(
        long = "remote-write.max-labels-per-series",
        value_name = "COUNT",
        default_value_t = 128
    )]
    pub(crate) labels_per_series_max: u32,

    /// How long the name of a label may be, in bytes.
    #[arg(
        long = "remote-write.max-label-name-length",
        value_name = "BYTES",
        default_value_t = 1024
    )]
    pub(crate) label_name_bytes_max: u32,

    /// How long the value of a label may be, in bytes.
    #[arg(
        long = "remote-write.max-label-value-length",
        value_name = "BYTES",
        default_value_t = 4096
    )]
    pub(crate) label_value_bytes_max: u32,

    /// How many bytes all remote write requests may hold at once, as a size.
    #[arg(long = "remote-write.max-inflight-size", value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub(crate) inflight_bytes_max: u64,

    /// How long a client may take to send a remote write request, as a duration.
    #[arg(long = "remote-write.body-timeout", value_name = "DURATION", default_value = "30s", value_parser = parse_positive_duration)]
    pub(crate) body_timeout: Duration,
}

impl RemoteWriteArgs {
    /// The limits as the receiver takes them.
    pub(crate) fn limits(&self) -> Limits {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Limits {
            body_bytes_max: size(self.body_bytes_max),
            decompressed_bytes_max: size(self.decompressed_bytes_max),
            series_max: self.series_max as usize,
            samples_max: self.samples_max as usize,
            labels_per_series_max: self.labels_per_series_max as usize,
            label_name_bytes_max: self.label_name_bytes_max as usize,
            label_value_bytes_max: self.label_value_bytes_max as usize,
            inflight_bytes_max: size(self.inflight_bytes_max),
            body_timeout: self.body_timeout,
        }
    }
}

/// An address to listen on: a host, which may be a name or empty for all, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress(pub String);

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The origins whose pages may read the API.
#[derive(Debug, Clone)]
pub struct Origin {
    source: String,
    pattern: Regex,
}

impl Origin {
    /// Whether pages of an origin may.
    pub fn is_match(&self, origin: &str) -> bool {
        self.pattern.is_match(origin)
    }
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// What happens.
    Info,
    /// What may be wrong.
    Warn,
    /// What is wrong.
    Error,
}

/// How a log message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `key=value` pairs.
    Logfmt,
    /// A JSON object a line.
    Json,
}

fn parse_address(text: &str) -> Result<ListenAddress, String> {
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

fn parse_origin(text: &str) -> Result<Origin, String> {
    let pattern = Regex::new(&format!("^(?s:{text})$")).map_err(|error| error.to_string())?;
    Ok(Origin { source: text.to_owned(), pattern })
}

fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be greater than 0".to_owned()),
        duration => Ok(duration),
    }
}

fn parse_positive_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("must be greater than 0".to_owned()),
        bytes => Ok(bytes),
    }
}

fn parse_decompressed(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes > DECOMPRESSED_BYTES_CEILING as u64 => {
            Err("must be at most 1GiB".to_owned())
        }
        bytes => Ok(bytes),
    }
}

impl Args {
    /// Which parts of PromQL are understood.
    pub fn parse_options(&self) -> ParseOptions {
        if self.experimental { ParseOptions::ALL } else { ParseOptions::STABLE }
    }

    /// How the engine is set up.
    pub fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            delayed_name_removal: self.delayed_name_removal,
            parse: self.parse_options(),
            results_bytes_max: self.query_results_bytes_max,
            steps_max: self.query_steps_max,
            use_start_timestamps: self.use_start_timestamps,
            ..EngineOptions::default()
        }
    }

    /// Every flag with its value, sorted by name, as `/api/v1/status/flags` lists them.
    pub fn flags(&self) -> Vec<(&'static str, String)> {
        use crate::units::{format_bytes, format_duration};
        let write = &self.remote_write;
        let mut flags = vec![
            (
                "config.file",
                self.config_file.as_ref().map_or_else(String::new, |p| p.display().to_string()),
            ),
            ("log.format", value_name(self.log_format)),
            ("log.level", value_name(self.log_level)),
            ("query.delayed-name-removal", self.delayed_name_removal.to_string()),
            ("query.experimental", self.experimental.to_string()),
            ("query.lookback-delta", format_duration(self.lookback_delta)),
            ("query.log-slower-than", format_duration(self.query_logged_from)),
            ("query.max-concurrency", self.query_concurrency_max.to_string()),
            ("query.max-memory", format_bytes(self.query_memory_bytes_max)),
            ("query.max-memory-total", format_bytes(self.query_memory_total_bytes_max)),
            ("query.max-object-store-reads", self.query_object_store_reads_max.to_string()),
            ("query.max-queue", self.query_queue_max.to_string()),
            ("query.max-samples", self.query_samples_max.to_string()),
            ("query.max-series", self.query_series_max.to_string()),
            ("query.max-steps", self.query_steps_max.to_string()),
            ("query.result-cache-size", format_bytes(self.query_results_bytes_max)),
            ("query.timeout", format_duration(self.query_timeout)),
            ("query.use-start-timestamps", self.use_start_timestamps.to_string()),
            ("remote-write.body-timeout", format_duration(write.body_timeout)),
            ("remote-write.max-body-size", format_bytes(write.body_bytes_max)),
            ("remote-write.max-decompressed-size", format_bytes(write.decompressed_bytes_max)),
            ("remote-write.max-inflight-size", format_bytes(write.inflight_bytes_max)),
            ("remote-write.max-label-name-length", write.label_name_bytes_max.to_string()),
            ("remote-write.max-label-value-length", write.label_value_bytes_max.to_string()),
            ("remote-write.max-labels-per-series", write.labels_per_series_max.to_string()),
            ("remote-write.max-samples-per-request", write.samples_max.to_string()),
            ("remote-write.max-series-per-request", write.series_max.to_string()),
            ("self-metrics", self.self_metrics.to_string()),
            ("storage.cache-size", format_bytes(self.cache_bytes_max)),
            ("storage.columns-cache-size", format_bytes(self.columns_bytes_max)),
            ("storage.commit-interval", format_duration(self.commit_interval)),
            (
                "storage.disk-cache.folder",
                self.disk_cache_folder
                    .as_ref()
                    .map_or_else(String::new, |p| p.display().to_string()),
            ),
            ("storage.disk-cache.size", format_bytes(self.disk_cache_bytes_max)),
            ("storage.exemplars.exemplars-limit", self.exemplars_max.to_string()),
            ("storage.index-cache-size", format_bytes(self.index_cache_bytes_max)),
            ("storage.log-size", format_bytes(self.log_bytes_max)),
            (
                "storage.out-of-order-window",
                self.out_of_order_window.map_or_else(String::new, format_duration),
            ),
            ("storage.read-timeout", format_duration(self.storage_read_timeout)),
            ("storage.retention.size", format_bytes(self.retention_bytes)),
            ("storage.retention.time", format_duration(self.retention)),
            ("storage.warm-up-span", format_duration(self.warm_up_span)),
            ("storage.write-timeout", format_duration(self.storage_write_timeout)),
            ("storage.url", storage::without_credentials(&self.storage_url)),
            ("web.cors.origin", self.cors_origin.source.clone()),
            ("web.enable-admin-api", self.enable_admin_api.to_string()),
            ("web.enable-lifecycle", self.enable_lifecycle.to_string()),
            ("web.listen-address", self.listen_address.to_string()),
            ("web.max-connections", self.connections_max.to_string()),
            ("web.read-timeout", format_duration(self.read_timeout)),
            ("web.shutdown-timeout", format_duration(self.shutdown_timeout)),
        ];
        flags.extend(self.object_store.flags());
        flags.sort_unstable();
        flags
    }
}

fn value_name(value: impl ValueEnum + Copy) -> String {
    value.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("tessella").chain(args.iter().copied()))
    }

    #[test]
    fn every_flag_is_listed_with_its_value() {
        let listed: Vec<_> = parse(&[]).unwrap().flags().iter().map(|(name, _)| *name).collect();
        let command = Args::command();
        let mut declared: Vec<_> = command.get_arguments().filter_map(|a| a.get_long()).collect();
        declared.retain(|name| !matches!(*name, "help" | "version"));
        declared.sort_unstable();
        assert_eq!(listed, declared);
    }

    #[test]
    fn limits_of_remote_write_default_to_those_of_the_receiver() {
        let limits = parse(&[]).unwrap().remote_write.limits();
        assert_eq!(format!("{limits:?}"), format!("{:?}", Limits::default()));
    }

    #[test]
    fn the_limit_of_steps_is_that_of_the_engine() {
        let steps_max = |args: &[&str]| parse(args).unwrap().engine_options().steps_max;
        assert_eq!(steps_max(&[]), EngineOptions::default().steps_max);
        assert_eq!(steps_max(&["--query.max-steps=7"]), 7);
    }

    #[test]
    fn endpoints_are_enabled_with_and_without_a_value() {
        for (value, is_enabled) in [("", true), ("=true", true), ("=false", false)] {
            let [admin, lifecycle] =
                ["admin-api", "lifecycle"].map(|name| format!("--web.enable-{name}{value}"));
            let args = parse(&[&admin, &lifecycle]).unwrap();
            assert_eq!((args.enable_admin_api, args.enable_lifecycle), (is_enabled, is_enabled));
        }
        assert!(!parse(&[]).unwrap().enable_lifecycle);
    }

    #[test]
    fn every_flag_has_a_sentence() {
        for argument in Args::command().get_arguments() {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.len() > 20, "{argument} has no help");
        }
    }

    #[test]
    fn values_are_read_as_in_prometheus() {
        let args = parse(&[
            "--web.listen-address=:0",
            "--query.timeout",
            "1h30m",
            "--query.max-memory=2GB",
            "--self-metrics=false",
            "--log.format=json",
        ])
        .unwrap();
        assert_eq!(args.listen_address.0, "0.0.0.0:0");
        assert_eq!(args.query_timeout, Duration::from_secs(5400));
        assert_eq!(args.query_memory_bytes_max, 2 << 30);
        assert!(!args.self_metrics);
        assert_eq!(args.log_format, LogFormat::Json);
    }

    #[test]
    fn wrong_flags_and_values_are_named() {
        let cases = [
            ("--web.listen", "unexpected argument '--web.listen'"),
            ("--query.timeout=5", "not a valid duration string: \"5\""),
            ("--query.timeout=0", "must be greater than 0"),
            ("--query.max-memory=0", "must be greater than 0"),
            ("--query.max-memory=lots", "not a valid size: \"lots\""),
            ("--query.max-concurrency=0", "0 is not in 1..=4294967295"),
            ("--web.listen-address=localhost", "is not an address and port"),
            ("--web.listen-address=a b:90", "is not an address and port"),
            ("--web.listen-address=localhost:99999", "is not an address and port"),
            ("--remote-write.max-decompressed-size=2GiB", "must be at most 1GiB"),
            ("--log.level=loud", "[possible values: debug, info, warn, error]"),
            ("--self-metrics=maybe", "[possible values: true, false]"),
            ("extra", "unexpected argument 'extra'"),
        ];
        for (argument, message) in cases {
            let error = parse(&[argument]).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
