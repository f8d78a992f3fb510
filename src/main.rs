//! The Tessella server, and its tools.

use std::process::ExitCode;

use clap::Parser as _;
use tessella::cli::CommandLine;
use tessella::kernel::allocator;
use tessella::{logging, server, tools};

fn main() -> ExitCode {
    allocator::set_up();
    let CommandLine { tool, server: args } = CommandLine::parse();
    let (level, format) = tool.as_ref().map_or((args.log_level, args.log_format), tools::Tool::log);
    logging::start(level, format);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "Threads cannot be started.");
            return ExitCode::FAILURE;
        }
    };
    match tool {
        Some(tool) => runtime.block_on(tools::run(tool)),
        None => runtime.block_on(server::run(args)),
    }
}
