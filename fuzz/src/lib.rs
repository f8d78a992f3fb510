//! Checks that the fuzz targets run. Each lives with the tests of its crate, which run it on seeded
//! input.

#[path = "../../wire/tests/fuzz/targets.rs"]
pub mod messages;
#[path = "../../engine/tests/fuzz/targets.rs"]
pub mod promql;
