//! Bytes as a query, or as choices of which one is made, evaluated.
#![no_main]

use std::sync::LazyLock;

use tessella_fuzz::promql;

static STAGE: LazyLock<promql::Stage> = LazyLock::new(promql::Stage::new);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| STAGE.evaluate_bytes(bytes));
