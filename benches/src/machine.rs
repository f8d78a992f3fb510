//! The machine that a figure was measured on, and the day.

use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Some lines that say what the figures depend on.
pub fn description() -> String {
    let mut text = String::new();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = read_first_words("/proc/loadavg", 3);
    let facts = [
        ("CPU", field_of("/proc/cpuinfo", "model name")),
        ("cores", cores.to_string()),
        ("memory", field_of("/proc/meminfo", "MemTotal")),
        ("system", output_of("uname", &["-srm"])),
        ("load (1, 5, 15 min)", load),
        ("compiler", output_of("rustc", &["--version"])),
        ("commit", output_of("git", &["rev-parse", "--short", "HEAD"])),
    ];
    for (name, fact) in facts {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "- {name}: {fact}");
    }
    text
}

/// Today in UTC as `YYYY-MM-DD`.
pub fn today() -> String {
    let seconds =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    date_of(seconds / 86_400)
}

/// The date of a day since the epoch, found year by year and month by month.
fn date_of(mut days: u64) -> String {
    let mut year = 1970;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

fn field_of(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find(|line| line.starts_with(name))
        .and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

fn read_first_words(path: &str, count: usize) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().take(count).collect::<Vec<_>>().join(" ")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_cross_months_and_leap_years() {
        assert_eq!(date_of(0), "1970-01-01");
        assert_eq!(date_of(58), "1970-02-28");
        assert_eq!(date_of(59), "1970-03-01");
        assert_eq!(date_of(11_016), "2000-02-29");
        assert_eq!(date_of(20_088), "2024-12-31");
        assert_eq!(date_of(20_089), "2025-01-01");
    }
}
