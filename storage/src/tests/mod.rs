//! Tests of the whole store, on memory.

mod append;
mod beside;
mod concurrent;
mod damage;
mod faults;
mod harness;
mod histograms;
mod twin;
