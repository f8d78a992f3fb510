//! Any bytes as metrics of OTLP in protobuf.
#![no_main]

use tessella_fuzz::messages;
use wire::otlp::Encoding;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| messages::decode_otlp(Encoding::Protobuf, bytes));
