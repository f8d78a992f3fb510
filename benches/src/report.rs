//! Report of a harness, printed by section and optionally recorded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::machine;

/// Markdown of a report so far.
pub struct Report {
    text: String,
}

impl Report {
    /// Starts a report with the day and the machine.
    fn start(title: &str) -> Report {
        let mut report = Report { text: String::new() };
        report.push(&format!("# {title}, {}\n\n{}", machine::today(), machine::description()));
        report
    }

    /// Prints a section and adds it to the report.
    pub fn push(&mut self, section: &str) {
        if !self.text.is_empty() {
            println!();
            self.text.push('\n');
        }
        print!("{section}");
        self.text.push_str(section);
    }
}

/// Runs a harness: starts its report, calls `measure` to add the sections, and with `is_record`
/// writes it to `benches/record/<date>-<name>.md`.
pub fn run(
    title: &str,
    name: &str,
    is_record: bool,
    measure: impl FnOnce(&mut Report) -> io::Result<()>,
) -> ExitCode {
    exit(name, || {
        let mut report = Report::start(title);
        measure(&mut report)?;
        if is_record {
            let path = record_path(&machine::today(), name, "md");
            fs::write(&path, &report.text)?;
            println!("\nwritten to {}", path.display());
        }
        Ok(())
    })
}

/// Returns the exit code of a harness; prints an error with its name.
pub fn exit(name: &str, work: impl FnOnce() -> io::Result<()>) -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the path of a record.
pub fn record_path(date: &str, name: &str, extension: &str) -> PathBuf {
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("record");
    record.join(format!("{date}-{name}.{extension}"))
}
