//! Execution: operators over tiles.

pub mod aggregate;
pub mod binary;
pub mod broadcast;
pub mod bucketless;
pub mod compensated;
pub mod elementwise;
pub mod evaluate;
pub mod execute;
pub mod found_rows;
pub mod functions;
pub mod gather;
pub mod matrix;
pub mod measure;
pub mod operator;
pub mod quantile;
pub mod rearranged;
pub mod rollup;
pub mod scan;
pub mod schedule;
pub mod select;
mod series_cursor;
pub mod tally;
pub mod unique;
