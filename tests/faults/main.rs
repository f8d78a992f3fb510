//! Faults around the binary: kills, full disks, slow syncs, damaged objects, hostile clients, overload.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod crash;
mod damaged;
mod full_disk;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(target_os = "linux")]
mod hostile_grpc;
mod load;
mod overload;
mod small_disk;
mod syncs;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Waits for a condition.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(180), "no {what} after 180 s");
        std::thread::sleep(Duration::from_millis(50));
    }
}
