//! Any bytes as a message of the protocol's version 2.
#![no_main]

#[path = "../../wire/tests/fuzz/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::decode_bytes(wire::Version::V2, bytes));
