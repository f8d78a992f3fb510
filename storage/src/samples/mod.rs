//! Samples in memory, as passed between head, blocks and queries: frames and tails of a series
//! ([`part`]), merged by one cursor ([`cursor`]), and decoded once for many queries ([`columns`]).

pub(crate) mod columns;
pub(crate) mod cursor;
pub(crate) mod decided;
mod facts;
mod merge;
mod merged;
pub(crate) mod part;
mod piece;
mod raw;
mod repeated;
mod run;
pub(crate) mod scratch;
pub(crate) mod series_parts;
pub(crate) mod shared;
#[cfg(test)]
mod tests;
mod windows;
