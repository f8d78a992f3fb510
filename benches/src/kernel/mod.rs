//! Code that needs `unsafe`: the allocator that counts.

mod counting_allocator;

pub use counting_allocator::{CountingAllocator, MemoryAccount, account};
