//! Command line: the server or a tool, with flags.

pub mod arguments;
pub mod prometheus;
#[cfg(test)]
mod tests;

use clap::Parser;

use crate::build_info::LONG_VERSION;
use crate::flags::{ABOUT, Args, UNITS};
use crate::tools::Tool;

/// Command line: flags of the server, or a tool with its flags.
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
    /// Tool to run instead of the server.
    #[command(subcommand)]
    pub tool: Option<Tool>,

    /// Flags of the server.
    #[command(flatten)]
    pub server: Args,
}
