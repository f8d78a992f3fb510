//! Code that needs `unsafe`: the allocator that counts, and a clock.

mod counting_allocator;
mod cpu_time;

pub use counting_allocator::{CountingAllocator, MemoryAccount, account};
pub use cpu_time::cpu_time;
