//! Scenario runner: starts servers, loads them by remote write, waits until they are at rest,
//! asks them queries in turn, and restarts them. What it measures is the harness's to report.
//!
//! ```text
//! Server::start ─ load::send ─ flush, settle ─ ask::ask ─ kill, restart
//! ```

pub mod answer;
pub mod ask;
pub mod load;
pub mod process;
pub mod server;
