//! Tools: commands of the same binary that open a store themselves. The health check asks a server.

mod client;
mod completions;
mod export;
mod healthcheck;
mod import;
mod inspect;
mod manual;
mod progress;
mod reshard_plan;
mod store_args;
mod verify;

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use clap::{Command, Subcommand};
use model::SourceError;
use storage::StoreError;

use crate::config::ConfigError;
use crate::flags::{LogFormat, LogLevel};
pub use completions::CompletionsArgs;
pub use export::ExportArgs;
pub use healthcheck::HealthcheckArgs;
pub use import::ImportArgs;
pub use inspect::InspectArgs;
pub use manual::ManualArgs;
pub use reshard_plan::ReshardPlanArgs;
pub use verify::VerifyArgs;

/// Command of a tool.
#[derive(Debug, Clone, Subcommand)]
pub enum Tool {
    /// Write OpenMetrics text, JSON lines of VictoriaMetrics and blocks of Prometheus into a store.
    #[command(next_line_help = true)]
    Import(ImportArgs),
    /// Write series of a store as OpenMetrics text.
    #[command(next_line_help = true)]
    Export(ExportArgs),
    /// Print the contents of a store: days, series, samples and blocks, log, deletes.
    #[command(next_line_help = true)]
    Inspect(InspectArgs),
    /// Read a store to its last byte, and print each damage.
    #[command(next_line_help = true)]
    Verify(VerifyArgs),
    /// Print which targets move if the number of shards changes.
    #[command(next_line_help = true)]
    ReshardPlan(Box<ReshardPlanArgs>),
    /// Check whether a server is ready: status 0 if it is, else 1.
    #[command(next_line_help = true)]
    Healthcheck(HealthcheckArgs),
    /// Print the completions of the command line for a shell.
    #[command(next_line_help = true)]
    Completions(CompletionsArgs),
    /// Write the manual pages of the server and of the tools.
    #[command(next_line_help = true)]
    Manual(ManualArgs),
}

impl Tool {
    /// Returns level and format of the log.
    pub fn log(&self) -> (LogLevel, LogFormat) {
        let store = match self {
            Tool::Import(args) => &args.store.reading,
            Tool::Export(args) => &args.store.reading,
            Tool::Inspect(args) => &args.store.reading,
            Tool::Verify(args) => &args.store.reading,
            Tool::ReshardPlan(args) => &args.reading,
            Tool::Healthcheck(_) | Tool::Completions(_) | Tool::Manual(_) => {
                return (LogLevel::Error, LogFormat::Logfmt);
            }
        };
        (store.log_level, store.log_format)
    }
}

/// Error of a tool; each variant says what its user can do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// Fix the command line.
    #[error("{0}")]
    Usage(String),
    /// Fix the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Check the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Check the input file.
    #[error(transparent)]
    Format(#[from] formats::FormatError),
    /// Check the store, or allow more memory.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Check the output.
    #[error("{0}")]
    Output(String),
    /// Wait, or check the server.
    #[error("{0}")]
    NotReady(String),
    /// A part is done; the missing part is reported.
    #[error("{0}")]
    Incomplete(String),
}

impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> ToolError {
        ToolError::Output(format!("the output cannot be written: {error}"))
    }
}

impl From<model::BudgetError> for ToolError {
    fn from(error: model::BudgetError) -> ToolError {
        ToolError::Source(error.into())
    }
}

/// Prints a report. A closed pipe, as with `head`, is not an error.
///
/// Errors: any other failure of the output.
fn print_report(text: &str) -> Result<(), ToolError> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Runs a tool to its end. `command` is the command line of the binary.
pub async fn run(tool: Tool, command: Command) -> ExitCode {
    let done = match tool {
        Tool::Import(args) => import::run(args).await,
        Tool::Export(args) => export::run(args).await,
        Tool::Inspect(args) => inspect::run(args).await,
        Tool::Verify(args) => verify::run(args).await,
        Tool::ReshardPlan(args) => reshard_plan::run(*args).await,
        Tool::Healthcheck(args) => healthcheck::run(&args),
        Tool::Completions(args) => completions::run(&args, command),
        Tool::Manual(args) => manual::run(&args, command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            match error {
                ToolError::Usage(_)
                | ToolError::Config(_)
                | ToolError::Store(
                    StoreError::InvalidUrl { .. } | StoreError::InvalidSetting { .. },
                ) => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}
