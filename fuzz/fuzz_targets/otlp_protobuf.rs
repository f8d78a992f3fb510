//! Any bytes as metrics of OTLP in protobuf.
#![no_main]

#[path = "../../wire/tests/fuzz/targets.rs"]
mod targets;

use wire::otlp::Encoding;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::decode_otlp(Encoding::Protobuf, bytes));
