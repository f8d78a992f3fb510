//! Any bytes as metrics of OTLP in JSON.
#![no_main]

#[path = "../../wire/tests/fuzz/targets.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod targets;

use wire::otlp::Encoding;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::decode_otlp(Encoding::Json, bytes));
