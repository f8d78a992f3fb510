//! Machine and day of a measurement.

use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Describes the machine, the compiler and the commit as a Markdown list.
pub fn description() -> String {
    let mut text = String::new();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let facts = [
        ("CPU", field_of("/proc/cpuinfo", "model name")),
        ("cores", cores.to_string()),
        ("memory", field_of("/proc/meminfo", "MemTotal")),
        ("system", output_of("uname", &["-srm"])),
        ("load (1, 5, 15 min)", load()),
        ("compiler", output_of("rustc", &["--version"])),
        ("commit", output_of("git", &["rev-parse", "--short", "HEAD"])),
    ];
    for (name, fact) in facts {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "- {name}: {fact}");
    }
    text
}

/// Returns the current day in UTC as `YYYY-MM-DD`.
pub fn today() -> String {
    output_of("date", &["--utc", "+%F"])
}

/// Returns the current time in ms since the epoch.
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// Returns the load averages of the last 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn field_of(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find(|line| line.starts_with(name))
        .and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
