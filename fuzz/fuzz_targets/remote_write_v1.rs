//! Any bytes as a message of the protocol's version 1.
#![no_main]

use tessella_fuzz::messages;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| messages::decode_bytes(wire::Version::V1, bytes));
