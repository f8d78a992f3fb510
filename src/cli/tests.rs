use super::*;
use clap::CommandFactory;
use wire::Limits;

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
fn flags_alone_are_those_of_the_server_and_tools_have_their_own() {
    let parse = |args: &[&str]| {
        CommandLine::try_parse_from(std::iter::once("tessella").chain(args.iter().copied()))
    };
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
        ("--mode=both", "[possible values: writer, reader]"),
        ("--reader.lag=99ms", "must be at least 100ms"),
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
