//! Code that needs `unsafe`: CPU instructions.

pub mod prefetch;
pub mod widest;
