//! The time that a process has spent on the CPU, all threads together.

#![allow(unsafe_code)]

use std::io;
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

/// CPU time of another process since it began.
///
/// Errors: there is no such process.
pub fn cpu_time_of(process_id: u32) -> io::Result<Duration> {
    let gone = || io::Error::other(format!("no process {process_id}"));
    let id = libc::pid_t::try_from(process_id).map_err(|_| gone())?;
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the pointer is to a live number of ours, which is all that the call writes.
    if unsafe { libc::clock_getcpuclockid(id, &mut clock) } != 0 {
        return Err(gone());
    }
    // SAFETY: the pointer is to a live `timespec` of ours, which is all that the call writes.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return Err(gone());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_are_timed_like_this_one() {
        let before = cpu_time();
        let time = cpu_time_of(std::process::id()).expect("this process is there");
        assert!(before <= time && time <= cpu_time());
        cpu_time_of(u32::MAX).expect_err("no process has this id");
    }

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
