//! Execution: operators over tiles.

pub mod charge;
pub mod matrix;
pub mod operator;
