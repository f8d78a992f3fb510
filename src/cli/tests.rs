use super::arguments::{Arguments, Notice};
use super::prometheus::Treatment;
use super::*;
use crate::flags::LogFormat;
use clap::CommandFactory;
use engine::EngineOptions;
use std::time::Duration;
use wire::Limits;

fn arguments(args: &[&str]) -> Result<Arguments, clap::Error> {
    arguments::parse(std::iter::once("tessella").chain(args.iter().copied()).map(Into::into))
}

fn parse(args: &[&str]) -> Result<Args, clap::Error> {
    Ok(arguments(args)?.command_line.server)
}

#[test]
fn every_flag_is_listed_with_its_value() {
    let listed: Vec<_> = parse(&[]).unwrap().flags().into_iter().map(|(name, _)| name).collect();
    let command = Args::command();
    let mut declared: Vec<_> = command.get_arguments().filter_map(|a| a.get_long()).collect();
    declared.retain(|name| !matches!(*name, "help" | "version"));
    declared.sort_unstable();
    assert_eq!(listed, declared);
}

#[test]
fn listed_values_have_one_form_by_kind() {
    let flags = parse(&[
        "--query.timeout=90s",
        "--query.max-memory=2GB",
        "--query.max-samples=5e7",
        "--web.listen-address=:0",
        "--web.enable-lifecycle",
        "--web.external-url=https://example.com/a/",
        "--storage.url=s3://user:secret@bucket/a",
        "--storage.s3.endpoint=http://key:secret@host",
    ])
    .unwrap()
    .flags();
    for (name, value) in [
        ("query.timeout", "1m30s"),
        ("query.max-memory", "2GiB"),
        ("query.max-samples", "50000000"),
        ("query.max-queue", "500"),
        ("web.listen-address", "0.0.0.0:0"),
        ("web.enable-lifecycle", "true"),
        ("web.external-url", "https://example.com/a"),
        ("web.route-prefix", "/a"),
        ("storage.url", "s3://bucket/a"),
        ("storage.s3.endpoint", "http://host"),
        ("storage.s3.allow-http", ""),
        ("storage.retention.time", ""),
        ("mode", "writer"),
    ] {
        assert!(flags.contains(&(name.to_owned(), value.to_owned())), "{name}: {flags:?}");
    }
}

#[test]
fn flags_alone_are_those_of_the_server_and_tools_have_their_own() {
    let parse = |args: &[&str]| Ok::<_, clap::Error>(arguments(args)?.command_line);
    let server = parse(&["--storage.url=x", "--self-metrics=false"]).unwrap();
    assert!(server.tool.is_none() && server.server.storage_url == "x");
    let tool = parse(&["import", "--storage.url=y", "file"]).unwrap().tool;
    assert!(matches!(tool, Some(Tool::Import(args)) if args.store.storage_url == "y"));
    assert!(parse(&["--storage.url=x", "import", "file"]).is_err());
    assert!(parse(&["extra"]).is_err());
}

#[test]
fn every_flag_of_a_tool_has_a_sentence() {
    for tool in CommandLine::command().get_subcommands() {
        for argument in tool.get_arguments() {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.len() > 20, "{argument} of {} has no help", tool.get_name());
        }
    }
}

#[test]
fn limits_of_remote_write_default_to_those_of_the_receiver() {
    let limits = parse(&[]).unwrap().remote_write.limits();
    let expected = Limits { names: limits.names, ..Limits::default() };
    assert_eq!(format!("{limits:?}"), format!("{expected:?}"));
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
        ("--mode=both", "[possible values: writer, reader, standby]"),
        ("--storage.lease-duration=2s", "must be from 3s to 1h"),
        ("--reader.lag=99ms", "must be at least 100ms"),
        ("--query.max-memory=lots", "not a valid size: \"lots\""),
        ("--query.max-concurrency=0", "must be at least 1"),
        ("--web.listen-address=localhost", "is not an address and port"),
        ("--web.listen-address=a b:90", "is not an address and port"),
        ("--web.listen-address=localhost:99999", "is not an address and port"),
        ("--remote-write.max-decompressed-size=2GiB", "must be at most 1GiB"),
        ("--log.level=loud", "[possible values: debug, info, warn, error]"),
        ("--self-metrics=maybe", "[possible values: true, false]"),
        ("extra", "unrecognized subcommand 'extra'"),
    ];
    for (argument, message) in cases {
        let error = parse(&[argument]).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

/// Flags that `cmd/prometheus/main.go` of Prometheus 3.14 declares.
const OF_PROMETHEUS: &str = "
    agent alertmanager.drain-notification-queue-on-shutdown alertmanager.notification-batch-size
    alertmanager.notification-queue-capacity auto-gomaxprocs auto-gomemlimit auto-gomemlimit.ratio
    config.auto-reload config.auto-reload-interval config.file enable-feature log.format log.level
    query.lookback-delta query.max-concurrency query.max-samples query.timeout
    rules.alert.for-grace-period rules.alert.for-outage-tolerance rules.alert.resend-delay
    rules.max-concurrent-evals scrape.adjust-timestamps scrape.discovery-reload-interval
    scrape.timestamp-tolerance storage.agent.checkpoint-batch-size
    storage.agent.checkpoint-from-in-memory-series storage.agent.no-lockfile storage.agent.path
    storage.agent.retention.max-time storage.agent.retention.min-time
    storage.agent.wal-compression storage.agent.wal-compression-type
    storage.agent.wal-segment-size storage.agent.wal-truncate-frequency
    storage.remote.flush-deadline storage.remote.read-concurrent-limit
    storage.remote.read-max-bytes-in-frame storage.remote.read-sample-limit
    storage.tsdb.allow-overlapping-compaction storage.tsdb.block-reload-interval
    storage.tsdb.delay-compact-file.path storage.tsdb.delayed-compaction.max-percent
    storage.tsdb.head-chunks-write-queue-size storage.tsdb.max-block-chunk-segment-size
    storage.tsdb.max-block-duration storage.tsdb.min-block-duration storage.tsdb.no-lockfile
    storage.tsdb.path storage.tsdb.retention.size storage.tsdb.retention.time
    storage.tsdb.samples-per-chunk storage.tsdb.wal-compression storage.tsdb.wal-compression-type
    storage.tsdb.wal-segment-size web.config.file web.console.libraries web.console.templates
    web.cors.origin web.enable-admin-api web.enable-lifecycle web.enable-otlp-receiver
    web.enable-remote-write-receiver web.external-url web.listen-address web.max-connections
    web.max-notifications-subscribers web.page-title web.read-timeout
    web.remote-write-receiver.accepted-protobuf-messages web.route-prefix web.search.max-limit
    web.user-assets write-documentation";

/// Valid values of flags that are our own or aliases.
fn value_of(name: &str) -> &'static str {
    match name {
        "config.file" | "web.config.file" | "storage.tsdb.path" => "x",
        "log.format" => "json",
        "log.level" => "debug",
        "query.lookback-delta"
        | "query.timeout"
        | "web.read-timeout"
        | "storage.tsdb.retention.time" => "15d",
        "storage.tsdb.retention.size" => "512MB",
        "web.cors.origin" => ".*",
        "web.external-url" => "https://example.com/a",
        "web.listen-address" => "0.0.0.0:9090",
        "web.page-title" => "title",
        "web.route-prefix" => "/b",
        _ => "5e7",
    }
}

#[test]
fn every_flag_of_prometheus_is_known() {
    let mut listed: Vec<_> = prometheus::FLAGS.iter().map(|flag| flag.name).collect();
    listed.sort_unstable();
    assert_eq!(listed, OF_PROMETHEUS.split_whitespace().collect::<Vec<_>>());
    let own = Args::command();
    let is_own = |name: &str| own.get_arguments().any(|arg| arg.get_long() == Some(name));
    for flag in prometheus::FLAGS {
        let forms = if flag.is_bool {
            vec![
                (format!("--{}", flag.name), flag.treatment),
                (format!("--no-{}", flag.name), flag.negated),
            ]
        } else {
            vec![(format!("--{}={}", flag.name, value_of(flag.name)), flag.treatment)]
        };
        for (form, treatment) in forms {
            let read = arguments(&[&form]);
            let error = || read.as_ref().map(|_| ()).unwrap_err().to_string();
            match treatment {
                Treatment::Same | Treatment::Alias(_) => {
                    assert!(read.as_ref().is_ok_and(|read| read.notices.is_empty()), "{form}");
                    let name = if let Treatment::Alias(to) = treatment { to } else { flag.name };
                    assert!(is_own(name), "{name}");
                }
                Treatment::Unneeded(reason) => {
                    let notices = &read.as_ref().unwrap().notices;
                    assert_eq!(notices.len(), 1, "{form}");
                    assert_eq!(notices[0].reason, Some(reason), "{form}");
                    assert!(form.starts_with(&notices[0].flag), "{form}: {notices:?}");
                }
                Treatment::Missing(instead) => {
                    assert!(error().contains(instead), "{form}: {}", error());
                    assert_eq!(read.unwrap_err().exit_code(), 2);
                }
                Treatment::Features => {
                    assert_eq!(read.as_ref().unwrap().notices[0].reason, None, "{form}");
                }
            }
        }
    }
}

#[test]
fn flags_of_prometheus_set_ours() {
    let args = parse(&[
        "--storage.tsdb.path",
        "folder",
        "--storage.tsdb.retention.time=15d",
        "--storage.tsdb.retention.size=512MB",
        "--web.enable-lifecycle",
        "--no-web.enable-admin-api",
        "--no-self-metrics",
        "--storage.remote.read-sample-limit=5e7",
        "--web.console.templates",
        "consoles",
        "--storage.tsdb.no-lockfile",
    ])
    .unwrap();
    assert_eq!(args.storage_url, "folder");
    assert_eq!(args.retention, Some(Duration::from_secs(15 * 86_400)));
    assert_eq!(args.retention_bytes, Some(512 << 20));
    assert!(args.enable_lifecycle && !args.enable_admin_api && !args.self_metrics);
    assert_eq!(args.remote_read_samples_max, 50_000_000);
    let twice = parse(&["--storage.url=a", "--storage.tsdb.path=b"]).unwrap_err();
    assert!(twice.to_string().contains("cannot be used multiple times"), "{twice}");
    let import = arguments(&["import", "--storage.tsdb.path=y", "file"]).unwrap();
    let tool = import.command_line.tool;
    assert!(matches!(tool, Some(Tool::Import(args)) if args.store.storage_url == "y"));
    assert!(arguments(&["import", "--web.console.templates=y", "file"]).is_err());
}

#[test]
fn features_set_flags_or_are_accepted_with_a_notice() {
    let read = arguments(&[
        "--enable-feature=exemplar-storage,use-start-timestamps",
        "--enable-feature",
        "promql-experimental-functions,promql-binop-fill-modifiers,nonsense",
    ])
    .unwrap();
    let args = &read.command_line.server;
    assert!(args.use_start_timestamps && args.experimental);
    let notice =
        |feature: &str, reason| Notice { flag: format!("--enable-feature={feature}"), reason };
    let always_on = prometheus::feature_of("exemplar-storage").map(|feature| feature.treatment);
    let Some(Treatment::Unneeded(reason)) = always_on else { panic!("{always_on:?}") };
    assert_eq!(read.notices, [notice("exemplar-storage", Some(reason)), notice("nonsense", None)]);
    let own = Args::command();
    for feature in prometheus::FEATURES {
        let read = arguments(&[&format!("--enable-feature={}", feature.name)]);
        match feature.treatment {
            Treatment::Alias(to) => {
                let flag = own.get_arguments().find(|arg| arg.get_long() == Some(to)).unwrap();
                assert_eq!(flag.get_value_names().unwrap(), ["BOOL"], "{to}");
                let flags = read.unwrap().command_line.server.flags();
                assert!(flags.contains(&(to.to_owned(), "true".to_owned())), "{to}");
            }
            Treatment::Unneeded(_) => assert_eq!(read.unwrap().notices.len(), 1),
            Treatment::Missing(instead) => {
                assert!(read.unwrap_err().to_string().contains(instead));
            }
            other => panic!("{} is {other:?}", feature.name),
        }
    }
    let refused =
        parse(&["--enable-feature=promql-experimental-functions", "--no-query.experimental"]);
    assert!(refused.is_err());
    assert!(parse(&["--enable-feature"]).unwrap_err().to_string().contains("a value is required"));
}

#[test]
fn suggestions_come_from_the_same_family() {
    let cases = [
        ("--storage.tsdb.pth=x", Some("--storage.tsdb.path")),
        ("--storage.tsdb.foo=x", None),
        ("--storage.ul=x", Some("--storage.url")),
        ("--storage.retenton.time=x", Some("--storage.retention.time")),
        ("--web.listen=x", Some("--web.listen-address")),
        ("--query.timeuot=x", Some("--query.timeout")),
        ("--storage.s4.endpoint=x", Some("--storage.s3.endpoint")),
        ("--storage.path=x", None),
        ("--self-metric", Some("--self-metrics")),
        ("--nonsense", None),
    ];
    for (argument, suggestion) in cases {
        let error = parse(&[argument]).unwrap_err().to_string();
        let name = argument.split('=').next().unwrap();
        assert!(error.contains(&format!("unexpected argument '{name}' found")), "{error}");
        let suggested = error.split("a similar argument exists: '").nth(1);
        assert_eq!(suggested.and_then(|rest| rest.split('\'').next()), suggestion, "{error}");
    }
}

#[test]
fn every_flag_has_a_heading() {
    let help = parse(&["--help"]).unwrap_err().to_string();
    let mut headings = Vec::new();
    for line in help.lines() {
        match line.strip_suffix(':') {
            Some(heading) if !line.starts_with(' ') => headings.push((heading, 0)),
            _ if line.trim_start().starts_with("--") => headings.last_mut().unwrap().1 += 1,
            _ => {}
        }
    }
    let names: Vec<_> = headings.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "Commands",
            "Options",
            "General",
            "Web server",
            "Storage",
            "Object stores",
            "Queries",
            "Remote write and OTLP",
            "Scale-out",
            "Tenants",
            "Log"
        ],
        "{help}"
    );
    assert!(headings[2..].iter().all(|(_, count)| *count > 0), "{headings:?}");
    let flags: usize = headings[2..].iter().map(|(_, count)| count).sum();
    assert_eq!(flags, parse(&[]).unwrap().flags().len());
}

#[test]
fn the_version_has_revision_and_date() {
    let version = parse(&["--version"]).unwrap_err().to_string();
    assert_eq!(version, format!("tessella {}\n", *LONG_VERSION));
}

#[test]
fn defaults_fit_each_other() {
    let args = parse(&[]).unwrap();
    let write = &args.remote_write;
    let active_max = u64::from(write.active_series_max);
    // A query can select all active series, and as many that have ended.
    assert!(args.query_series_max >= 2 * active_max);
    assert!(write.active_series_per_metric_max < write.active_series_max);
    // An active series takes up to 2 KiB of the head.
    assert!(args.head_bytes_max / active_max >= 2 << 10);
    assert!(args.query_memory_bytes_max <= args.query_memory_total_bytes_max);
    assert!(args.query_concurrency_max <= args.query_queue_max);
    assert!(args.remote_read_concurrency_max <= args.query_concurrency_max);
    assert!(args.remote_read_samples_max <= args.query_samples_max);
    // A request of the maximum size is accepted while others are in progress.
    assert!(write.body_bytes_max <= write.decompressed_bytes_max);
    assert!(write.inflight_bytes_max >= 4 * (write.body_bytes_max + write.decompressed_bytes_max));
    assert!(write.series_max <= write.active_series_per_metric_max);
    // Waits for the store fail before the timeouts of their clients.
    assert!(args.storage_read_timeout < args.query_timeout);
    assert!(args.storage_write_timeout <= write.body_timeout);
    assert!(write.body_timeout <= args.read_timeout);
    assert!(args.write_stall_timeout <= args.write_timeout);
}
