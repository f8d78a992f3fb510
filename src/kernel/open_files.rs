//! Limit of open files of the process.

#![allow(unsafe_code)]

use std::io;

/// Limit before and after it was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFilesLimit {
    /// Limit at the start of the process.
    pub before: u64,
    /// Current limit.
    pub now: u64,
}

/// Raises the limit of open files to the hard limit, as Go does in every program.
///
/// Errors: the system refuses; the limit stays.
pub fn raise_limit() -> io::Result<OpenFilesLimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a value of the type that the call fills, alive during the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let before = limit.rlim_cur;
    if before < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the pointer is to a value that the call only reads, alive during the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(OpenFilesLimit { before, now: limit.rlim_cur })
}
