//! Code that needs `unsafe`: counting allocator, CPU clocks, and requests to callgrind.

mod callgrind;
mod counting_allocator;
mod cpu_time;

pub use callgrind::{count_instructions, is_counting};
pub use counting_allocator::{CountingAllocator, MemoryAccount, account};
pub use cpu_time::{cpu_time, cpu_time_of};
