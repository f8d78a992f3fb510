//! Servers side by side: the same seeded data, the same questions in turn, and one table.
//! See `benches/README.md`.

pub mod ask;
pub mod chart;
pub mod compare;
pub mod dataset;
pub mod load;
pub mod options;
pub mod peer;
pub mod progress;
pub mod queries;
pub mod report;
