//! The time that this process has spent on the CPU, all threads together.

#![allow(unsafe_code)]

use std::time::Duration;

/// CPU time since the process began. On a shared machine it says what a piece of work cost,
/// where the clock on the wall says how long others were let go first.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live `timespec` of ours, which is all that the call writes.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        let before = cpu_time();
        let mut count = 0u64;
        while cpu_time() == before {
            count = std::hint::black_box(count + 1);
        }
        assert!(cpu_time() > before);
    }
}
