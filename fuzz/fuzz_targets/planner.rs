//! Bytes as a query and the times of its steps, planned and explained.
#![no_main]

use std::sync::LazyLock;

#[path = "../../engine/tests/fuzz/targets.rs"]
mod targets;

static STAGE: LazyLock<targets::Stage> = LazyLock::new(targets::Stage::new);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| STAGE.plan_bytes(bytes));
