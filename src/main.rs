//! The Tessella server, and its tools.

use std::process::ExitCode;

use tessella::kernel::watched_allocator::WatchedAllocator;
use tessella::profile::heap::HeapSampler;

#[global_allocator]
static ALLOCATOR: WatchedAllocator<HeapSampler> = WatchedAllocator(HeapSampler);

fn main() -> ExitCode {
    tessella::run()
}
