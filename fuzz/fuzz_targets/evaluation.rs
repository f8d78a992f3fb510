//! Bytes as a query, or as choices of which one is made, evaluated.
#![no_main]

use std::sync::LazyLock;

#[path = "../../engine/tests/fuzz/targets.rs"]
mod targets;

static STAGE: LazyLock<targets::Stage> = LazyLock::new(targets::Stage::new);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| STAGE.evaluate_bytes(bytes));
