//! Scenario runner: starts servers, loads them by remote write, waits until they are idle, queries
//! them in turn, and restarts them. Reports are made by the harnesses.
//!
//! ```text
//! Server::start ─ load::send ─ flush, settle ─ ask::ask ─ kill, restart
//! ```

pub mod answer;
pub mod ask;
pub mod load;
pub mod process;
pub mod server;
pub mod target;
