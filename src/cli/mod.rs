//! The command line: the server or one of the tools, with its flags.

pub mod arguments;
pub mod prometheus;
#[cfg(test)]
mod tests;

use clap::Parser;

use crate::build_info::LONG_VERSION;
use crate::flags::{ABOUT, Args, UNITS};
use crate::tools::Tool;

/// What the process was started with: the flags of the server, or a tool and its own.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "tessella",
    version = LONG_VERSION.as_str(),
    about = ABOUT,
    long_about = None,
    after_help = UNITS,
    next_line_help = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct CommandLine {
    /// What is to be done instead of serving.
    #[command(subcommand)]
    pub tool: Option<Tool>,

    /// How the server is set up.
    #[command(flatten)]
    pub server: Args,
}
