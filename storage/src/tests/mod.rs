//! Tests of the whole store, on memory.

mod append;
mod damage;
mod faults;
mod harness;
mod twin;
