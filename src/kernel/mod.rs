//! What needs `unsafe`: calls that only the C library has.

pub mod allocator;
