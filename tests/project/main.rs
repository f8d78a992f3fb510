//! Files of the project: documents, import cycles, the set-up in containers, dashboards.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod compose;
mod dashboards;
mod documents;
mod structure;
