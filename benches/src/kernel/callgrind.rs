//! Client requests to callgrind, which counts the instructions of one operation.

#![allow(unsafe_code)]

use std::ffi::CStr;

/// Number of the tool's first request.
/// Source: `callgrind.h` of valgrind, "client requests".
const TOOL_BASE: usize = (b'C' as usize) << 24 | (b'T' as usize) << 16;
const DUMP_STATS_AT: usize = TOOL_BASE + 3;
const START_INSTRUMENTATION: usize = TOOL_BASE + 4;
const STOP_INSTRUMENTATION: usize = TOOL_BASE + 5;
/// Source: `valgrind.h`, `VG_USERREQ__RUNNING_ON_VALGRIND`.
const RUNNING_ON_VALGRIND: usize = 0x1001;

/// Returns whether the program runs under valgrind on x86-64.
pub fn is_counting() -> bool {
    request(RUNNING_ON_VALGRIND, 0) > 0
}

/// Runs an operation; callgrind, started with `--instr-atstart=no`, writes its instruction count under
/// a name. Outside of valgrind, only runs the operation.
pub fn count_instructions<T>(name: &CStr, work: impl FnOnce() -> T) -> T {
    request(START_INSTRUMENTATION, 0);
    let result = work();
    request(STOP_INSTRUMENTATION, 0);
    request(DUMP_STATS_AT, name.as_ptr().addr());
    result
}

/// Sends a request to valgrind; returns 0 without valgrind.
#[cfg(target_arch = "x86_64")]
fn request(code: usize, argument: usize) -> usize {
    let arguments = [code, argument, 0, 0, 0, 0];
    let mut answer = 0usize;
    // SAFETY: the rotations add up to 128 bits and the exchange is of a register with itself, so
    // that a CPU changes only flags. valgrind interprets the sequence as a request: it reads the six
    // words at `rax`, which are alive, or the text whose address is among them, which the caller
    // borrows, and writes its result to `rdx`.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") answer,
            options(nostack),
        );
    }
    answer
}

/// Not implemented for other CPUs.
#[cfg(not(target_arch = "x86_64"))]
fn request(_code: usize, _argument: usize) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_run_without_valgrind() {
        assert!(!is_counting());
        assert_eq!(count_instructions(c"sum", || 1 + 1), 2);
    }
}
