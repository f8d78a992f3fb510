//! Any bytes as a query.
#![no_main]

#[path = "../../engine/tests/fuzz/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::parse_bytes(bytes));
