//! Bytes as a query and the times of its steps, planned and explained.
#![no_main]

use std::sync::LazyLock;

use tessella_fuzz::promql;

static STAGE: LazyLock<promql::Stage> = LazyLock::new(promql::Stage::new);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| STAGE.plan_bytes(bytes));
