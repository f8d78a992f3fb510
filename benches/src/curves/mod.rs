//! Cost of a query against the size of one dimension: series, range, steps, groups, clients.

pub mod chart;
pub mod data;
pub mod dimension;
pub mod report;
