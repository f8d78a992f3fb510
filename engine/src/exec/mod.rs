//! Execution: operators over tiles.

pub mod operator;
