//! Files of packages: the unit of systemd, its settings, and the contents of the Debian package.

use std::collections::BTreeMap;

use clap::Parser as _;
use tessella::cli::CommandLine;

use crate::compose::{path, text};

/// Settings of a section of a unit.
fn section(unit: &str, name: &str) -> BTreeMap<String, Vec<String>> {
    let start = format!("[{name}]");
    let lines = unit.lines().skip_while(|line| *line != start).skip(1);
    let mut settings: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines.take_while(|line| !line.starts_with('[')) {
        if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            settings.entry(key.to_owned()).or_default().push(value.to_owned());
        }
    }
    settings
}

/// Flags of the service as its file of settings has them.
fn default_flags() -> String {
    let settings = text("packaging/tessella.default");
    let line = settings.lines().find_map(|line| line.strip_prefix("TESSELLA_FLAGS=")).unwrap();
    line.trim_matches('"').to_owned()
}

#[test]
fn flags_of_the_service_start_a_server() {
    let unit = text("packaging/tessella.service");
    let service = section(&unit, "Service");
    assert_eq!(service["ExecStart"], ["/usr/bin/tessella $TESSELLA_FLAGS"]);
    assert_eq!(service["Environment"], [format!("TESSELLA_FLAGS={}", default_flags())]);
    assert_eq!(service["EnvironmentFile"], ["-/etc/default/tessella"]);
    let flags = default_flags();
    let arguments = ["tessella"].into_iter().chain(flags.split_whitespace());
    let server = CommandLine::try_parse_from(arguments).unwrap().server;
    assert_eq!(server.storage_url, "/var/lib/tessella");
    assert_eq!(service["StateDirectory"], ["tessella"]);
}

#[test]
fn flags_in_comments_of_the_settings_exist() {
    let settings = text("packaging/tessella.default");
    let mut found = 0;
    for word in settings.split_whitespace().filter(|word| word.starts_with("--")) {
        if word.contains('=') {
            CommandLine::try_parse_from(["tessella", word]).unwrap();
            found += 1;
        }
    }
    assert!(found >= 3, "{found} flags");
}

#[test]
fn the_service_is_hardened() {
    let unit = text("packaging/tessella.service");
    let service = section(&unit, "Service");
    for (key, value) in [
        ("Type", "notify"),
        ("DynamicUser", "yes"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("CapabilityBoundingSet", ""),
        ("LimitNOFILE", "1048576"),
        ("RestartPreventExitStatus", "2"),
    ] {
        assert_eq!(service[key], [value], "{key}");
    }
}

#[test]
fn files_of_the_debian_package_exist() {
    let manifest = text("Cargo.toml");
    let metadata = manifest.split("[package.metadata.deb]").nth(1).unwrap();
    let metadata = metadata.split("\n[").next().unwrap();
    let assets = metadata.lines().filter_map(|line| line.trim().strip_prefix("[\""));
    let sources: Vec<&str> = assets.map(|line| line.split('"').next().unwrap()).collect();
    assert!(sources.len() >= 8, "{sources:?}");
    let script = text("packaging/release");
    for source in sources {
        match source.strip_prefix("target/packaging/") {
            Some(generated) => {
                let name = generated.trim_end_matches("/*");
                assert!(script.contains(name), "packaging/release does not write {source}");
            }
            None => {
                assert!(path(source.trim_end_matches("/*")).exists(), "{source} does not exist");
            }
        }
    }
}
