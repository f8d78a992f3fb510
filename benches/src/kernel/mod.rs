//! Code that needs `unsafe`: the allocator that counts, and clocks.

mod counting_allocator;
mod cpu_time;

pub use counting_allocator::{CountingAllocator, MemoryAccount, account};
pub use cpu_time::{cpu_time, cpu_time_of};
