//! The Tessella server.

use std::process::ExitCode;

use clap::Parser as _;
use tessella::cli::Args;
use tessella::kernel::allocator;
use tessella::{logging, server};

fn main() -> ExitCode {
    allocator::set_up();
    let args = Args::parse();
    logging::start(args.log_level, args.log_format);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "Threads cannot be started.");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(server::run(args))
}
