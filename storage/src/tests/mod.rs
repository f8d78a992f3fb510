//! Tests of the whole store, on memory.

mod append;
mod beside;
mod border;
mod clock;
mod concurrent;
mod damage;
mod damaged_objects;
mod delete;
mod faults;
mod follow;
pub(crate) mod harness;
mod histograms;
mod limits;
mod orphans;
mod outage;
mod read_only;
mod rules;
mod simulation;
mod sizes;
mod snapshot;
mod sweep;
mod twin;
mod warm;
