//! `tessella completions` and `tessella manual`, which are generated from the flags.

use std::process::Command;

use super::Ran;
use testkit::temporary_directory;

fn run(args: &[&str]) -> Ran {
    Ran::from(Command::new(env!("CARGO_BIN_EXE_tessella")).args(args).output().unwrap())
}

#[test]
fn completions_name_tools_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = run(&["completions", shell]);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        for text in ["storage.retention.time", "web.listen-address", "import", "healthcheck"] {
            assert!(ran.stdout.contains(text), "{shell}: {text} is missing");
        }
    }
    let ran = run(&["completions", "ed"]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("possible values: bash"), "{ran:?}");
}

#[test]
fn manual_pages_describe_all_flags() {
    let directory = temporary_directory("manual");
    let folder = directory.path().to_str().unwrap();
    let ran = run(&["manual", folder]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let page = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let server = page("tessella.1").replace('\\', "");
    for line in run(&["--help"]).stdout.lines() {
        if let Some(flag) = line.strip_prefix("      --") {
            let name = flag.split([' ', '[']).next().unwrap();
            assert!(server.contains(&format!("--{name}")), "--{name} is not in the manual page");
        }
    }
    assert!(page("tessella-import.1").contains("OpenMetrics"));
    assert_eq!(run(&["manual", "/nowhere"]).status, Some(1));
}
