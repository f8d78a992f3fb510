//! Any bytes as a message of the protocol's version 1.
#![no_main]

#[path = "../../wire/tests/fuzz/targets.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::decode_bytes(wire::Version::V1, bytes));
