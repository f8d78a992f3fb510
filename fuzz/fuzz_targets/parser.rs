//! Any bytes as a query.
#![no_main]

use tessella_fuzz::promql;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| promql::parse_bytes(bytes));
