//! Execution: operators over tiles.

pub mod adapter;
pub mod aggregate;
pub mod binary;
pub mod evaluate;
pub mod execute;
pub mod functions;
pub mod matrix;
pub mod numeric;
pub mod operator;
pub mod rollup;
pub mod schedule;
pub mod selector;
pub mod stats;
