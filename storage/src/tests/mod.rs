//! Tests of the whole store, on memory.

mod append;
mod concurrent;
mod damage;
mod faults;
mod harness;
mod histograms;
mod twin;
