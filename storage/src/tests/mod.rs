//! Tests of the whole store, on memory.

mod harness;
mod twin;
