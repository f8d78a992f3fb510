//! CPU time of a process, all threads together.

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// Returns the CPU time of this process since its start. On a shared machine it is the cost of an
/// operation, while wall time includes waiting for others.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only the `timespec` that the pointer refers to, which is alive.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the CPU time of another process since its start.
///
/// Errors: there is no such process.
pub fn cpu_time_of(process_id: u32) -> io::Result<Duration> {
    let gone = || io::Error::other(format!("no process {process_id}"));
    let id = libc::pid_t::try_from(process_id).map_err(|_| gone())?;
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the call writes only the number that the pointer refers to, which is alive.
    if unsafe { libc::clock_getcpuclockid(id, &mut clock) } != 0 {
        return Err(gone());
    }
    // SAFETY: the call writes only the `timespec` that the pointer refers to, which is alive.
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
