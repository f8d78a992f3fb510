//! Completions of the command line, for shells.

use std::io::Write as _;

use clap::Command;
use clap_complete::Shell;

use super::ToolError;

/// Flags of `completions`.
#[derive(Debug, Clone, clap::Args)]
pub struct CompletionsArgs {
    /// Shell that reads the completions.
    pub shell: Shell,
}

/// Prints the completions of a command line.
pub(super) fn run(args: &CompletionsArgs, mut command: Command) -> Result<(), ToolError> {
    let name = command.get_name().to_owned();
    let mut completions = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut completions);
    std::io::stdout().write_all(&completions)?;
    Ok(())
}
