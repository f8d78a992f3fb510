//! Comparison of servers: the same seeded data, the same queries in turn, and one table.
//! See `benches/README.md`.

pub mod chart;
pub mod dataset;
pub mod load;
pub mod options;
pub mod queries;
pub mod report;
