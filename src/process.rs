//! The process, from its arguments to its exit code.
//!
//! The runtime is started here and not by the binary, whose crate would compile all futures again.

use std::process::ExitCode;

use crate::cli::CommandLine;
use crate::cli::arguments::{self, Arguments};
use crate::kernel::{allocator, open_files};
use crate::profile::heap;
use crate::{logging, server, tools};

/// Runs the server or a tool, as the arguments of the process say. Returns its exit code.
pub fn run() -> ExitCode {
    allocator::set_up();
    let Arguments { command_line, notices } =
        arguments::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let CommandLine { tool, server: args } = command_line;
    if tool.is_none() {
        heap::start();
    }
    let (level, format) = tool.as_ref().map_or((args.log_level, args.log_format), tools::Tool::log);
    logging::start(level, format);
    for notice in &notices {
        notice.log();
    }
    raise_open_files_limit();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start threads");
            return ExitCode::FAILURE;
        }
    };
    match tool {
        Some(tool) => runtime.block_on(tools::run(tool, arguments::command())),
        None => {
            let exit_code = runtime.block_on(server::run(args));
            // Computations of a seal that was cut off may go on for seconds.
            runtime.shutdown_background();
            exit_code
        }
    }
}

/// Raises the limit of open files, which connections and files of the store need.
fn raise_open_files_limit() {
    match open_files::raise_limit() {
        Ok(limit) if limit.now > limit.before => {
            tracing::info!(before = limit.before, now = limit.now, "limit of open files raised");
        }
        Ok(limit) => tracing::debug!(limit = limit.now, "limit of open files is the hard limit"),
        Err(error) => tracing::warn!(%error, "limit of open files cannot be raised"),
    }
}
