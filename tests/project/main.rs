//! Files of the project: documents, import cycles, the set-up in containers.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod compose;
mod documents;
mod kubernetes;
mod mixin;
mod packages;
mod scale_out;
mod sizing;
mod structure;
