//! Flags of Prometheus 3.14, with their treatment here.
//!
//! The table holds names and treatments alone; [`super::arguments`] applies them to a command line.
//!
//! Source: `cmd/prometheus/main.go` of Prometheus 3.14.

/// Treatment of a flag, or of a name in `--enable-feature`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// A flag of the same name and meaning exists.
    Same,
    /// Alias of a flag; a feature sets that flag.
    Alias(&'static str),
    /// Accepted without effect, for a reason.
    Unneeded(&'static str),
    /// Rejected, with an alternative.
    Missing(&'static str),
    /// Its value is a list of [`Feature`] names.
    Features,
}

use Treatment::{Alias, Features, Missing, Same, Unneeded};

/// Flag of Prometheus.
#[derive(Debug, Clone, Copy)]
pub struct PrometheusFlag {
    /// Name without dashes.
    pub name: &'static str,
    /// True for a flag without a value that has a negated form `--no-<name>`.
    pub is_bool: bool,
    /// Treatment of the flag.
    pub treatment: Treatment,
    /// Treatment of the negated form of a Boolean flag.
    pub negated: Treatment,
}

/// Name for `--enable-feature`.
#[derive(Debug, Clone, Copy)]
pub struct Feature {
    /// Name.
    pub name: &'static str,
    /// Treatment of the name.
    pub treatment: Treatment,
}

const fn value(name: &'static str, treatment: Treatment) -> PrometheusFlag {
    PrometheusFlag { name, is_bool: false, treatment, negated: treatment }
}

const fn switch(name: &'static str, treatment: Treatment) -> PrometheusFlag {
    PrometheusFlag { name, is_bool: true, treatment, negated: treatment }
}

const fn switch_or(name: &'static str, treatment: Treatment, negated: Treatment) -> PrometheusFlag {
    PrometheusFlag { name, is_bool: true, treatment, negated }
}

const fn feature(name: &'static str, treatment: Treatment) -> Feature {
    Feature { name, treatment }
}

const NO_AGENT: Treatment = Missing(
    "there is no agent mode: run Prometheus with --agent and send to this server by remote write",
);
const NO_ALERTS: Treatment = Missing(
    "alerts are not supported yet: evaluate alerting rules with a Prometheus that reads this \
     server by remote read",
);
const NO_GO: Treatment =
    Unneeded("there is no Go runtime; threads follow the CPU quota of the container");
const NO_GO_MEMORY: Treatment = Unneeded(
    "there is no Go runtime; --query.max-memory-total, --storage.head-size and the cache sizes \
     bound memory",
);
const NO_RELOAD_WATCH: Treatment = Missing(
    "the configuration file is not watched: send SIGHUP, or POST to /-/reload with \
     --web.enable-lifecycle",
);
const NO_RULES: Treatment = Missing(
    "rules are not supported yet: evaluate them with a Prometheus that reads this server by remote \
     read and writes the results by remote write",
);
const NO_SCRAPING: Treatment = Missing(
    "scraping is not supported yet: scrape with Prometheus in agent mode and send to this server \
     by remote write",
);
const NO_CONSOLES: Treatment = Unneeded("there are no console templates");
const OTHER_LAYOUT: Treatment =
    Unneeded("the store is an LSM with its own layout, compaction and compression");
const DEFAULT: Treatment = Unneeded("this is the only behavior");

/// All flags of Prometheus, in the order of its source.
pub const FLAGS: &[PrometheusFlag] = &[
    value("config.file", Same),
    switch_or("config.auto-reload", NO_RELOAD_WATCH, DEFAULT),
    value("config.auto-reload-interval", NO_RELOAD_WATCH),
    value("web.listen-address", Same),
    switch("auto-gomaxprocs", NO_GO),
    switch("auto-gomemlimit", NO_GO_MEMORY),
    value("auto-gomemlimit.ratio", NO_GO_MEMORY),
    value("web.config.file", Same),
    value("web.read-timeout", Same),
    value("web.max-connections", Same),
    value("web.max-notifications-subscribers", Unneeded("there are no live notifications")),
    value("web.external-url", Same),
    value("web.route-prefix", Same),
    value(
        "web.user-assets",
        Missing("static files are not served: serve them with a web server in front"),
    ),
    switch("web.enable-lifecycle", Same),
    switch("web.enable-admin-api", Same),
    switch_or(
        "web.enable-remote-write-receiver",
        Unneeded("the remote write receiver is always on"),
        Missing(
            "the remote write receiver is always on: list users under read_only in \
             --web.config.file, or run a reader with --mode=reader",
        ),
    ),
    value(
        "web.remote-write-receiver.accepted-protobuf-messages",
        Unneeded("both messages, of remote write 1.0 and 2.0, are always accepted"),
    ),
    switch("web.enable-otlp-receiver", Same),
    value("web.console.templates", NO_CONSOLES),
    value("web.console.libraries", NO_CONSOLES),
    value("web.page-title", Same),
    value("web.cors.origin", Same),
    value("storage.tsdb.path", Alias("storage.url")),
    value("storage.tsdb.min-block-duration", OTHER_LAYOUT),
    value("storage.tsdb.max-block-duration", OTHER_LAYOUT),
    value("storage.tsdb.max-block-chunk-segment-size", OTHER_LAYOUT),
    value("storage.tsdb.wal-segment-size", OTHER_LAYOUT),
    value("storage.tsdb.retention.time", Alias("storage.retention.time")),
    value("storage.tsdb.retention.size", Alias("storage.retention.size")),
    switch("storage.tsdb.no-lockfile", Unneeded("the lock of the store ends with the process")),
    switch("storage.tsdb.allow-overlapping-compaction", OTHER_LAYOUT),
    switch("storage.tsdb.wal-compression", OTHER_LAYOUT),
    value("storage.tsdb.wal-compression-type", OTHER_LAYOUT),
    value("storage.tsdb.head-chunks-write-queue-size", OTHER_LAYOUT),
    value("storage.tsdb.samples-per-chunk", OTHER_LAYOUT),
    value("storage.tsdb.delayed-compaction.max-percent", OTHER_LAYOUT),
    value(
        "storage.tsdb.delay-compact-file.path",
        Missing(
            "there are no blocks for a sidecar to upload: --storage.url names an object store \
             directly",
        ),
    ),
    value("storage.tsdb.block-reload-interval", OTHER_LAYOUT),
    value("storage.agent.path", NO_AGENT),
    value("storage.agent.wal-segment-size", NO_AGENT),
    switch("storage.agent.wal-compression", NO_AGENT),
    value("storage.agent.wal-compression-type", NO_AGENT),
    value("storage.agent.wal-truncate-frequency", NO_AGENT),
    value("storage.agent.retention.min-time", NO_AGENT),
    value("storage.agent.retention.max-time", NO_AGENT),
    switch("storage.agent.checkpoint-from-in-memory-series", NO_AGENT),
    value("storage.agent.checkpoint-batch-size", NO_AGENT),
    switch("storage.agent.no-lockfile", NO_AGENT),
    value(
        "storage.remote.flush-deadline",
        Missing(
            "this server does not send by remote write; --web.shutdown-timeout bounds the time \
             that requests may take during a shutdown",
        ),
    ),
    value("storage.remote.read-sample-limit", Same),
    value("storage.remote.read-concurrent-limit", Same),
    value("storage.remote.read-max-bytes-in-frame", Same),
    value("web.search.max-limit", Same),
    value("rules.alert.for-outage-tolerance", NO_RULES),
    value("rules.alert.for-grace-period", NO_RULES),
    value("rules.alert.resend-delay", NO_RULES),
    value("rules.max-concurrent-evals", NO_RULES),
    switch("scrape.adjust-timestamps", NO_SCRAPING),
    value("scrape.timestamp-tolerance", NO_SCRAPING),
    value("alertmanager.notification-queue-capacity", NO_ALERTS),
    value("alertmanager.notification-batch-size", NO_ALERTS),
    switch("alertmanager.drain-notification-queue-on-shutdown", NO_ALERTS),
    value("query.lookback-delta", Same),
    value("query.timeout", Same),
    value("query.max-concurrency", Same),
    value("query.max-samples", Same),
    value("scrape.discovery-reload-interval", NO_SCRAPING),
    value("enable-feature", Features),
    switch_or("agent", NO_AGENT, DEFAULT),
    value("log.level", Same),
    value("log.format", Same),
    switch_or("write-documentation", Missing("--help lists all flags"), DEFAULT),
];

const ALWAYS_ON: Treatment = Unneeded("this is always on");
const NOT_SCRAPING: Treatment = Unneeded("this server does not scrape");

/// All names for `--enable-feature` of Prometheus, in alphabetical order.
pub const FEATURES: &[Feature] = &[
    feature("auto-reload-config", NO_RELOAD_WATCH),
    feature("concurrent-rule-eval", Unneeded("this server does not evaluate rules")),
    feature(
        "created-timestamp-zero-ingestion",
        Unneeded(
            "no zero samples are written; start timestamps are always stored, and \
             --query.use-start-timestamps uses them",
        ),
    ),
    feature("delayed-compaction", OTHER_LAYOUT),
    feature("exemplar-storage", ALWAYS_ON),
    feature("extra-scrape-metrics", NOT_SCRAPING),
    feature("fast-startup", OTHER_LAYOUT),
    feature("histograms-st-encoding", ALWAYS_ON),
    feature(
        "memory-snapshot-on-shutdown",
        Unneeded("a start replays the log, which is short after a shutdown"),
    ),
    feature("metadata-wal-records", ALWAYS_ON),
    feature("native-histograms", ALWAYS_ON),
    feature("old-ui", Unneeded("there is one page, of this server's own")),
    feature("ooo-native-histograms", ALWAYS_ON),
    feature(
        "otlp-deltatocumulative",
        Missing(
            "deltas are not converted: use the processor deltatocumulative of an OpenTelemetry \
             Collector, or --otlp.native-delta-ingestion to store them as they are",
        ),
    ),
    feature("otlp-native-delta-ingestion", Alias("otlp.native-delta-ingestion")),
    feature("promql-binop-fill-modifiers", Alias("query.experimental")),
    feature("promql-delayed-name-removal", Alias("query.delayed-name-removal")),
    feature("promql-duration-expr", ALWAYS_ON),
    feature("promql-experimental-functions", Alias("query.experimental")),
    feature("promql-extended-range-selectors", Alias("query.experimental")),
    feature("promql-per-step-stats", ALWAYS_ON),
    feature("search-api", ALWAYS_ON),
    feature("st-storage", ALWAYS_ON),
    feature("st-synthesis", NOT_SCRAPING),
    feature(
        "type-and-unit-labels",
        Missing("the labels __type__ and __unit__ are not added; /api/v1/metadata has both"),
    ),
    feature("use-start-timestamps", Alias("query.use-start-timestamps")),
    feature("use-uncached-io", OTHER_LAYOUT),
    feature("xor2-encoding", OTHER_LAYOUT),
];

/// Returns the flag of that name.
pub fn flag(name: &str) -> Option<&'static PrometheusFlag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// Returns the feature of that name.
pub fn feature_of(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|feature| feature.name == name)
}
