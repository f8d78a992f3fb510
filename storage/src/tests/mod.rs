//! Tests of the whole store, on memory.

mod append;
mod cardinality;
mod clock;
mod concurrent;
mod damage;
mod damaged_objects;
mod delete;
mod exemplars_and_metadata;
mod faults;
mod follow;
pub(crate) mod harness;
mod histograms;
mod kept_from;
mod kept_selections;
mod limits;
mod orphans;
mod outage;
mod promote;
mod read_only;
mod rules;
mod simulation;
mod sizes;
mod snapshot;
mod summarized;
mod sweep;
mod twin;
mod warm;
