//! Requests to callgrind, under which this program may run: it counts the instructions of a
//! piece of work, and nothing else.

#![allow(unsafe_code)]

use std::ffi::CStr;

/// The tool's requests are numbered from two letters on.
/// Source: `callgrind.h` of valgrind, "client requests".
const TOOL_BASE: usize = (b'C' as usize) << 24 | (b'T' as usize) << 16;
const DUMP_STATS_AT: usize = TOOL_BASE + 3;
const START_INSTRUMENTATION: usize = TOOL_BASE + 4;
const STOP_INSTRUMENTATION: usize = TOOL_BASE + 5;
/// Source: `valgrind.h`, `VG_USERREQ__RUNNING_ON_VALGRIND`.
const RUNNING_ON_VALGRIND: usize = 0x1001;

/// Whether the program runs under valgrind, whose requests are known for this CPU.
pub fn is_counting() -> bool {
    request(RUNNING_ON_VALGRIND, 0) > 0
}

/// Runs some work, and has callgrind write its number of instructions down under a name. Start it
/// with `--instr-atstart=no`. Outside of valgrind this runs the work.
pub fn count_instructions<T>(name: &CStr, work: impl FnOnce() -> T) -> T {
    request(START_INSTRUMENTATION, 0);
    let result = work();
    request(STOP_INSTRUMENTATION, 0);
    request(DUMP_STATS_AT, name.as_ptr().addr());
    result
}

/// Asks valgrind for something; 0 where there is none.
#[cfg(target_arch = "x86_64")]
fn request(code: usize, argument: usize) -> usize {
    let arguments = [code, argument, 0, 0, 0, 0];
    let mut answer = 0usize;
    // SAFETY: the rotations add up to 128 bits and the exchange is of a register with itself, so
    // a CPU changes nothing but flags. valgrind takes the sequence for a request: it reads the
    // six words at `rax`, which live until then, or the text whose address is among them, which
    // the caller lends, and writes its answer into `rdx`.
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

/// The requests of other CPUs are written another way.
#[cfg(not(target_arch = "x86_64"))]
fn request(_code: usize, _argument: usize) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_run_where_nobody_counts() {
        assert!(!is_counting());
        assert_eq!(count_instructions(c"sum", || 1 + 1), 2);
    }
}
