//! Options that the harnesses share.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::builder::RangedU64ValueParser;

/// Parses a number above 0.
pub fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// Parses a duration in the format of Prometheus to seconds.
///
/// Errors: the message of Prometheus.
pub fn duration_s(text: &str) -> Result<i64, String> {
    Ok((model::duration::parse_duration_ns(text)? / 1_000_000_000) as i64)
}

/// Argument that cargo adds to those of a bench.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct FromCargo {
    #[arg(long = "bench", hide = true)]
    is_bench: bool,
}

/// Options of a harness that writes a report.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct ReportOptions {
    /// Also write the report into benches/record/<date>-<harness>.
    #[arg(long = "record")]
    pub is_record: bool,
    #[command(flatten)]
    from_cargo: FromCargo,
}

/// Options of a harness that starts the server.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct ServerOptions {
    /// Server binary, instead of building the release binary.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Directory for stores.
    #[arg(long, value_name = "PATH", default_value_os_t = std::env::temp_dir())]
    pub directory: PathBuf,
    /// Options of the report.
    #[command(flatten)]
    pub report: ReportOptions,
}

impl ServerOptions {
    /// Returns the path of the server binary; builds the release binary if none was named.
    ///
    /// Errors: it cannot be built.
    pub fn binary(&self) -> io::Result<PathBuf> {
        self.binary.clone().map_or_else(build_server, Ok)
    }
}

/// Builds the release binary of the server and returns its path.
///
/// Errors: it cannot be built.
pub fn build_server() -> io::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .args(["build", "--release", "--package", "tessella"])
        .current_dir(&root)
        .status()?;
    if !status.success() {
        return Err(io::Error::other("the release binary cannot be built"));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join("release/tessella"))
}
