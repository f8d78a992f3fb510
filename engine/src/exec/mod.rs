//! Execution: operators over tiles.

pub mod binary;
pub mod charge;
pub mod elementwise;
pub mod found_rows;
pub mod gather;
pub mod matrix;
pub mod operator;
pub mod rearranged;
pub mod scan;
pub mod unique;
