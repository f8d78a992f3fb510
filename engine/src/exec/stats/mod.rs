//! Statistics of a query: cost of each node, samples of each step.

pub mod meter;
pub mod step_stats;
