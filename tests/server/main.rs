//! The binary as a process: its log and signals, tools, page, profiles, dashboards over its metrics,
//! writes of all protocols and of clients of other projects.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod clients;
mod dashboards;
mod grpc;
mod page;
mod process;
mod profiles;
mod remote_write;
mod start_timestamps;
mod tools;
