//! What needs `unsafe`: calls that only the C library has.

pub mod allocator;
pub mod open_files;
