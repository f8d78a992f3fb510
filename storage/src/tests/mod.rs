//! Tests of the whole store, on memory.

mod append;
mod beside;
mod concurrent;
mod damage;
mod delete;
mod faults;
pub(crate) mod harness;
mod histograms;
mod outage;
mod snapshot;
mod twin;
