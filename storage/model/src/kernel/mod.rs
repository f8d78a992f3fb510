//! What needs `unsafe`: instructions that the language does not know.

pub mod prefetch;
