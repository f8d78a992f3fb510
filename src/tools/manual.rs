//! Manual pages in the format of `man`.

use std::path::PathBuf;

use clap::Command;

use super::ToolError;

/// Flags of `manual`.
#[derive(Debug, Clone, clap::Args)]
pub struct ManualArgs {
    /// Existing folder for tessella.1, tessella-import.1 and the pages of the other tools.
    pub folder: PathBuf,
}

/// Writes a page for the command, and one for each subcommand.
pub(super) fn run(args: &ManualArgs, command: Command) -> Result<(), ToolError> {
    clap_mangen::generate_to(command, &args.folder)?;
    Ok(())
}
